"""DiSK: its special cases, its published numbers with the errata, and the two faults of the released code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.clipping import clip_, norms
from fieldfare.clipping import parse as clipping
from fieldfare.errors import BadInput
from fieldfare_server.optimizers import ServerOptimizer, State, StepInfo, build, parse
from support.refusals import Coded, coded

Field = Callable[[torch.Tensor], torch.Tensor]
DOUBLE = torch.float64


def info(t: int, rounds: int = 64, std: float = 1.0, lags: tuple[float, ...] = ()) -> StepInfo:
    return StepInfo(t, rounds, std, lags)


def asked(optimizer: ServerOptimizer, state: State, params: torch.Tensor, t: int, field: Field) -> torch.Tensor:
    """What clients whose local training is `field` would send: combined over the points, as a node does."""
    points, weights, *_ = optimizer.points(state, params, info(t))
    return sum((field(p) * w for p, w in zip(points, weights, strict=True)), torch.zeros_like(params))


def train(table: dict[str, Any], field: Field, start: torch.Tensor, noise: torch.Tensor) -> list[torch.Tensor]:
    optimizer, params = build(table), start
    state, path = optimizer.init(params), [start]
    for t, w in enumerate(noise):
        params, state = optimizer.step(
            state, params, asked(optimizer, state, params, t, field) + w, info(t, len(noise))
        )
        path.append(params)
    return path


CURVATURE = torch.tensor([1.0, 0.5, 0.2, 0.05], dtype=DOUBLE)
START = torch.tensor([1.0, -1.0, 2.0, 3.0], dtype=DOUBLE)


def quadratic(x: torch.Tensor) -> torch.Tensor:
    return -CURVATURE * x


def wavy(x: torch.Tensor) -> torch.Tensor:
    return -CURVATURE * x - 0.3 * torch.sin(3 * x)


def bounded(x: torch.Tensor) -> torch.Tensor:
    return -torch.tanh(x)


def draw(rounds: int, seed: int = 4) -> torch.Tensor:
    return torch.randn(rounds, 4, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


@pytest.mark.parametrize("mode", ["one-point", "two-point", "storm", "doppler"])
@pytest.mark.parametrize(
    "base",
    [{"kind": "sgd", "momentum": 0.9}, {"kind": "adamw", "weight_decay": 0.1}, {"kind": "ftrl"}],
    ids=lambda base: base["kind"],
)
def test_gain_one_is_the_base_optimizer_bit_for_bit(mode: str, base: dict[str, Any]) -> None:
    plain = train(base, wavy, START.float(), draw(12).float())
    filtered = train({"kind": "disk", "kappa": 1.0, "mode": mode, "base": base}, wavy, START.float(), draw(12).float())
    assert all(torch.equal(a, b) for a, b in zip(plain, filtered, strict=True))


def test_gamma_minus_one_is_storm() -> None:
    """m = (1 - a) m + a g(x) + (1 - a)(g(x) - g(x_prev)) (disk.md, equation 17)."""
    alpha, rate, noise = 0.3, 0.4, draw(40) * 0
    table = {"kind": "disk", "mode": "storm", "kappa": alpha, "base": {"kind": "sgd", "learning_rate": rate}}
    path = train(table, wavy, START, noise)
    x, previous, m = START, START, wavy(START)
    for t in range(40):
        if t:
            m = (1 - alpha) * m + alpha * wavy(x) + (1 - alpha) * (wavy(x) - wavy(previous))
        previous, x = x, x + rate * m
        torch.testing.assert_close(path[t + 1], x, rtol=1e-12, atol=1e-13)


def test_one_point_is_generalised_nesterov() -> None:
    """x' = x - m, m = mu m + eta grad F(x - (mu / kappa) m): mu = 1 - kappa, eta = lr kappa. The classical look-ahead
    mu m is not it (an erratum of the paper)."""
    kappa, rate = 0.7, 0.4
    table = {"kind": "disk", "kappa": kappa, "base": {"kind": "sgd", "learning_rate": rate}}
    path = train(table, wavy, START, draw(40) * 0)
    for lookahead, agrees in [((1 - kappa) / kappa, True), (1 - kappa, False)]:
        x, m, worst = START, -rate * wavy(START), 0.0
        for t in range(40):
            if t:
                m = (1 - kappa) * m - rate * kappa * wavy(x - lookahead * m)
            x = x - m
            worst = max(worst, float((path[t + 1] - x).abs().max()))
        assert (worst < 1e-12) is agrees, worst


def test_far_radius_is_doppler_where_updates_are_bounded() -> None:
    """a -> 0 as gamma grows, and D(x + gamma d) stays bounded, as clipping makes it. (On a quadratic D grows with gamma
    and the radius never matters.)"""
    base = {"kind": "sgd", "learning_rate": 0.4}
    far = train({"kind": "disk", "mode": "two-point", "gamma": 1e9, "base": base}, bounded, START, draw(40))
    low_pass = train({"kind": "disk", "mode": "doppler", "base": base}, bounded, START, draw(40))
    torch.testing.assert_close(far[-1], low_pass[-1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("extra", [{}, {"mode": "two-point"}, {"mode": "two-point", "gamma": 2.0}, {"mode": "storm"}])
def test_on_a_quadratic_the_error_contracts_by_exactly_one_minus_gain(extra: dict[str, Any]) -> None:
    """Delta_t = (1 - kappa) Delta_{t-1} - kappa w_t for every radius (disk.md, equation 27): the radius does not
    matter, and neither does the noise of any other round."""
    kappa, noise = 0.7, draw(30)
    optimizer = build({"kind": "disk", "kappa": kappa, "base": {"kind": "sgd", "learning_rate": 0.6}} | extra)
    x = START
    state, delta = optimizer.init(x), torch.zeros_like(x)
    for t, w in enumerate(noise):
        update = asked(optimizer, state, x, t, quadratic) + w
        moved, state = optimizer.step(state, x, update, info(t))
        delta = -w if t == 0 else (1 - kappa) * delta - kappa * w
        torch.testing.assert_close(quadratic(x) - state["filtered"], delta, rtol=1e-9, atol=1e-9)
        x = moved


def impulse_variance(table: dict[str, Any], h: float) -> float:
    """Stationary variance of the model on F(x) = h x^2 / 2 under white unit noise: the sum of its squared impulse
    response, which the real optimizer gives because all of it is linear. Measured in round 5, past the warm start."""
    optimizer, rounds = build(table), 2500
    x = torch.zeros(1, dtype=DOUBLE)
    state, total = optimizer.init(x), 0.0
    for t in range(rounds):
        points, weights, *_ = optimizer.points(state, x, info(t))
        update = sum((-h * p * w for p, w in zip(points, weights, strict=True)), torch.zeros_like(x))
        x, state = optimizer.step(state, x, update + (t == 5), info(t))
        total += float(x**2)
    return total


@pytest.mark.parametrize(
    ("kappa", "mode", "ratios"),
    [
        (0.7, "one-point", {0.01: 0.99343, 0.1: 0.93678, 0.5: 0.72851, 1.0: 0.53846, 1.5: 0.39799}),
        (0.7, "doppler", {0.01: 0.99769, 0.1: 0.97628, 0.5: 0.86667, 1.0: 0.68421, 1.5: 0.41935}),
        (0.5, "two-point", {0.01: 0.98680, 0.1: 0.87879, 0.5: 0.55556, 1.0: 0.33333, 1.5: 0.20000}),
        (0.5, "doppler", {0.01: 0.99666, 0.1: 0.96610, 0.5: 0.81818, 1.0: 0.60000, 1.5: 0.33333}),
    ],
)
def test_iterate_variance_on_a_quadratic(kappa: float, mode: str, ratios: dict[float, float]) -> None:
    table = {"kind": "disk", "kappa": kappa, "mode": mode}
    for h, ratio in ratios.items():
        assert impulse_variance(table, h) / (1 / (1 - (1 - h) ** 2)) == pytest.approx(ratio, abs=2e-5)


@pytest.mark.parametrize(("kappa", "mode", "expected"), [(0.7, "one-point", 0.536), (0.7, "doppler", 0.597)])
def test_error_of_the_filtered_gradient_against_the_true_one(kappa: float, mode: str, expected: float) -> None:
    """disk.md section 2: E (grad F - m)^2 = .536 (DiSK) and .597 (low pass), 1 unfiltered, at lr .5, h = 1."""
    table = {"kind": "disk", "kappa": kappa, "mode": mode, "base": {"kind": "sgd", "learning_rate": 0.5}}
    optimizer, chains = build(table), 4000
    noise = torch.randn(60, chains, generator=torch.Generator().manual_seed(8), dtype=DOUBLE)
    x = torch.zeros(chains, dtype=DOUBLE)
    state, errors = optimizer.init(x), []
    for t, w in enumerate(noise):
        moved, state = optimizer.step(state, x, asked(optimizer, state, x, t, lambda p: -p) + w, info(t))
        errors.append(float((-x - state["filtered"]).square().mean()))
        x = moved
    assert np.mean(errors[20:]) == pytest.approx(expected, abs=0.012)


def test_noise_variance_behind_the_filter_and_the_released_weight_error() -> None:
    """v = 1, .58, .5422, ... for kappa = .7. The released code puts kappa on the *old* value (v_1 would be .58 too, but
    the impulse decays by .7 a round and not by .3)."""
    optimizer = build({"kind": "disk", "kappa": 0.7, "base": {"kind": "adamw", "noise_correction": True}})
    x = torch.zeros(1)
    state, seen = optimizer.init(x), []
    for t in range(6):
        x, state = optimizer.step(state, x, torch.tensor([1.0 if t == 1 else 0.0]), info(t))
        seen.append((float(state["variance"]), float(state["filtered"])))
    assert [v for v, _ in seen] == pytest.approx([1, 0.58, 0.5422, 0.538798, 0.538492, 0.5384643], abs=1e-6)
    assert [m for _, m in seen] == pytest.approx([0, 0.7, 0.21, 0.063, 0.0189, 0.00567], rel=1e-5)
    v = [value for value, _ in seen]
    told = 0.0
    for value in v:
        told = 0.999 * told + 0.001 * value
    assert float(state["base.noise"]) == pytest.approx(told, rel=1e-9), "the base is told the filtered variance"


@pytest.mark.parametrize(
    ("lags", "rows"),
    [((1.0,), [1.0]), ((1.0, -0.5), [1.0, -1.0]), ((1.0, -0.36 / 1.0725, -0.225 / 1.0725), [0.97, -0.15, -0.3])],
)
@pytest.mark.parametrize("kappa", [0.3, 0.8, "auto", "adaptive"])
def test_base_is_told_the_exact_variance_of_moving_average_noise(
    lags: tuple[float, ...], rows: list[float], kappa: float | str
) -> None:
    """Round t of B as a vector over z: the filter's output has variance ||m||^2 exactly."""
    b = np.array(rows)
    r = np.array([b[: b.size - j] @ b[j:] for j in range(b.size)])
    lags = tuple(r / r[0])
    optimizer = build({"kind": "disk", "kappa": kappa})
    rounds, size = 40, 50
    x = torch.zeros(size, dtype=DOUBLE)
    state = optimizer.init(x)
    for t in range(rounds):
        row = torch.zeros(size, dtype=DOUBLE)
        for j, value in enumerate(rows):
            row[t + len(rows) - j] = value
        step = StepInfo(t, rounds, math.sqrt(r[0]), lags)
        x, state = optimizer.step(state, x, row, step)
        assert float(state["variance"]) == pytest.approx(float(state["filtered"] @ state["filtered"]), rel=1e-9)


@pytest.mark.parametrize(("kappa", "ratio"), [(0.3, 0.0870), (0.5, 0.2263), (0.7, 0.4449), (0.9, 0.7752)])
def test_tree_noise_is_damped_more_than_white_noise(kappa: float, ratio: float) -> None:
    """disk.md section 5: increments of binary-tree prefix noise, T = 1024, filtered against raw variance."""
    rounds = 1024
    optimizer = build({"kind": "disk", "kappa": kappa, "mode": "doppler"})
    prefix = torch.zeros(rounds, dtype=DOUBLE)  # one read node closes each round: its own coordinate
    state, x, raw, out = optimizer.init(prefix), prefix, 0.0, 0.0
    for t in range(1, rounds + 1):
        now, left = torch.zeros(rounds, dtype=DOUBLE), t
        while left:
            now[left - 1] = 1.0
            left &= left - 1
        increment, prefix = now - prefix, now
        x, state = optimizer.step(state, x, increment, info(t - 1, rounds))
        raw += float(increment @ increment)
        out += float(state["filtered"] @ state["filtered"])
    # 2e-3: the warm start takes the first increment whole.
    assert out / raw == pytest.approx(ratio, abs=2e-3)
    assert out / raw < kappa / (2 - kappa)


@given(
    kappa=st.floats(0.05, 1.0),
    gamma=st.sampled_from([-1.0, 0.2, 0.5, 1.0, 3.0]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_combined_then_clipped_contributions_have_the_clip_norm(kappa: float, gamma: float, seed: int) -> None:
    """Sensitivity is the clip norm for every radius; clipping each point first has (|a| + |1 - a|) times that."""
    optimizer = build({"kind": "disk", "kappa": kappa, "mode": "two-point", "gamma": gamma})
    state = optimizer.init(torch.zeros(4)) | {"steps": torch.tensor(1), "displacement": torch.ones(4)}
    _, weights, *_ = optimizer.points(state, torch.zeros(4), info(1))
    assert sum(weights) == pytest.approx(1.0)
    generator = torch.Generator().manual_seed(seed)
    replies = [torch.randn(1, 4, generator=generator) * 10 for _ in weights]
    combined = sum((r * w for r, w in zip(replies, weights, strict=True)), torch.zeros(1, 4))
    clip_(combined, clipping({"kind": "flat", "norm": 0.5}), (slice(0, 4),))
    assert float(norms(combined)[0]) <= 0.5


@pytest.mark.parametrize(
    ("kappa", "gamma", "factor"),
    [(0.7, 0.5, 1.0), (0.7, 0.2, 3.2857), (0.7, -1.0, 1.857), (0.5, 0.5, 3.0), (0.5, 1.0, 1.0)],
)
def test_weights_of_the_two_points(kappa: float, gamma: float, factor: float) -> None:
    """|a| + |1 - a|, a = (1 - kappa) / (kappa gamma) (disk.md section 2, the erratum's exact form)."""
    optimizer = build({"kind": "disk", "kappa": kappa, "mode": "two-point", "gamma": gamma})
    state = optimizer.init(torch.zeros(2)) | {"steps": torch.tensor(1), "displacement": torch.tensor([1.0, -2.0])}
    (ahead, here), weights, *_ = optimizer.points(state, torch.ones(2), info(1))
    assert sum(abs(w) for w in weights) == pytest.approx(factor, abs=1e-3)
    assert weights[0] == pytest.approx((1 - kappa) / (kappa * gamma))
    assert torch.equal(here, torch.ones(2))
    torch.testing.assert_close(ahead, torch.tensor([1.0 + gamma, 1.0 - 2.0 * gamma]))


def test_released_codes_noise_rescaling_is_absent() -> None:
    """It divides the noise by sqrt(a^2 + (1 - a)^2). Here the filter adds exactly kappa times the noise it was given,
    and the noise is the mechanism's whatever gamma is."""
    for gamma in (-1.0, 0.2, 0.5, 3.0):
        optimizer = build({"kind": "disk", "mode": "two-point", "gamma": gamma})
        x = torch.zeros(3, dtype=DOUBLE)
        _, state = optimizer.step(optimizer.init(x), x, torch.zeros(3, dtype=DOUBLE), info(0))
        noise = torch.tensor([1.0, -2.0, 0.5], dtype=DOUBLE)
        quiet = optimizer.step(state, x, torch.zeros(3, dtype=DOUBLE), info(1))[1]["filtered"]
        loud = optimizer.step(state, x, noise, info(1))[1]["filtered"]
        torch.testing.assert_close(loud - quiet, 0.7 * noise, rtol=1e-12, atol=0)


def test_linear_loss_makes_the_points_indistinguishable() -> None:
    """Local training that does not depend on the point: the combination is the update itself."""
    optimizer = build({"kind": "disk", "mode": "two-point"})
    state = optimizer.init(START) | {"steps": torch.tensor(3), "displacement": START}
    update = torch.tensor([0.3, -0.1, 0.0, 2.0], dtype=DOUBLE)
    torch.testing.assert_close(asked(optimizer, state, START, 3, lambda p: update), update, rtol=1e-12, atol=1e-15)


def test_starts_from_the_first_update_or_from_zero() -> None:
    update = torch.tensor([2.0])
    for start, expected in [("first", 2.0), ("zero", 1.4)]:
        optimizer = build({"kind": "disk", "kappa": 0.7, "start": start})
        x = torch.zeros(1)
        _, state = optimizer.step(optimizer.init(x), x, update, info(0))
        assert float(state["filtered"]) == pytest.approx(expected)


def test_first_round_trains_from_the_model_itself() -> None:
    for mode in ("one-point", "two-point", "storm", "doppler"):
        optimizer = build({"kind": "disk", "mode": mode, "start": "zero"})
        points, weights, *_ = optimizer.points(optimizer.init(START), START, info(0))
        assert len(points) == 1
        assert weights == (1.0,)
        assert torch.equal(points[0], START)


def test_displacement_is_the_models_whole_movement() -> None:
    """Including Adam's scaling and weight decay (Algorithm 3, line 8)."""
    optimizer = build({"kind": "disk", "base": {"kind": "adamw", "weight_decay": 0.5, "learning_rate": 0.1}})
    moved, state = optimizer.step(optimizer.init(START), START, torch.zeros_like(START), info(0))
    torch.testing.assert_close(state["displacement"], moved - START)
    assert float(state["displacement"].abs().max()) > 0.1


def test_adaptive_gain_looks_ahead_with_this_rounds_gain() -> None:
    optimizer = build({"kind": "disk", "kappa": "adaptive", "innovation": 0.4})
    state = optimizer.init(START) | {"steps": torch.tensor(1), "displacement": torch.ones_like(START)}
    k = (1.0 + 0.4) / (1.0 + 0.4 + 1.0)
    (point,), *_ = optimizer.points(state, START, info(1))
    torch.testing.assert_close(point, START + (1 - k) / k)


def test_auto_gain_depends_on_the_mechanisms_noise_and_on_nothing_private() -> None:
    optimizer = build({"kind": "disk", "kappa": "auto", "innovation": 0.05})
    state = optimizer.init(START) | {"steps": torch.tensor(1), "displacement": torch.ones_like(START)}
    white, anti = info(1), info(1, lags=(1.0, -0.5))
    (a,), *_ = optimizer.points(state, START, white)
    (b,), *_ = optimizer.points(state, START, anti)
    assert float((a - START)[0]) > float((b - START)[0]) > 0
    (quiet,), *_ = optimizer.points(state, START, info(1, std=0.0))
    assert torch.equal(quiet, START), "without noise there is nothing to filter"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kappa": 0.0}, coded("out-of-range", "server_optimizer.kappa", "0.001")),
        ({"kappa": 1.5}, coded("out-of-range", "server_optimizer.kappa", "1.0")),
        ({"kappa": "automatic"}, coded("value-wrong", "server_optimizer.kappa")),
        ({"gamma": 0.5}, coded("conflict", "server_optimizer.gamma")),
        ({"mode": "two-point", "gamma": 0.0}, coded("conflict", "server_optimizer.gamma")),
        ({"base": {"kind": "disk"}}, coded("conflict", "server_optimizer.base.kind")),
        ({"base": {"kind": "sgd", "momentm": 0.9}}, coded("key-unknown", "server_optimizer.momentm")),
        ({"base": 3}, coded("wrong-form", "server_optimizer.base")),
        ({"learning_rate": 1.0}, coded("key-unknown", "server_optimizer.learning_rate")),
    ],
)
def test_refusals(table: dict[str, Any], message: Coded) -> None:
    with pytest.raises(BadInput, check=message):
        parse({"kind": "disk"} | table)
