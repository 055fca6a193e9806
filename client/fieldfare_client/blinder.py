"""The blinder: it opens the boxes of a round and tells the sum of their masks, once. It sees no data and no sum.

Its rules, of which each is checked before it answers (the order is that of the checks):

* it answers only for plans that it approved, of a length and from a number of nodes that it approved with them;
* each box is signed by a node of its own list, each by another one: who runs the server cannot invent nodes;
* one question for each round of a run, for ever; the same question has the same answer;
* the rounds of a run only go up;
* every box opens, for this run, round, attempt, node, length and plan.

Each question is written down, durably, before its answer exists, in a chain of rows whose newest its receipts name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Error, Message, RecordDict

from fieldfare.errors import BadInput, NotAllowed, OutOfRange, Unsupported
from fieldfare.masking.boxes import read_key, receipt_key, unseal, write_key
from fieldfare.masking.masks import sum_masks
from fieldfare.masking.receipts import next_row
from fieldfare_flower.local_grid import CLIENT_APP_RAISED
from fieldfare_flower.masked import QUERY_MASKS, Hello, MasksAsked, MasksRefused
from fieldfare_flower.messages import QUERY_USERS, read_users_query

log = logging.getLogger("fieldfare.blinder")

FILE = "blinder.sqlite3"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS key (one INTEGER PRIMARY KEY CHECK (one = 1), private BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS plans (plan TEXT PRIMARY KEY, least_nodes INTEGER NOT NULL, numel INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS nodes (key TEXT PRIMARY KEY, name TEXT NOT NULL)",
    # row: 1, 2, 3 ...; hash: `masking.receipts.next_row`.
    "CREATE TABLE IF NOT EXISTS answers (row INTEGER PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL, "
    "question TEXT NOT NULL, nodes INTEGER NOT NULL, at REAL NOT NULL, hash TEXT NOT NULL, UNIQUE (run, round))",
)
"""The key lies with the questions: whoever has lost which ones were answered answers no other."""
_SHOWN = {
    "plans": "SELECT plan, least_nodes, numel FROM plans",
    "nodes": "SELECT key, name FROM nodes ORDER BY name",
    "answers": "SELECT row, run, round, nodes, at FROM answers ORDER BY row",
}


class Blinder:
    """A key and a journal in `directory`, which are made where there are none. Safe to share between processes.

    Raises:
        BadInput: others can read what is there.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._journal = directory / FILE
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._journal, os.O_CREAT | os.O_EXCL, 0o600))
        if (mode := self._journal.stat().st_mode & 0o777) & 0o077:
            raise NotAllowed(f"the blinder's file {self._journal}", f"others can read it (mode {mode:o}).", "chmod 600")
        with self._writing() as journal:
            for table in _TABLES:
                journal.execute(table)
            journal.execute("INSERT OR IGNORE INTO key VALUES (1, ?)", (secrets.token_bytes(32),))
            (secret,) = journal.execute("SELECT private FROM key").fetchone()
        self._key, self._receipts = X25519PrivateKey.from_private_bytes(secret), receipt_key(secret)
        self.public_key = write_key(secret)
        """As nodes pin it, and plans name it."""

    def approve(self, plan: str, least_nodes: int, numel: int) -> None:
        """Answer for `plan` (SHA-256, hex) from now on: sums of exactly `numel` numbers from at least
        `least_nodes` nodes. What was approved before stays as it was.

        Raises `BadInput` for fewer than two nodes.
        """
        if least_nodes < 2:
            raise OutOfRange(f"least_nodes = {least_nodes}", "a sum of one node is that node's update.", "2")
        with self._writing() as journal:
            journal.execute("INSERT OR IGNORE INTO plans VALUES (?, ?, ?)", (plan, least_nodes, numel))

    def admit(self, nodes: Mapping[str, str]) -> None:
        """Open boxes of these nodes from now on. nodes: public key, 64 hex digits -> a name for people."""
        with self._writing() as journal:
            journal.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?)", nodes.items())

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of a table of `_SHOWN`."""
        with contextlib.closing(sqlite3.connect(self._journal, timeout=60)) as journal:
            return journal.execute(_SHOWN[table]).fetchall()

    def hello(self) -> Hello:
        """Whom and what it answers for."""
        return Hello(frozenset(row[0] for row in self.rows("nodes")), frozenset(row[0] for row in self.rows("plans")))

    def reply(self, message: Message) -> Message:
        """Answer a message as a node does. Of a refusal the server learns its code, and of any error its class."""
        try:
            if message.metadata.message_type == QUERY_USERS:
                hello = self.hello().write(read_users_query(message.content), self._receipts)
                return Message(hello, reply_to=message)
            if message.metadata.message_type != QUERY_MASKS:
                raise Unsupported("an instruction", "a blinder hosts nobody.")
            return Message(self.answer(message.content), reply_to=message)
        except Exception as error:
            log.warning("no answer: %s", error if isinstance(error, MasksRefused) else type(error).__name__)
            told = f" {error.code}" if isinstance(error, MasksRefused) else ""
            return Message(Error(CLIENT_APP_RAISED, f"<class '{type(error).__name__}'>{told}"), reply_to=message)

    def answer(self, content: RecordDict) -> RecordDict:
        """The answer to a question.

        Raises:
            BadReply: it is malformed.
            MasksRefused: a rule forbids it.
        """
        asked = MasksAsked.read(content)
        with self._writing() as journal:
            _admit(journal, asked)
            known = _answered(journal, asked)
            # Before it is written down: a question with a wrong box must not take the place of the right one.
            seeds = list(self._open(asked))
            row, hash = known or _write_down(journal, asked)
        masks = sum_masks(seeds, asked.numel, asked.bits)
        return asked.write_answer(masks, self._receipts, read_key(self.public_key)[1], row, hash)

    def _open(self, asked: MasksAsked) -> Iterable[bytes]:
        """The seeds of its boxes. Raises `MasksRefused` unless each was signed and made for its reply."""
        for purpose, seal in zip(asked.purposes(), asked.seals, strict=True):
            if not seal.is_signed(purpose, asked.bits):
                raise asked.refused("masks-box")
            try:
                yield unseal(self._key, seal.box, purpose)
            except BadInput:
                raise asked.refused("masks-box") from None

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


def _admit(journal: sqlite3.Connection, asked: MasksAsked) -> None:
    approved = journal.execute("SELECT least_nodes, numel FROM plans WHERE plan = ?", (asked.plan,)).fetchone()
    if approved is None or approved[1] != asked.numel:
        raise asked.refused("masks-plan")
    keys = {seal.key for seal in asked.seals}
    if len(set(asked.nodes)) < max(approved[0], len(asked.nodes)):
        raise asked.refused("masks-few")
    admitted = {key for (key,) in journal.execute("SELECT key FROM nodes")}
    if len(keys) < len(asked.seals) or not keys <= admitted:
        raise asked.refused("masks-node")


def _answered(journal: sqlite3.Connection, asked: MasksAsked) -> tuple[int, str] | None:
    """(row, hash) of this very question. Raises `MasksRefused` where another has its place, or one of a later round."""
    query = "SELECT question, row, hash FROM answers WHERE run = ? AND round = ?"
    known = journal.execute(query, (asked.run, asked.round)).fetchone()
    if known is not None and known[0] != asked.digest():
        raise asked.refused("masks-answered")
    (last,) = journal.execute("SELECT max(round) FROM answers WHERE run = ?", (asked.run,)).fetchone()
    if known is None and last is not None and asked.round < last:
        raise asked.refused("masks-order")
    return known and (known[1], known[2])


def _write_down(journal: sqlite3.Connection, asked: MasksAsked) -> tuple[int, str]:
    """Append the question; returns its row and hash."""
    row, before = journal.execute("SELECT row, hash FROM answers ORDER BY row DESC LIMIT 1").fetchone() or (0, "")
    values = (row + 1, asked.run, asked.round, asked.digest(), len(asked.nodes), time.time())
    hash = next_row(before, asked.digest())
    journal.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", (*values, hash))
    return row + 1, hash
