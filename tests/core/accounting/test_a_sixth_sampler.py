"""A sampler from outside: one event, one registration of each, and it is charged, priced, stored and told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from fieldfare.accounting import PrivacyLoss, SampledGaussian, amplification, calibrate, charge, charge_for, sampled
from fieldfare.accounting.charge import Sampler, register_sampler
from fieldfare.accounting.composition import DiscreteLoss
from fieldfare.accounting.filter import price
from fieldfare.accounting.sampled import Event, register_event
from fieldfare.errors import BadInput
from fieldfare.mechanisms import build
from fieldfare.mechanisms.independent import Independent
from fieldfare.participation import Participation, Single


@dataclass(frozen=True)
class Twice(Participation):
    """Each user by the best of two secret coins: with probability 1 - (1 - rate)^2."""

    rate: float

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        return 1, rounds

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return True


@dataclass(frozen=True)
class TwiceGaussian(Event):
    own: ClassVar = frozenset({"coin"})

    coin: float
    noise_multiplier: float
    count: int

    def _as_one_coin(self) -> SampledGaussian:
        return SampledGaussian(1 - (1 - self.coin) ** 2, self.noise_multiplier, self.count)

    @property
    def sampler(self) -> str:
        return f"each user by the best of two coins of {self.coin:g}"

    @property
    def bound(self) -> str:
        return "that of one better coin"

    @property
    def mu_squared(self) -> float:
        return self._as_one_coin().mu_squared

    @property
    def spread(self) -> float:
        return self._as_one_coin().spread

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        return self._as_one_coin().losses(step)


@pytest.fixture
def registered() -> Iterator[None]:
    register_event(TwiceGaussian)
    register_sampler(Twice, Sampler(lambda way: TwiceGaussian(way.rate, 1.0, 1), independent=True))
    yield
    del sampled._EVENTS[TwiceGaussian.own], charge.SAMPLERS[Twice]


@pytest.mark.usefixtures("registered")
def test_a_sampler_from_outside_is_charged() -> None:
    mechanism, way = Independent(40), Twice(0.05)
    loss = charge_for(mechanism, way, 1.0, 40, "add_remove")
    known = PrivacyLoss(sampled=(SampledGaussian(1 - 0.95**2, 1.0, 40),))
    assert loss.sampled == (TwiceGaussian(0.05, 1.0, 40),)
    assert loss.epsilon(1e-5) == pytest.approx(known.epsilon(1e-5), rel=1e-12)
    assert price(loss, 1e-6).mu_squared == pytest.approx(price(known, 1e-6).mu_squared, rel=1e-12)
    assert PrivacyLoss.from_json(loss.to_json()) == loss
    assert (loss + loss).sampled == (TwiceGaussian(0.05, 1.0, 80),)
    assert loss.words.samplers == ("each user by the best of two coins of 0.05",)
    assert loss.without_amplification() == PrivacyLoss(40.0)
    sigma = calibrate(mechanism, way, epsilon=1.0, delta=1e-5, adjacency="add_remove")
    assert 0.99 < charge_for(mechanism, way, sigma, 40, "add_remove").epsilon(1e-5) <= 1.0
    # Nothing is earned where its conditions fail.
    assert not amplification(mechanism, way, "zero_out").holds
    assert not amplification(build({"kind": "banded", "bands": 2}, 40, Single()), way, "add_remove").holds


def test_what_is_not_registered_is_neither_read_nor_charged() -> None:
    stored = PrivacyLoss(sampled=(TwiceGaussian(0.05, 1.0, 40),)).to_json()
    with pytest.raises(BadInput, match="not a sampled event"):
        PrivacyLoss.from_json(stored)
    with pytest.raises(BadInput, match="add_remove"):
        charge_for(Independent(40), Twice(0.05), 1.0, 40, "add_remove")


@pytest.mark.usefixtures("registered")
def test_no_sampler_is_replaced() -> None:
    with pytest.raises(ValueError, match="TwiceGaussian"):
        register_event(TwiceGaussian)
    with pytest.raises(ValueError, match="charged already"):
        register_sampler(Twice, Sampler(lambda way: TwiceGaussian(way.rate, 1.0, 1)))
