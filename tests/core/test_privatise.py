"""The grid: exact, post-processing only, and paid for by as much more noise as it lets one user change."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare import mechanisms
from fieldfare.accounting.discretised import SMALLEST_SCALE
from fieldfare.errors import BadInput
from fieldfare.noise import SecureNoise
from fieldfare.privatise import COST, Grid, Privatiser
from support.refusals import coded

KEY = b"a fixed key for tests, 32 bytes!"


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20),
    exponent=st.integers(-30, 3),
    double=st.booleans(),
)
def test_snapping_goes_to_the_nearest_multiple(values: list[float], exponent: int, double: bool) -> None:
    grid = Grid(2.0**exponent)
    dtype = torch.float64 if double else torch.float32
    before = torch.tensor(values, dtype=dtype)
    after = grid.snap_(before.clone())
    assert torch.equal(torch.remainder(after.double(), grid.spacing), torch.zeros(len(values), dtype=torch.float64))
    assert float((after.double() - before.double()).abs().max()) <= grid.spacing / 2
    assert torch.equal(grid.snap_(after.clone()), after)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), clip=st.floats(0.01, 10), exponent=st.integers(-12, 0))
def test_charged_clip_covers_what_snapping_can_do(seed: int, clip: float, exponent: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    grid, d = Grid(2.0**exponent), 64
    total = torch.randn(d, generator=generator, dtype=torch.float64)
    user = torch.randn(d, generator=generator, dtype=torch.float64)
    user *= clip / user.norm()
    moved = grid.snap_(total + user) - grid.snap_(total.clone())
    assert float(moved.norm()) <= grid.charged_clip(clip, d)


def test_fit_keeps_the_promised_cost() -> None:
    for d in (1, 1000, 10**8):
        grid = Grid.fit(0.7, d)
        assert 0.7 < grid.charged_clip(0.7, d) <= 0.7 * (1 + COST) * (1 + 1e-14)
        assert Grid(2 * grid.spacing).charged_clip(0.7, d) > 0.7 * (1 + COST)


def test_a_release_is_the_rounded_exact_sum() -> None:
    """Post-processing: the same as adding the noise to the snapped sum in exact arithmetic and rounding then."""
    grid, d, std = Grid(2.0**-20), 5000, 3.7
    noise = SecureNoise(KEY).standard_normal(d, row=0, dtype=torch.float64)
    total = torch.linspace(-4, 4, d, dtype=torch.float64)
    snapped = grid.snap_(total.clone())
    cells = [round(float(x) / grid.spacing) for x in snapped]
    exact = [c + round(float(w) * std / grid.spacing) for c, w in zip(cells, noise, strict=True)]
    released = grid.add_noise_(total.clone(), noise, std)
    assert released.tolist() == [c * grid.spacing for c in exact]
    narrow = grid.add_noise_(total.float(), noise, std)
    assert narrow.dtype == torch.float32


@pytest.mark.parametrize("exponent", [-30, -24, -12])
def test_the_fast_release_is_the_slow_one_bit_for_bit(monkeypatch: pytest.MonkeyPatch, exponent: int) -> None:
    """Float64 on the host goes another way, for speed. Ties go to even in both; sums need not be snapped."""
    generator = torch.Generator().manual_seed(exponent)
    n = (1 << 16) + 77
    grid, std = Grid(2.0**exponent), 0.75
    total = torch.randn(n, dtype=torch.float64, generator=generator) * 2.0 ** (exponent + 30)
    noise = torch.randn(n, dtype=torch.float64, generator=generator) * 2.0 ** (exponent + 26)
    noise[:64] = (torch.arange(64) - 32 + 0.5) * grid.spacing / std  # ties, in the noise
    total[32:96] = (torch.arange(64) - 32 + 0.5) * grid.spacing  # and in the sum
    fast = grid.add_noise_(total.clone(), noise, std)
    assert grid._add_on_host(total.clone(), noise, std) == n
    monkeypatch.setattr(Grid, "_add_on_host", lambda *_: 0)
    assert torch.equal(fast, grid.add_noise_(total.clone(), noise, std))


def test_the_fast_release_stops_at_what_it_cannot_add() -> None:
    """Sums beyond 2^50 cells, and all after them, go the slow way: once, and to the same floats."""
    grid, n = Grid(2.0**-20), 3 << 15
    total, noise = torch.zeros(n, dtype=torch.float64), torch.full((n,), 0.3, dtype=torch.float64)
    total[(1 << 15) + 5] = 2.0**31
    part = total.clone()
    assert grid._add_on_host(part, noise, 1.0) == 1 << 15
    assert torch.equal(part[1 << 15 :], total[1 << 15 :])
    cell = round(0.3 / grid.spacing) * grid.spacing
    assert torch.equal(grid.add_noise_(total.clone(), noise, 1.0), total + cell)


def test_which_sum_it_was_cannot_be_read_from_the_support() -> None:
    """Two sums that differ by less than a cell are released as the same floats; without a grid they never are."""
    grid, d = Grid(2.0**-16), 4096
    noise = SecureNoise(KEY).standard_normal(d, row=1, dtype=torch.float64)
    a = torch.full((d,), 0.3, dtype=torch.float64)
    b = a + 2.0**-40
    assert not torch.equal(a + noise, b + noise)
    assert torch.equal(grid.add_noise_(a.clone(), noise, 1.0), grid.add_noise_(b.clone(), noise, 1.0))


def test_release_refuses_what_it_cannot_do_exactly() -> None:
    grid = Grid(2.0**-20)
    d = 8
    fine = torch.ones(d, dtype=torch.float64)
    with pytest.raises(BadInput, check=coded("noise-too-coarse", "float64 noise")):
        grid.add_noise_(torch.zeros(d), torch.ones(d), 1.0)
    with pytest.raises(BadInput, check=coded("noise-too-coarse")):
        Grid(2.0**-40).add_noise_(torch.zeros(d), fine, 1.0)
    with pytest.raises(BadInput, check=coded("sum-not-exact")):
        grid.add_noise_(torch.full((d,), 2.0**34, dtype=torch.float64), fine, 1.0)
    with pytest.raises(BadInput, check=coded("sum-not-exact")):
        grid.add_noise_(torch.full((d,), math.nan), fine, 1.0)
    with pytest.raises(BadInput, check=coded("sum-shape")):
        grid.add_noise_(torch.zeros(3), fine, 1.0)
    with pytest.raises(BadInput, check=coded("noise-std", "std")):
        grid.add_noise_(torch.zeros(d), fine, 0.0)
    for spacing in (0.3, 0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BadInput, check=coded("grid-spacing")):
            Grid(spacing)
    with pytest.raises(BadInput, check=coded("grid-arguments", "clip")):
        Grid.fit(0.0, 10)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), users=st.integers(1, 60), exponent=st.integers(-30, -4))
def test_a_user_among_many_moves_the_reply_by_what_is_charged(seed: int, users: int, exponent: int) -> None:
    """Updates that point the same way: the sum is long and its float32 rounding as large as it can be."""
    grid, d = Grid(2.0**exponent), 32
    rng = np.random.default_rng(seed)
    updates = np.ones(d) + rng.normal(0, 0.01, (users, d))
    updates = (updates / np.linalg.norm(updates, axis=1, keepdims=True)).astype(np.float32).astype(np.float64)
    clip = float(np.linalg.norm(updates, axis=1).max())
    replies = [torch.from_numpy(part.sum(axis=0).astype(np.float32)).double() for part in (updates, updates[1:])]
    moved = grid.snap_(replies[0]) - grid.snap_(replies[1])
    assert float(moved.norm()) <= grid.charged_clip(clip, d, users)


def test_the_float32_reply_of_many_users_needs_its_share_of_the_charge() -> None:
    """Negative control: with thousands of users a reply moves by more than the clip norm and the grid's share."""
    users, d, own = 100_000, 4, 0.5 - 2.0**-10  # near 50 000 float32 is spaced 2^-8
    grid, clip = Grid(2.0**-40), 2 * own
    rest = np.full(d, own * (users - 1))
    worst = 0.0
    for shift in np.linspace(0, 1e-2, 200):
        pair = [torch.from_numpy((rest + shift + more).astype(np.float32)).double() for more in (own, 0.0)]
        worst = max(worst, float((pair[0] - pair[1]).norm()))
    assert grid.charged_clip(clip, d) < worst <= grid.charged_clip(clip, d, users)


@pytest.mark.parametrize("numel", [1, 2000, 10**6, 10**8])
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 30.0])
def test_the_noise_is_larger_by_what_the_grid_costs(multiplier: float, numel: int) -> None:
    privatiser = Privatiser.of("grid", multiplier, 0.3, numel, 1, 1.3)
    assert privatiser.grid is not None
    assert privatiser.cells == 0
    assert privatiser.std == multiplier * privatiser.grid.charged_clip(0.3, numel, 1)
    assert privatiser.std <= multiplier * 0.3 * (
        1 + 3 * COST + 2e-7
    )  # a third of it but for 30 sigma on 1e8 parameters
    # No row is refused: noise at 16 standard deviations still has 2^20 floats in a cell.
    privatiser.grid.add_noise_(
        torch.zeros(1, dtype=torch.float64), torch.tensor([16 * 1.3], dtype=torch.float64), privatiser.std
    )
    whole = Privatiser.of("discrete", multiplier, 0.3, numel, 1, 1.3)
    assert whole.grid is not None
    assert whole.std == whole.cells * whole.grid.spacing >= multiplier * whole.grid.charged_clip(0.3, numel, 1)
    assert Privatiser.of("none", multiplier, 0.3, numel, 1, 1.3) == Privatiser(multiplier * 0.3)


def test_loud_noise_on_many_parameters_takes_a_coarser_grid_and_pays_for_it() -> None:
    privatiser = Privatiser.of("grid", 1000.0, 1.0, 10**8, 1, 1.0)
    assert privatiser.grid is not None
    assert privatiser.grid.spacing > Grid.fit(1.0, 10**8).spacing
    assert privatiser.std == 1000.0 * privatiser.grid.charged_clip(1.0, 10**8, 1)
    with pytest.raises(BadInput, check=coded("grid-too-coarse", "privacy.rounding = 'grid'")):
        Privatiser.of("grid", 1e6, 1.0, 10**8, 1, 1.0)


@pytest.mark.parametrize("rounding", ["grid", "discrete"])
def test_releases_are_grid_points_and_a_resumed_stream_releases_the_same(rounding: str) -> None:
    mechanism, d = mechanisms.build({"kind": "tree", "estimator": "plain"}, 6), 500
    privatiser = Privatiser.of(rounding, 2.0, 1.0, d, 3, 2.0)  # type: ignore[arg-type]
    assert privatiser.grid is not None
    total = privatiser.grid.snap_(torch.linspace(-1, 1, d, dtype=torch.float64))
    stream = privatiser.stream(mechanism, d, SecureNoise(KEY))
    released = [privatiser.privatise(total.clone(), stream) for _ in range(6)]
    for row in released:
        assert torch.equal(privatiser.grid.snap_(row.clone()), row)
    again = privatiser.stream(mechanism, d, SecureNoise(KEY))
    again.skip(4)
    assert torch.equal(privatiser.privatise(total.clone(), again), released[4])
    scale = float((released[0] - total).std()) / privatiser.std
    assert abs(scale - 1) < 6 / np.sqrt(2 * d)


@pytest.mark.parametrize("rounding", ["grid", "discrete"])
def test_a_sum_of_another_length_or_dtype_is_refused_and_nothing_is_drawn(rounding: str) -> None:
    """The noise comes in pieces: an element that none of them covers would be released as it is."""
    mechanism = mechanisms.build({"kind": "independent"}, 2)
    privatiser = Privatiser.of(rounding, 2.0, 1.0, 5, 1, 1.0)  # type: ignore[arg-type]
    stream = privatiser.stream(mechanism, 5, SecureNoise(KEY))
    for total in (torch.zeros(6, dtype=torch.float64), torch.zeros(4, dtype=torch.float64), torch.zeros(5)):
        with pytest.raises(BadInput, check=coded("wrong-form", "vector of shape")):
            privatiser.privatise(total, stream)
        assert not total.any()
    assert stream.round == 0


def test_whole_cells_are_added_exactly_or_refused() -> None:
    grid = Grid(2.0**-10)
    total = torch.tensor([0.3, -0.3], dtype=torch.float64)
    released = grid.add_cells_(total.clone(), torch.tensor([3.0, -5.0], dtype=torch.float64))
    assert ((released - grid.snap_(total.clone())) / grid.spacing).tolist() == [3.0, -5.0]
    with pytest.raises(BadInput, check=coded("noise-not-whole")):
        grid.add_cells_(total, torch.tensor([0.5, 1.0], dtype=torch.float64))
    with pytest.raises(BadInput, check=coded("sum-not-exact")):
        grid.add_cells_(total, torch.tensor([2.0**53, 1.0], dtype=torch.float64))


def test_discrete_noise_has_at_least_the_scale_that_is_charged() -> None:
    """A scale below 1024 cells would cost more than `discretised.SHARE`: almost no noise has no other grid."""
    with pytest.raises(BadInput, check=coded("discrete-too-coarse")) as refusal:
        Privatiser.of("discrete", 1e-3, 1.0, 1, 1, 2.0**12)
    assert refusal.value.nearest == "more noise, or rounding = 'grid'"
    assert Privatiser.of("discrete", 1e-3, 1.0, 1, 1, 1.0).cells >= SMALLEST_SCALE
