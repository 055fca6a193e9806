"""Making every table again from the journal and what it names by hash.

Kept are the journal and its head, `objects`, `users` and `participations`: content, each row of which the
journal names by hash. Everything else is the fold of the journal, and is deleted and made again, row for row
and number for number.
Who holds a run now is not in the journal: leases are left as they are, and a run without one gets one that is free.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, and_, delete, func, insert, select, text, update

from fieldfare.accounting.individual import Units
from fieldfare.errors import LedgerCorrupt
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.base import Record, Unfit
from fieldfare_server.ledger.rules.fold import apply
from fieldfare_server.ledger.sql import blobs, migrate, models, odometer_tables
from fieldfare_server.ledger.sql.database import fetch
from fieldfare_server.ledger.sql.leases import SECONDS
from fieldfare_server.ledger.sql.projection import Changes, Contents
from fieldfare_server.ledger.sql.proof import JOURNAL, require_next, sha256
from fieldfare_server.ledger.sql.segments import objects
from fieldfare_server.ledger.state import rows as facts
from fieldfare_server.ledger.state.accounts import Accounts, step
from fieldfare_server.ledger.state.state import State

# The tables that are made again, in the order in which they can be emptied.
PROJECTED = ("odometers", "pledges", "charges", "proposals", "tokens", "rounds", "runs", "populations")
# Rows of the journal whose facts are written together.
_BATCH = 1000
# Facts that stand in tables of content.
_CONTENT = (facts.UsersRow, facts.ParticipationRow, facts.Recharge)
# Fields that name an object.
_NAMES: dict[type, str] = {facts.PopulationRow: "salt", facts.RunRow: "plan", facts.RoundRow: "statistics"}
_q = models.participations.c
_TAKEN = select(_q.index, _q.count.label("number"), _q.users, _q.charges)

_t = models.rounds.c
# Who took part in a round that there is not.
_STRAY = (
    select(_q.round_id)
    .outerjoin(models.rounds, and_(_t.id == _q.round_id, _t.run_seq == _q.run_seq, _t.index == _q.index))
    .where(_t.id.is_(None))
)
_LINK = update(models.participations).values(
    round_id=select(_t.id)
    .where(_t.run_seq == _q.run_seq, _t.index == _q.index, _t.state == "committed")
    .scalar_subquery()
)


def rebuild(connection: Connection, load: Callable[[], None] | None = None) -> list[facts.RoundRow]:
    """Make every table again, in the transaction of `connection`, which has locked the ledger and owns its tables.

    load: puts another journal and its content in place first; participations then get the numbers of their rounds.

    Returns:
        The open rounds whose cohort is lost with its table: nothing of them was released.

    Raises:
        LedgerError: the journal does not fit, content that it names is missing or was changed, or rows were numbered
            with gaps, which PostgreSQL did before version 0005.
    """
    with _unguarded(connection):
        numbers = _numbers(connection) if load is None else set()
        known = _Known(connection)
        fence = connection.execute(select(func.max(models.leases.c.token))).scalar() or 0
        if load is not None:
            load()
        for name in PROJECTED:
            connection.execute(delete(models.metadata.tables[name]))
        try:
            lost = _fold(connection, known)
        except Unfit as unfit:
            raise LedgerCorrupt("rebuilding the ledger", str(unfit), "`fieldfare verify`, and a backup") from unfit
        if load is not None:
            connection.execute(_LINK)
        _require_numbered(connection, numbers)
        _free_leases(connection, fence)
    return lost


def _fold(connection: Connection, known: _Known) -> list[facts.RoundRow]:
    state, changes = State(thorough=False), Changes()
    named = set[str]()

    def note(state: State, record: Record, made: tuple[facts.Fact, ...]) -> None:
        known.follow(state, record, made)
        named.update(getattr(fact, _NAMES[type(fact)]) for fact in made if type(fact) in _NAMES)
        changes.add(state, (fact for fact in made if not isinstance(fact, _CONTENT)))

    head = connection.execute(select(models.head)).one()
    last, previous = 0, chain.genesis(head.ledger)
    while rows := fetch(connection, JOURNAL, rows=last, most=_BATCH):
        for row in rows:
            require_next(row, last + 1, previous)
            apply(state, row, note)
            last, previous = row["id"], row["hash"]
        known.fetch(named)
        named.clear()
        changes.write(connection, known)
        state.forget_closed()
    if previous != head.hash:
        raise Unfit("audit", str(last + 1), "it is missing")
    opened = [run.attempts[run.open].row for run in state.runs.values() if run.open is not None]
    # One that is closed is never made void: without its cohort it is not committed, and its run can only end.
    return [row for row in opened if not row.closing and row.cohort is not None and known.find(row.cohort) is None]


class _Known(Contents):
    """Content by its hash as the tables have it, and what users have spent and are pledged as the log gives it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection
        self._numbers: dict[str, int] = {}  # `seq` of each run, in the order of their starts
        self._accounts: dict[str, Accounts] = {}
        self._objects: dict[str, bytes] = {}
        t = models.rounds.c
        for (cohort,) in connection.execute(select(t.cohort).where(t.cohort.is_not(None))):
            self.keep(cohort)

    def __getitem__(self, name: str) -> object:
        found = self.find(name)
        if found is None:
            raise LedgerCorrupt(f"object {name}", "the journal names it, and it is missing or changed.", "a backup")
        return found

    def find(self, name: str) -> object:
        return self._objects.get(name, super().find(name))

    def fetch(self, names: Iterable[str]) -> None:
        """Have the objects of these names at hand, and of no others."""
        self._objects = {sha256(content): content for content in objects(self._connection, names)}

    def follow(self, state: State, record: Record, made: tuple[facts.Fact, ...]) -> None:
        """Work out what users have spent and are pledged after an event."""
        for fact in made:
            if isinstance(fact, facts.RunRow) and fact.id not in state.runs:
                self._numbers[fact.id] = len(state.runs) + 1
        moved = step(state, record)
        if moved is None:
            return
        name, each = moved
        accounts = self._accounts.setdefault(name, Accounts(self.rounds))
        accounts.apply(each)
        for fact in made:
            if isinstance(fact, facts.Pledge):
                self.keep_units(accounts.caps[fact.run])
            elif isinstance(fact, facts.Odometers):
                self.keep_units(accounts.settled_of(state.populations[name].row.users))

    def rounds(self, run: str, index: int | None = None) -> Iterator[tuple[NDArray[np.int64], Units]]:
        """(participants, what each was charged) of the committed rounds of a run. index: of this one alone.

        Raises `LedgerError` if they are missing.
        """
        query = _TAKEN.where(_q.run_seq == self._numbers[run]).order_by(_q.index)
        rows = self._connection.execute(query if index is None else query.where(_q.index == index)).all()
        if index is not None and not rows:
            raise LedgerCorrupt(f"round {index} of run {run}", "who took part is missing.", "a backup")
        for row in rows:
            yield blobs.decode(row.users, row.number), odometer_tables.decode(row.charges or b"", row.number)


def _numbers(connection: Connection) -> set[tuple[str, int]]:
    """(name, number) of each population and run."""
    p, r = models.populations.c, models.runs.c
    return {
        (name, number)
        for query in (select(p.name, p.id), select(r.id, r.seq))
        for name, number in connection.execute(query)
    }


def _require_numbered(connection: Connection, before: set[tuple[str, int]]) -> None:
    """Raise `LedgerError` unless rows have the numbers that they had, by which others refer to them."""
    if before <= _numbers(connection) and connection.execute(_STRAY).first() is None:
        return
    why = "its rows cannot be numbered again as others refer to them: a version before 0005 left gaps on PostgreSQL."
    raise LedgerCorrupt("rebuilding the ledger", why, "a backup")


def _free_leases(connection: Connection, fence: int) -> None:
    """Give a free lease to each run without one, whose token is above every one that was given: each took a row.

    fence: the largest token before; a journal that was cut may have fewer rows.
    """
    r, lease = models.runs.c, models.leases.c
    token = max(fence, connection.execute(select(models.head.c.count)).scalar_one()) + 1
    held = select(lease.run_seq)
    for (seq,) in connection.execute(select(r.seq).where(r.seq.not_in(held)).order_by(r.seq)).all():
        values = {"run_seq": seq, "holder": "", "token": token, "beat": 0, "renewed_at": 0.0, "seconds": SECONDS}
        connection.execute(insert(models.leases).values(values))


@contextlib.contextmanager
def _unguarded(connection: Connection) -> Iterator[None]:
    """Inside, guards and references between tables do not hold; afterwards they are as the migrations make them.

    Both databases change their schema within the transaction, so that a failure leaves everything as it was.
    """
    if connection.dialect.name == "sqlite":
        connection.execute(text("PRAGMA defer_foreign_keys = ON"))
        for (name,) in connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).all():
            connection.execute(text(f"DROP TRIGGER {name}"))
        migrate.mend(connection, "table")
        yield
        migrate.mend(connection, "index", "trigger")
        return
    tables = [row.name for row in connection.execute(_GUARDED)]
    references = connection.execute(_REFERENCES).all()
    for name in tables:
        connection.execute(text(f"ALTER TABLE {name} DISABLE TRIGGER USER"))
    for row in references:
        connection.execute(text(f"ALTER TABLE {row.table} DROP CONSTRAINT {row.name}"))
    yield
    for row in references:
        connection.execute(text(f"ALTER TABLE {row.table} ADD CONSTRAINT {row.name} {row.definition}"))
    for name in tables:
        connection.execute(text(f"ALTER TABLE {name} ENABLE TRIGGER USER"))


_GUARDED = text("""
SELECT DISTINCT c.relname AS name FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND c.relnamespace = CAST(current_schema() AS regnamespace)
""")
_REFERENCES = text("""
SELECT conname AS name, CAST(CAST(conrelid AS regclass) AS text) AS table, pg_get_constraintdef(oid) AS definition
FROM pg_constraint WHERE contype = 'f' AND connamespace = CAST(current_schema() AS regnamespace)
""")
