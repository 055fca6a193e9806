"""Events: what costs privacy, one kind a file. An event describes itself; a charge composes some (`loss`).

| event | file | what it is |
|---|---|---|
| `Gaussian` | `gaussian` | plain Gaussian mechanisms, by the sum of their mu^2 |
| `Concentrated` | `concentrated` | mechanisms of which only rho-zCDP is known |
| `PoissonGaussian` | `poisson` | rounds that include each user by a secret coin |
| `TruncatedGaussian` | `truncated` | the same with a cap on the cohort |
| `Allocation` | `allocation` | blocks in one secret round of which each user takes part |
| `CutAllocation` | `allocation` | a last block that the run cuts short |
| `Certified` | `certified` | a whole run whose curve a Monte Carlo certified |
| `Foreign` | `foreign` | what another trainer reports |
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from fieldfare.errors import Unreadable

ACROSS = "as sampled runs are priced across runs"


@dataclass(frozen=True)
class Words:
    """How one loss is told to people."""

    accountant: str  # in one word, as Flower's `PrivacySpent` names it
    method: str  # what computes its epsilon
    flavor: str  # which definitions of privacy it is stated in
    theorem: str = ""  # which theorem a certificate names for secret draws; "" without any
    price: str = ""  # how it is priced across runs, where that is more than its own epsilon
    bounds: tuple[str, ...] = ()  # what the epsilon of secret draws rests on, one for each kind of draw
    # Who takes part, where that earns a lower charge and the charge itself says it.
    samplers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Price:
    """What one run takes from a rectangle: its output is a post-processing of E(sqrt(mu_squared), leak)."""

    mu_squared: float = 0.0
    leak: float = 0.0

    def __add__(self, other: Price) -> Price:
        return Price(self.mu_squared + other.mu_squared, self.leak + other.leak)

    @property
    def mu(self) -> float:
        """The Gaussian part is mu-GDP."""
        return math.sqrt(self.mu_squared)

    def to_json(self) -> str:
        """Return the canonical JSON; floats in full precision, so `from_json` gives an equal price."""
        return json.dumps({"leak": self.leak, "mu_squared": self.mu_squared}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Price:
        """Return the inverse of `to_json`. Raises `BadInput` for anything else."""
        try:
            data = json.loads(text)
            values = (float(data["mu_squared"]), float(data["leak"]))
            if len(data) != 2 or not all(0 <= value < math.inf for value in values) or values[1] >= 1:
                raise ValueError("out of range")
            return cls(*values)
        except (ValueError, TypeError, KeyError) as error:
            raise Unreadable("price", f"{text[:80]!r} is not the JSON of a price ({error}).") from None


def cheaper(plain: float, mu: float, leak: float) -> Price:
    """Return the price without amplification, of mu^2 `plain`, or that of `mu`, rounded up, with `leak` where
    it is less.
    """
    if mu < math.inf:
        mu = math.nextafter(mu * (1 + 1e-12), math.inf)
    return Price(mu * mu, leak) if mu * mu < plain else Price(plain, 0.0)


class CostEvent(ABC):
    """One thing that costs privacy, as a value."""

    # A charge of several kinds is told in the words of the highest, which decides how it is composed.
    rank: ClassVar[int]

    @property
    @abstractmethod
    def words(self) -> Words:
        """How it is told to people."""

    @abstractmethod
    def curve(self, delta: float) -> float:
        """Return the smallest epsilon known for which it alone is (epsilon, delta)-DP."""

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return the smallest delta known for which it alone is (epsilon, delta)-DP, epsilon >= 0."""

    @abstractmethod
    def price(self, leak: float) -> Price:
        """Return what it alone takes across runs at that leak (`filter`). Raises `BadInput` where it has no price."""

    @abstractmethod
    def compose(self, other: CostEvent) -> Self | None:
        """Return the one event that is this and `other`, in either order; None where they are two."""

    @abstractmethod
    def without_amplification(self) -> CostEvent:
        """Return an event that it never exceeds, and in which no draw is secret."""

    @abstractmethod
    def to_json(self) -> object:
        """Return numbers and text, from which a charge reads it back."""
