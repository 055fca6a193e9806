"""Three-query momentum: exact where nothing is clipped, and bounded per query whatever users send."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.clipping import norms
from fieldfare.errors import BadInput
from fieldfare.mechanisms.three_tree import ThreeTree
from fieldfare.noise import SecureNoise
from fieldfare_server.optimizers import StepInfo
from fieldfare_server.optimizers.normalised_momentum import NormalisedMomentumSpec
from fieldfare_server.optimizers.three_query import Queries, ThreeQueryMomentum, clipped_sums

D, PERIOD, ROUNDS, USERS = 5, 4, 14, 3
WHOLE = (slice(0, D),)


def local(targets: torch.Tensor, point: torch.Tensor) -> torch.Tensor:
    """Each user's update at a point: towards its target, bent, so that differences are no linear function."""
    gap = targets - point
    return gap + 0.3 * torch.sin(gap)


def optimizer_of(period: int, rate: float, normalise: bool = True) -> ThreeQueryMomentum:
    return ThreeQueryMomentum(period, NormalisedMomentumSpec(learning_rate=rate, momentum=0.8, normalise=normalise))


def train(
    clips: tuple[float, float, float], noise: float, rate: float = 0.05
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The final model, and what each round released; users in a fixed order of `PERIOD` cohorts."""
    targets = torch.randn(PERIOD, USERS, D, generator=torch.Generator().manual_seed(1))
    mechanism = ThreeTree(ROUNDS, PERIOD, momentum=0.8, mixing=0.3, clips=clips)
    stream = mechanism.stream(D, SecureNoise(bytes(32)), noise)
    optimizer, params = optimizer_of(PERIOD, rate), torch.zeros(D)
    state, out = optimizer.init(params), []
    for t in range(ROUNDS):
        info = StepInfo(t, ROUNDS, 0.0)
        queries = optimizer.queries(state, params, info)
        updates = [local(targets[t % PERIOD], point) for point in queries.points]
        order = (clips[0], clips[2], clips[1])[: len(queries.combinations)]
        anchor, drift, *change = clipped_sums(updates, queries, order, WHOLE)
        out.append(stream.step(anchor, change[0] if change else None, drift))
        params, state = optimizer.step(state, params, out[-1], info)
    return params, out


def test_without_clipping_and_noise_it_is_plain_momentum() -> None:
    """Lemma 17 through the real queries: the momentum of the updates at the current models, and the same path."""
    _, released = train((1e3, 1e3, 1e3), 0.0)
    targets = torch.randn(PERIOD, USERS, D, generator=torch.Generator().manual_seed(1))
    params, momentum = torch.zeros(D), torch.zeros(D)
    for t in range(ROUNDS):
        momentum = 0.8 * momentum + 0.2 * local(targets[t % PERIOD], params).sum(dim=0)
        torch.testing.assert_close(released[t], momentum, rtol=1e-4, atol=1e-5)
        params = params + 0.05 * momentum / momentum.norm()


@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1e-3, 1.0, 1e30, math.inf]))
@settings(max_examples=40, deadline=None)
def test_one_user_moves_each_query_by_at_most_its_own_norm(seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries = Queries((torch.zeros(D),) * 3, ((0.0, 1.0, 0.0), (1.0, -1.0, 0.0), (0.0, 1.0, -1.0)))
    updates = [torch.randn(1, D, generator=generator) * scale for _ in range(3)]
    clips = (1.0, 0.2, 0.03)
    for total, norm in zip(clipped_sums(updates, queries, clips, WHOLE), clips, strict=True):
        assert float(norms(total[None])[0]) <= norm


def test_small_differences_let_less_noise_through_than_three_full_queries() -> None:
    tight, loose = (ThreeTree(64, 8, 0.9, 0.2, clips).noise_std(64) for clips in ((1, 0.05, 0.05), (1, 1, 1)))
    assert tight < 0.5 * loose


def test_steps_have_the_learning_rates_length_under_noise() -> None:
    still, _ = train((1.0, 0.1, 0.1), 5.0, rate=1e-9)
    assert float(still.abs().max()) <= ROUNDS * 1e-9
    moved, released = train((1.0, 0.1, 0.1), 5.0)
    assert float(moved.norm()) <= ROUNDS * 0.05 * (1 + 1e-5)
    assert all(torch.isfinite(momentum).all() for momentum in released)


def test_anchors_move_at_the_end_of_each_epoch_only() -> None:
    optimizer, params = optimizer_of(2, 1.0, normalise=False), torch.zeros(1)
    state, seen = optimizer.init(params), []
    for t in range(5):
        seen.append((float(state["previous"]), float(state["anchor"])))
        params, state = optimizer.step(state, params, torch.ones(1), StepInfo(t, 5, 0.0))
    assert seen == [(0, 0), (0, 0), (0, 2), (0, 2), (2, 4)]


def test_an_epoch_of_no_rounds_is_refused() -> None:
    with pytest.raises(BadInput, match="period"):
        optimizer_of(0, 1.0)
