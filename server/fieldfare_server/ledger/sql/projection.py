"""Facts as rows of the tables: the only code that writes a table, but for leases.

The log names plans, salts, cohorts, statistics and users by hash; the tables hold the content itself, which the writer
hands in (`Contents`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import getitem
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, Integer, Table, bindparam, delete, func, insert, select, text, update

from fieldfare.accounting.individual import Units
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.sql import blobs, models, odometer_tables
from fieldfare_server.ledger.state import odometers
from fieldfare_server.ledger.state import rows as facts
from fieldfare_server.ledger.state.state import State

_NOBODY = blobs.encode([])


class Contents:
    """What the log names by hash, for the tables that hold it."""

    def __init__(self) -> None:
        self._known: dict[str, object] = {facts.EMPTY: "{}", hashlib.sha256(_NOBODY).hexdigest(): _NOBODY}
        self._lasting: dict[str, bytes] = {}  # what goes into `objects`

    def keep(self, content: str | bytes, *, lasting: bool = False) -> str:
        """Keep `content`; returns its SHA-256, hex. lasting: in table `objects`, for good."""
        data = content.encode() if isinstance(content, str) else content
        name = hashlib.sha256(data).hexdigest()
        if lasting and name not in self._known:
            self._lasting[name] = data
        self._known[name] = content
        return name

    def write(self, connection: Connection) -> None:
        """Write what is to last."""
        if self._lasting:
            connection.execute(_PUT, [{"hash": name, "content": data} for name, data in self._lasting.items()])
            self._lasting.clear()

    def keep_units(self, values: Units) -> str:
        """Keep what users are charged or pledged; returns its `odometers.digest`."""
        name = odometers.digest(values)
        self._known[name] = values
        return name

    def keep_rounds(self, rounds: Iterable[Units]) -> str:
        """Keep what each round of a run cost its users; returns its `odometers.digest_of_rounds`."""
        rounds = tuple(rounds)
        name = odometers.digest_of_rounds(map(odometers.digest, rounds))
        self._known[name] = rounds
        return name

    def __getitem__(self, name: str) -> Any:
        return self._known[name]

    def find(self, name: str) -> object:
        """As `[name]`; None for what is not known."""
        return self._known.get(name)


class _Layout(NamedTuple):
    """How the rows of a kind of fact stand in their table."""

    table: Table
    keys: tuple[str, ...]  # columns that name a row
    before: Callable[[State, Any], Any]  # the row that a state has under the same name, or None
    # Columns that hold something else than the row here says.
    content: Mapping[str, Callable[[Contents, Any], Any]] = {}


def _text(contents: Contents, name: str) -> str:
    content = contents[name]
    return content.decode() if isinstance(content, bytes) else str(content)


def _attempt(state: State, row: facts.RoundRow) -> facts.RoundRow | None:
    run = state.runs.get(row.run)
    attempt = None if run is None else run.attempts.get((row.index, row.attempt))
    return None if attempt is None else attempt.row


def _new(_state: State, _row: facts.Fact) -> None:
    return None


# In the order in which their rows are written: a row refers to rows above it.
_SHAPES: Mapping[type, _Layout] = {
    facts.PopulationRow: _Layout(
        models.populations,
        ("name",),
        lambda state, row: state.populations[row.name].row if row.name in state.populations else None,
        {"salt": getitem},
    ),
    facts.RunRow: _Layout(
        models.runs,
        ("id",),
        lambda state, row: state.runs[row.id].row if row.id in state.runs else None,
        {"plan": _text},
    ),
    facts.RoundRow: _Layout(
        models.rounds,
        ("run_seq", "index", "attempt"),
        _attempt,
        # Who was selected for a round that is closed by now is forgotten.
        {
            "cohort": lambda contents, name: name and contents.find(name),
            "statistics": _text,
            "rejects": lambda _, rejects: chain.canonical(rejects),
        },
    ),
    facts.ParticipationRow: _Layout(
        models.participations,
        ("run_seq", "index"),
        _new,
        {
            "users": getitem,
            "charges": lambda contents, name: None if name is None else odometer_tables.encode(contents[name]),
        },
    ),
    facts.UsersRow: _Layout(models.users, ("population_id", "first"), _new, {"hashes": getitem}),
    facts.ProposalRow: _Layout(models.proposals, ("id",), lambda state, row: state.proposals.get(row.id)),
    facts.ChargeRow: _Layout(
        models.charges,
        ("population_id", "key"),
        lambda state, row: state.populations[row.population].charges.get(row.key),
    ),
    facts.TokenRow: _Layout(models.tokens, ("id",), lambda state, row: state.tokens.get(row.id)),
}


class Changes:
    """Rows that a transaction changes, to be written at once: of each, only what it is in the end."""

    def __init__(self) -> None:
        # By kind and name: (the row before, None for a new one; the row after).
        self._rows: dict[type, dict[tuple[Any, ...], tuple[Any, Any]]] = {kind: {} for kind in _SHAPES}
        self._others: list[object] = []
        self._ended: list[str] = []
        self._numbers: dict[str, int] = {}

    def add(self, state: State, made: Iterable[facts.Fact]) -> None:
        """Note what an event makes in `state`, which has not taken it yet."""
        for fact in made:
            rows = self._rows.get(type(fact))
            if rows is None:
                self._others.append(fact)
                continue
            shape = _SHAPES[type(fact)]
            key = tuple(getattr(fact, _FIELDS.get(name, name)) for name in shape.keys)
            before, latest = rows[key] if key in rows else (shape.before(state, fact),) * 2
            rows[key] = before, fact
            if isinstance(fact, facts.RunRow) and latest is not None and latest.active and not fact.active:
                self._ended.append(fact.id)

    def write(self, connection: Connection, contents: Contents, numbers: Mapping[str, int] | None = None) -> None:
        """Write what was noted, and forget it. numbers: `seq` of runs that are known."""
        self._numbers.update(numbers or {})
        contents.write(connection)
        for kind, rows in self._rows.items():
            shape = _SHAPES[kind]
            fresh = [self._values(connection, shape, contents, after) for before, after in rows.values() if not before]
            if fresh and kind is facts.ParticipationRow:
                fresh = [{**values, "of": values["run_seq"], "round": values["index"]} for values in fresh]
                connection.execute(_PARTICIPATION, fresh)
            elif fresh:
                connection.execute(_insert(shape.table), fresh)
            for before, after in rows.values():
                if before is not None and before != after:
                    self._update(connection, shape, contents, before, after)
            rows.clear()
        for fact in self._others:
            self._write_other(connection, contents, fact)
        for run in self._ended:
            connection.execute(_FREE, {"seq": self._seq(connection, run)})
        self._others.clear()
        self._ended.clear()

    def _values(self, connection: Connection, shape: _Layout, contents: Contents, row: Any) -> dict[str, object]:
        return dict(self._column(connection, shape, contents, name, getattr(row, name)) for name in row._fields)

    def _column(
        self, connection: Connection, shape: _Layout, contents: Contents, name: str, said: Any
    ) -> tuple[str, object]:
        if name == "population":
            return "population_id", self._population(connection, said)
        if name == "run":
            return "run_seq", self._seq(connection, said)
        return name, shape.content[name](contents, said) if name in shape.content else said

    def _update(self, connection: Connection, shape: _Layout, contents: Contents, before: Any, after: Any) -> None:
        changed = [name for name in after._fields if getattr(before, name) != getattr(after, name)]
        names = (*changed, *(_FIELDS.get(key, key) for key in shape.keys))
        values = dict(self._column(connection, shape, contents, name, getattr(after, name)) for name in names)
        connection.execute(
            _update(shape.table, tuple(changed), shape.keys), {f"to_{name}": value for name, value in values.items()}
        )

    def _write_other(self, connection: Connection, contents: Contents, fact: object) -> None:
        if isinstance(fact, facts.Pledge):
            odometer_tables.write(connection, models.pledges, self._seq(connection, fact.run), contents[fact.digest])
        elif isinstance(fact, facts.NewPledge):
            caps = np.full(fact.count, fact.cap, dtype=np.int64)
            odometer_tables.write(connection, models.pledges, self._seq(connection, fact.run), caps, fact.first)
        elif isinstance(fact, facts.Odometers):
            number = self._population(connection, fact.population)
            connection.execute(delete(models.odometers).where(models.odometers.c.population_id == number))
            odometer_tables.write(connection, models.odometers, number, contents[fact.digest])
        elif isinstance(fact, facts.Recharge):
            seq = self._seq(connection, fact.run)
            for index, units in enumerate(contents[fact.digest]):
                charged = {"seq": seq, "round": index, "charged": odometer_tables.encode(units)}
                connection.execute(_RECHARGE, charged)

    def _seq(self, connection: Connection, run: str) -> int:
        if run not in self._numbers:
            self._numbers[run] = connection.execute(_SEQ, {"run": run}).scalar_one()
        return self._numbers[run]

    def _population(self, connection: Connection, name: str) -> int:
        number: int = connection.execute(_NUMBER, {"name": name}).scalar_one()
        return number


_PUT = text("INSERT INTO objects (hash, content) VALUES (:hash, :content) ON CONFLICT (hash) DO NOTHING")
# Columns that name a row of another table, and the field of a fact that they stand for.
_FIELDS = {"run_seq": "run", "population_id": "population"}
_p, _r, _t = models.populations.c, models.runs.c, models.rounds.c
_NUMBER = select(_p.id).where(_p.name == bindparam("name"))
_SEQ = select(_r.seq).where(_r.id == bindparam("run"))
_FREE = delete(models.pledges).where(models.pledges.c.run_seq == bindparam("seq"))
_PARTICIPATION = insert(models.participations).values(
    round_id=select(_t.id)
    .where(_t.run_seq == bindparam("of"), _t.index == bindparam("round"), _t.state == "committed")
    .scalar_subquery()
)
_q = models.participations.c
_RECHARGE = (
    update(models.participations)
    .where(_q.run_seq == bindparam("seq"), _q.index == bindparam("round"))
    .values(charges=bindparam("charged"))
)


# Made once: SQLAlchemy then finds what it compiled of them.
@lru_cache(maxsize=64)
def _insert(table: Table) -> Any:
    """An insertion; where the table has numbers of its own, with the next one, so that they follow from the log."""
    number = next((column for column in table.primary_key if column.name in ("id", "seq")), None)
    if number is None or not isinstance(number.type, Integer):
        return insert(table)
    return insert(table).values({number: select(func.coalesce(func.max(number), 0) + 1).scalar_subquery()})


@lru_cache(maxsize=256)
def _update(table: Table, names: tuple[str, ...], keys: tuple[str, ...]) -> Any:
    where = [table.c[key] == bindparam(f"to_{key}") for key in keys]
    return update(table).where(*where).values({table.c[name]: bindparam(f"to_{name}") for name in names})
