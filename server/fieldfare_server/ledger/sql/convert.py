"""Makes the one format of a ledger that commit c0dd382 or a later one began; nothing else knows a row of before.

The new log is a new ledger's: its own name, its own chain. It begins with a `ledger.converted` row, which names where
the old log ended, and has every old row after it, in order, with its time, its writer and its event, and with what its
version left unsaid. Three kinds of rows differ in more:

* A run of format 0 has noise of map 2 without nonces. It goes on as a run whose source says so (`formats.BOX_MULLER`),
  at the price that the rule of then gives it. Where the present rule would charge it otherwise, would not
  have admitted it, or cannot draw its coming noise, its rows give way to one `charge.carry` row with the
  price of what it has spent.
* Of a round of a secret population nothing is kept that tells who took part or how many, in no table either.
* Changes of the head's key belong to the old ledger's chain, and end with it.

The old rows lie in `objects` as they were, but for rows of secret populations; the first row names these objects. So
whoever doubts the conversion can do it again. A ledger whose rows are all of the one format keeps its log as it is.
"""

from __future__ import annotations

import itertools
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, LargeBinary, bindparam, insert, select, text, update

from fieldfare.accounting import PrivacyLoss, discretised
from fieldfare.accounting.filter import PLAIN_SHARE, SAMPLED_SHARE, Price, leak_of_run, pay, reserve
from fieldfare.cost import StoredPrice
from fieldfare.costing import cost_as_priced
from fieldfare.errors import FieldfareError, LedgerCorrupt, LedgerError, OldCopy
from fieldfare.mechanisms import describe
from fieldfare.participation import hides_presence
from fieldfare.plan import Plan
from fieldfare_server.files.strategies import KEPT, StoredStrategy, StrategyError, StrategyFiles, settle
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.base import Unfit
from fieldfare_server.ledger.rules.fold import apply
from fieldfare_server.ledger.sql import blobs, models
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.ledger.sql.journal import read_head
from fieldfare_server.ledger.sql.projection import Contents
from fieldfare_server.ledger.sql.proof import Proof, hash_row
from fieldfare_server.ledger.sql.rebuild import rebuild
from fieldfare_server.ledger.sql.segments import linked
from fieldfare_server.ledger.state.formats import BOX_MULLER, FORMAT, SEEDED
from fieldfare_server.ledger.state.state import State

T = TypeVar("T")
Row = dict[str, Any]
ACTOR = "fieldfare migrate"
_BATCH = 1000
_NOBODY = blobs.encode([])
_NOBODY_NAME = chain.sha256(_NOBODY)

# What bodies of earlier versions leave unsaid.
_UNSAID: Mapping[str, Mapping[str, object]] = {
    "population.create": {
        **{"accounting": "worst-case", "ceiling_epsilon": None, "ceiling_delta": None},
        **{"two_persons": False, "reservation_seconds": None},
    },
    "population.close": {"state": "closed", "old": {"state": "open"}, "reason": ""},
    "run.start": {"price": None, "format": 0, "strategy": None, "accounting": "worst-case", "most": None},
    "token.create": {"populations": None},
}
# What rows of a secret population say of who took part.
_SECRET: Mapping[str, Mapping[str, object]] = {
    "round.open": {"cohort": _NOBODY_NAME, "cohort_size": 0},
    "round.void": {"reports": 0, "rejects": {}},
    "round.commit": {"participants": _NOBODY_NAME, "participant_count": 0, "reports": 0, "rejects": {}},
}
# Kinds whose charge is that of format 0 where their sensitivity is exact: others had a larger one.
_SAME_CHARGE = ("anti-pgd", "banded", "banded-inverse", "blt", "decaying", "dense", "independent", "nu", "optimal-cc")


@dataclass
class _First:
    """A run of format 0."""

    population: str
    started: Row
    planned: str
    whole: Price  # what it reserved, by the rule of then
    spent: str = ""
    rounds: int = 0
    active: bool = True
    last: Row = field(default_factory=Row)  # its newest row
    strategy: str | None = None  # SHA-256 of the strategy that is stored for it now

    @property
    def keepable(self) -> bool:
        """Whether it may go on as a run. Without a strategy, or with map 2 from a seed, no coming round can be made."""
        priced = "concentrated" not in json.loads(self.planned)
        seeded = json.loads(self.started["body"])["noise_source"] == SEEDED
        return priced and (not self.active or (self.strategy is not None and not seeded))

    @property
    def paid(self) -> Price:
        """What it has spent."""
        if self.rounds == 0:
            return Price()
        if "concentrated" in json.loads(self.planned):
            return Price(_discrete(self.spent), self.whole.leak)
        return pay(PrivacyLoss.from_json(self.planned), PrivacyLoss.from_json(self.spent), self.whole)


def _discrete(loss: str) -> float:
    """mu^2 of a loss of which only zCDP was charged."""
    said = json.loads(loss)
    return discretised.as_gaussian(PrivacyLoss(said["mu_squared"] + 2 * said.get("concentrated", 0.0))).mu_squared


def _reserved(planned: str, left: float) -> tuple[Price, float]:
    """(what a run of format 0 reserved, what of D it left to later ones): a quarter of what is left, in their order."""
    if "concentrated" in json.loads(planned):
        plain = _discrete(planned)
        return Price(plain, discretised.leak(plain)), left
    loss = PrivacyLoss.from_json(planned)
    chosen = leak_of_run(loss, left)
    whole = reserve(loss, chosen)
    return whole, left if chosen is None else left - whole.leak


class _Old:
    """A log as its rows say, and its translation."""

    def __init__(self, ledger: chain.Head, root: Path | None, plans: Mapping[str, str]) -> None:
        """root: where the files of runs lie. plans: the plan of each run."""
        self.head, self._root, self._plans = ledger, root, plans
        self.first: dict[str, _First] = {}
        self.carried: set[str] = set()  # runs of format 0 that give way to a charge
        self.hidden: dict[str, bool] = {}  # population -> whether a user's presence is its secret
        self._budgets: dict[str, dict[str, object]] = {}
        # Of populations with a run of format 0: the loss of all ended runs that stay.
        self._settled: dict[str, PrivacyLoss | None] = {}
        self._left: dict[str, float] = {}

    # -- what is in it ---------------------------------------------------------------------------------------

    def survey(self, rows: Iterable[Row], held: chain.Head | None) -> bool:
        """Read every row once; returns whether all of them are of the one format.

        Raises `LedgerError` where the log does not fit, or does not go on from `held`.
        """
        previous, number, same = chain.genesis(self.head.ledger), 0, True
        for row in rows:
            number += 1
            if (row["id"], row["previous"], row["hash"]) != (number, previous, hash_row(row)):
                raise LedgerCorrupt(f"row {number} of the log", "it was changed after it was written.", "a backup")
            previous = row["hash"]
            if held is not None and held.count == number and held.hash != previous:
                raise OldCopy("the ledger", f"its row {number} is not the one that was seen.", "the newest copy")
            # `same`: what the translation would write is what is there, so the log can keep its name and chain.
            self._meet(row)
            same = same and [json.loads(row["body"])] == [json.loads(new["body"]) for new in self.translate(row)]
        if (number, previous) != (self.head.count, self.head.hash):
            raise LedgerCorrupt(f"row {number + 1} of the log", "it is missing.", "a backup")
        if held is not None and (held.ledger, held.count <= number) != (self.head.ledger, True):
            raise OldCopy("the ledger", f"row {held.count} of ledger {held.ledger} was seen.", "the newest copy")
        for run_id, run in self.first.items():
            run.strategy = self._store(run_id, run)
            if not run.keepable:
                self.carried.add(run_id)
        self.begin()
        return same and not self.first

    def begin(self) -> None:
        """Translate from the first row on."""
        self._budgets.clear()
        self._settled = {run.population: PrivacyLoss() for run in self.first.values()}

    def _meet(self, row: Row) -> None:
        body, action, name = json.loads(row["body"]), row["action"], row["population"]
        if action == "population.create":
            self.hidden[name] = hides_presence(body["adjacency"])
            self._left[name] = self._leak(body)
        if action == "run.start" and body.get("format", 0) != FORMAT:
            if body.get("format", 0) != 0:
                why = f"it is of format {body['format']}, which neither commit c0dd382 nor 718810f wrote."
                raise LedgerError(f"run {row['run']}", why, "the program that began it")
            whole, self._left[name] = _reserved(body["planned"], self._left[name])
            self.first[row["run"]] = _First(name, row, body["planned"], whole)
        elif (run := self.first.get(row["run"])) is not None and action.startswith(("run.", "round.")):
            run.last = row
            if action == "round.commit":
                run.spent, run.rounds = body["spent"], run.rounds + 1
            run.active = run.active and action != "run.finish"
        if action == "population.odometers" and set(body["runs"]) & set(self.first):
            why = "its users' odometers were computed from runs of format 0, which are no longer computed."
            raise LedgerCorrupt(f"population {name}", why, "a backup from before `fieldfare odometers`")

    def _store(self, run_id: str, run: _First) -> str | None:
        """Store the strategy of a run of format 0; None where the present rule charges it otherwise."""
        if self._root is None or not (self._root / run_id).is_dir() or "concentrated" in json.loads(run.planned):
            return None
        try:
            plan, planned = Plan.stored(json.loads(self._plans[run_id])), PrivacyLoss.from_json(run.planned)
            decided: dict[str, bytes] = {}
            if describe(plan.mechanism.kind).slow:
                decided = _Kept(StrategyFiles(self._root / KEPT))
            cost = cost_as_priced(plan, decided, StoredPrice(planned, None))
            exact = cost.mechanism.sensitivity(cost.participation).bound == "exact"
            if not (exact and plan.mechanism.kind in _SAME_CHARGE) and not planned.words.price:
                return None
            cost, strategy = settle(cost, decided)
            StoredStrategy(self._root, run_id, cost.strategy, planned).write(strategy)
        except (FieldfareError, ValueError, OSError):
            return None
        return cost.strategy

    # -- its rows in the one format --------------------------------------------------------------------------

    def translate(self, row: Row) -> Iterator[Row]:
        """The rows that stand for `row`, without their links."""
        body, action, name = json.loads(row["body"]), row["action"], row["population"]
        body = {**_UNSAID.get(action, {}), **body}
        if action.startswith("population."):
            self._complete(body, action, name)
        if self.hidden.get(name, False):
            body.update(_SECRET.get(action, {}))
        run = self.first.get(row["run"]) if action.startswith(("run.", "round.")) else None
        if run is not None and row["run"] in self.carried:
            if row["id"] == run.last["id"]:
                yield from _carry(row["run"], run, row)
            return
        if run is not None and action == "run.start":
            source = body["noise_source"] if body["noise_source"] == SEEDED else body["noise_source"] + BOX_MULLER
            priced = {"price": run.whole.to_json(), "format": FORMAT, "strategy": run.strategy, "noise_source": source}
            body.update(priced)
        if action == "run.finish" and (settled := self._settled.get(name)) is not None:
            self._settled[name] = settled = settled + PrivacyLoss.from_json(body["spent"])
            body["settled"] = settled.to_json()
        yield {**row, "body": chain.canonical(body)}

    def _complete(self, body: dict[str, object], action: str, name: str) -> None:
        """Say the leak of a new population, and the budget before a change."""
        if action == "population.create":
            body.setdefault("leak", self._leak(body))
        if action in ("population.raise", "population.tighten", "population.propose"):
            body.setdefault("old", self._budgets[name])
        if action in ("population.create", "population.raise", "population.tighten"):
            self._budgets[name] = {"epsilon": body["epsilon"], "delta": body["delta"]}

    @staticmethod
    def _leak(body: Mapping[str, Any]) -> float:
        share = SAMPLED_SHARE if hides_presence(body["adjacency"]) else PLAIN_SHARE
        return float(body.get("leak", share * body["delta"]))


class _Kept(dict[str, bytes]):
    """What a slow optimiser decided and kept; it is not searched for again."""

    def __init__(self, files: StrategyFiles) -> None:
        super().__init__()
        self._files = files

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            stored = self._files.get(key)
            if stored is None:
                raise StrategyError("an optimised strategy", "it was not kept.")
            self[key] = stored
        return self[key]


def _carry(run_id: str, run: _First, row: Row) -> Iterator[Row]:
    """The charge that a run gives way to; none if it has spent nothing."""
    paid = run.paid
    if paid == Price():
        return
    said = json.loads(run.spent)
    loss = {"rho": said["mu_squared"] / 2 + said["concentrated"]} if "concentrated" in said else {"mu": paid.mu}
    body = {
        "key": f"run {run_id}",
        "who": run.started["actor"],
        "what": f"run {run_id}, {run.rounds} rounds",
        "why": "it was begun before runs had nonces",
        "loss": chain.canonical(loss),
        "price": paid.to_json(),
    }
    yield {**row, "action": "charge.carry", "round": None, "body": chain.canonical(body)}


# -- the conversion ------------------------------------------------------------------------------------------


def held_head(path: Path | None) -> chain.Head | None:
    """The end of the log as a machine last saw it; at first its file was JSON without a signature."""
    if path is None or not path.exists():
        return None
    content = path.read_text(encoding="utf-8")
    if not content.startswith("{") or path.with_suffix(".key").exists():
        return chain.HeadFile(path).read()
    said = json.loads(content)
    return chain.Head(str(said["ledger"]), int(said["count"]), str(said["hash"]))


def convert(database: Database, connection: Connection, head_file: Path | None) -> chain.Head | None:
    """Bring the log into the one format, and make every table again; returns where it ends now, None if it stayed.

    In the transaction of `connection`, whose tables are this version's.

    Args:
        head_file: where this machine holds the end of the log; the files of runs lie beside it.

    Raises:
        LedgerError: the log or its content was changed, is older than what this machine saw, or has rows that no
            named commit wrote.
    """
    c = models.runs.c
    plans = {row.id: row.plan for row in connection.execute(select(c.id, c.plan))}
    old = _Old(read_head(connection), None if head_file is None else head_file.parent, plans)
    if old.survey(_rows(connection, "audit"), held_head(head_file)):
        return None
    _carry_what_does_not_fit(connection, old)

    def load() -> None:
        for statement in _SET_ASIDE:
            connection.execute(text(statement))
        _write(connection, old)
        for table in ("audit_before", "participations_before"):
            connection.execute(text(f"DROP TABLE {table}"))

    rebuild(connection, load)
    Proof(database).require(connection)
    return read_head(connection)


_SET_ASIDE = (
    "CREATE TABLE audit_before AS SELECT * FROM audit",
    "DELETE FROM audit",
    "CREATE TABLE participations_before AS SELECT r.id AS run, p.* FROM participations p JOIN runs r "
    "ON r.seq = p.run_seq",
    "DELETE FROM participations",
    "DELETE FROM leases",
)


def _rows(connection: Connection, table: str) -> Iterator[Row]:
    last, some = 0, text(f"SELECT * FROM {table} WHERE id > :last ORDER BY id LIMIT {_BATCH}")  # noqa: S608 (ours)
    while rows := [dict(row) for row in connection.execute(some, {"last": last}).mappings()]:
        yield from rows
        last = rows[-1]["id"]


def _batches(items: Iterator[T], most: int) -> Iterator[list[T]]:
    while some := list(itertools.islice(items, most)):
        yield some


def _carry_what_does_not_fit(connection: Connection, old: _Old) -> None:
    """Find the runs of format 0 that the present rule would not have admitted."""
    while old.first:
        state, number, row = State(thorough=False), 1, Row()
        old.begin()
        try:
            for each in _rows(connection, "audit"):
                for row in old.translate(each):
                    number += 1
                    apply(state, {**row, "id": number})
                state.forget_closed()
        except Unfit as unfit:
            if row["action"] != "run.start" or row["run"] not in old.first:
                raise LedgerError("converting the ledger", str(unfit), "a backup") from None
            old.carried.add(row["run"])
            continue
        break
    old.begin()


def _write(connection: Connection, old: _Old) -> None:
    """Write the new log, and who took part in its rounds."""
    ledger = chain.sha256(f"converted {old.head.ledger} {old.head.count} {old.head.hash}".encode())[:32]
    originals = list(_keep_originals(connection, old))
    first = {
        "ledger": old.head.ledger,
        "count": old.head.count,
        "hash": old.head.hash,
        "rows": [name for name, _ in originals],
        "omitted": old.head.count - sum(count for _, count in originals),
    }
    converted = {"actor": ACTOR, "action": "ledger.converted", "population": None, "run": None, "round": None}
    begin = {**converted, "at": time.time(), "event": ledger[::-1], "body": chain.canonical(first)}
    kept = (row for row in _rows(connection, "audit_before") if row["action"] != "head.key")
    end = chain.Head(ledger, 0, chain.genesis(ledger))
    for some in _batches(itertools.chain([begin], (new for row in kept for new in old.translate(row))), _BATCH):
        end = linked(end, some)
        connection.execute(insert(models.journal), some)
    hidden = [name for name, hides in old.hidden.items() if hides]
    connection.execute(_TAKE_PART, {"hidden": hidden, "nobody": _NOBODY})
    connection.execute(update(models.head).values(ledger=ledger, count=end.count, hash=end.hash, signed=None))


# Runs are numbered in the order of their starts. Rounds get their numbers from the fold, and these rows with them.
_TAKE_PART = text("""
INSERT INTO participations (round_id, run_seq, "index", count, users, charges)
SELECT -ROW_NUMBER() OVER (ORDER BY s.seq, p."index"), s.seq, p."index",
       CASE WHEN s.population IN :hidden THEN 0 ELSE p.count END,
       CASE WHEN s.population IN :hidden THEN :nobody ELSE p.users END, p.charges
FROM participations_before p
JOIN (SELECT run, population, ROW_NUMBER() OVER (ORDER BY id) AS seq FROM audit WHERE action = 'run.start') s
ON s.run = p.run
""").bindparams(bindparam("hidden", expanding=True), bindparam("nobody", type_=LargeBinary))


def _keep_originals(connection: Connection, old: _Old) -> Iterator[tuple[str, int]]:
    """(object, how many rows it holds): the old rows as they were, without those of secret populations.

    Each is a line of JSON with what a row's hash is made of. No hash is with them: it would let a reader try counts.
    """
    lines = (
        chain.canonical({name: row[name] for name in chain.HASHED})
        for row in _rows(connection, "audit_before")
        if not old.hidden.get(row["population"], False)
    )
    for some in _batches(lines, 5 * _BATCH):
        contents = Contents()
        name = contents.keep(zlib.compress("\n".join(some).encode()), lasting=True)
        contents.write(connection)
        yield name, len(some)
