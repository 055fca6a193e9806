"""Flower's own words for privacy: what was spent, and a budget that is exhausted.

Flower promises neither name for ever, so both are looked up when they are used. Without them the same words
are ours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from fieldfare.errors import BudgetRefused
from fieldfare_flower import private


class Spent(NamedTuple):
    """Stands in for Flower's `PrivacySpent`, with its fields."""

    epsilon: float
    delta: float
    num_releases: int
    accounting_method: str
    optimal_order: float | None = None


def privacy_spent(epsilon: float, delta: float, releases: int, method: str) -> object:
    """Return Flower's `PrivacySpent`, or `Spent`."""
    spent = private.find("flwr.serverapp:PrivacySpent") or Spent
    return spent(epsilon, delta, releases, method)


def budget_exhausted(refusal: BudgetRefused, result: object) -> BudgetRefused:
    """Return `refusal` as an error that Flower takes for its own `PrivacyBudgetExhausted` as well.

    result: the `Result` with the last released model; the error's attribute of that name.
    """
    error: BudgetRefused = _exhausted_class()(refusal.what, refusal.why, refusal.nearest)
    error.result = result  # type: ignore[attr-defined]
    return error


@lru_cache
def _exhausted_class() -> type[BudgetRefused]:
    flower = private.find("flwr.serverapp.exception:PrivacyBudgetExhausted")
    bases = (BudgetRefused,) if flower is None else (BudgetRefused, flower)
    return type("PrivacyBudgetExhausted", bases, {"__doc__": "The privacy budget is exhausted.", "__reduce__": _reduce})


def _reduce(self: Any) -> tuple[Any, ...]:
    # Another process finds no class that was made here.
    return budget_exhausted, (BudgetRefused(self.what, self.why, self.nearest), self.result)
