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
    left: int  # the limit before it, less what all users were charged alike, in units


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
    left = odometers.limit_units(terms) - odometers.units_of(population.base())
    return record.population, Step(str(record.number), record.run or "", record.round or 0, event, left)


class Book:
    """What users spent and what runs under way hold of them, as users come and runs start, go on and end.

    left: the limit of then, less what all users are charged alike, in units.
    """

    def __init__(self, users: int = 0) -> None:
        self.settled: Units = np.zeros(users, dtype=np.int64)  # what ended runs have cost, by user
        # Of the runs under way, in the order of their starts: the most that each can cost one user, and by user what
        # it may take and has taken.
        self.most: dict[str, int] = {}
        self.caps: dict[str, Units] = {}
        self.taken: dict[str, Units] = {}

    def standing(self) -> odometers.OdometerStanding:
        """The odometers now; of runs under way what they hold, not what they have taken."""
        held: Units = sum(self.caps.values(), np.zeros(self.settled.size, dtype=np.int64))
        return odometers.OdometerStanding(self.settled, self.settled, held, tuple(self.most.items()))

    def register(self, count: int, left: int) -> dict[str, int]:
        """Add users; returns what each run under way is pledged of a new one."""
        pledged = odometers.newcomer_caps(list(self.most.items()), left) if count else {}
        self.settled = _longer(self.settled, self.settled.size + count)
        for run, caps in self.caps.items():
            self.caps[run] = _longer(caps, self.settled.size, pledged.get(run, 0))
            self.taken[run] = _longer(self.taken[run], self.settled.size)
        return pledged

    def start(self, run: str, most: int, left: int) -> Units:
        """Start a run that can cost one user `most`; returns what it may take of each."""
        caps = odometers.pledge(self.standing().room(left, 0), most)
        self.most[run], self.caps[run], self.taken[run] = most, caps, np.zeros_like(caps)
        return caps

    def take(self, run: str, users: NDArray[np.int64], units: Units) -> None:
        """Charge a round of a run to its participants."""
        self.taken[run][users] += units

    def end(self, run: str, whole: bool) -> Units:
        """End a run; returns what it cost each user. whole: all that it was pledged, whatever its rounds took."""
        taken, caps, _ = self.taken.pop(run), self.caps.pop(run), self.most.pop(run)
        cost = caps if whole else taken
        self.settled = self.settled + cost
        return cost


class Accounts(Book):
    """The odometers of one population. Raises `Unfit` where a step does not fit."""

    def __init__(self, taken: Taken) -> None:
        """taken: what rounds that are charged to odometers took of their users."""
        super().__init__()
        self._rounds_of = taken

    def settled_of(self, users: int) -> Units:
        """What ended runs have cost each of `users` users."""
        return _longer(self.settled, users)

    def apply(self, step: Step) -> None:
        """Take one step of the log, in order."""
        _MOVES[type(step.event)](self, step, step.event)

    def _registered(self, step: Step, event: populations.Registered) -> None:
        pledged = self.register(event.count, step.left)
        _require(step, (event.pledged or {}) == pledged, "its users are not pledged what they have left")

    def _started(self, step: Step, event: runs.Started) -> None:
        if event.pledged is None:
            self._named(step, event.largest)
            return
        caps = self.start(step.run, event.most or 0, step.left)
        _require(step, odometers.digest(caps) == event.pledged, "it is not pledged what its users have left")

    def _committed(self, step: Step, event: runs.Committed) -> None:
        if event.charges is None:
            return
        users, units = next(iter(self._rounds_of(step.run, step.round)))
        self.take(step.run, users, units)
        within = (self.taken[step.run][users] <= self.caps[step.run][users]).all()
        _require(step, bool(within), "it costs a user more than the run was pledged")

    def _finished(self, step: Step, event: runs.Finished) -> None:
        if event.odometers is not None:
            self.end(step.run, bool(event.whole))
            self._compare(step, event.odometers)

    def _tightened(self, step: Step, event: populations.Tightened | charges.ChargeReserved) -> None:
        self._named(step, event.largest)

    def _recomputed(self, step: Step, event: populations.Recomputed) -> None:
        self.settled = _longer(self.settled, event.users)
        for run in event.runs:
            for users, units in self._rounds_of(run):
                self.settled[users] += units
        self._compare(step, event.odometers)

    def _named(self, step: Step, largest: int | None) -> None:
        right = self.standing().most_committed(step.left, 0)
        _require(step, largest == right, "it names another largest odometer")

    def _compare(self, step: Step, digest: str) -> None:
        _require(step, digest == odometers.digest(self.settled), "the odometers are not what the runs have cost")


_MOVES = by_kind(vars(Accounts).values(), "self", "step", "event")


def _require(step: Step, holds: bool, why: str) -> None:
    if not holds:
        raise Unfit("audit", step.row, why)


def _longer(values: Units, size: int, fill: int = 0) -> Units:
    """`values` with `fill` behind them, shape (size,)."""
    return np.concatenate([values, np.full(max(0, size - values.size), fill, dtype=np.int64)])[:size]
