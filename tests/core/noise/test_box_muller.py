"""From bits to normals, against arithmetic with 40 digits: every word where something changes, and random ones."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from fieldfare.noise.box_muller import PLANES, circle, pairs

WORST = 5
"""Largest error of a float64 number in units in its last place, radius given."""

HALVES = [i << 29 for i in range(8)]
EDGES = [word + step for word in (*HALVES, 1 << 21, 1 << 22, 3 << 21) for step in (-1, 0, 1)]
ENDS = [0, 1, 2**31, 2**32 - 1]


def drawn(high: np.ndarray, low: np.ndarray, angle: np.ndarray, fine: np.ndarray | None) -> np.ndarray:
    """Cosine and sine part of each pair, shape (2, n)."""
    dtype = np.float32 if fine is None else np.float64
    words = np.array([[high, low, angle]], dtype=np.uint32)
    out = np.empty((1, 2, len(high)), dtype)
    scratch = np.full((PLANES, 1, len(high)), np.nan, dtype)
    pairs(out, words, None if fine is None else fine[None].astype(np.uint32), scratch)
    return out[0]


def exact(high: int, low: int, angle: int, fine: int) -> tuple[mpmath.mpf, mpmath.mpf]:
    with mpmath.workdps(40):
        radius = mpmath.sqrt(-2 * mpmath.log(mpmath.ldexp((high << 32) + (low << 1) + 1, -63)))
        turn = mpmath.ldexp((angle << 32) + fine, -63)  # in half turns
        return radius * mpmath.cospi(turn), radius * mpmath.sinpi(turn)


def test_float64_is_right_to_five_units_in_the_last_place_at_every_angle() -> None:
    """With U below 2^-7, -ln U is as right as floats are: what is measured is the arithmetic here."""
    rng = np.random.default_rng(0)
    angle = np.array([word % 2**32 for word in EDGES for _ in ENDS] + rng.integers(0, 2**32, 3000).tolist())
    fine = np.array([end for _ in EDGES for end in ENDS] + rng.integers(0, 2**32, 3000).tolist())
    high, low = rng.integers(0, 2**24, (2, len(angle)))
    result = drawn(high, low, angle, fine)
    for i in range(len(angle)):
        for got, want in zip(result[:, i], exact(int(high[i]), int(low[i]), int(angle[i]), int(fine[i])), strict=True):
            assert abs(got - want) <= WORST * np.spacing(abs(float(want))), (angle[i], fine[i])


@pytest.mark.parametrize("cells", [0, 1, 2, 4612, 46_117, 2**31 - 1, 2**31, 2**40, 2**61, 2**62 - 2**10])
def test_the_radius_has_the_probability_of_its_words(cells: int) -> None:
    """Down to U = 2^-63; 4 612 cells are a probability of 1e-15. Next to U = 1, U is spaced 2^-53."""
    high, low = divmod(cells, 2**31)
    radius = float(drawn(*(np.array([word]) for word in (high, low, 0, 0)))[0, 0])
    want = exact(high, low, 0, 0)[0]
    spacing_of_u = 2.0**-53 if cells >= 2**61 else 0.0
    assert abs(radius - want) <= 4 * np.spacing(radius) + spacing_of_u / float(want)
    assert abs(float(drawn(*(np.array([word]) for word in (high, low, 0)), None)[0, 0]) - want) <= 1e-6 * want + 1e-3


def test_both_dtypes_turn_alike() -> None:
    rng = np.random.default_rng(1)
    high, low, angle, fine = rng.integers(0, 2**31, (4, 20_000))
    angle = angle * 2 + 1
    assert np.abs(drawn(high, low, angle, None) - drawn(high, low, angle, fine)).max() < 3e-4


@pytest.mark.parametrize("points", [4, 8, 1024])
def test_the_table_is_the_circle_to_half_an_ulp(points: int) -> None:
    table = circle(points)
    assert table.shape == (2, points)
    for i in range(points):
        with mpmath.workdps(40):
            want = mpmath.cospi(mpmath.mpf(2 * i) / points), mpmath.sinpi(mpmath.mpf(2 * i) / points)
        assert table[:, i].tolist() == [float(value) for value in want]
