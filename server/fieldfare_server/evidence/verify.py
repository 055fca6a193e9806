"""Whether a ledger is what its writers made it: the chain, every row, every charge, every checkpoint.

It finds every changed, added, missing or reordered row and, given the head that a coordinator held, a journal
that was cut short or an old copy that was put back. It cannot find a forger who rewrites the whole journal
consistently, and the held head with it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, RowMapping, bindparam, select, text
from sqlalchemy.exc import SQLAlchemyError

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.accounting.individual import Units
from fieldfare.errors import BadInput, FieldfareError
from fieldfare.masking.boxes import read_key
from fieldfare.masking.receipts import Receipt, Receipts
from fieldfare.nonces import digest_of
from fieldfare.participation import hides_presence
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.strategies import StoredStrategy, StrategyError
from fieldfare_server.ledger import Head, Ledger, chain
from fieldfare_server.ledger.events.base import Record, Unfit
from fieldfare_server.ledger.events.heads import Converted
from fieldfare_server.ledger.events.runs import Committed
from fieldfare_server.ledger.rules.fold import apply
from fieldfare_server.ledger.sql import blobs, models, odometer_tables
from fieldfare_server.ledger.sql.journal import read_head
from fieldfare_server.ledger.sql.proof import Replay, sha256
from fieldfare_server.ledger.state.accounts import Accounts, Step, step
from fieldfare_server.ledger.state.rows import Fact
from fieldfare_server.ledger.state.state import FoldedRun, State


@dataclass(frozen=True)
class DueCharge:
    """What one run must be charged, computed again."""

    # (round, indices of its participants) -> the run's cumulative loss. It is called for the run's committed
    # rounds in order, so it may keep state.
    spent: Callable[[int, NDArray[np.int64]], PrivacyLoss]
    planned: PrivacyLoss | None = None  # what the run reserves; None: not compared
    # What a round costs each of its participants by the odometers; called before `spent` of the same round.
    units: Callable[[int, NDArray[np.int64]], Units] | None = None
    leak: float | None = None  # least d of its price; None where the run chose it, or it is not compared


# (plan_json, the strategy that the run applies) -> a fresh `DueCharge`. Raises `StrategyError` where the
# charge cannot be recomputed although the ledger may be whole.
Recompute = Callable[[str, StoredStrategy], DueCharge]


@dataclass(frozen=True)
class VerifyReport:
    """What was checked, and the first fault if there is one."""

    ledger: str
    head: Head | None
    fault: Unfit | None
    # How many of each were checked: audit (journal rows), populations, users, runs, rounds, charges,
    # checkpoints, tokens.
    checked: Mapping[str, int] = field(default_factory=dict)
    # Run -> why its charges could not be recomputed: the strategy that the ledger names is missing or altered.
    missing: Mapping[str, str] = field(default_factory=dict)
    # The same for converted runs, of which no strategy was kept.
    unpinned: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.fault is None


def recharge(plan_json: str, strategy: StoredStrategy) -> DueCharge:
    """Return the `DueCharge` of a plan, computed from participation as its coordinator computes it. Nothing
    is optimised.

    Raises `StrategyError` where the stored strategy is not there.
    """
    # A certified charge is computed again from its seed: the bound that the strategy's file records is not believed.
    cost = strategy.cost(json.loads(plan_json)).certified_again()
    charge = cost.realised()
    return DueCharge(
        lambda round, users: cost.charged(charge.add(round, users)),
        cost.loss,
        leak=cost.leak,
        units=None if not cost.single else lambda round, users: cost.increments(charge.growth(round, users)),
    )


def verify(
    ledger: Ledger, store_root: Path | None = None, *, recompute: Recompute | None = None, held: Sequence[Head] = ()
) -> VerifyReport:
    """Check everything and stop at the first row that does not fit.

    Args:
        ledger: an open ledger.
        store_root: the directory of the runs' files (None: checkpoints are not checked).
        recompute: how to charge a plan, `recharge` (None: charges are compared with the journal, not
            recomputed).
        held: ends of the journal that were seen, as they are known outside the database.
    """
    verification = Verifier(ledger.url, store_root, recompute, held)
    try:
        with ledger.database.read() as connection:
            return verification.report(connection)
    except FieldfareError as error:
        return VerifyReport(ledger.url, None, Unfit("database", ledger.url, str(error)))


# Rows of large tables are read in pieces, not into one list.
_STREAM = {"yield_per": 1000}
_t, _q = models.rounds.c, models.participations.c
_COMMITTED = (
    select(_t.index.label("number"), _t.checkpoint, _t.nonce)
    .where(_t.run_seq == bindparam("seq"), _t.state == "committed")
    .order_by(_t.index)
)
_TAKEN = select(_t.index, _t.spent, _q.count, _q.users, _q.charges).join_from(
    models.rounds, models.participations, _q.round_id == _t.id
)
_TAKEN = _TAKEN.where(_t.run_seq == bindparam("seq")).order_by(_t.index)


class Verifier(Replay):
    """One check. name: the ledger's in the report; the others are as `verify`'s."""

    def __init__(
        self, name: str, store_root: Path | None = None, recompute: Recompute | None = None, held: Sequence[Head] = ()
    ) -> None:
        super().__init__(name, thorough=True)
        self._root, self._recompute, self._held = store_root, recompute, held
        self.head: Head | None = None
        self.checked: dict[str, int] = {}
        self.missing: dict[str, str] = {}
        self.unpinned: dict[str, str] = {}
        # (run, round) -> its participants and what each was charged, where there are odometers.
        self._units: dict[tuple[str, int], tuple[NDArray[np.int64], Units]] = {}

        self._receipts = Receipts()
        self._signers: dict[str, set[str]] = {}  # of each run, keys that signed a round's receipt; "": it has none
        self._converted: Converted | None = None
        self._steps: dict[str, list[Step]] = {}  # what moved the odometers of each population

    def _take(self, row: dict[str, object]) -> Record:
        return apply(self._state, row, self._note)

    def _note(self, state: State, record: Record, facts: tuple[Fact, ...]) -> None:
        if isinstance(record.event, Converted):
            self._converted = record.event
        if isinstance(record.event, Committed):
            key = "" if record.event.receipt is None else self._signer(record, record.event.receipt)
            self._signers.setdefault(str(record.run), set()).add(key)
        moved = step(state, record)
        if moved is not None:
            self._steps.setdefault(moved[0], []).append(moved[1])

    def _signer(self, record: Record, text: str) -> str:
        """The key of a receipt. What a blinder signed of a masked round fits what it signed of others."""
        try:
            receipt = Receipt.parse(text)
            self._receipts.add(receipt)
        except BadInput as error:
            raise Unfit("audit", str(record.number), str(error)) from None
        return receipt.key

    def report(self, connection: Connection) -> VerifyReport:
        """Return what is found in the transaction of `connection`."""
        fault: Unfit | None = None
        try:
            self._run(connection)
        except Unfit as unfit:
            fault = unfit
        except (FieldfareError, SQLAlchemyError, OSError, ArithmeticError, TypeError, ValueError) as error:
            # Damage can turn any value into one of another type, length or sign.
            fault = Unfit("database", self._name, f"{type(error).__name__}: {error}")
        return VerifyReport(self._name, self.head, fault, self.checked, self.missing, self.unpinned)

    def _run(self, connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            for (line,) in connection.execute(text("PRAGMA integrity_check(1)")).all():
                if line != "ok":
                    raise Unfit("database", "file", str(line))
            for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")).all():
                raise Unfit(str(table), str(row), f"it refers to a missing row of {parent}")
        self.head = read_head(connection)
        try:
            state = self.examine(connection)
        finally:
            self.checked["audit"] = self._rows
        self._require_held(connection, self.head)
        shown = [each.row.users for each in state.populations.values() if not hides_presence(each.row.adjacency)]
        self._add("users", sum(shown))
        self.checked |= {"populations": len(state.populations), "tokens": len(state.tokens)}
        self._add("rounds", state.counts["rounds"])
        for row in connection.execute(select(models.runs).order_by(models.runs.c.seq)).mappings().all():
            run = state.runs[row["id"]]
            self._blinder(row["id"], row["plan"])
            self._charges(connection, row, run)
            self._checkpoints(connection, row, run)
        self.checked["runs"] = len(state.runs)
        self._odometers(state)
        self.checked["charges of others"] = sum(len(each.charges) for each in state.populations.values())

    def _add(self, what: str, number: int) -> None:
        if number:
            self.checked[what] = self.checked.get(what, 0) + number

    def _require_held(self, connection: Connection, head: Head) -> None:
        """Raise `Unfit` unless the journal, which is whole, goes on from every head that was held."""
        c = models.journal.c
        for held in sorted(self._held, key=lambda each: each.count):
            there = connection.execute(select(c.hash).where(c.id == held.count)).scalar()
            if there is not None and there != held.hash:
                raise Unfit("audit", str(held.count), "it is not the row that was seen in its place")
            if held.ledger != head.ledger or held.count > head.count:
                raise Unfit("audit", str(head.count + 1), f"it is missing: row {held.count} was seen once")

    def _compare(self, connection: Connection) -> None:
        self._objects(connection)
        super()._compare(connection)

    def _objects(self, connection: Connection) -> None:
        """Check that each object is what its name says: the log names it by that SHA-256."""
        for name, content in connection.execute(select(models.objects), execution_options=_STREAM):
            if sha256(content) != name:
                raise Unfit("objects", name, "its content has another SHA-256")
        if self._converted is not None:
            _require_originals(connection, self._converted)

    def _blinder(self, run_id: str, plan: str) -> None:
        party = json.loads(plan).get("aggregation", {}).get("blinder")
        # Without exception: no version knew plans that name a blinder, and no receipts.
        if party and self._signers.get(run_id, set()) - {read_key(party)[1]}:
            raise Unfit("runs", run_id, "a round is not signed by the blinder that its plan names")

    def _charges(self, connection: Connection, row: RowMapping, run: FoldedRun) -> None:
        """Compute again what each committed round of a run cost, from who took part in it."""
        run_id, charge = row["id"], self._charge_of(row["id"], row["plan"], run)
        if charge is not None:
            _require_reserved(run_id, run, charge)
        taken = connection.execute(_TAKEN, {"seq": row["seq"]}, execution_options=_STREAM)
        for index, spent, number, blob, charged in taken:
            label = f"{run_id} {index}"
            try:
                users = blobs.decode(blob, number)
                units = None if charged is None else odometer_tables.decode(charged, number)
            except ValueError as error:
                raise Unfit("participations", label, str(error)) from None
            if units is not None:
                self._units[run_id, index] = (users, units)
            if charge is None:
                continue
            if units is not None and charge.units is not None:
                _require_same_units(label, units, charge.units(index, users))
            recorded, right = PrivacyLoss.from_json(spent), charge.spent(index, users)
            if not recorded.agrees_with(right):
                raise Unfit("rounds", label, f"its charge is {recorded}, and its plan and participation give {right}")
            self._add("charges", 1)

    def _charge_of(self, run_id: str, plan: str, run: FoldedRun) -> DueCharge | None:
        if self._recompute is None:
            return None
        strategy = run.row.strategy
        try:
            return self._recompute(plan, StoredStrategy(self._root or Path(), run_id, strategy, run.planned))
        except StrategyError as error:
            (self.unpinned if strategy is None else self.missing)[run_id] = str(error)
            return None
        except BadInput as error:
            raise Unfit("runs", run_id, f"what it reserved is not what its plan costs: {error}") from None

    def _checkpoints(self, connection: Connection, row: RowMapping, run: FoldedRun) -> None:
        if self._root is None:
            return
        run_id, rounds = row["id"], connection.execute(_COMMITTED, {"seq": row["seq"]}).all()
        committed = {each.checkpoint: each.number for each in rounds}
        nonces = [each.nonce for each in rounds if each.nonce is not None]
        files = RunFiles(self._root, run_id)
        digests = files.digests()
        for name, digest in digests.items():
            if name != digest:
                raise Unfit("checkpoints", f"{run_id} {name}", f"its bytes have the digest {digest}")
            if name not in committed:
                raise Unfit("checkpoints", f"{run_id} {name}", "no committed round names it")
            so_far = [bytes.fromhex(nonce) for nonce in nonces[: committed[name] + 1]]
            named, base = files.named_by(name)
            if named != (digest_of(so_far) if so_far else None):
                raise Unfit("checkpoints", f"{run_id} {name}", "its nonces are not those of the ledger's rounds")
            if base is not None and not files.holds_noise(base):
                raise Unfit("checkpoints", f"{run_id} {name}", f"the noise state {base} that it names is not whole")
        newest = run.row.checkpoint
        # Checkpoints of an ended run are destroyed with its key.
        if run.row.active and newest is not None and newest not in digests and not files.holds(newest):
            raise Unfit("checkpoints", f"{run_id} {newest}", "it is missing, and it is the newest that was committed")
        self.checked["checkpoints"] = self.checked.get("checkpoints", 0) + len(digests)

    def _odometers(self, state: State) -> None:
        """Replay what every user of a population spent and what runs held of it, step by step."""
        for name, steps in self._steps.items():
            # Each step is compared with the digests of the log, and the tables were.
            accounts = Accounts(self._taken)
            for each in steps:
                accounts.apply(each)
            self._add("odometers", state.populations[name].row.users)

    def _taken(self, run: str, index: int | None = None) -> list[tuple[NDArray[np.int64], Units]]:
        if index is not None:
            return [self._units[run, index]]
        return [taken for (name, _), taken in sorted(self._units.items(), key=lambda item: item[0]) if name == run]


def _require_same_units(label: str, recorded: Units, right: Units) -> None:
    """Require equal units but for rounding: another machine may add in another order, which moves last bits."""
    close = np.abs(recorded - right) <= 2 + (right >> 30)
    if recorded.shape != right.shape or not close.all():
        raise Unfit("participations", label, "its plan and participation give other charges for single users")


def _require_originals(connection: Connection, said: Converted) -> None:
    """Raise `Unfit` unless the rows of the log that was converted are there, and end where the event says."""
    c, end, number = models.objects.c, chain.genesis(said.ledger), 0
    for name in said.rows:
        content = connection.execute(select(c.content).where(c.hash == name)).scalar()
        if content is None:
            raise Unfit("objects", name, "it is missing, and holds rows of the log that was converted")
        for line in zlib.decompress(content).splitlines():
            number += 1
            end = chain.row_hash({**json.loads(line), "previous": end})
    # Where rows of secret populations are left out, the others cannot be chained: they must be there, and as many.
    if number + said.omitted != said.count or (end != said.hash and not said.omitted):
        raise Unfit("audit", "1", "the rows that it names are not those of the log that was converted")


def _require_reserved(run_id: str, run: FoldedRun, charge: DueCharge) -> None:
    """Raise `Unfit` unless what the run reserved is what its plan costs."""
    planned, price = run.planned, run.row.price
    if charge.planned is not None and not planned.agrees_with(charge.planned):
        raise Unfit("runs", run_id, f"its planned loss is {planned}, and its plan gives {charge.planned}")
    if charge.leak is not None and price is not None:
        leak = Price.from_json(price).leak
        if leak < charge.leak * (1 - 1e-9):
            raise Unfit("runs", run_id, f"its price has the leak {leak}, and its noise leaks {charge.leak}")
