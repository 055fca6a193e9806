"""A sampler from outside: one event under one registration, and it is charged, priced, stored and told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from fieldfare.accounting import PoissonGaussian, PrivacyLoss, amplification, calibrate, charge_for, sampled
from fieldfare.accounting.composition import DiscreteLoss
from fieldfare.accounting.filter import price
from fieldfare.accounting.sampled import SampledEvent, register
from fieldfare.errors import BadInput
from fieldfare.mechanisms import build
from fieldfare.mechanisms.independent import Independent
from fieldfare.participation import Participation, Single
from support.refusals import coded


@dataclass(frozen=True)
class Twice(Participation):
    """Each user by the best of two secret coins: with probability 1 - (1 - rate)^2."""

    rate: float

    def separation_and_count(self, rounds: int) -> tuple[int, int]:
        return 1, rounds

    def allows(self, pattern: Sequence[int], rounds: int) -> bool:
        return True


@dataclass(frozen=True)
class TwiceGaussian(SampledEvent):
    own: ClassVar = frozenset({"coin"})
    participations: ClassVar = (Twice,)
    independent: ClassVar = True

    coin: float
    noise_multiplier: float
    count: int

    @classmethod
    def of(cls, participation: Twice) -> TwiceGaussian:
        return cls(participation.rate, 1.0, 1)

    def _as_one_coin(self) -> PoissonGaussian:
        return PoissonGaussian(1 - (1 - self.coin) ** 2, self.noise_multiplier, self.count)

    @property
    def sampler(self) -> str:
        return f"each user by the best of two coins of {self.coin:g}"

    @property
    def bound(self) -> str:
        return "that of one better coin"

    @property
    def spread(self) -> float:
        return self._as_one_coin().spread

    def losses(self, step: float) -> tuple[DiscreteLoss, DiscreteLoss]:
        return self._as_one_coin().losses(step)


@pytest.fixture
def registered() -> Iterator[None]:
    register(TwiceGaussian)
    yield
    del sampled._EVENTS[TwiceGaussian.own], sampled._CHARGED[Twice]


@pytest.mark.usefixtures("registered")
def test_a_sampler_from_outside_is_charged() -> None:
    mechanism, way = Independent(40), Twice(0.05)
    loss = charge_for(mechanism, way, 1.0, 40, "add_remove")
    known = PrivacyLoss(sampled=(PoissonGaussian(1 - 0.95**2, 1.0, 40),))
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
    with pytest.raises(BadInput, check=coded("unreadable", "privacy loss")):
        PrivacyLoss.from_json(stored)
    with pytest.raises(BadInput, check=coded("unsupported", "adjacency", "add_remove")):
        charge_for(Independent(40), Twice(0.05), 1.0, 40, "add_remove")


@pytest.mark.usefixtures("registered")
def test_no_sampler_is_replaced() -> None:
    with pytest.raises(ValueError, match="TwiceGaussian"):
        register(TwiceGaussian)

    class Thrice(TwiceGaussian):
        own: ClassVar = frozenset({"coins"})

    with pytest.raises(ValueError, match="Twice is charged already"):
        register(Thrice)
    assert Thrice.own not in sampled._EVENTS
