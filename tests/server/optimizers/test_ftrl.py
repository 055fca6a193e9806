"""FTRL: mirror maps, projections, the utility bounds that hold, and why the paper's privacy bounds must not be used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.errors import BadInput
from fieldfare_server.optimizers import StepInfo, build, parse
from fieldfare_server.optimizers.ftrl import dual_bound, gradient_of_conjugate, project_radially
from support.refusals import Coded, coded

DOUBLE = torch.float64


def gradient_of_mirror(primal: torch.Tensor, p: float) -> torch.Tensor:
    """grad Psi(w)_i = ||w||_p^(2 - p) sgn(w_i) |w_i|^(p - 1) / (p - 1): the inverse of `gradient_of_conjugate`."""
    norm = primal.abs().pow(p).sum().pow(1.0 / p)
    if p == 2.0 or not bool(norm > 0):
        return primal
    return torch.sign(primal) * (primal.abs() / norm).pow(p - 1.0) * norm / (p - 1.0)


def vector(seed: int, size: int = 7) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def potential(w: torch.Tensor, p: float) -> float:
    return float(w.abs().pow(p).sum().pow(2 / p)) / (2 * (p - 1))


def length(w: torch.Tensor, p: float) -> float:
    return float(w.abs().pow(p).sum().pow(1 / p))


@pytest.mark.parametrize("p", [1.2, 1.5, 2.0])
@given(seed=st.integers(0, 2**31), scale=st.sampled_from([1e-20, 1.0, 1e20]))
@settings(max_examples=30, deadline=None)
def test_mirror_maps_are_inverses(p: float, seed: int, scale: float) -> None:
    w = vector(seed) * scale
    torch.testing.assert_close(gradient_of_conjugate(gradient_of_mirror(w, p), p), w, rtol=1e-9, atol=0)


@pytest.mark.parametrize("p", [1.05, 1.2, 1.5, 2.0])
@given(a=st.integers(0, 2**31), b=st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_potential_is_1_strongly_convex_in_its_norm(p: float, a: int, b: int) -> None:
    u, w = vector(a), vector(b)
    gap = potential(u, p) - potential(w, p) - float(gradient_of_mirror(w, p) @ (u - w))
    assert gap >= 0.5 * length(u - w, p) ** 2 - 1e-9


@pytest.mark.parametrize("p", [1.0 + 1.0 / math.log(1e6), 1.5])
def test_near_l1_nothing_vanishes_or_overflows(p: float) -> None:
    dual = torch.tensor([1e-30, -1e30, 3.0, 0.0], dtype=torch.float32)
    assert torch.isfinite(gradient_of_conjugate(dual, p)).all()
    assert not gradient_of_conjugate(torch.zeros(3), p).any()


def test_unconstrained_l2_with_fixed_steps_is_sgd() -> None:
    updates = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    ends = []
    for table in ({"kind": "ftrl", "learning_rate": 0.3}, {"kind": "sgd", "learning_rate": 0.3}):
        optimizer, x = build(table), torch.linspace(-1, 1, 6)
        state = optimizer.init(x)
        for t, update in enumerate(updates):
            x, state = optimizer.step(state, x, update, StepInfo(t, 40, 1.0))
        ends.append(x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-5, atol=1e-6)


def test_decreasing_step_rescales_all_of_history() -> None:
    table = {"kind": "ftrl", "schedule": {"kind": "polynomial", "power": 1.0}}
    optimizer, x = build(table), torch.tensor([5.0])
    state = optimizer.init(x)
    for t in range(4):
        x, state = optimizer.step(state, x, torch.tensor([1.0]), StepInfo(t, 4, 0.0))
        assert float(x) == 5.0 + (1 - t / 4) * (t + 1)


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0])
@given(seed=st.integers(0, 2**31))
@settings(max_examples=25, deadline=None)
def test_model_stays_in_its_ball_around_the_start(p: float, seed: int) -> None:
    optimizer = build({"kind": "ftrl", "p": p, "radius": 0.7, "learning_rate": 5.0})
    start = torch.linspace(-3, 3, 7)
    x, state = start, optimizer.init(start)
    for t in range(6):
        x, state = optimizer.step(state, x, vector(seed + t).float() * 10**t, StepInfo(t, 6, 1.0))
        assert length((x - start).double(), p) <= 0.7 * (1 + 1e-5)


def test_projection_leaves_what_is_inside_and_is_the_nearest_point_for_l2() -> None:
    inside = torch.tensor([0.3, -0.4], dtype=DOUBLE)
    assert torch.equal(project_radially(inside, 2.0, 1.0), inside)
    torch.testing.assert_close(project_radially(inside * 10, 2.0, 1.0), inside * 2)
    assert torch.equal(project_radially(torch.zeros(3), 1.5, 1.0), torch.zeros(3))


@given(seed=st.integers(0, 2**31), p=st.sampled_from([1.2, 1.5, 2.0]))
@settings(max_examples=30, deadline=None)
def test_radial_projection_minimises_the_regularised_leaders_objective(seed: int, p: float) -> None:
    """w = argmin over the ball of <G, w> + Psi(w): no other point of the ball is lower."""
    gradient, radius = vector(seed) * 3, 0.8
    w = project_radially(gradient_of_conjugate(-gradient, p), p, radius)
    value = float(gradient @ w) + potential(w, p)
    for other in range(20):
        u = vector(seed + other + 1)
        u = u * (radius * torch.rand((), dtype=DOUBLE, generator=torch.Generator().manual_seed(other))) / length(u, p)
        assert value <= float(gradient @ u) + potential(u, p) + 1e-9


@given(seed=st.integers(0, 2**31), p=st.sampled_from([1.2, 1.5, 2.0]), eta=st.floats(0.01, 3.0))
@settings(max_examples=60, deadline=None)
def test_stability_term_is_at_most_half_eta_squared_dual_norm(seed: int, p: float, eta: float) -> None:
    """Lemma A.2 along every path: <g, w> + Phi(-(G + g)) - Phi(-G) <= eta ||g||_q^2 / 2, with the ball."""
    q, radius = p / (p - 1), 0.9

    def leader(total: torch.Tensor) -> torch.Tensor:
        return project_radially(gradient_of_conjugate(-eta * total, p), p, radius)

    def conjugate(total: torch.Tensor) -> float:
        w = leader(total)
        return -float(total @ w) - potential(w, p) / eta

    total, gradient = vector(seed), vector(seed + 1)
    stability = float(gradient @ leader(total)) + conjugate(total + gradient) - conjugate(total)
    assert -1e-9 <= stability <= eta / 2 * length(gradient, q) ** 2 + 1e-9


def test_first_model_is_the_start() -> None:
    """w_1 = argmin Psi: before any update, or after updates that sum to zero."""
    optimizer, start = build({"kind": "ftrl", "p": 1.5, "radius": 1.0}), torch.linspace(-1, 1, 4)
    x, _ = optimizer.step(optimizer.init(start), start, torch.zeros(4), StepInfo(0, 2, 0.0))
    assert torch.equal(x, start)


def etas(table: dict[str, Any], rounds: int, std: float | list[float], size: int = 4) -> list[float]:
    """The steps that the optimizer takes, read off its movement for a total of 1 in every coordinate."""
    stds = std if isinstance(std, list) else [std] * rounds
    optimizer, x = build({"kind": "ftrl"} | table), torch.zeros(size, dtype=DOUBLE)
    state, out = optimizer.init(x), []
    for t in range(rounds):
        unit = torch.full((size,), 1.0 if t == 0 else 0.0, dtype=DOUBLE)
        x, state = optimizer.step(state, x, unit, StepInfo(t, rounds, stds[t]))
        out.append(float(x[0]))
    return out


def test_step_sizes_are_d_over_g_root_t() -> None:
    """D = R / sqrt(2), G^2 = C^2 + d sigma^2; anytime uses t + 1 after t updates."""
    d_over_g = 100 / math.sqrt(2) / math.sqrt(2.0**2 + 4 * 3.0**2)
    base = {"radius": 100.0, "gradient_bound": 2.0}
    assert etas(base | {"steps": "fixed"}, 5, 3.0) == pytest.approx([d_over_g / math.sqrt(5)] * 5)
    expected = [d_over_g / math.sqrt(t + 2) for t in range(5)]
    assert etas(base | {"steps": "anytime"}, 5, 3.0) == pytest.approx(expected)


def test_anytime_steps_do_not_depend_on_the_horizon() -> None:
    table = {"radius": 100.0, "steps": "anytime"}
    assert etas(table, 5, 1.0) == etas(table, 50, 1.0)[:5]


def test_steps_never_grow_where_the_noise_comes_and_goes() -> None:
    steps = etas({"radius": 100.0, "steps": "fixed"}, 8, [1.0, 1.4, 1.0, 1.7, 1.0, 1.4, 1.0, 2.0])
    assert steps == sorted(steps, reverse=True)


def test_bound_on_the_dual_norm_of_the_noise() -> None:
    """q = 4 (p = 4/3), d = 50: E ||N||_q^2 below the bound, and the bound within 10 %."""
    noise = torch.randn(20_000, 50, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    mean = float(noise.abs().pow(4).sum(dim=1).pow(0.5).mean())
    assert dual_bound(2.0, 3.0, 0.5, 16) == math.sqrt(9 + 4)
    squared = dual_bound(4 / 3, 0.0, 1.0, 50) ** 2 / 2
    assert mean <= squared <= 1.1 * mean
    assert math.isfinite(dual_bound(1.0 + 1.0 / math.log(1e6), 1.0, 1.0, 10**6))


@pytest.mark.parametrize("sigma", [0.0, 1.0])
@pytest.mark.parametrize("steps", ["fixed", "anytime"])
def test_last_iterate_bounds_on_absolute_loss(steps: str, sigma: float) -> None:
    """F(w) = E|w - z|, z = .5 + U(-1, 1), on [-2, 2]: theorems A.3 (fixed) and A.4 (anytime) of the paper."""
    rounds, rng = 1000, np.random.default_rng(9)
    diameter, bound = 2 / math.sqrt(2), math.sqrt(1 + sigma**2)
    excess = []
    for _ in range(30):
        optimizer = build({"kind": "ftrl", "radius": 2.0, "steps": steps})
        w = torch.zeros(1, dtype=DOUBLE)
        state = optimizer.init(w)
        z, noise = 0.5 + rng.uniform(-1, 1, rounds), rng.normal(size=rounds) * sigma
        for t in range(rounds - 1):
            gradient = math.copysign(1.0, float(w) - z[t]) - noise[t]
            w, state = optimizer.step(state, w, torch.tensor([-gradient], dtype=DOUBLE), StepInfo(t, rounds, sigma))
        distance = min(abs(float(w) - 0.5), 1.0)
        excess.append(distance**2 / 2 + max(0.0, abs(float(w) - 0.5) - 1.0))
    scale = bound * diameter / math.sqrt(rounds)
    fixed = scale * (1 + math.log(rounds)) / 2 + 1.5 * scale
    anytime = 2 * scale * (1 + math.log(rounds)) + bound * diameter / rounds
    assert 0 < np.mean(excess) <= (fixed if steps == "fixed" else anytime)


@pytest.mark.parametrize(("rho", "sigma", "rounds"), [(0.5, 0.1, 800), (0.02, 0.2, 5000)])
def test_noise_of_earlier_rounds_does_not_protect_the_last_user(rho: float, sigma: float, rounds: int) -> None:
    """Counter-example CE-2 (ftrl.md section 4): on |w| losses the feedback cancels the noise, so the last user is seen
    with an advantage far above what the paper's rho = 4 L^2 / (T sigma^2) would allow. Ours charges every round."""
    rng, chains = np.random.default_rng(6), 2000
    assert 4 / (rounds * sigma**2) == pytest.approx(rho)
    optimizer = build({"kind": "ftrl", "learning_rate": 1.0})
    w = torch.zeros(chains, dtype=DOUBLE)  # no ball: coordinates are independent chains
    state = optimizer.init(w)
    for t in range(rounds - 1):
        update = -torch.sign(w) + sigma * torch.from_numpy(rng.normal(size=chains))
        w, state = optimizer.step(state, w, update, StepInfo(t, rounds, sigma))
    last = torch.from_numpy(rng.normal(size=chains)) * sigma
    up, _ = optimizer.step(state, w, 1.0 + last, StepInfo(rounds - 1, rounds, sigma))
    down, _ = optimizer.step(state, w, -1.0 + last, StepInfo(rounds - 1, rounds, sigma))
    advantage = float((up > 0).double().mean() - (down > 0).double().mean())
    assert advantage > 0.85 > math.sqrt(rho / 2), "Pinsker's cap on the advantage under the paper's claim"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"steps": "fixed"}, coded("values-conflict", "server_optimizer")),
        (
            {"steps": "anytime", "radius": 1.0, "schedule": {"kind": "cosine"}},
            coded("values-conflict", "server_optimizer"),
        ),
        ({"p": 1.0}, coded("value-wrong", "server_optimizer.p")),
        ({"p": 2.5}, coded("value-wrong", "server_optimizer.p")),
    ],
)
def test_refusals(table: dict[str, Any], message: Coded) -> None:
    with pytest.raises(BadInput, check=message):
        parse({"kind": "ftrl"} | table)


@pytest.mark.parametrize("steps", ["learning-rate", "fixed", "anytime"])
@pytest.mark.parametrize("p", [1.05, 1.4, 1.9])
def test_reach_is_how_far_equal_entries_move(steps: str, p: float) -> None:
    """A run whose every mean update has length 0.5 and equal entries, followed step by step."""
    size, rounds, noise = 50, 9, 0.2
    table = {"kind": "ftrl", "p": p, "radius": 3.0, "steps": steps, "gradient_bound": 0.5, "learning_rate": 1e-3}
    spec = parse(table)
    optimizer, params = build(table), torch.zeros(size)
    state, update = optimizer.init(params), torch.full((size,), 0.5 / math.sqrt(size))
    for round_ in range(rounds):
        params, state = optimizer.step(state, params, update, StepInfo(round_, rounds, noise))
    reach = spec.reach(rounds, noise, size)  # type: ignore[attr-defined]
    assert length(params.double(), p) / 3.0 == pytest.approx(reach, rel=1e-4)


def test_reach_has_no_meaning_without_a_ball_or_in_the_euclidean_geometry() -> None:
    assert parse({"kind": "ftrl", "p": 1.5}).reach(9, 0.0, 50) is None  # type: ignore[attr-defined]
    assert parse({"kind": "ftrl", "radius": 1.0}).reach(9, 0.0, 50) is None  # type: ignore[attr-defined]
