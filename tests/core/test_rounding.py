"""The grid: exact, post-processing only, charged for; the discrete Gaussian: exact probabilities, fixed by the key."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fieldfare import rounding
from fieldfare.errors import BadInput
from fieldfare.noise import SecureNoise
from fieldfare.rounding import Grid, discrete_gaussian

KEY = b"a fixed key for tests, 32 bytes!"
FALSE_ALARM = 1e-9


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
        assert 0.7 < grid.charged_clip(0.7, d) <= 0.7 * (1 + 1e-6) * (1 + 1e-15)
        assert Grid(2 * grid.spacing).charged_clip(0.7, d) > 0.7 * (1 + 1e-6)


def test_a_release_is_the_rounded_exact_sum() -> None:
    """Post-processing: the same as adding the noise to the snapped sum in exact arithmetic and rounding then."""
    grid, d, std = Grid(2.0**-20), 5000, 3.7
    noise = SecureNoise(KEY).standard_normal(d, row=0, dtype=torch.float64)
    total = torch.linspace(-4, 4, d, dtype=torch.float64)
    snapped = grid.snap_(total.clone())
    cells = [round(float(x) / grid.spacing) for x in snapped]
    exact = [c + round(float(w) * std / grid.spacing) for c, w in zip(cells, noise, strict=True)]
    released = grid.release_(total.clone(), noise, std)
    assert released.tolist() == [c * grid.spacing for c in exact]
    narrow = grid.release_(total.float(), noise, std)
    assert narrow.dtype == torch.float32


def test_which_sum_it_was_cannot_be_read_from_the_support() -> None:
    """Two sums that differ by less than a cell are released as the same floats; without a grid they never are."""
    grid, d = Grid(2.0**-16), 4096
    noise = SecureNoise(KEY).standard_normal(d, row=1, dtype=torch.float64)
    a = torch.full((d,), 0.3, dtype=torch.float64)
    b = a + 2.0**-40
    assert not torch.equal(a + noise, b + noise)
    assert torch.equal(grid.release_(a.clone(), noise, 1.0), grid.release_(b.clone(), noise, 1.0))


def test_release_refuses_what_it_cannot_do_exactly() -> None:
    grid = Grid(2.0**-20)
    d = 8
    fine = torch.ones(d, dtype=torch.float64)
    with pytest.raises(BadInput, match="float64 noise"):
        grid.release_(torch.zeros(d), torch.ones(d), 1.0)
    with pytest.raises(BadInput, match="too coarse"):
        Grid(2.0**-40).release_(torch.zeros(d), fine, 1.0)
    with pytest.raises(BadInput, match="does not add exactly"):
        grid.release_(torch.full((d,), 2.0**34, dtype=torch.float64), fine, 1.0)
    with pytest.raises(BadInput, match="does not add exactly"):
        grid.release_(torch.full((d,), math.nan), fine, 1.0)
    with pytest.raises(BadInput, match="equal vectors"):
        grid.release_(torch.zeros(3), fine, 1.0)
    with pytest.raises(BadInput, match="std"):
        grid.release_(torch.zeros(d), fine, 0.0)
    for spacing in (0.3, 0.0, -1.0, math.inf, math.nan):
        with pytest.raises(BadInput, match="power of two"):
            Grid(spacing)
    with pytest.raises(BadInput, match="clip"):
        Grid.fit(0.0, 10)


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 50])
def test_discrete_gaussian_has_the_exact_probabilities(scale: int) -> None:
    n = 200_000
    sample = discrete_gaussian(n, scale, SecureNoise(KEY), row=scale)
    support = np.arange(-12 * scale, 12 * scale + 1)
    weights = np.exp(-(support**2) / (2.0 * scale**2))
    expected = n * weights / weights.sum()
    assert np.abs(sample).max() <= 12 * scale
    counts = np.bincount(sample + 12 * scale, minlength=len(support))
    common = expected >= 10
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    if wanted[-1] < 10:
        observed, wanted = observed[:-1], wanted[:-1] * observed[:-1].sum() / wanted[:-1].sum()
    assert stats.chisquare(observed, wanted).pvalue > FALSE_ALARM


def test_a_wide_discrete_gaussian_is_nearly_the_continuous_one() -> None:
    scale = 1 << 31
    sample = discrete_gaussian(100_000, scale, SecureNoise(KEY), row=0) / scale
    assert stats.kstest(sample, "norm").pvalue > FALSE_ALARM


def test_discrete_draws_are_fixed_by_key_row_and_element() -> None:
    noise = SecureNoise(KEY)
    whole = discrete_gaussian(10_000, 9, noise, row=3)
    assert np.array_equal(whole[4000:9000], discrete_gaussian(5000, 9, noise, row=3, offset=4000))
    assert not np.array_equal(whole, discrete_gaussian(10_000, 9, noise, row=4))
    assert not np.array_equal(whole, discrete_gaussian(10_000, 9, noise, row=3, stream="other"))
    assert discrete_gaussian(0, 9, noise, row=3).shape == (0,)


def test_uniform_integers_are_rejected_not_folded() -> None:
    """A word past the last whole multiple of the bound is redrawn: folding it would favour small integers."""

    class Fixed(SecureNoise):
        def bytes(self, n: int, *, row: int, offset: int = 0, stream: str) -> memoryview:
            words = [2**64 - 1, 2**64 - 2, 5][offset // 8 :]
            return memoryview(np.array(words, dtype="<u8").tobytes()[:n])

    words = rounding._Words(Fixed(KEY), 0, 0, "test")
    assert words.below(1, 3 * 2**30).tolist() == [5]  # 2^64 mod 3 * 2^30 is 2^30, so both large words are refused


def test_discrete_release_lands_on_the_grid_with_enough_noise() -> None:
    grid, d, std = Grid(2.0**-10), 20_000, 1.5
    total = torch.full((d,), 0.3)
    released = grid.release_discrete_(total.clone(), SecureNoise(KEY), std, row=0)
    assert torch.equal(grid.snap_(released.clone()), released)
    noise = (released - grid.snap_(total.clone())).double()
    assert abs(float(noise.std()) / std - 1) < 6 / math.sqrt(2 * d)
    with pytest.raises(BadInput, match="cells"):
        grid.release_discrete_(total, SecureNoise(KEY), 2.0**-11, row=0)
    with pytest.raises(BadInput, match="scale = 0"):
        discrete_gaussian(3, 0, SecureNoise(KEY), row=0)
    with pytest.raises(BadInput, match="vector"):
        grid.release_discrete_(torch.zeros(2, 2), SecureNoise(KEY), 1.0, row=0)
    with pytest.raises(BadInput, match="does not add exactly"):
        grid.release_discrete_(torch.full((3,), 2.0**60), SecureNoise(KEY), 1.0, row=0)
