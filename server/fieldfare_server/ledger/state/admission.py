"""May a run start, can it reach its end, and for how many users: answered from the folded state of its population.

Every asker has this answer: the transaction that starts a run, the page's what-if, the command line and `simulate`.

| what is asked | where |
|---|---|
| the run's leak, with what is spent and reserved, within D | always |
| its mu^2, with what is spent and reserved, within M | without odometers |
| all that it can cost one user, within what a user has who was never asked | with odometers |
| its price, with what began in the calendar window, within what a window holds | where there is a window |
| a timetable in which each round has its users, and none pays more than is left | with odometers |

Where further users may come (`Demand.closed` is false), a run that only lacks users may start, and waits for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, Rectangle
from fieldfare.accounting.individual import UNIT, Demand, Units, from_units
from fieldfare.capacity import Capacity
from fieldfare.errors import BudgetRefused
from fieldfare.text import decimal, up
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.windows import Window

_STEPS = 4096


@dataclass(frozen=True, eq=False)
class Position:
    """What a population has for one more run, as one snapshot has it."""

    population: str
    terms: budget.Terms
    alike: Price  # what all users are charged alike, spent and reserved
    committed: Price  # that, and what is spent and reserved of the user who has least left
    # What each user who can be asked has left, shape (n,); None: the population keeps no odometers.
    room: Units | None = None
    newcomer: int = 0  # what a user has left who is registered now
    # What may still begin in the calendar window of now; None: there are no windows.
    window: Window | None = None

    @classmethod
    def of(
        cls,
        population: str,
        terms: budget.Terms,
        alike: Price,
        standing: odometers.OdometerStanding | None,
        window: Window | None,
    ) -> Self:
        """standing: the odometers; None: there are none."""
        if standing is None:
            return cls(population, terms, alike, alike, window=window)
        limit, base = odometers.limit_units(terms), odometers.units_of(alike)
        committed = alike + odometers.price_of(standing.most_committed(limit, base))
        room = standing.room(limit, base)
        return cls(population, terms, alike, committed, room, standing.newcomer_room(limit, base), window)

    def after(self, price: Price, demand: Demand | None, runs: int = 1) -> Position:
        """Where the population stands if so many runs of that price take of each user all that they may."""
        price = Price(runs * price.mu_squared, runs * price.leak)
        single = self.room is not None and demand is not None
        alike = Price(0.0, price.leak) if single else price
        used = runs * demand.most if single and demand is not None else odometers.units_of(price)
        used = min(used, odometers.limit_units(self.terms))
        return replace(
            self,
            alike=self.alike + alike,
            committed=self.committed + price,
            room=None if self.room is None else self.room - odometers.pledge(self.room, used),
            newcomer=max(0, self.newcomer - used),
            window=None if self.window is None else self.window.after(price),
        )


@dataclass(frozen=True)
class Admission:
    """A run that may start."""

    margin: float  # how many such runs what is left would pay for; at least 1, unless the run waits for users
    users: int | None = None  # for how many users it was judged; None: for any, all of them are charged alike
    able: int | None = None  # of these, who can pay for one participation or more
    whole: int | None = None  # of these, who can pay for the most that the run can cost one user
    waits: bool = False  # too few users are there to reach the end: the run waits for further ones
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counted:
    """Whether enough users have enough left for a run, and how many have how much."""

    fits: bool
    users: int
    able: int  # users who can pay for one participation or more
    whole: int  # users who can pay for the most that the run can cost them
    participations: int  # how many participations all users together can pay for
    needed: int  # how many participations the run needs
    at_once: int  # how many users it needs who can pay for one participation


def count(room: Units, demand: Demand, newcomer_room: int = 0) -> Counted:
    """Whether there is a timetable whose participations the users can pay for; spec/budgets.md 2.3.

    A user is counted with as many participations as their room pays where each is as dear as the plan allows.
    Exact for users who all stay (`fieldfare.capacity`); under fixed order necessary, because places are dealt
    later.

    Args:
        room: of each user who can be asked, shape (n,).
        newcomer_room: of each of `demand.newcomers`.
    """
    costs = np.asarray(demand.costs, dtype=np.int64)
    # costs[i] is the most that i + 1 participations cost, so the place of a user's room says how many it pays for.
    new = int(np.searchsorted(costs, newcomer_room, side="right"))
    pays = np.concatenate([np.searchsorted(costs, room, side="right"), np.full(demand.newcomers, new)])
    return Counted(
        fits=Capacity.of(pays, np.zeros_like(pays), demand.separation).lasts(demand.rounds, demand.cohort),
        users=int(pays.size),
        able=int((pays > 0).sum()),
        whole=int((room >= demand.most).sum()) + (demand.newcomers if newcomer_room >= demand.most else 0),
        participations=int(pays.sum()),
        needed=demand.rounds * demand.cohort,
        at_once=demand.cohort * min(demand.separation, demand.rounds),
    )


def admit(position: Position, planned: PrivacyLoss, price: Price, demand: Demand | None) -> Admission:
    """Whether a run may start now.

    Args:
        position: of its population.
        planned: the run's whole planned loss.
        price: what it reserves of the population's rectangle.
        demand: what it asks of single users; None: it is charged to all users alike.

    Raises:
        BudgetRefused: it may not; with the nearest run that may.
    """
    window = position.window
    if window is None:
        return _admitted(position, planned, price, demand)
    what = budget.run_in_words(position.population, planned, position.terms)
    try:
        made = _admitted(position, planned, price, demand)
    except BudgetRefused as refused:
        if refused.code != "leak-spent" and window.holds_less(position.committed, position.terms):
            window.require(what, planned, price)
        raise
    window.require(what, planned, price)
    return replace(made, margin=min(made.margin, window.margin(price)))


def _admitted(position: Position, planned: PrivacyLoss, price: Price, demand: Demand | None) -> Admission:
    """What the budget says, whatever a window holds."""
    name, terms = position.population, position.terms
    if demand is None or position.room is None:
        if not terms.hold(position.committed + price):
            raise budget.refusal(name, planned, price, position.committed, terms)
        left = Rectangle.of(terms.epsilon, terms.delta, terms.leak).mu_squared - position.committed.mu_squared
        return Admission(left / price.mu_squared if price.mu_squared else math.inf)
    alike, room, newcomer = position.alike, position.room, position.newcomer
    if alike.leak + price.leak > terms.leak:
        raise budget.refusal(name, planned, price, alike, terms)
    limit = odometers.limit_units(terms)
    # None is known, or not which of them: each who comes has what a newcomer has.
    nobody = not room.size or demand.some
    most_left = newcomer if nobody else limit - odometers.units_of(alike)
    if most_left < demand.most:
        # Not even a user who was never asked could be charged all of it. The nearest is one that each user can be.
        held = Price(max(position.committed.mu_squared, from_units(limit - most_left)), alike.leak)
        raise budget.refusal(name, planned, Price(demand.most * UNIT, price.leak), held, terms)
    found = count(room, demand, newcomer)
    if not found.fits and not nobody:
        everyone = count(np.full(room.size, limit, dtype=np.int64), demand, limit)
        # With too few users even for a whole budget, the run waits for users, and the budget is not what refuses it.
        if demand.closed or newcomer < demand.most or everyone.fits or not found.able:
            raise refusal(position, found, demand)
    margin = found.participations / found.needed if found.needed else math.inf
    return Admission(margin, found.users, found.able, found.whole, waits=not found.fits)


def largest(room: Units, demand: Demand, newcomer_room: int = 0) -> int:
    """The most that a run may cost one user to be admitted with the same rounds and cohorts, in units; 0: no such run.

    Found to one part in `_STEPS` of `demand.most`: with more noise all its costs fall in proportion.
    """
    low, high = 0, _STEPS
    while high - low > 1:
        middle = (low + high) // 2
        costs = tuple(max(1, cost * middle // _STEPS) for cost in demand.costs)
        less = replace(demand, most=demand.most * middle // _STEPS, costs=costs)
        low, high = (middle, high) if count(room, less, newcomer_room).fits else (low, middle)
    return demand.most * low // _STEPS


def refusal(position: Position, found: Counted, demand: Demand) -> BudgetRefused:
    """Why too few users have enough left, and how many have how much. Counts only: never one user's value."""
    terms, room = position.terms, position.room
    assert room is not None

    def epsilon(units: int) -> str:
        return f"{up(terms.gauge(Price(from_units(units)))):g}" if units else "0"

    shares = [
        f"{users} have {'up to ' if share < odometers.BINS else ''}{share * 100 // odometers.BINS} %"
        for share, users in enumerate(odometers.histogram(room, odometers.limit_units(terms)), start=1)
        if users
    ]
    nothing = int(np.count_nonzero(room == 0))
    one, whole = epsilon(demand.costs[0]), epsilon(demand.most)
    # A little less: a plan for the epsilon that is named is priced in whole units.
    less = PrivacyLoss(0.998 * from_units(largest(room, demand, position.newcomer)))
    left = budget.Room(less.mu, budget.epsilon(less, terms.delta))
    return BudgetRefused(
        f"a run of {demand.rounds} rounds of {demand.cohort} users on population {position.population!r}",
        f"{found.able} of {found.users} users have left what one round costs them (epsilon {one}), {found.whole} what "
        f"the run can cost them at most (epsilon {whole}); the run needs {found.needed} participations and "
        f"{found.at_once} users at once, and what is left pays for {found.participations}. Of the budget, epsilon "
        f"{terms.epsilon:.6g} at delta {decimal(terms.delta, 3)}: {nothing} users have nothing left; "
        f"{', '.join(shares)}.",
        f"{budget.nearest(less, Price(), left, terms.delta)}, fewer rounds, or a smaller cohort"
        if left.epsilon > 0
        else "fewer rounds, a smaller cohort, or other users",
        code="users-spent",
    )
