"""Privacy loss, a multiset of events that composes: the unit in which budgets are reserved, spent and compared."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

# Allocation, Poisson rounds and truncated ones register what texts of losses hold.
from fieldfare.accounting import allocation, poisson, truncated  # noqa: F401
from fieldfare.accounting import sampled as _sampled
from fieldfare.accounting.certified import Certified, sampler_of
from fieldfare.accounting.concentrated import Concentrated
from fieldfare.accounting.event import CostEvent, Price, Words
from fieldfare.accounting.gaussian import Gaussian
from fieldfare.accounting.sampled import SampledEvent, event_from_json
from fieldfare.errors import OutOfRange, Unreadable
from fieldfare.participation import Participation
from fieldfare.text import decimal

# By how much two machines' sums of the same numbers may differ, relatively.
_LAST_DIGITS = 1e-9


@dataclass(frozen=True)
class PrivacyLoss:
    """A composition of Gaussian, Poisson-sampled Gaussian, and zero-concentrated mechanisms.

    Args:
        mu_squared: sum over all plain Gaussian mechanisms of (sensitivity / noise standard deviation)^2, >= 0.
        sampled: events with amplification by sampling. Equal ones are merged and the tuple is sorted, so that
            losses of the same composition are equal and take O(distinct kinds) space after any number of
            rounds.
        concentrated: sum of rho over all mechanisms of which only rho-zCDP is known (discrete noise), >= 0.
        certified: whole runs whose curve a Monte Carlo certified (`balls_in_bins`), in the order of their seeds.
        leak: sum of the probabilities with which answers of unknown names tell everything (`thresholded`), below 1.

    Gaussian mechanisms compose exactly by mu^2, also adaptively (Dong, Roth and Su 2022, Corollary 3.3);
    sampled ones by privacy loss distributions (see `sampled`), where they were fixed before any was seen:
    across runs `filter` adds up prices. A certified curve alone is read as it is. Together with anything else
    it counts as the Gaussian that it is without amplification; together with a concentrated part, everything
    counts as zCDP, without amplification. With a leak d all is (epsilon, d + (1 - d) delta')-DP where the
    rest is (epsilon, delta')-DP. `a + b` is the loss of both; `PrivacyLoss()` is no loss.
    """

    mu_squared: float = 0.0
    sampled: tuple[SampledEvent, ...] = ()
    concentrated: float = 0.0
    certified: tuple[Certified, ...] = ()
    leak: float = 0.0

    def __post_init__(self) -> None:
        for name in ("mu_squared", "concentrated", "leak"):
            value = getattr(self, name)
            if not value >= 0 or (name == "leak" and value >= 1):
                raise OutOfRange(f"{name} = {value}", "must be at least 0, and a leak below 1.", "0")
            object.__setattr__(self, name, float(value) + 0.0)  # no -0.0: equal losses print equal
        # One form for each multiset, whatever order it was added in: equal losses compare and print equal.
        counts: dict[SampledEvent, int] = {}
        for event in self.sampled:
            kind = event.times(1)
            counts[kind] = counts.get(kind, 0) + event.count
        in_order = sorted(counts, key=SampledEvent.order)
        merged = tuple(kind.times(counts[kind]) for kind in in_order if counts[kind])
        object.__setattr__(self, "sampled", merged)
        object.__setattr__(self, "certified", tuple(sorted(self.certified, key=lambda curve: curve.seed)))

    @property
    def mu(self) -> float:
        """The Gaussian part is mu-GDP."""
        return math.sqrt(self.mu_squared)

    @property
    def rho(self) -> float:
        """All but the sampled events is rho-zCDP: mu^2 / 2 of the Gaussian part, and the concentrated part."""
        return self.mu_squared / 2 + self.concentrated

    @property
    def gaussian(self) -> bool:
        """Whether this is the loss of plain Gaussian mechanisms alone, which `mu` says exactly."""
        return not self.amplified and not self.concentrated and not self.leak

    @property
    def amplified(self) -> bool:
        """Whether sampling lowers the loss: it has a price across runs (`filter`) that is not its own mu."""
        return bool(self.sampled or self.certified)

    @property
    def zcdp(self) -> float | None:
        """rho of all of it; None where sampling lowers the loss, or some of it leaks, which rho does not describe."""
        return None if self.amplified or self.leak else self.rho

    @property
    def gdp(self) -> float | None:
        """mu of all of it; None unless it is the loss of plain Gaussian mechanisms alone."""
        return self.mu if self.gaussian else None

    @property
    def events(self) -> tuple[CostEvent, ...]:
        """What it is composed of; of one kind those that do not compose into one."""
        plain = (Gaussian(self.mu_squared),) if self.mu_squared else ()
        known = (Concentrated(self.concentrated),) if self.concentrated else ()
        return *plain, *known, *self.sampled, *self.certified

    @property
    def words(self) -> Words:
        """How it is told to people: in the words of the events that decide how it is composed."""
        events = self.events or (Gaussian(0.0),)
        rank = max(event.rank for event in events)
        told = [event.words for event in events if event.rank == rank]
        bounds, samplers = sum((one.bounds for one in told), ()), sum((one.samplers for one in told), ())
        flavor = "Gaussian DP with a leak, stated also as approximate DP" if self.leak else told[0].flavor
        method = f"{told[0].method}, with a leak of {decimal(self.leak)}" if self.leak else told[0].method
        return replace(told[0], bounds=bounds, samplers=samplers, flavor=flavor, method=method)

    def price(self, leak: float) -> Price:
        """What it takes across runs at that leak, see `filter.price`. Raises `BadInput` where only zCDP is known."""
        if self.leak:
            # Its own leak comes first; what is left of the population's pays for the sampled part.
            rest = replace(self, leak=0.0).price(max(0.0, leak - self.leak))
            return Price(rest.mu_squared, rest.leak + self.leak)
        if len(self.events) == 1:
            return self.events[0].price(leak)
        if self.concentrated:
            return Concentrated(self.concentrated).price(leak)
        # A certificate's samples are of one run alone: together with anything else it is not amplified.
        if self.certified or not self.sampled:
            return Price(self.without_amplification().mu_squared, 0.0)
        return _sampled.price(self.mu_squared, self.sampled, leak)

    def sampler(self, participation: Participation) -> str | None:
        """Return who takes part by which secret draws, where they lower the loss; None where they do not."""
        if self.sampled:
            return self.sampled[0].sampler
        return sampler_of(participation) if self.certified else None

    @property
    def seeds(self) -> tuple[tuple[int, str], ...]:
        """(attempt, seed) of every certificate: each was written down before it was drawn from."""
        return tuple((curve.attempt, curve.seed) for curve in self.certified)

    def part_of(self, whole: PrivacyLoss) -> bool:
        """Return whether this is part of `whole`: no part larger, no more events of any sampled kind. No tolerance."""
        if not (self.mu_squared <= whole.mu_squared and self.concentrated <= whole.concentrated):
            return False
        if self.leak > whole.leak:
            return False
        room = whole._counts()
        return all(count <= room.get(kind, 0) for kind, count in self._counts().items())

    def _counts(self) -> dict[object, int]:
        counts: dict[object, int] = dict.fromkeys(self.certified, 1)
        return counts | {event.times(1): event.count for event in self.sampled}

    def quieter(self, factor: float) -> PrivacyLoss | None:
        """Return the loss of the same sampled rounds with `factor` times the noise.

        None without any: Gaussian rounds need no search for it, and a certificate would have to be drawn
        again.
        """
        if self.certified or not self.sampled:
            return None
        events = (event.at(event.noise_multiplier * factor) for event in self.sampled)
        return PrivacyLoss(self.mu_squared / factor**2, tuple(events))

    @property
    def largest_mu_squared(self) -> float:
        """mu^2 of the largest of its parts, each without amplification."""
        parts = [event.noise_multiplier**-2 for event in self.sampled] + [curve.mu**2 for curve in self.certified]
        return max([self.mu_squared, *parts])

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        rho = self.concentrated + other.concentrated
        events, curves = self.sampled + other.sampled, self.certified + other.certified
        return PrivacyLoss(self.mu_squared + other.mu_squared, events, rho, curves, self.leak + other.leak)

    def without_amplification(self) -> PrivacyLoss:
        """Return the same without sampling, every user in every round: this loss never exceeds it."""
        extra = math.fsum(event.mu_squared for event in self.sampled)
        extra += math.fsum(curve.mu**2 for curve in self.certified)
        return PrivacyLoss(self.mu_squared + extra, concentrated=self.concentrated, leak=self.leak)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon known for which the whole is (epsilon, delta)-DP; exact for plain
        Gaussians.

        With sampled events it is an upper bound, never above the one without amplification: numerical
        composition rounds the loss upwards, and where it has no grid (see `sampled.grid_for`) amplification
        is not claimed. Raises `BadInput` unless 0 < delta < 1.
        """
        if self.leak:
            # delta = leak + (1 - leak) rest, solved for the rest; a digit less, so that rounding gains nothing.
            rest = (delta - self.leak) / (1 - self.leak)
            return replace(self, leak=0.0).epsilon(rest * (1 - 1e-15)) if rest > 0 else math.inf
        if len(self.events) == 1:
            return self.events[0].curve(delta)
        plain = self._plain().curve(delta)
        if self.concentrated or self.certified or not self.sampled:
            return plain
        # Composition rounds up, so for weak amplification the plain bound may be the smaller one.
        return min(plain, _sampled.epsilon(self.mu_squared, self.sampled, delta))

    def delta(self, epsilon: float) -> float:
        """The smallest delta known for which the whole is (epsilon, delta)-DP, epsilon >= 0. As `epsilon`."""
        if self.leak:
            return self.leak + (1 - self.leak) * replace(self, leak=0.0).delta(epsilon)
        if len(self.events) == 1:
            return self.events[0].delta(epsilon)
        plain = self._plain().delta(epsilon)
        if self.concentrated or self.certified or not self.sampled:
            return plain
        return min(plain, _sampled.delta(self.mu_squared, self.sampled, epsilon))

    def _plain(self) -> CostEvent:
        """Return all of it without amplification, as one event: by mu where that is known of all, else by rho."""
        whole = self.without_amplification()
        return Concentrated(whole.rho) if whole.concentrated else Gaussian(whole.mu_squared)

    def within(self, least: PrivacyLoss, most: PrivacyLoss) -> PrivacyLoss:
        """Return this loss moved up to `least` and down to `most`, by parts; with the events of `most`.

        For losses that are parts of `most` but for the last digits of another machine.
        """
        events = self.sampled
        if len(events) == len(most.sampled):
            events = tuple(kind.times(own.count) for own, kind in zip(events, most.sampled, strict=True))
        return replace(
            self,
            mu_squared=min(max(self.mu_squared, least.mu_squared), most.mu_squared),
            concentrated=min(max(self.concentrated, least.concentrated), most.concentrated),
            leak=min(max(self.leak, least.leak), most.leak),
            sampled=events,
        )

    def agrees_with(self, other: PrivacyLoss) -> bool:
        """Return whether both are one loss, computed on two machines: the last digits may differ."""
        pairs = [(self.mu_squared, other.mu_squared), (self.concentrated, other.concentrated)]
        if self.leak != other.leak:
            return False
        if (len(self.sampled), len(self.certified)) != (len(other.sampled), len(other.certified)):
            return False
        for one, two in zip(self.sampled, other.sampled, strict=True):
            if one != two.at(one.noise_multiplier):
                return False
            pairs.append((one.noise_multiplier, two.noise_multiplier))
        curves = zip(self.certified, other.certified, strict=True)
        close = all(math.isclose(a, b, rel_tol=_LAST_DIGITS, abs_tol=1e-15) for a, b in pairs)
        return close and all(one.agrees_with(two) for one, two in curves)

    def to_json(self) -> str:
        """Return the canonical JSON; floats in full precision, so `from_json` gives an equal loss."""
        events = [event.to_json() for event in self.sampled]
        table: dict[str, object] = {"mu_squared": self.mu_squared, "sampled": events}
        if self.concentrated:  # absent where there is none, so that what older versions wrote stays canonical
            table["concentrated"] = self.concentrated
        if self.certified:
            table["certified"] = [curve.to_json() for curve in self.certified]
        if self.leak:
            table["leak"] = self.leak
        return json.dumps(table, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> PrivacyLoss:
        """Return the inverse of `to_json`. Raises `BadInput` for anything else: a torn text is not "no loss"."""
        try:
            data: Any = json.loads(text)
            if set(data) - {"certified", "concentrated", "leak"} != {"mu_squared", "sampled"}:
                raise ValueError("other keys than mu_squared, sampled, certified, concentrated and leak")
            events = tuple(event_from_json(each) for each in data["sampled"])
            curves = tuple(Certified.from_json(each) for each in data.get("certified", ()))
            rho, leak = (_number(data.get(name, 0.0)) for name in ("concentrated", "leak"))
            return cls(_number(data["mu_squared"]), events, rho, curves, leak)
        except (ValueError, TypeError, KeyError) as error:
            raise Unreadable("privacy loss", f"{text[:80]!r} is not the JSON of a privacy loss ({error}).") from None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)
