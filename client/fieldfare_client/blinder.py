"""The blinder: it opens the boxes of a round and tells the sum of their masks, once. It sees no data and no sum.

Its rules, of which each is checked before it answers (the order is that of the checks):

* it answers only for plans that it approved, of a length and from a number of nodes that it approved with them;
* each box is signed by a node of its own list, each by another one: who runs the server cannot invent nodes;
* one question for each round of a run, for ever; the same question has the same answer;
* the rounds of a run only go up;
* every box opens, for this run, round, attempt, node, length and plan.

Of a plan that says so it answers the masks less noise of its own (`fieldfare.blinder_noise`). Then rounds go up one by
one, and a run's whole loss to the server is charged with its first answer, to a budget of the blinder's own.

Each question is written down, durably, before its answer leaves, in a chain of rows whose newest its receipts name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import ConfigRecord, Message, RecordDict

from fieldfare.accounting.filter import Price, Terms
from fieldfare.atomic import make_file
from fieldfare.blinder_noise import BlinderNoise, terms_of
from fieldfare.errors import BadInput, Differs, NotAllowed, OutOfRange, Unreadable, Unsupported
from fieldfare.masking.boxes import read_node_key, receipt_key, unseal, write_key
from fieldfare.masking.receipts import BlinderHead, next_row
from fieldfare.masking.words import Words, sum_masks
from fieldfare.noise import SecureNoise
from fieldfare.nonces import NONCE_BYTES, Nonces
from fieldfare.streams.base import Stream
from fieldfare.text import decimal
from fieldfare_client.journal import transaction
from fieldfare_client.told import refusal
from fieldfare_flower.masked import HELLO, QUERY_MASKS, Hello, MasksAsked, MasksRefused, digest_of
from fieldfare_flower.messages import QUERY_USERS, read_users_query, records_of

log = logging.getLogger("fieldfare.blinder")

FILE = "blinder.sqlite3"
# The key lies with the questions: whoever has lost which ones were answered answers no other.
_TABLES = (
    "key (one INTEGER PRIMARY KEY CHECK (one = 1), private BLOB NOT NULL)",
    "plans (plan TEXT PRIMARY KEY, least_nodes INTEGER NOT NULL, numel INTEGER NOT NULL)",
    "nodes (key TEXT PRIMARY KEY, name TEXT NOT NULL)",
    # row: 1, 2, 3 ...; hash: `masking.receipts.next_row`.
    "answers (row INTEGER PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL, "
    "question TEXT NOT NULL, nodes INTEGER NOT NULL, at REAL NOT NULL, hash TEXT NOT NULL, UNIQUE (run, round))",
    # noise: the fields of `BlinderNoise` as JSON, of the plans that have some.
    "noises (plan TEXT PRIMARY KEY, noise TEXT NOT NULL)",
    "budget (one INTEGER PRIMARY KEY CHECK (one = 1), epsilon REAL, delta REAL)",
    # What runs cost to the server, from their first answer on; a run has one plan for ever.
    "charges (run TEXT PRIMARY KEY, plan TEXT NOT NULL, mu_squared REAL NOT NULL)",
    # masks: SHA-256 of what was answered under this nonce.
    "nonces (run TEXT, round INTEGER, nonce BLOB NOT NULL, masks TEXT NOT NULL, PRIMARY KEY (run, round))",
)
_SHOWN = {
    "plans": "SELECT plan, least_nodes, numel FROM plans",
    "nodes": "SELECT key, name FROM nodes ORDER BY name",
    "answers": "SELECT row, run, round, nodes, at FROM answers ORDER BY row",
    "charges": "SELECT run, plan, mu_squared FROM charges",
    "budget": "SELECT epsilon, delta FROM budget",
}


class Blinder:
    """A key and a journal in `directory`, which are made where there are none. Safe to share between processes.

    Raises `BadInput` where others can read what is there, or this process cannot write to it.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._journal = directory / FILE
        with contextlib.suppress(FileExistsError):
            make_file(self._journal, b"")
        if (mode := self._journal.stat().st_mode & 0o777) & 0o077:
            raise NotAllowed(f"the blinder's file {self._journal}", f"others can read it (mode {mode:o}).", "chmod 600")
        with self._transaction() as journal:
            for table in _TABLES:
                journal.execute(f"CREATE TABLE IF NOT EXISTS {table}")
            journal.execute("INSERT OR IGNORE INTO key VALUES (1, ?)", (secrets.token_bytes(32),))
            (secret,) = journal.execute("SELECT private FROM key").fetchone()
        self._key, self._receipts = X25519PrivateKey.from_private_bytes(secret), receipt_key(secret)
        self._noise_key = hashlib.sha256(b"fieldfare.blinder.noise.key\0" + secret).digest()
        # The noise of the run that was answered last, at its next row.
        self._running: tuple[str, Stream, Nonces] | None = None
        self.public_key = write_key(secret)  # as nodes pin it, and plans name it

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Do as `transaction` on its journal. Raises `BadInput` where that fails, as on a full disk."""
        try:
            with transaction(self._journal) as journal:
                yield journal
        except sqlite3.Error as error:
            near = "room on its disk; its newest copy, of which this account is the owner"
            what = f"the blinder's file {self._journal}"
            raise Unreadable(what, f"cannot be read and written ({error}).", near) from None

    def approve(self, plan: str, least_nodes: int, numel: int, noise: BlinderNoise | None = None) -> None:
        """Answer for `plan` (SHA-256, hex) from now on: sums of `numel` numbers from `least_nodes` nodes or more.

        Raises `BadInput` for fewer than two nodes, for a plan without noise where there is a budget, and for another
        number of numbers than was approved before: that stays as it was.
        """
        if least_nodes < 2:
            raise OutOfRange(f"least_nodes = {least_nodes}", "a sum of one node is that node's update.", "2")
        with self._transaction() as journal:
            if noise is None and _budget(journal) is not None:
                raise _without_noise(f"plan {plan}")
            journal.execute("INSERT OR IGNORE INTO plans VALUES (?, ?, ?)", (plan, least_nodes, numel))
            if noise is not None:
                text = json.dumps(vars(noise), sort_keys=True, allow_nan=False)
                journal.execute("INSERT OR IGNORE INTO noises VALUES (?, ?)", (plan, text))
            (before,) = journal.execute("SELECT numel FROM plans WHERE plan = ?", (plan,)).fetchone()
            if before != numel:
                raise Differs(f"sums of {numel} numbers", f"plan {plan} is approved for {before}.", f"--words {before}")

    def limit(self, epsilon: float, delta: float) -> None:
        """Let the server learn no more than (epsilon, delta) of a user from all answers together, of all runs.

        Raises `BadInput` for no such budget, and where a plan was approved whose sums the server reads as they are.
        """
        if not (epsilon > 0 and 0 < delta < 1):
            raise OutOfRange(f"epsilon = {epsilon:g}, delta = {decimal(delta)}", "is no budget.", "8 and 1e-6")
        with self._transaction() as journal:
            bare = journal.execute("SELECT plan FROM plans WHERE plan NOT IN (SELECT plan FROM noises)").fetchone()
            if bare is not None:
                raise _without_noise(f"plan {bare[0]}, which was approved,")
            journal.execute("INSERT OR REPLACE INTO budget VALUES (1, ?, ?)", (epsilon, delta))

    def admit(self, nodes: Mapping[str, str]) -> None:
        """Open boxes of these nodes from now on. nodes: key ("ffn1:...") -> a name for people. Raises `BadInput`."""
        admitted = [(read_node_key(key), name) for key, name in nodes.items()]
        with self._transaction() as journal:
            journal.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?)", admitted)

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of a table of `_SHOWN`."""
        with contextlib.closing(sqlite3.connect(self._journal, timeout=60)) as journal:
            return journal.execute(_SHOWN[table]).fetchall()

    def hello(self, run: str, plan: str) -> Hello:
        """Whom it answers for, and whether in `run` under `plan`: not where its budget has no room for that."""
        with self._transaction() as journal:
            approved, head, nodes = _approved(journal, run, plan), self._head(journal), _admitted(journal)
            noise = approved and approved[2]
            fits = approved is not None and (noise is None or _fits(journal, run, noise))
        return Hello(nodes, (terms_of(noise.multiplier, noise.privatiser) if noise else ()) if fits else None, head)

    def _head(self, journal: sqlite3.Connection) -> str:
        """Where the journal ends, signed while nobody writes to it: of two ends the later one is no earlier row."""
        row, hash = _end(journal)
        return BlinderHead.of(self._receipts, row, hash or "0" * 64, time.time_ns() // 10**6).text

    def reply(self, message: Message) -> Message:
        """Answer a message as a node does. Of a refusal the server learns its code, and of any error its class."""
        try:
            if message.metadata.message_type == QUERY_USERS:
                asked = records_of(message.content, ConfigRecord).get(HELLO, ConfigRecord())
                run, plan = read_users_query(message.content), str(asked.get("plan", ""))
                return Message(self.hello(run, plan).write(run, plan, self._receipts), reply_to=message)
            if message.metadata.message_type != QUERY_MASKS:
                raise Unsupported("an instruction", "a blinder hosts nobody.")
            return Message(self.answer(message.content), reply_to=message)
        except Exception as error:
            word, why = "", ""
            if isinstance(error, MasksRefused):  # its nearest is for who runs the server
                word, why = error.code, f": {error.what}: {error.why} What to do: docs/masked-sums.md"
            log.warning("this blinder refuses, and tells the server %r%s", word or type(error).__name__, why)
            return refusal(type(error).__name__, message, word)

    def answer(self, content: RecordDict) -> RecordDict:
        """The answer to a question. Raises `BadReply` or `BadInput` if malformed, `MasksRefused` if forbidden."""
        asked, running = MasksAsked.read(content), None
        with self._transaction() as journal:
            noise = _admit(journal, asked)
            known = _answered(journal, asked, noise is not None)
            row, hash = known or _write_down(journal, asked)
            masks = sum_masks(self._open(asked), asked.numel, asked.bits)  # of a wrong box nothing stays written down
            if noise is not None:
                if not _fits(journal, asked.run, noise):
                    raise MasksRefused(asked, "masks-budget")
                charge = asked.run, asked.plan, noise.mu_squared  # of the whole run, with its first answer
                journal.execute("INSERT OR IGNORE INTO charges VALUES (?, ?, ?)", charge)
                running = self._hide_(masks, journal, asked, noise, known is not None)
            head = self._head(journal)
        if running is not None:  # and its nonce is on the disk
            self._running = running
        return asked.write_answer(masks, self._receipts, row, hash, 0.0 if noise is None else noise.multiplier, head)

    def _hide_(
        self, masks: Words, journal: sqlite3.Connection, asked: MasksAsked, noise: BlinderNoise, known: bool
    ) -> tuple[str, Stream, Nonces]:
        """masks <- masks - the round's row of noise, in place: the same row for the same question, for ever.

        known: it was answered already. Returns the run's noise at its next row. Raises `MasksRefused` where the row
        cannot be made again.
        """
        drawn = journal.execute("SELECT nonce, masks FROM nonces WHERE run = ? ORDER BY round", (asked.run,)).fetchall()
        (running, self._running), source = (self._running, None), SecureNoise(self._noise_key)
        if running is None or running[0] != asked.run or running[1].round != asked.round:
            nonces = Nonces(nonce for nonce, _ in drawn[: asked.round])
            running = asked.run, noise.stream(asked.numel, source, nonces), nonces
            running[1].skip(asked.round)
        _, stream, nonces = running
        nonce, before = drawn[asked.round] if asked.round < len(drawn) else (None, None)
        if nonce is None:
            # Fresh bits come after the question is final, and it is bound to them.
            fresh, question = secrets.token_bytes(NONCE_BYTES), bytes.fromhex(asked.digest())
            nonce = source.nonce(asked.run, asked.round, fresh, question)
        nonces.append(nonce)
        answered = digest_of(noise.take_from_(masks, stream))
        # What was answered is answered again, to the bit; what was not has no nonce yet.
        if (answered if known else None) != before:
            raise MasksRefused(asked, "masks-noise")
        if before is None:
            journal.execute("INSERT INTO nonces VALUES (?, ?, ?, ?)", (asked.run, asked.round, nonce, answered))
        return running

    def _open(self, asked: MasksAsked) -> Iterable[bytes]:
        """The seeds of its boxes. Raises `MasksRefused` unless each was signed and made for its reply."""
        for purpose, seal in zip(map(asked.purpose, asked.nodes), asked.seals, strict=True):
            if not seal.is_signed(purpose, asked.bits):
                raise MasksRefused(asked, "masks-box")
            try:
                yield unseal(self._key, seal.box, purpose)
            except BadInput:
                raise MasksRefused(asked, "masks-box") from None


def _admit(journal: sqlite3.Connection, asked: MasksAsked) -> BlinderNoise | None:
    """The noise of its plan. Raises `MasksRefused` unless plan, number of nodes and their keys are as approved."""
    least, numel, noise = _approved(journal, asked.run, asked.plan) or (0, -1, None)
    if numel != asked.numel or (noise is not None and noise.bits != asked.bits):
        raise MasksRefused(asked, "masks-plan")
    keys, admitted = {seal.key for seal in asked.seals}, _admitted(journal)
    if len(set(asked.nodes)) < max(least, len(asked.nodes)):
        raise MasksRefused(asked, "masks-few")
    if len(keys) < len(asked.seals) or not keys <= admitted:
        raise MasksRefused(asked, "masks-node")
    return noise


def _admitted(journal: sqlite3.Connection) -> frozenset[str]:
    return frozenset(key for (key,) in journal.execute("SELECT key FROM nodes"))


def _approved(journal: sqlite3.Connection, run: str, plan: str) -> tuple[int, int, BlinderNoise | None] | None:
    """(fewest nodes, numbers of a sum, noise) with which `plan` was approved; None: it was not, or `run` is charged
    under another plan, whose noise hides its sums."""
    charged = journal.execute("SELECT plan FROM charges WHERE run = ?", (run,)).fetchone()
    query = "SELECT least_nodes, numel, noise FROM plans LEFT JOIN noises USING (plan) WHERE plan = ?"
    found = journal.execute(query, (plan,)).fetchone()
    if found is None or charged not in (None, (plan,)):
        return None
    return (*found[:2], found[2] and BlinderNoise(**json.loads(found[2])))


def _budget(journal: sqlite3.Connection) -> Terms | None:
    found = journal.execute("SELECT epsilon, delta FROM budget").fetchone()
    return found and Terms(found[0], found[1], 0.0)


def _without_noise(what: str) -> NotAllowed:
    why = "lets the server read sums as they are, which no budget covers."
    return NotAllowed(what, why, "aggregation.blinder_noise above 0; another blinder, without a budget")


def _fits(journal: sqlite3.Connection, run: str, noise: BlinderNoise) -> bool:
    """Whether `run` may be answered: it is charged already, or its whole price has room."""
    charged, budget = journal.execute("SELECT 1 FROM charges WHERE run = ?", (run,)).fetchone(), _budget(journal)
    if charged is not None or budget is None:
        return True
    (spent,) = journal.execute("SELECT total(mu_squared) FROM charges").fetchone()
    return budget.hold(Price(spent + noise.mu_squared))


def _answered(journal: sqlite3.Connection, asked: MasksAsked, own: bool) -> tuple[int, str] | None:
    """(row, hash) of this very question. Raises `MasksRefused` where another has its place, or one of a later round;
    where its plan has noise of the blinder's own, one of any but the next."""
    query = "SELECT question, row, hash FROM answers WHERE run = ? AND round = ?"
    known = journal.execute(query, (asked.run, asked.round)).fetchone()
    if known is not None and known[0] != asked.digest():
        raise MasksRefused(asked, "masks-answered")
    (last,) = journal.execute("SELECT max(round) FROM answers WHERE run = ?", (asked.run,)).fetchone()
    (rows,) = journal.execute("SELECT count(*) FROM nonces WHERE run = ?", (asked.run,)).fetchone()
    if known is None and ((last is not None and asked.round < last) or (own and asked.round != rows)):
        raise MasksRefused(asked, "masks-order")
    return known and (known[1], known[2])


def _end(journal: sqlite3.Connection) -> tuple[int, str]:
    """(number, hash) of the last row; (0, "") of an empty journal."""
    return journal.execute("SELECT row, hash FROM answers ORDER BY row DESC LIMIT 1").fetchone() or (0, "")


def _write_down(journal: sqlite3.Connection, asked: MasksAsked) -> tuple[int, str]:
    """Append the question; returns its row and hash."""
    row, before = _end(journal)
    hash, values = next_row(before, asked.digest()), (row + 1, asked.run, asked.round, asked.digest())
    journal.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", (*values, len(asked.nodes), time.time(), hash))
    return row + 1, hash
