"""Calendar windows: how much of a budget may begin in one day, week, month or year.

A window limits beside the budget and gives nothing back to it. What begins in one window, runs that start and charges
that are reserved, is together (epsilon of the window, delta), by the filter that bounds the budget
(`fieldfare.accounting.filter`), with the same leak D. All of it counts for every user, also where users are charged
singly: a window may refuse what the odometers would hold, never the other way round.

What begins counts in the window of its beginning, however long it takes; what it did not spend leaves it at its end.
Times are the writer's, in UTC. A clock that was set back finds what began later in its window as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Literal, Self, TypeAlias, get_args

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.errors import BudgetRefused
from fieldfare.text import decimal, up
from fieldfare_server.ledger.state import budget

Every: TypeAlias = Literal["day", "week", "month", "year"]
EVERY: tuple[Every, ...] = get_args(Every)
DAY = 86400.0
_EPOCH = date(1970, 1, 1).toordinal()


def day_of(at: float) -> int:
    """The number of the UTC day of `at`, seconds since 1970."""
    return math.floor(at / DAY)


def first_day(every: Every, day: int) -> int:
    """The number of the day on which the window of `day` begins: weeks on Mondays."""
    of = date.fromordinal(_EPOCH + day)
    begin = {
        "day": of,
        "week": of - timedelta(days=of.weekday()),
        "month": of.replace(day=1),
        "year": of.replace(month=1, day=1),
    }
    return begin[every].toordinal() - _EPOCH


def next_day(every: Every, day: int) -> int:
    """The number of the day on which the window after that of `day` begins."""
    longest = {"day": 1, "week": 7, "month": 31, "year": 366}
    return first_day(every, first_day(every, day) + longest[every])


class Days:
    """Exact sums of prices, by the UTC day on which they began."""

    def __init__(self) -> None:
        self._days: dict[int, budget.Total] = {}

    def add(self, at: float, price: Price, sign: int = 1) -> None:
        """Add what began at `at`, seconds since 1970, or (sign -1) take it out."""
        self._days.setdefault(day_of(at), budget.Total()).add(price, sign)

    def since(self, day: int) -> Price:
        """The sum from that day on."""
        total = budget.Total()
        for number, held in self._days.items():
            if number >= day:
                total.mu_squared += held.mu_squared
                total.leak += held.leak
        return total.price()


@dataclass(frozen=True)
class Window:
    """The window of now: what it holds, and what began in it."""

    terms: budget.Terms  # with the window's epsilon
    every: Every
    begun: Price
    renews: float  # when the next one begins, seconds since 1970

    @classmethod
    def of(
        cls, epsilon: float | None, every: str | None, terms: budget.Terms, begun: Callable[[int], Price], at: float
    ) -> Self | None:
        """The window of a population's budget `terms` at `at`. None: it has none.

        begun: what began from a day on (`Days.since`).
        """
        if epsilon is None:
            return None
        every, day = next(each for each in EVERY if each == every), day_of(at)
        return cls(replace(terms, epsilon=epsilon), every, begun(first_day(every, day)), DAY * next_day(every, day))

    @property
    def gauge(self) -> float:
        """Epsilon of what began."""
        return self.terms.gauge(self.begun)

    @property
    def left(self) -> float:
        """Epsilon, taken alone, of the largest Gaussian run that it still holds."""
        return budget.room(self.begun, self.terms).epsilon

    def margin(self, price: Price) -> float:
        """How many runs of this price it still holds: at least 1 where it holds one."""
        free = budget.room(self.begun, self.terms).mu ** 2
        return max(1.0, free / price.mu_squared) if price.mu_squared else math.inf

    def holds_less(self, committed: Price, terms: budget.Terms) -> bool:
        """Whether a whole window holds no more than the budget does beside `committed`: the nearest run is its own."""
        return budget.room(Price(), self.terms).mu <= budget.room(committed, terms).mu

    def after(self, price: Price) -> Self:
        """With `price` begun in it too."""
        return replace(self, begun=self.begun + price)

    def require(self, what: str, planned: PrivacyLoss, price: Price) -> None:
        """Raise `BudgetRefused`, naming `what` and the nearest to `planned` that fits, unless it holds `price` too."""
        if self.terms.hold(self.begun + price):
            return
        renews = f"{datetime.fromtimestamp(self.renews, UTC):%Y-%m-%d}"
        rooms = (budget.room(begun, self.terms) for begun in (self.begun, Price()))
        now, then = (budget.nearest(planned, price, room, self.terms.delta) for room in rooms)
        later = f"{'the same' if self.terms.hold(price) else then} from {renews} UTC on"
        raise BudgetRefused(
            what,
            f"with what began this {self.every} (epsilon {up(self.gauge, 6):g}) it would come to epsilon "
            f"{up(self.terms.gauge(self.begun + price), 6):g}, and a {self.every} holds {self.terms.epsilon:.6g} at "
            f"delta {decimal(self.terms.delta, 3)}.",
            f"{later} or now {now}" if self.left > 0 else later,
            code="window-full",
        )
