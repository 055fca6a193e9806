"""What an event needs to be decided, read from the tables: for writes that charge nothing, without following the log.

A budget is never decided here: what is committed of a population is not read (`FoldedPopulation.alike` stays
empty), so these states serve rounds, requests, tokens and the like. `Journal.admit` gives the state that the
log proves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from sqlalchemy import Connection, bindparam, select

from fieldfare_server.ledger.chain import sha256
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.state.rows import PopulationRow, RoundRow, RunRow, TokenRow
from fieldfare_server.ledger.state.state import FoldedAttempt, FoldedPopulation, FoldedRun, State

T = TypeVar("T")

_r, _p, _t = models.runs.c, models.populations.c, models.rounds.c
_RUN = (
    select(models.runs, _p.name.label("population"))
    .join_from(models.runs, models.populations, _p.id == _r.population_id)
    .where(_r.id == bindparam("id"))
)
_RECENT = select(*(column for column in _t if column.name not in ("id", "cohort"))).where(
    _t.run_seq == bindparam("seq"), _t.index >= bindparam("first")
)
_TOKEN = select(models.tokens).where(models.tokens.c.id == bindparam("id"))
_POPULATIONS = select(models.populations)


class Tables(State):
    """The state that the tables show in one transaction; each row is read when a rule first asks for it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(thorough=False)
        self._connection = connection
        self.numbers: dict[str, int] = {}  # `seq` of the runs that were read
        self.populations = _ByName(self._read_populations)
        self.runs = _ByName(self._read_run)
        self.tokens = _ByName(self._read_token)

    def _read_populations(self, name: str) -> dict[str, FoldedPopulation]:
        """All of them: there are few, and a refusal names those that there are."""
        rows = self._connection.execute(_POPULATIONS).mappings()
        shown = ({**row, "salt": sha256(row["salt"])} for row in rows)
        found = (PopulationRow(*(row[name] for name in PopulationRow._fields)) for row in shown)
        return {row.name: FoldedPopulation(row) for row in found}

    def _read_run(self, name: str) -> dict[str, FoldedRun]:
        row = self._connection.execute(_RUN, {"id": name}).mappings().first()
        if row is None:
            return {}
        self.numbers[name] = row["seq"]
        shown = {**row, "plan": ""}
        run = FoldedRun(RunRow(*(shown[field] for field in RunRow._fields)))
        # With the newest committed round, so that a commit that is repeated finds it.
        recent = {"seq": row["seq"], "first": row["next_round"] - 1}
        for attempt in self._connection.execute(_RECENT, recent).mappings():
            # An open round's cohort is not read, but there is one to forget.
            about = {**attempt, "run": name, "cohort": "" if attempt["state"] == "open" else None, "rejects": {}}
            key = attempt["index"], attempt["attempt"]
            run.attempts[key] = FoldedAttempt(RoundRow(*(about[field] for field in RoundRow._fields)))
            run.tries += attempt["index"] == row["next_round"]
            if attempt["state"] == "open":
                run.open = key
        return {name: run}

    def _read_token(self, name: str) -> dict[str, TokenRow]:
        row = self._connection.execute(_TOKEN, {"id": name}).mappings().first()
        return {} if row is None else {name: TokenRow(*(row[field] for field in TokenRow._fields))}


class _ByName(dict[str, T]):
    """Values that are read when one is first asked for by its name."""

    def __init__(self, read: Callable[[str], Mapping[str, T]]) -> None:
        """read: the values to have at hand where one of this name is asked for, with it if there is one."""
        super().__init__()
        self._read = read

    def __missing__(self, name: str) -> T:
        for found, value in self._read(name).items():
            self.setdefault(found, value)
        if not super().__contains__(name):
            raise KeyError(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None

    def get(self, name: str, default: T | None = None) -> T | None:  # type: ignore[override]
        """The value of this name, or `default`."""
        try:
            return self[name]
        except KeyError:
            return default
