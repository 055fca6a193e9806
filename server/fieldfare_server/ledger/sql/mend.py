"""Which rows of a journal stay, where some stop every budget: `fieldfare ledger mend`.

What the copies beside this home's heads hold is taken first, then the rows of the database that go on from there. A row
that no rule allows is dropped, and the rows after it keep their order under new numbers: it made nothing, so
they say what they said. Rows that no chain ties to the others prove nothing, and are dropped too.

No charge falls. A dropped commit may have been released, so its run is charged all that it reserved. Where a row that
proves nothing may have been anything, so is every run under way, and every population takes no new charge until a
person reopens it. A journal that does not reach a head that this home has seen is not mended: charges would be lost.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, select

from fieldfare.errors import OldCopy
from fieldfare.participation import hides_presence
from fieldfare.signed_head import HeadRefused, SignedHead
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.base import Record, Unfit
from fieldfare_server.ledger.events.heads import Mended
from fieldfare_server.ledger.events.log import read
from fieldfare_server.ledger.events.populations import Recomputed, Registered
from fieldfare_server.ledger.events.runs import Committed, Voided
from fieldfare_server.ledger.events.tokens import TokenCreated
from fieldfare_server.ledger.rules.fold import apply
from fieldfare_server.ledger.rules.populations import close
from fieldfare_server.ledger.rules.runs import finish
from fieldfare_server.ledger.sql import models, odometer_tables
from fieldfare_server.ledger.sql.journal import Entry, read_head
from fieldfare_server.ledger.sql.proof import require_next
from fieldfare_server.ledger.sql.segments import BATCH, Frame, Segments, linked
from fieldfare_server.ledger.state.state import State

_j = models.journal.c
# Actions after which a run may have released what the rows that stay do not charge.
_RELEASES = ("round.commit", "run.finish")


@dataclass(frozen=True)
class Dropped:
    """A row that goes."""

    number: int
    action: str
    run: str | None
    why: str


@dataclass
class Mending:
    """What becomes of a journal."""

    before: chain.Head  # where the ledger said that it ended
    end: chain.Head  # where the rows that stay end
    kept: int = 0  # rows before the first that is dropped: they stay as they are
    restored: int = 0  # rows that come back from a copy
    dropped: list[Dropped] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)  # runs that are charged all that they reserved, and end
    # Populations that take no new charge until they are reopened.
    closed: list[str] = field(default_factory=list)

    @property
    def needed(self) -> bool:
        """Whether anything changes."""
        return bool(self.dropped or self.restored or self.before != self.end)


class Examination:
    """Writes the rows that stay into `target`, which is empty; `mending` says what becomes of the others.

    Args:
        copies: segments of this home; the longest is believed.
        held: heads of this home.
        unfit: by their `event`, rows that are found not to fit otherwise, and why.

    Raises:
        OldCopy: neither the ledger nor a copy has a row that this home has seen.
        LedgerError: a copy is not whole.
    """

    def __init__(
        self,
        connection: Connection,
        copies: Sequence[Segments],
        held: Sequence[chain.Head],
        target: Segments,
        unfit: Mapping[str, str],
    ) -> None:
        self._connection, self._target, self._unfit = connection, target, unfit
        before = read_head(connection)
        ends = [(deque(copy.heads(), maxlen=1)[0], copy) for copy in copies if copy.there]
        self._copy = max(ends, key=lambda each: each[0].count)[1] if ends else None
        ledger = next((head.ledger for head in (*held, *(end for end, _ in ends))), before.ledger)
        start = chain.Head(ledger, 0, chain.genesis(ledger))
        self.mending = Mending(before, start)
        self._state = State(thorough=False)
        self._signed: str | None = None
        self._digests: set[str] = set()
        self._proven = start  # where the rows that are chained end, whether they stay or not
        self._seen = {(head.count, head.hash) for head in held}
        self._waiting = Frame([])
        for frame in self._frames():
            self._take(frame)
            if len(self._waiting.rows) >= BATCH:
                self._flush()
        self._flush()
        for head in held:
            if head.ledger != ledger or (head.count, head.hash) in self._seen:
                raise OldCopy(
                    "mending the ledger",
                    f"neither it nor a copy here has row {head.count}, which this home has seen: what was charged "
                    "until then would be forgotten.",
                    "`fieldfare ledger import` of a newer copy into an empty database; `fieldfare verify --hold` "
                    "accepts a ledger as it is",
                )
        self._charge()

    # -- which rows there are --------------------------------------------------------------------------------

    def _frames(self) -> Iterator[Frame]:
        """All rows that are chained: those of the copy, then those of the ledger that go on from it."""
        for end, frame in () if self._copy is None else self._copy.frames():
            self._proven = end
            stored = select(models.journal).where(_j.id.between(frame.rows[0]["id"], frame.rows[-1]["id"]))
            there = {row["id"]: dict(row) for row in self._connection.execute(stored).mappings()}
            self.mending.restored += sum(there.get(row["id"]) != row for row in frame.rows)
            yield frame
        signed = self._connection.execute(select(models.head.c.signed)).scalar()
        while True:
            frame, chained = Frame.after(self._connection, self._proven.count, signed), 0
            with contextlib.suppress(Unfit):
                for row in frame.rows:
                    require_next(row, self._proven.count + 1, self._proven.hash)
                    self._proven, chained = replace(self._proven, count=row["id"], hash=row["hash"]), chained + 1
            if chained < len(frame.rows):
                frame = Frame(frame.rows[:chained], signed=frame.signed).filled(self._connection)
            yield frame
            if chained < BATCH:
                return

    # -- which of them stay ----------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        named = set[tuple[object, ...]]()
        signed = _parse(frame.signed)
        for row in frame.rows:
            self._seen.discard((row["id"], row["hash"]))
            try:
                record = self._apply(row)
            except Unfit as unfit:
                self.mending.dropped.append(Dropped(row["id"], row["action"], row["run"], unfit.why))
                continue
            if not self.mending.dropped:
                self.mending.kept += 1
                if signed is not None and (signed.count, signed.hash) == (row["id"], row["hash"]):
                    self._signed = frame.signed
            self._waiting.rows.append(dict(row))
            event = record.event
            if isinstance(event, Committed):
                named.add((record.run, record.round))
            elif isinstance(event, Registered):
                named.add((record.population, event.first))
            elif isinstance(event, Recomputed):
                named |= {(run,) for run in event.runs}
        # Content of rows that are dropped goes with them.
        self._waiting.objects += frame.objects
        self._waiting.users += [each for each in frame.users if each[:2] in named]
        self._waiting.participations += [each for each in frame.participations if {each[:1], each[:2]} & named]

    def _apply(self, row: dict[str, Any]) -> Record:
        """Take a row into the state. Raises `Unfit` if it does not stay."""
        if row["event"] in self._unfit:
            raise Unfit("audit", str(row["id"]), self._unfit[row["event"]])
        event = read(row).event
        if isinstance(event, TokenCreated) and event.digest in self._digests:
            raise Unfit("audit", str(row["id"]), "its secret is that of another token")
        record = apply(self._state, {**row, "id": self.mending.end.count + len(self._waiting.rows) + 1})
        # The tables allow these once, and the state of a long journal does not remember them by itself.
        if isinstance(event, Committed) and event.nonce is not None:
            self._state.nonces[event.nonce] = "another round"
        elif isinstance(event, TokenCreated):
            self._digests.add(event.digest)
        return record

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, Frame([])
        if waiting.rows:
            waiting.signed = self._signed
            linked(self.mending.end, waiting.rows)
            self.mending.end = self._target.append(self.mending.end, waiting)
        self._state.forget_closed()
        for population in self._state.populations.values():
            population.chunks.clear()

    # -- what is charged for the others ----------------------------------------------------------------------

    def _charge(self) -> None:
        under_way = [run.row.id for each in self._state.populations.values() for run in each.runs]
        named = {row.run for row in self.mending.dropped if row.action in _RELEASES}
        stray = select(_j.id, _j.action, _j.run).where(_j.id > self._proven.count).order_by(_j.id)
        for number, action, run in self._connection.execute(stray):
            why = "nothing ties it to the rows before it"
            self.mending.dropped.append(Dropped(number, str(action), run, why))
        # On SQLite every writer shares this home, whose copy has each row before anybody is told of it.
        alone = self._connection.dialect.name == "sqlite" and self._copy is not None
        if not alone and self.mending.dropped and self.mending.dropped[-1].number > self._proven.count:
            named |= set(under_way)
            populations = self._state.populations.values()
            self.mending.closed = [each.row.name for each in populations if each.row.state == "open"]
        self.mending.whole = [run for run in under_way if run in named]


def _parse(signed: str | None) -> SignedHead | None:
    with contextlib.suppress(HeadRefused):
        return None if signed is None else SignedHead.parse(signed)
    return None


def charge_for(mending: Mending, connection: Connection, entry: Entry, actor: str) -> None:
    """Append what is charged for the rows that were dropped, and that they were.

    A round that is open in a run that ends is void: it was never committed.
    """
    number = len(mending.dropped)
    for name in mending.whole:
        run = entry.state.runs[name]
        population = entry.state.populations[run.row.population]
        about: dict[str, Any] = {"population": population.row.name, "run": name}
        hidden = hides_presence(population.row.adjacency)
        if run.open is not None and not run.attempts[run.open].row.closing:
            index, attempt = run.open
            entry.append(Voided(attempt, "its run was charged whole", 0, {}), actor, round=index, blind=hidden, **about)
            entry.flush()
        settled = None
        if run.row.individual:
            settled = entry.contents.keep_units(odometer_tables.settle(connection, population, name, whole=True))
        message = "rows of it were dropped from the journal: all that it reserved is charged"
        entry.append(finish(entry.state, name, "failed", message, settled, whole=True), actor, blind=hidden, **about)
        # The odometers of the next run go on from these.
        entry.flush()
    for name in mending.closed:
        reason = f"{number} rows were dropped from the journal, and may have been charges"
        entry.append(close(entry.state, name, reason), actor, population=name)
    actions = dict(sorted(Counter(row.action for row in mending.dropped).items()))
    entry.append(Mended(mending.kept, actions, mending.before.hash), actor)
