"""The residual test must pass every honest mechanism and fail every dishonest one: it is the gate of the build."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom

from fieldfare import mechanisms
from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.gaussian import gaussian_mu
from fieldfare.mechanisms import Mechanism
from fieldfare.mechanisms.registry import kinds
from fieldfare.noise import SecureNoise
from fieldfare.participation import (
    BallsInBins,
    BMinSep,
    FixedOrder,
    MinSeparation,
    Participation,
    Poisson,
    RandomAllocation,
    Single,
)
from fieldfare.streams.base import Stream, Take
from fieldfare_server.evidence.canaries import (
    _bound,
    densest_patterns,
    estimates,
    gaussian_estimate,
    threshold_bound,
)
from fieldfare_server.evidence.known_sums import Releases
from fieldfare_server.evidence.residual_test import Residual, whitened_residual
from fieldfare_server.evidence.run_evidence import describe_canaries

KEY = bytes(range(32))
ROUNDS = 32
PARTICIPATION = MinSeparation(8, 4)
NUMBERS = 2**19  # 1 % of the scale is z = 10
FIELDS: dict[str, dict[str, Any]] = {
    "spectral": {"eigenvalues": [0.5, 0.1], "learning_rate": 0.5},
    "momentum-tree": {"momentum": 0.9},
    "banded": {"bands": 4},
    "banded-inverse": {"bands": 4},
    "blt": {"buffers": 2},
}


def made(kind: str) -> Mechanism:
    return mechanisms.build({"kind": kind, **FIELDS.get(kind, {})}, rounds=ROUNDS, participation=PARTICIPATION)


Restore = Callable[[Mechanism, int, SecureNoise, Stream], Stream]


def restore_by_state(mechanism: Mechanism, numel: int, noise: SecureNoise, lost: Stream) -> Stream:
    fresh = mechanism.stream(numel, noise)
    fresh.load_state_dict(lost.state_dict())
    return fresh


def residual_of(mechanism: Mechanism, claimed: float = 1.0, restore: Restore = restore_by_state) -> Residual:
    """The judgement on `mechanism`'s stream alone, replaced halfway; `claimed`: anything but 1 must fail."""
    numel, noise = NUMBERS // ROUNDS, SecureNoise(KEY)
    stream = mechanism.stream(numel, noise)
    released = np.empty((ROUNDS, numel))
    for t in range(ROUNDS):
        if t == ROUNDS // 2:
            stream = restore(mechanism, numel, noise, stream)
        released[t] = stream.next().numpy()
    return whitened_residual(mechanism, PARTICIPATION, Releases(released, np.zeros_like(released), claimed))


@pytest.mark.parametrize("kind", kinds())
def test_every_mechanism_passes_and_fails_when_one_percent_off(kind: str) -> None:
    mechanism = made(kind)
    honest = residual_of(mechanism)
    assert honest.passed, honest
    assert honest.resolution < 0.01
    for claimed in (0.99, 1.01):
        off = residual_of(mechanism, claimed=claimed)
        assert not off.passed
        assert "times what was claimed" in off.message


class _Wrapped(Mechanism):
    """A mechanism whose stream or matrices are not what it says."""

    kind = "wrapped"

    def __init__(self, inner: Mechanism) -> None:
        self.inner, self.rounds = inner, inner.rounds

    def strategy_matrix(self, n: int) -> Any:
        return self.inner.strategy_matrix(n)

    def noising_matrix(self, n: int) -> Any:
        return self.inner.noising_matrix(n)

    def sensitivity(self, participation: Any, rounds: int | None = None) -> Any:
        return self.inner.sensitivity(participation, rounds)

    def pattern_norms(self, patterns: Any, rounds: int | None = None) -> Any:
        return self.inner.pattern_norms(patterns, rounds)

    def row_norms(self, n: int | None = None) -> Any:
        return self.inner.row_norms(n)

    def prefix_row_norms(self, n: int | None = None) -> Any:
        return self.inner.prefix_row_norms(n)

    def stream(self, numel: int, noise: SecureNoise, **options: Any) -> Stream:
        return self.inner.stream(numel, noise, **options)

    @property
    def buffers(self) -> int:
        return self.inner.buffers


class _Changed(Stream):
    """Hands each row of another stream to `change(t, row)`."""

    def __init__(self, inner: Stream, change: Any) -> None:
        self.inner, self.change, self.round = inner, change, 0
        self.numel, self.dtype, self.device = inner.numel, inner.dtype, inner.device

    def next(self, out: torch.Tensor | None = None) -> torch.Tensor:
        row: torch.Tensor = self.change(self.round, self.inner.next(out))
        self.round += 1
        return row

    def each_piece(self, take: Take) -> None:
        take(0, self.next())

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict() | {"test_round": self.round}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round = state["test_round"]
        self.inner.load_state_dict({k: v for k, v in state.items() if k != "test_round"})

    def position(self) -> dict[str, int | str]:
        return self.inner.position()

    @property
    def state_bytes(self) -> int:
        return self.inner.state_bytes

    def replayed_rows(self, t: int) -> int:
        return self.inner.replayed_rows(t)

    def skip(self, t: int) -> None:
        self.inner.skip(t)


def changed(change: Any) -> Mechanism:
    class Faulty(_Wrapped):
        def stream(self, numel: int, noise: SecureNoise, **options: Any) -> Stream:
            return _Changed(self.inner.stream(numel, noise, **options), change)

    return Faulty(made("nu"))


def test_independent_noise_under_the_name_of_a_correlated_one_fails() -> None:
    class Faulty(_Wrapped):
        def stream(self, numel: int, noise: SecureNoise, **options: Any) -> Stream:
            return made("independent").stream(numel, noise, **options)

    result = residual_of(Faulty(made("nu")))
    assert not result.passed
    assert result.rows_z > 100


def test_state_lost_at_a_crash_fails() -> None:
    def forget(mechanism: Mechanism, numel: int, noise: SecureNoise, lost: Stream) -> Stream:
        return mechanism.stream(numel, SecureNoise(bytes(32)))

    result = residual_of(made("nu"), restore=forget)
    assert not result.passed
    assert result.rows_z > 3 * result.limit


def test_a_restart_from_row_zero_fails() -> None:
    """The same rows of noise under other data."""

    def again(mechanism: Mechanism, numel: int, noise: SecureNoise, lost: Stream) -> Stream:
        return mechanism.stream(numel, noise)

    assert not residual_of(made("independent"), restore=again).passed


def test_going_on_by_skip_passes() -> None:
    def skipped(mechanism: Mechanism, numel: int, noise: SecureNoise, lost: Stream) -> Stream:
        fresh = mechanism.stream(numel, noise)
        fresh.skip(lost.round)
        return fresh

    assert residual_of(made("nu"), restore=skipped).passed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, row: row * (0.9 if t == 7 else 1.0), "scale|correlated|times"),
        (lambda t, row: row + 0.02, "mean|correlated"),
        (lambda t, row: row.roll(1) * 0.05 + row * (1 - 0.05**2) ** 0.5, "share noise"),
        (lambda t, row: row.clamp(-2.5, 2.5) * 1.01, "claimed|Gaussian"),
    ],
    ids=["one row", "a mean", "shared between coordinates", "clipped tails"],
)
def test_other_faults_fail(change: Any, message: str) -> None:
    result = residual_of(changed(change))
    assert not result.passed
    assert re.search(message, result.message), result.message


def test_a_matrix_of_another_strategy_fails() -> None:
    class Faulty(_Wrapped):
        def strategy_matrix(self, n: int) -> Any:
            return np.eye(n)

    assert "does not belong" in residual_of(Faulty(made("nu"))).message


def test_a_sensitivity_that_is_too_small_fails() -> None:
    class Faulty(_Wrapped):
        def sensitivity(self, participation: Any, rounds: int | None = None) -> Any:
            return 0.99 * float(self.inner.sensitivity(participation, rounds))

    assert "exceeds the charged sensitivity" in residual_of(Faulty(made("nu"))).message


@pytest.mark.parametrize(
    "participation",
    [
        Single(),
        MinSeparation(3, 2),
        FixedOrder(4),
        Poisson(0.5),
        BallsInBins(3),
        RandomAllocation(3),
        BMinSep(3, 0.5),
    ],
    ids=lambda participation: type(participation).__name__,
)
def test_the_densest_patterns_are_allowed_and_as_long_as_any(participation: Participation) -> None:
    """Of six rounds in blocks of three, random allocation allows rounds 2 and 3, and never 0 and 1."""
    patterns = densest_patterns(participation, 6)
    assert patterns
    assert all(participation.allows(pattern, 6) for pattern in patterns)
    assert max(map(len, patterns)) == max(map(len, participation.patterns(6)))
    assert sorted(pattern[0] for pattern in patterns) == list(range(len(patterns)))


def test_the_standard_error_is_the_spread_of_the_estimate() -> None:
    rng = np.random.default_rng(3)
    samples = [(rng.normal(1.0, 1.0, 2000), rng.normal(0.0, 1.0, 2000)) for _ in range(200)]
    found = np.array([gaussian_estimate(*sample, 1e-5) for sample in samples])
    assert found[:, 0].std() == pytest.approx(found[:, 1].mean(), rel=0.25)  # 5 standard errors of a spread from 200


def test_bounds_hold_where_the_truth_is_known() -> None:
    """Randomised response with epsilon 1: the bound may not exceed it, whatever the draw, and must find most of it."""
    truth = 1.0
    chance = np.exp(truth) / (1 + np.exp(truth))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        small = 1e-6 * rng.random((2, 5000))  # ties would be broken by position, which knows the answer
        included = (rng.random(5000) < chance) + small[0]
        excluded = (rng.random(5000) > chance) + small[1]
        assert 0.5 < threshold_bound(included, excluded, 1e-9, 0.999) <= truth


@pytest.mark.parametrize(("delta", "confidence"), [(0.0, 0.9), (0.05, 0.8)])
def test_a_bound_of_given_rates_fails_as_often_as_it_may(delta: float, confidence: float) -> None:
    """Every outcome of twelve scores of each kind, weighed by its chance: exact, for rates at the edge of epsilon."""
    n, epsilon = 12, 0.8
    bounds = [[_bound(hits, n, alarms, n, delta, confidence, 400) for alarms in range(n + 1)] for hits in range(n + 1)]
    for q in (0.02, 0.1, 0.25, 0.4):
        p = min(1.0, np.exp(epsilon) * q + delta)
        chances = np.outer(binom.pmf(range(n + 1), n, p), binom.pmf(range(n + 1), n, q))
        assert chances[np.array(bounds) > epsilon].sum() <= 1 - confidence


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_most_of_what_gaussian_scores_tell_is_found(epsilon: float) -> None:
    """Of 8 000 scores of each kind at least 60 % on average of five draws: .62 to .86, and .43 to .74 before."""
    mu, shares = gaussian_mu(epsilon, 0.01), []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        included, excluded = mu * rng.standard_normal((2, 8000)) + np.array([[mu * mu / 2], [-mu * mu / 2]])
        shares.append(threshold_bound(included, excluded, 0.01) / epsilon)
    assert np.mean(shares) >= 0.6
    assert max(shares) <= 1


def test_nothing_to_see_gives_nothing_and_says_so() -> None:
    rng = np.random.default_rng(1)
    included, excluded = rng.standard_normal((2, 2000))
    figures = dict(describe_canaries(estimates(included, excluded, PrivacyLoss(mu_squared=0.04)).model_dump()))
    assert figures["Lower bound on epsilon (threshold)"] == "no evidence"
    assert "standard error" in figures["Estimate of epsilon (Gaussian), no bound"]
    assert figures["Epsilon in the ledger"].endswith(", at delta 0.01")
    assert threshold_bound(included, excluded, 1e-5) == 0


def test_canaries_of_an_earlier_version_are_shown_as_what_they_are() -> None:
    old = {"claimed": 4.0, "gaussian_estimate": 4.12, "clopper_pearson_lower_bound": 0.0, "one_run_lower_bound": 0.3}
    assert [value for _, value in describe_canaries(old)] == ["no evidence", "0.3", "4.12", "planned 4"]


def test_every_abstract_method_is_forwarded() -> None:
    """A new abstract method must be forwarded by `_Wrapped`, or the faulty mechanisms above test nothing."""
    assert not inspect.isabstract(_Wrapped)
