"""What has been released, as a value that composes: the unit in which budgets are reserved, spent and compared."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from fieldfare.accounting import sampled as _sampled
from fieldfare.accounting.gaussian import gaussian_delta, gaussian_epsilon
from fieldfare.accounting.sampled import SampledGaussian
from fieldfare.errors import BadInput


@dataclass(frozen=True)
class PrivacyLoss:
    """A (fully adaptive) composition of Gaussian mechanisms and Poisson-sampled Gaussian mechanisms.

    mu_squared: sum over all plain Gaussian mechanisms of (sensitivity / noise standard deviation)^2, >= 0.
    sampled: events with amplification by sampling; equal ones are merged and the tuple is sorted, so that losses of
    the same composition are equal and take O(distinct kinds) space however many rounds went by.

    Gaussian mechanisms compose exactly by mu^2, also adaptively (Dong, Roth and Su 2022, Corollary 3.3); sampled ones
    by privacy loss distributions (see `sampled`). `a + b` is the loss of both; `PrivacyLoss()` is no loss.
    """

    mu_squared: float = 0.0
    sampled: tuple[SampledGaussian, ...] = ()

    def __post_init__(self) -> None:
        if not self.mu_squared >= 0:
            raise BadInput(f"mu_squared = {self.mu_squared}", "must be at least 0.", "0")
        object.__setattr__(self, "mu_squared", float(self.mu_squared) + 0.0)  # no -0.0: equal losses print equal
        counts: dict[tuple[float, float], int] = {}
        for event in self.sampled:
            key = (event.rate, event.noise_multiplier)
            counts[key] = counts.get(key, 0) + event.count
        merged = tuple(SampledGaussian(*key, count) for key, count in sorted(counts.items()) if count)
        object.__setattr__(self, "sampled", merged)

    @property
    def mu(self) -> float:
        """The Gaussian part is mu-GDP."""
        return math.sqrt(self.mu_squared)

    @property
    def rho(self) -> float:
        """The Gaussian part is rho-zCDP, rho = mu^2 / 2."""
        return self.mu_squared / 2

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        return PrivacyLoss(self.mu_squared + other.mu_squared, self.sampled + other.sampled)

    def without_amplification(self) -> PrivacyLoss:
        """The same releases with every sampling rate 1: a plain Gaussian that this loss never exceeds."""
        inverses = ((event.count, 1 / event.noise_multiplier) for event in self.sampled)
        extra = math.fsum(count * inverse * inverse for count, inverse in inverses)
        return PrivacyLoss(self.mu_squared + extra)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon known for which the whole is (epsilon, delta)-DP; exact without sampled events.

        With sampled events an upper bound, never above the one without amplification: numerical composition rounds
        the loss upwards, and where it has no grid (see `sampled.grid_for`) amplification is not claimed. Never fails
        for 0 < delta < 1, else `BadInput`.
        """
        plain = gaussian_epsilon(self.without_amplification().mu, delta)
        if not self.sampled:
            return plain
        return min(plain, _sampled.epsilon(self.mu_squared, self.sampled, delta))

    def delta(self, epsilon: float) -> float:
        """The smallest delta known for which the whole is (epsilon, delta)-DP, epsilon >= 0. As `epsilon`."""
        plain = gaussian_delta(self.without_amplification().mu, epsilon)
        if not self.sampled:
            return plain
        return min(plain, _sampled.delta(self.mu_squared, self.sampled, epsilon))

    def to_json(self) -> str:
        """Canonical JSON; floats in full precision, so `from_json` gives an equal loss."""
        events = [[event.rate, event.noise_multiplier, event.count] for event in self.sampled]
        return json.dumps({"mu_squared": self.mu_squared, "sampled": events}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> PrivacyLoss:
        """The inverse of `to_json`. Raises `BadInput` for anything else: a torn or foreign text is not "no loss"."""
        try:
            data: Any = json.loads(text)
            if set(data) != {"mu_squared", "sampled"}:
                raise ValueError("other keys than mu_squared and sampled")
            events = tuple(SampledGaussian(_number(q), _number(s), _count(n)) for q, s, n in data["sampled"])
            return cls(_number(data["mu_squared"]), events)
        except (ValueError, TypeError) as error:
            raise BadInput("privacy loss", f"{text[:80]!r} is not the JSON of a privacy loss ({error}).") from None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a count")
    return value
