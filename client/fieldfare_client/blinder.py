"""The blinder: it opens the boxes of a round and tells the sum of their masks, once. It sees no data and no sum.

Its rules, of which each is checked before it answers (the order is that of the checks):

* it answers only for plans that it approved, of a length and from a number of nodes that it approved with them;
* one question for each round of a run, for ever; the same question has the same answer;
* the rounds of a run only go up;
* every box opens, for this run, round, attempt, node, length and plan.

Each question is written down, durably, before its answer exists.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import RecordDict

from fieldfare.errors import BadInput, Refused
from fieldfare.masking.boxes import unseal, write_key
from fieldfare.masking.masks import sum_masks
from fieldfare_flower.masked import MasksAsked

_TABLES = (
    "CREATE TABLE IF NOT EXISTS key (one INTEGER PRIMARY KEY CHECK (one = 1), private BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS plans (plan TEXT PRIMARY KEY, least_nodes INTEGER NOT NULL, numel INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS questions (run TEXT NOT NULL, round INTEGER NOT NULL, question TEXT NOT NULL, "
    "nodes INTEGER NOT NULL, at REAL NOT NULL, PRIMARY KEY (run, round))",
)
"""The key lies with the questions: whoever has lost which ones were answered answers no other."""


class MasksRefused(Refused):
    """The blinder does not answer; the code says why: `masks-plan`, `masks-few`, `masks-answered`, `masks-order`,
    `masks-box`."""


class Blinder:
    """A key and a journal in `directory`, which are made where there are none. Safe to share between processes.

    Raises:
        BadInput: others can read what is there.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._journal = directory / "blinder.sqlite3"
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._journal, os.O_CREAT | os.O_EXCL, 0o600))
        if (mode := self._journal.stat().st_mode & 0o777) & 0o077:
            raise BadInput(f"the blinder's file {self._journal}", f"others can read it (mode {mode:o}).", "chmod 600")
        with self._writing() as journal:
            for table in _TABLES:
                journal.execute(table)
            journal.execute("INSERT OR IGNORE INTO key VALUES (1, ?)", (secrets.token_bytes(32),))
            (private,) = journal.execute("SELECT private FROM key").fetchone()
        self._key = X25519PrivateKey.from_private_bytes(private)

    @property
    def public_key(self) -> str:
        """As nodes pin it."""
        return write_key(self._key.public_key())

    def approve(self, plan: str, least_nodes: int, numel: int) -> None:
        """Answer for `plan` (SHA-256, hex) from now on: sums of exactly `numel` numbers from at least `least_nodes`
        nodes. What was approved before stays as it was.

        Raises `BadInput` for fewer than two nodes.
        """
        if least_nodes < 2:
            raise BadInput(f"least_nodes = {least_nodes}", "a sum of one node is that node's update.", "2")
        with self._writing() as journal:
            journal.execute("INSERT OR IGNORE INTO plans VALUES (?, ?, ?)", (plan, least_nodes, numel))

    def answer(self, content: RecordDict) -> RecordDict:
        """The answer to a question.

        Raises:
            BadReply: it is malformed.
            MasksRefused: a rule forbids it.
        """
        asked = MasksAsked.read(content)
        known = self._admit(asked)
        # Before it is written down: a question with a wrong box must not take the place of the right one.
        seeds = [self._open(asked, position) for position in range(len(asked.nodes))]
        if not known:
            self._write_down(asked)
        return asked.write_answer(sum_masks(seeds, asked.numel, asked.bits))

    def _open(self, asked: MasksAsked, position: int) -> bytes:
        try:
            return unseal(self._key, asked.boxes[position], asked.purposes()[position])
        except BadInput as refused:
            raise _refused(asked, "masks-box", f"the box of node {asked.nodes[position]}: {refused.why}") from None

    def _admit(self, asked: MasksAsked) -> bool:
        """Whether this very question was answered before. Raises `MasksRefused` for what no rule allows."""
        with contextlib.closing(sqlite3.connect(self._journal, timeout=60)) as journal:
            return _admit(journal, asked)

    def _write_down(self, asked: MasksAsked) -> None:
        with self._writing() as journal:
            if not _admit(journal, asked):  # another process may have answered since
                row = (asked.run, asked.round, asked.digest(), len(asked.nodes), time.time())
                journal.execute("INSERT INTO questions VALUES (?, ?, ?, ?, ?)", row)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """The journal in a transaction that holds it alone, and is on the disk when the block has ended."""
        with contextlib.closing(sqlite3.connect(self._journal, timeout=60, isolation_level=None)) as journal:
            journal.execute("PRAGMA synchronous = EXTRA")
            journal.execute("BEGIN IMMEDIATE")
            try:
                yield journal
            except BaseException:
                journal.rollback()
                raise
            journal.commit()


def _admit(journal: sqlite3.Connection, asked: MasksAsked) -> bool:
    approved = journal.execute("SELECT least_nodes, numel FROM plans WHERE plan = ?", (asked.plan,)).fetchone()
    if approved is None or approved[1] != asked.numel:
        raise _refused(asked, "masks-plan", "it approved no such plan, or another number of words.")
    if len(set(asked.nodes)) < max(approved[0], len(asked.nodes)):
        raise _refused(asked, "masks-few", f"it opens no sum of fewer than {approved[0]} different nodes.")
    query = "SELECT round, question FROM questions WHERE run = ? ORDER BY round"
    answered = dict(journal.execute(query, (asked.run,)).fetchall())
    if asked.round in answered:
        if answered[asked.round] == asked.digest():
            return True
        raise _refused(asked, "masks-answered", "it answered for another set of this round, and answers once.")
    if answered and asked.round < max(answered):
        raise _refused(asked, "masks-order", f"it stands at round {max(answered)}, and rounds only go up.")
    return False


def _refused(asked: MasksAsked, code: str, why: str) -> MasksRefused:
    what = f"the blinder's masks of round {asked.round} of run {asked.run}"
    return MasksRefused(
        what, why, f"`fieldfare abandon {asked.run}`: the last model stays, and what was not spent returns", code=code
    )
