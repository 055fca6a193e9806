"""Composition by one transform against composition by the definition, and against dp_accounting's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.accounting.composition import Composition, DiscreteLoss
from fieldfare.accounting.sampled import _deltas_with_user, _deltas_without_user

STEP = 0.25


def by_definition(parts: list[tuple[DiscreteLoss, int]], epsilon: float) -> float:
    """delta at `epsilon` of the direct convolution."""
    probs, lowest, finite = np.ones(1), 0, 1.0
    for part, count in parts:
        for _ in range(count):
            probs, lowest = np.convolve(probs, part.probs), lowest + part.lowest
            finite *= 1 - part.infinite
    losses = part.step * (lowest + np.arange(probs.size))
    above = losses > epsilon
    return float(probs[above] @ -np.expm1(epsilon - losses[above])) + 1 - finite


@st.composite
def discrete(draw: st.DrawFn) -> DiscreteLoss:
    weights = np.array(draw(st.lists(st.floats(0, 1), min_size=1, max_size=7)))
    weights[draw(st.integers(0, weights.size - 1))] += 0.1
    infinite = draw(st.sampled_from([0.0, 1e-9, 1e-3]))
    return DiscreteLoss(STEP, draw(st.integers(-6, 6)), weights / weights.sum() * (1 - infinite), infinite)


@settings(deadline=None, max_examples=200)
@given(parts=st.lists(st.tuples(discrete(), st.integers(1, 9)), min_size=1, max_size=3), at=st.floats(0, 20))
def test_delta_is_the_convolutions_and_epsilon_inverts_it(parts: list[tuple[DiscreteLoss, int]], at: float) -> None:
    composed = Composition(parts)
    exact = min(by_definition(parts, at), 1.0)  # its sum may round to more
    assert exact <= composed.delta(at) <= exact + 2 * composed.slack
    for delta in (1e-10, 1e-6, 0.01, 0.5):
        epsilon = composed.epsilon(delta)
        if epsilon == math.inf:
            # Only where the mass at infinity alone is more.
            assert by_definition(parts, 1e6) + composed.slack >= delta
            continue
        assert by_definition(parts, epsilon) <= delta
        if epsilon > 1e-6:
            assert by_definition(parts, epsilon * (1 - 1e-6)) >= delta - 3 * composed.slack


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("rate", "sigma", "count"), [(0.3, 2.0, 1), (0.3, 2.0, 40), (0.02, 0.8, 700)])
def test_against_dp_accounting_on_the_same_grid(rate: float, sigma: float, count: int, order: int) -> None:
    """Two kinds of event and a Gaussian, one transform here, convolutions of truncated distributions there."""
    step = 1e-3

    def dots(q: float, s: float) -> tuple[int, np.ndarray]:
        reach = math.ceil((12 / s + 0.5 / s**2) / step)
        deltas = (_deltas_with_user, _deltas_without_user)[order if q < 1 else 0]
        return reach, deltas(step * np.arange(-reach, reach + 1), q, s)

    parts, theirs = [], privacy_loss_distribution.identity(step)
    for q, s, times in ((rate, sigma, count), (rate / 3, sigma * 2, 2 * count), (1.0, 3.0, 1)):
        reach, deltas = dots(q, s)
        one = DiscreteLoss.through(step, -reach, deltas)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -reach, reach, deltas)
        assert np.allclose(one.probs, pmf.to_dense_pmf()._probs, rtol=1e-12, atol=1e-18)
        parts.append((one, times))
        theirs = theirs.compose(privacy_loss_distribution.PrivacyLossDistribution(pmf).self_compose(times))
    ours = Composition(parts)
    for delta, close in ((1e-10, 0.02), (1e-7, 2e-6), (1e-3, 2e-6)):
        assert ours.epsilon(delta) == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=close)
    for epsilon in (0.0, 0.1, 1.0, 3.0):
        assert ours.delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-9, abs=3e-12)


def test_losses_that_are_all_above_zero() -> None:
    certain = DiscreteLoss(STEP, 8, np.array([0.5, 0.5]), 0.0)  # 2 or 2.25
    composed = Composition([(certain, 3)])
    for at in (0.0, 1.0, 5.9, 6.1, 6.5, 7.0):
        assert composed.delta(at) == pytest.approx(by_definition([(certain, 3)], at), abs=2e-12)
    assert composed.epsilon(1 - 1e-9) < 1e-3 < composed.epsilon(0.9) < 6 < composed.epsilon(1e-6) < 6.75


def test_losses_that_are_all_below_zero_cost_nothing() -> None:
    harmless = DiscreteLoss(STEP, -9, np.array([0.5, 0.5]), 0.0)
    composed = Composition([(harmless, 5)])
    assert composed.epsilon(1e-9) == 0.0
    assert composed.delta(0.0) == pytest.approx(composed.slack, rel=1e-3)


def test_slack_grows_with_what_a_power_does_to_rounding() -> None:
    one = DiscreteLoss(STEP, -1, np.array([0.4, 0.4, 0.2]), 0.0)
    few, many = (Composition([(one, count)]).slack for count in (1, 10**6))
    assert few < 2e-12
    assert many >= 10**6 * np.finfo(float).eps
