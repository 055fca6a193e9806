"""The odometers of a population, folded from the log: what each user spent, and what runs under way hold of it.

The log has these numbers by digest only. With who took part in each round and what it cost them, they are computed here
again, event by event, and every digest and every pledge is compared on the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting.individual import Units
from fieldfare_server.ledger.events import charges, populations, runs
from fieldfare_server.ledger.events.base import Event, Record, Unfit, by_kind
from fieldfare_server.ledger.state import odometers
from fieldfare_server.ledger.state.state import State


class Taken(Protocol):
    """Finds what rounds took of their users."""

    def __call__(self, run: str, index: int | None = None) -> Iterable[tuple[NDArray[np.int64], Units]]:
        """(participants, what each was charged) of the committed rounds of a run. index: of this one alone."""


@dataclass(frozen=True)
class Step:
    """An event that changes what users of a population have left."""

    row: str  # its number in the log
    run: str
    round: int
    event: Event
    limit: int  # m before it, in units
    base: int  # what all users were charged alike before it, in units


def step(state: State, record: Record) -> tuple[str, Step] | None:
    """(population, step) of an event that `state` has not taken yet; None where it moves no odometer."""
    event = record.event
    if type(event) not in _MOVES or record.population is None:
        return None
    population = state.populations[record.population]
    if not (population.row.individual or isinstance(event, populations.Recomputed)):
        return None
    terms = population.terms
    if isinstance(event, populations.Tightened):
        terms = terms.__class__(event.epsilon, event.delta, terms.leak)
    limit, base = odometers.limit_units(terms), odometers.units_of(population.base())
    return record.population, Step(str(record.number), record.run or "", record.round or 0, event, limit, base)


class Accounts:
    """The odometers of one population. Raises `Unfit` where a step does not fit."""

    def __init__(self, taken: Taken) -> None:
        """taken: what rounds that are charged to odometers took of their users."""
        self._rounds_of = taken
        self._users = 0
        self._settled = np.zeros(0, dtype=np.int64)
        self._most: dict[str, int] = {}
        self._taken: dict[str, Units] = {}
        self.caps: dict[str, Units] = {}  # of the runs under way, by user

    def settled_of(self, users: int) -> Units:
        """What ended runs have cost each of `users` users."""
        return _longer(self._settled, users)

    def apply(self, step: Step) -> None:
        """Take one step of the log, in order."""
        _MOVES[type(step.event)](self, step, step.event)

    def _registered(self, step: Step, event: populations.Registered) -> None:
        known = list(self._most.items())
        pledged = odometers.newcomer_caps(known, step.limit - step.base) if known and event.count else {}
        _require(step, (event.pledged or {}) == pledged, "its users are not pledged what they have left")
        self._users += event.count
        self._settled = _longer(self._settled, self._users)
        for run, caps in self.caps.items():
            self.caps[run] = _longer(caps, self._users, pledged.get(run, 0))
            self._taken[run] = _longer(self._taken[run], self._users)

    def _started(self, step: Step, event: runs.Started) -> None:
        if event.pledged is None:
            self._named(step, event.largest)
            return
        room = step.limit - step.base - self._settled - self._held()
        caps = odometers.pledge(room, event.most or 0)
        _require(step, odometers.digest(caps) == event.pledged, "it is not pledged what its users have left")
        self.caps[step.run], self._most[step.run] = caps, event.most or 0
        self._taken[step.run] = np.zeros(self._users, dtype=np.int64)

    def _committed(self, step: Step, event: runs.Committed) -> None:
        if event.charges is None:
            return
        users, units = next(iter(self._rounds_of(step.run, step.round)))
        self._taken[step.run][users] += units
        within = (self._taken[step.run][users] <= self.caps[step.run][users]).all()
        _require(step, bool(within), "it costs a user more than the run was pledged")

    def _finished(self, step: Step, event: runs.Finished) -> None:
        if event.odometers is None:
            return
        taken, caps = self._taken.pop(step.run), self.caps.pop(step.run)
        self._settled = self._settled + (caps if event.whole else taken)
        del self._most[step.run]
        self._compare(step, event.odometers)

    def _tightened(self, step: Step, event: populations.Tightened | charges.ChargeReserved) -> None:
        self._named(step, event.largest)

    def _recomputed(self, step: Step, event: populations.Recomputed) -> None:
        self._users = event.users
        self._settled = _longer(self._settled, self._users)
        for run in event.runs:
            for users, units in self._rounds_of(run):
                self._settled[users] += units
        self._compare(step, event.odometers)

    def _named(self, step: Step, largest: int | None) -> None:
        newcomer = sum(odometers.newcomer_caps(list(self._most.items()), step.limit - step.base).values())
        right = max(int((self._settled + self._held()).max(initial=0)), newcomer)
        _require(step, largest == right, "it names another largest odometer")

    def _held(self) -> Units:
        held: Units = sum(self.caps.values(), np.zeros(self._users, dtype=np.int64))
        return held

    def _compare(self, step: Step, digest: str) -> None:
        _require(step, digest == odometers.digest(self._settled), "the odometers are not what the runs have cost")


_MOVES = by_kind(vars(Accounts).values(), "self", "step", "event")


def _require(step: Step, holds: bool, why: str) -> None:
    if not holds:
        raise Unfit("audit", step.row, why)


def _longer(values: Units, size: int, fill: int = 0) -> Units:
    """`values` with `fill` behind them, shape (size,)."""
    return np.concatenate([values, np.full(max(0, size - values.size), fill, dtype=np.int64)])[:size]
