"""The questions that a ledger answers, each from one consistent snapshot."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, and_, or_, select

from fieldfare.accounting.filter import Price, Rectangle, gauge
from fieldfare.errors import NotFound, OutOfRange
from fieldfare.names import is_name
from fieldfare.participation import ADJACENCIES, hides_presence
from fieldfare.signed_head import SignedHead
from fieldfare_server.ledger import views
from fieldfare_server.ledger.chain import Head
from fieldfare_server.ledger.events.heads import HeadKeyChanged
from fieldfare_server.ledger.events.populations import Created
from fieldfare_server.ledger.sql import models, odometer_tables, rows
from fieldfare_server.ledger.sql.journal import Clock, read_head
from fieldfare_server.ledger.sql.memory import Account, Memory, PricedRun
from fieldfare_server.ledger.sql.registration import hashes_of, require_apart
from fieldfare_server.ledger.sql.users import SortedIndex, salted
from fieldfare_server.ledger.state.admission import Position
from fieldfare_server.ledger.state.windows import Window
from fieldfare_server.ledger.states import RunState

LONGEST_PAGE = 1000


class ReadSource(Protocol):
    """What opens read transactions: a `Database`, a `Reader`, or a transaction that is open already."""

    def read(self) -> AbstractContextManager[Connection]:
        """Begin a read-only transaction on one consistent snapshot."""


@dataclass(frozen=True)
class OpenTransaction:
    """A `ReadSource` whose every read sees the same open transaction."""

    connection: Connection

    def read(self) -> AbstractContextManager[Connection]:
        """Give the open transaction, which stays open."""
        return nullcontext(self.connection)


# Committed rounds of a population over which participation is counted: about a second.
COUNTED = 20_000


class Reader:
    """The read side of a ledger. Every method is one consistent snapshot; all return frozen views."""

    def __init__(self, source: ReadSource, clock: Clock, memory: Memory) -> None:
        self._source, self._clock, self._memory = source, clock, memory
        # Of a snapshot, which does not change:
        self._head: Head | None = None
        self._populations: dict[str, Row[object]] = {}

    def read(self) -> AbstractContextManager[Connection]:
        """Begin a read-only transaction on one consistent snapshot."""
        return self._source.read()

    def now(self) -> float:
        """Tell the time in seconds since 1970, by the ledger's clock."""
        return self._clock()

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        """Give a reader whose answers all come from one transaction, for an answer that is made of several.

        Its transaction ends with the `with` block. The functions of `watch` accept it as their source.
        """
        if isinstance(self._source, OpenTransaction):
            yield self
            return
        with self.read() as connection:
            yield Reader(OpenTransaction(connection), self._clock, self._memory)

    def population_names(self) -> list[str]:
        """Return the names of all populations, in order."""
        with self.read() as connection:
            c = models.populations.c
            return list(connection.execute(select(c.name).order_by(c.name)).scalars())

    def populations(self) -> tuple[views.PopulationView, ...]:
        """Return all populations, by name."""
        with self.snapshot() as snapshot:
            return tuple(map(snapshot.population, snapshot.population_names()))

    def population(self, name: str) -> views.PopulationView:
        """Return one population. Raises `BadInput` if there is none of that name."""
        with self.snapshot() as snapshot, snapshot.read() as connection:
            head, memory = snapshot.head(name), self._memory

            def read() -> views.PopulationView:
                return rows.population_view(connection, snapshot._population(connection, name), head, memory)

            # A population changes only with a row of the journal.
            return memory.views.get(head, name, read)

    def find_population(self, name: str) -> views.PopulationView | None:
        """Return one population; None if there is none of that name."""
        try:
            return self.population(name)
        except NotFound:
            return None

    def _population(self, connection: Connection, name: str) -> Row[Any]:
        """The row of a population, read once in a snapshot. Raises `BadInput` if there is none of that name."""
        row = self._populations.get(name)
        if row is None:
            row = rows.population_row(connection, name)
            if isinstance(self._source, OpenTransaction):
                self._populations[name] = row
        return row

    def runs(
        self,
        cursor: int | None = None,
        limit: int = 50,
        population: str | None = None,
        state: RunState | None = None,
        plan_digest: str | None = None,
        asks: bool | None = None,
    ) -> views.RunPage:
        """Return runs, newest first; of one population, in one state, of one plan, or asking a question
        or not, if given."""
        query = rows.RUNS.order_by(models.runs.c.seq.desc()).limit(_require_limit(limit) + 1)
        if cursor is not None:
            query = query.where(models.runs.c.seq < cursor)
        if plan_digest is not None:
            query = query.where(models.runs.c.plan_digest == plan_digest)
        if state is not None:
            query = query.where(rows.state_now(self._clock()) == state)
        with self.read() as connection:
            if asks is not None:
                query = query.where(rows.asks(connection.dialect.name) == asks)
            if population is not None:
                query = query.where(models.populations.c.id == rows.population_row(connection, population).id)
            page = connection.execute(query).all()
        items = tuple(rows.run_view(row, self._clock()) for row in page[:limit])
        return views.RunPage(items=items, next=items[-1].seq if len(page) > limit else None)

    def run(self, run_id: str) -> views.RunView:
        """Return one run. Raises `BadInput` if there is none of that id."""
        with self.read() as connection:
            row = rows.run_row(connection, run_id, rows.RUN_SHOWN)
        return rows.run_view(row, self._clock())

    def priced_runs(self, population: str) -> list[PricedRun]:
        """Return each run of a population and what it reserved, by their starts; ended ones are remembered.

        Raises `BadInput` if there is no such population.
        """
        with self.snapshot() as snapshot, snapshot.read() as connection:
            head = snapshot.head(population)
            return self._memory.ask(connection, snapshot._population(connection, population), head, Account.priced)

    def rounds(self, run_id: str, cursor: int | None = None, limit: int = 100) -> views.RoundPage:
        """Return attempts at rounds of a run, oldest first."""
        c = models.rounds.c
        with self.read() as connection:
            run = rows.run_row(connection, run_id, rows.RUN_SHOWN)
            query = select(models.rounds).where(c.run_seq == run.seq, c.id > (cursor or 0)).order_by(c.id)
            page = connection.execute(query.limit(_require_limit(limit) + 1)).mappings().all()
        items = tuple(rows.round_view(row, run_id, hides_presence(run.adjacency)) for row in page[:limit])
        return views.RoundPage(items=items, next=items[-1].id if len(page) > limit else None)

    def round_series(self, run_id: str, points: int = 200) -> tuple[views.RoundView, ...]:
        """Return at most `points` committed rounds, evenly spread and with the newest, thinned out in the database."""
        if points < 2:
            raise OutOfRange(f"points = {points}", "a series has two ends.", "2")
        c = models.rounds.c
        with self.read() as connection:
            run = rows.run_row(connection, run_id, rows.RUN_SHOWN)
            step = max(1, -(-run.next_round // (points - 1)))
            kept = or_(c.index % step == 0, c.index == run.next_round - 1)
            query = select(models.rounds).where(c.run_seq == run.seq, c.state == "committed", kept).order_by(c.index)
            series = connection.execute(query).mappings().all()
        return tuple(rows.round_view(row, run_id, hides_presence(run.adjacency)) for row in series)

    def signed_head(self) -> SignedHead | None:
        """Return the newest head that was signed; None before the first. Raises `HeadRefused` on a forged one."""
        with self.read() as connection:
            signed = connection.execute(select(models.head.c.signed)).scalar_one()
        return None if signed is None else SignedHead.parse(signed)

    def population_identity(self, name: str) -> str:
        """Return the hash of the row that made population `name`. Raises `BadInput` where there is none."""
        c = models.journal.c
        query = select(c.hash).where(c.population == name, c.action == Created.action).order_by(c.id)
        with self.read() as connection:
            made = connection.execute(query.limit(1)).scalar()
        if made is None:
            raise NotFound(f"population {name!r}", "no row of the journal made it.")
        return str(made)

    def head_key_lines(self) -> dict[int, str]:
        """Return the lines by which the head's key changed, by row, in their order (`fieldfare.head_keys`)."""
        c = models.journal.c
        query = select(c.id, c.body).where(c.run.is_(None), c.action == HeadKeyChanged.action).order_by(c.id)
        with self.read() as connection:
            return {row: json.loads(body)["line"] for row, body in connection.execute(query)}

    def row_hash(self, number: int) -> str | None:
        """Return the hash of journal row `number`; None if there is none."""
        with self.read() as connection:
            return connection.execute(select(models.journal.c.hash).where(models.journal.c.id == number)).scalar()

    def events(self, after_id: int = 0, limit: int = 100) -> tuple[views.JournalView, ...]:
        """Return journal rows after row `after_id`, oldest first, with their hashes."""
        with self.read() as connection:
            page = connection.execute(rows.EVENTS, {"after": after_id, "most": _require_limit(limit)}).mappings().all()
        return tuple(map(rows.journal_view, page))

    def journal_rows(self, cursor: int | None = None, limit: int = 100, *, run: str | None = None) -> views.JournalPage:
        """Return journal rows, newest first, with their hashes; of one run if given."""
        query, before = rows.NEWEST_FIRST, rows.END if cursor is None else cursor
        if run is not None:
            query = query.where(models.journal.c.run == run)
        with self.read() as connection:
            page = connection.execute(query, {"before": before, "most": _require_limit(limit) + 1}).mappings().all()
        items = tuple(map(rows.journal_view, page[:limit]))
        return views.JournalPage(items=items, next=items[-1].id if len(page) > limit else None)

    def participation_histogram(self, run_id: str) -> dict[int, int]:
        """Count users of a run by how often they took part, from once up; {} where presence is secret."""
        with self.read() as connection:
            run = rows.run_row(connection, run_id, rows.RUN_SHOWN)
            if hides_presence(run.adjacency):
                return {}
            return rows.participation(connection, run.seq).histogram()

    def population_participation(self, name: str) -> dict[int, int] | None:
        """Count users by the rounds in which they took part, of all runs of a population, from once up.

        Returns:
            {} where presence is secret; None where more than `COUNTED` rounds were committed: counting takes too long.
        """
        with self.read() as connection:
            row = rows.population_row(connection, name)
            if hides_presence(row.adjacency):
                return {}
            return rows.population_participation(connection, row, COUNTED)

    def proposal_population(self, proposal_id: str) -> str:
        """Name the population that a raise is proposed for. Raises `BadInput` if there is none of that id."""
        query = select(models.populations.c.name).join(models.proposals).where(models.proposals.c.id == proposal_id)
        with self.read() as connection:
            name = connection.execute(query).scalar() if is_name(proposal_id) else None
        if name is None:
            known = "one that `fieldfare population show` lists"
            raise NotFound(f"proposal {proposal_id[:100]!r}", "there is none of that id.", known)
        return str(name)

    def position(self, population: str, names: NDArray[np.uint64] | None = None) -> tuple[Position, int]:
        """Return what a population has for one more run, and how many of `names` it does not know yet.

        names: pseudonyms of the only users who can be asked, shape (n,); None: all whom it knows.

        Raises `BadInput` if there is no such population.
        """
        with self.snapshot() as snapshot, snapshot.read() as connection:
            head, row = snapshot.head(population), snapshot._population(connection, population)
            ask = functools.partial(self._memory.ask, connection, row, head)
            taken = ask(Account.taken)
            alike, standing = taken.sums.committed, None
            if odometer_tables.is_individual(row):
                standing = self._memory.odometers.standing(connection, row, taken.individual, taken.history)
            terms = rows.terms_of(row)

            def begun(day: int) -> Price:
                return ask(lambda account: account.begun(day))

            window = Window.of(row.window_epsilon, row.window_every, terms, begun, self._clock())
            position = Position.of(row.name, terms, alike, standing, window)
            if names is None or position.room is None:
                return position, 0
            stored, index = hashes_of(connection, row.id, row.name), SortedIndex()
            index.add(stored, np.arange(stored.size))
            known = index.get(salted(names := np.unique(names), row.salt))
            require_apart(connection, row.id, names[known < 0])
        return replace(position, room=position.room[known[known >= 0]]), int((known < 0).sum())

    def together(self, own: views.PopulationView) -> views.Together | None:
        """Return the guarantee of a user of a population who is in every other that may have the same users.

        None where there is no other.
        """
        c = models.populations.c
        # Where one of two populations hides who is there, registration cannot compare their users.
        alike = [kind for kind in ADJACENCIES if hides_presence(kind) or hides_presence(own.adjacency)]
        others = and_(c.simulated == own.simulated, c.adjacency.in_(alike))
        query = select(c.bound_epsilon, c.bound_delta, c.leak).where(or_(c.name == own.name, others)).order_by(c.id)
        with self.read() as connection:
            found = connection.execute(query).all()
        if len(found) < 2:
            return None
        # Each population is a filter that stops within its rectangle (M, D), however the runs on all of them
        # are chosen: so all of them stop within the sum of M, and leak where one does: never surely.
        within = [Rectangle.of(each.bound_epsilon, each.bound_delta, each.leak) for each in found]
        leak = -math.expm1(math.fsum(math.log1p(-each.leak) for each in within)) * (1 + 1e-15)
        delta = max(min(2 * leak, (1 + leak) / 2), *(each.bound_delta for each in found))
        epsilon = gauge(math.fsum(each.mu_squared for each in within), delta, leak)
        return views.Together(populations=len(found), epsilon=epsilon, delta=delta)

    def charge(self, population: str, key: str) -> views.ChargeView:
        """Return a charge of another trainer. Raises `BadInput` if there is none."""
        c = models.charges.c
        with self.read() as connection:
            number = rows.population_row(connection, population).id
            query = select(models.charges).where(c.population_id == number, c.key == key)
            row = connection.execute(query).first()
        if row is None:
            raise NotFound(f"charge {key[:80]!r}", f"population {population!r} has none with that key.")
        return rows.charge_view(row, population)

    def charges(self, population: str) -> tuple[views.ChargeView, ...]:
        """Return all charges of other trainers, oldest first."""
        c = models.charges.c
        with self.read() as connection:
            number = rows.population_row(connection, population).id
            page = connection.execute(
                select(models.charges).where(c.population_id == number).order_by(c.reserved_at, c.key)
            ).all()
        return tuple(rows.charge_view(row, population) for row in page)

    def tokens(self) -> tuple[views.TokenView, ...]:
        """Return all API tokens, oldest first, without their secrets."""
        with self.read() as connection:
            found = connection.execute(select(models.tokens).order_by(models.tokens.c.created_at)).mappings().all()
        return tuple(rows.token_view(row) for row in found)

    def head(self, population: str | None = None) -> Head:
        """Tell where the journal ends. Kept elsewhere, it shows when an old copy of the ledger was put back.

        population: one that is asked for next in the same snapshot, whose row is then read by the same statement.

        Raises `BadInput` if there is no such population.
        """
        if self._head is not None:
            return self._head
        with self.read() as connection:
            if not isinstance(self._source, OpenTransaction):
                return read_head(connection)
            if population is None:
                self._head = read_head(connection)
            else:
                self._populations[population], self._head = rows.population_and_head(connection, population)
        return self._head


def _require_limit(limit: int) -> int:
    if not 1 <= limit <= LONGEST_PAGE:
        raise OutOfRange(f"limit = {limit}", "out of range.", str(min(max(limit, 1), LONGEST_PAGE)))
    return limit
