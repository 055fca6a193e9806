"""Whether one more run fits: a filter over all runs of a population, valid however each run is chosen.

`fieldfare.accounting.filter` has the theorem. A population has a rectangle (M, D), fixed by its (epsilon, delta) and
its leak D. Each run has a price (mu^2, d). What ended runs have spent, what runs under way have reserved, and what the
next run plans, must stay within M and within D.

| run | reserved while under way | spent at the end |
|---|---|---|
| Gaussian or discrete noise | its planned mu^2 | its realised mu^2; the rest returns |
| amplified by sampling | its whole price | the whole price, once a round was committed |
| under individual accounting | its leak; mu^2 of each user by that user's odometer (`odometers`) | the same |

A sampled run that stopped early has no cheaper price that holds: when to stop was chosen by what it released.
A round that was opened and never committed released nothing, so a run without a committed round has spent
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, Rectangle, leak_of_run, pay, price, reserve
from fieldfare.accounting.filter import Terms as Terms
from fieldfare.errors import BudgetRefused
from fieldfare.text import decimal, down, up

NOTHING = PrivacyLoss()


@lru_cache(maxsize=8192)
def epsilon(loss: PrivacyLoss, delta: float) -> float:
    """`loss.epsilon(delta)`, cached: views ask for the same values again and again."""
    return 0.0 if loss == NOTHING else float(loss.epsilon(delta))


# -- what runs cost ------------------------------------------------------------------------------------------


class RunCharge(NamedTuple):
    """What the ledger says of one run: the columns of its row, and whether it is under way."""

    planned: str
    spent: str
    price: Price  # what it reserved
    rounds: int  # how many are committed
    active: bool
    individual: bool = False  # its mu^2 is in its users' odometers; only its leak is everyone's


@dataclass(frozen=True)
class Sums:
    """What all users of a population are charged alike, and that with what is reserved."""

    spent: Price
    committed: Price


@dataclass
class Total:
    """A sum of prices that a price may leave again. Exact, so it depends on what it holds and not on what it held."""

    mu_squared: Fraction = Fraction()
    leak: Fraction = Fraction()

    def add(self, part: Price, sign: int = 1) -> None:
        """Add a price, or (sign -1) take it out. Raises ValueError or OverflowError if it is not finite."""
        self.mu_squared += sign * Fraction(part.mu_squared)
        self.leak += sign * Fraction(part.leak)

    def price(self) -> Price:
        """The sum, rounded once."""
        return Price(float(self.mu_squared), float(self.leak))


def parts(run: RunCharge) -> Sums:
    """What a run is charged; one that is charged to odometers, only the leak, which all pay."""
    spent, committed = paid(run), begun(run)
    return Sums(Price(0.0, spent.leak), Price(0.0, committed.leak)) if run.individual else Sums(spent, committed)


def begun(run: RunCharge) -> Price:
    """What a run takes of a user who takes all part in it that the plan allows: its price, and what it spent
    at its end."""
    return run.price if run.active else paid(run)


def paid(run: RunCharge) -> Price:
    """What of its price a run has spent."""
    # Nothing was released, so not even the share of the leak that the run took is spent.
    if run.rounds == 0 and loss(run.spent) == NOTHING:
        return Price()
    return pay(loss(run.planned), loss(run.spent), run.price)


@lru_cache(maxsize=8192)
def loss(text: str) -> PrivacyLoss:
    """`PrivacyLoss.from_json`, cached."""
    return PrivacyLoss.from_json(text)


@lru_cache(maxsize=8192)
def stored_price(text: str) -> Price:
    """`Price.from_json`, cached."""
    return Price.from_json(text)


# -- what still fits -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Room:
    """The largest single Gaussian run that still fits: its mu, and its epsilon taken alone."""

    mu: float
    epsilon: float


@lru_cache(maxsize=1024)
def room(committed: Price, terms: Terms) -> Room:
    """What still fits under `terms` together with `committed`. Never too large.

    Cached: what is committed changes when runs start and end, not with their rounds.
    """
    free = Rectangle.of(terms.epsilon, terms.delta, terms.leak).mu_squared - committed.mu_squared
    while free > 0 and not terms.hold(committed + Price(free)):
        free = free * (1 - 1e-15) - 1e-16 * committed.mu_squared  # only the last digits can be too many
        if committed.leak > terms.leak:
            free = 0.0
    mu = math.sqrt(max(0.0, free)) * (1 - 1e-15)
    return Room(mu, epsilon(PrivacyLoss(mu * mu), terms.delta))


def quote(planned: PrivacyLoss, committed: Price, terms: Terms, leak: float | None = None) -> Price:
    """What a run that plans `planned` reserves if it starts now.

    leak: as in `filter.reserve`; None: nothing, or for a sampled run `RUN_SHARE` of what is left of D.
    """
    if leak is None:
        leak = leak_of_run(planned, terms.leak - committed.leak)
    return reserve(planned, leak)


def run_in_words(name: str, planned: PrivacyLoss, terms: Terms) -> str:
    """A run that plans `planned`, as refusals name it."""
    return f"a run of epsilon {up(epsilon(planned, terms.delta), 6):g} on population {name!r}"


def refusal(
    name: str, planned: PrivacyLoss, cost: Price, committed: Price, terms: Terms, charge: str = ""
) -> BudgetRefused:
    """Why `planned` at the price `cost` does not fit on population `name`, and the nearest run that does.

    charge: a charge of another trainer in words; "": it is a run.
    """
    total, alone = committed + cost, charge or run_in_words(name, planned, terms)
    if not terms.hold(committed):
        return BudgetRefused(
            alone,
            f"what is spent and reserved by the rule that holds for every choice of runs (epsilon "
            f"{up(terms.gauge(committed), 6):g}) is above the budget, {terms.epsilon:.6g} at delta "
            f"{decimal(terms.delta, 3)}.",
            "wait for a run to end, or have the budget raised",
        )
    if total.leak > terms.leak:
        return BudgetRefused(
            alone,
            f"it takes {decimal(cost.leak, 3)} of the population's leak, of which "
            f"{decimal(terms.leak - committed.leak, 3)} is left.",
            f"a leak of at most {decimal(down(terms.leak - committed.leak, 6))}"
            + (", or a population created with --leak" if planned.leak or charge else ""),
            code="leak-spent",
        )
    own = f", {up(terms.gauge(cost), 6):g} {planned.words.price}" if planned.words.price else ""
    return BudgetRefused(
        alone + own,
        f"with what is spent and reserved (epsilon {up(terms.gauge(committed), 6):g}) it would come to epsilon "
        f"{up(terms.gauge(total), 6):g}, and the budget is {terms.epsilon:.6g} at delta {decimal(terms.delta, 3)}.",
        nearest(planned, cost, room(committed, terms), terms.delta),
    )


def nearest(planned: PrivacyLoss, cost: Price, left: Room, delta: float) -> str:
    """The run nearest to `planned`, which costs `cost`, that fits into `left`."""
    if left.epsilon <= 0:  # of a mu so small that delta alone covers it, too
        return "wait for a run to end, or have the budget raised"
    fitting = _quieter(planned, cost.leak, left.mu * left.mu)
    if fitting is not None:
        return f"this run with noise for epsilon {decimal(down(epsilon(fitting, delta), 6))} at delta {decimal(delta)}"
    return (
        f"a run of epsilon {decimal(down(left.epsilon, 6))} at delta {decimal(delta)} (mu {decimal(down(left.mu, 6))})"
    )


def _quieter(planned: PrivacyLoss, leak: float, free: float) -> PrivacyLoss | None:
    """`planned` with just so much more noise that its price at `leak` is at most `free`; None without a leak,
    and where more noise would need another certificate."""
    if leak <= 0 or planned.quieter(1.0) is None:
        return None

    def with_noise(factor: float) -> PrivacyLoss:
        less = planned.quieter(factor)
        assert less is not None
        return less

    def fits(factor: float) -> bool:
        # A little less than all: a plan for the epsilon that is named is calibrated to five digits.
        return price(with_noise(factor), leak).mu_squared <= free * (1 - 1e-4)

    low, high = 0.0, 0.25
    while not fits(math.exp(high)):
        low, high = high, 2 * high
        if high > 16:
            return None
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(math.exp(middle)) else (middle, high)
    return with_noise(math.exp(high))


def larger(old: tuple[float, float], new: tuple[float, float], leak: float) -> tuple[float, float]:
    """The larger of two budgets (epsilon, delta): what a population with both in its past guarantees."""
    if new[0] >= old[0] and new[1] >= old[1]:
        return new
    before, after = (Rectangle.of(*each, leak).mu_squared for each in (old, new))
    return new if after > before else old
