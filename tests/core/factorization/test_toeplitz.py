"""Coefficient algebra and the sensitivity of Toeplitz strategies, against dense matrices and exhaustive search."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldfare.errors import BadInput
from fieldfare.factorization import toeplitz
from fieldfare.participation import CyclicPoisson, FixedOrder, MinSeparation, Participation, Poisson, Single
from support.refusals import coded


def brute_force(c: np.ndarray, participation: Participation) -> float:
    """max over every allowed pattern of sqrt(sum |<C_i, C_j>|), from the dense matrix."""
    dense = toeplitz.matrix(c, len(c))
    gram = np.abs(dense.T @ dense)
    return max(float(np.sqrt(gram[np.ix_(p, p)].sum())) for p in participation.patterns(len(c)))


def square_root(n: int, nu: float = 0.0) -> np.ndarray:
    t = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((1 - nu) * (t - 0.5) / t)])


participations = st.one_of(
    st.just(Single()),
    st.builds(MinSeparation, st.integers(1, 6), st.one_of(st.none(), st.integers(1, 6))),
    st.builds(FixedOrder, st.integers(1, 6), st.one_of(st.none(), st.integers(1, 6))),
    st.builds(CyclicPoisson, st.integers(1, 6), st.just(0.5)),
    st.just(Poisson(0.5)),
)
entries = st.floats(-2, 2).map(lambda x: round(x, 3))


@settings(max_examples=200, deadline=None)
@given(st.lists(entries, min_size=0, max_size=9), participations)
def test_sensitivity_is_never_below_exhaustive_search(tail: list[float], participation: Participation) -> None:
    c = np.array([1.0, *tail])
    claimed = toeplitz.sensitivity(c, participation)
    truth = brute_force(c, participation)
    assert claimed >= truth * (1 - 1e-12)
    if claimed.bound == "exact":
        assert claimed == pytest.approx(truth, rel=1e-10)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=11), participations)
def test_non_increasing_coefficients_are_exact(tail: list[float], participation: Participation) -> None:
    c = np.concatenate([[1.0], np.sort(tail)[::-1]])
    claimed = toeplitz.sensitivity(c, participation)
    assert claimed.bound == "exact"
    assert claimed == pytest.approx(brute_force(c, participation), rel=1e-12)


@pytest.mark.parametrize(("nu", "k", "b", "squared"), [(0.0, 3, 4, 8.407630192629), (0.1, 5, 2, 14.418060114646)])
def test_published_exhaustive_values(nu: float, k: int, b: int, squared: float) -> None:
    claimed = toeplitz.sensitivity(square_root(12, nu), MinSeparation(b, k))
    assert claimed**2 == pytest.approx(squared, rel=1e-12)


@pytest.mark.parametrize("nu", [0.0, 0.1])
@pytest.mark.parametrize(("k", "b"), [(3, 4), (2, 3), (3, 3), (4, 3), (5, 2)])
def test_square_root_equals_exhaustive_search(nu: float, k: int, b: int) -> None:
    c = square_root(12, nu)
    assert toeplitz.sensitivity(c, MinSeparation(b, k)) == pytest.approx(brute_force(c, MinSeparation(b, k)), rel=1e-13)


def test_bands_no_wider_than_the_separation_are_exact_without_monotonicity() -> None:
    c = np.array([1.0, -0.3, 0.9, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    claimed = toeplitz.sensitivity(c, MinSeparation(3, 3))
    assert claimed.bound == "exact"
    assert claimed == pytest.approx(np.sqrt(3 * (1 + 0.09 + 0.81)), rel=1e-12)


def test_not_monotone_is_tighter_than_the_published_bound() -> None:
    """jax-privacy (HEAD 8967688) bounds this case by 7.44; per-lag maxima give the exact 5.58."""
    c = np.array([1.0, 0.5, 0.8, 0, 0, 0])
    claimed = toeplitz.sensitivity(c, MinSeparation(1, 2))
    assert claimed**2 == pytest.approx(5.58, rel=1e-12)
    assert claimed == pytest.approx(brute_force(c, MinSeparation(1, 2)), rel=1e-12)


def test_a_bound_that_is_not_attained_says_so() -> None:
    c = np.array([1.0, 0.1, 0.8, 0, 0, 0])
    claimed = toeplitz.sensitivity(c, MinSeparation(1, 3))
    assert claimed > brute_force(c, MinSeparation(1, 3))
    assert claimed.bound == "upper bound"


def test_opposite_directions_are_charged_where_inner_products_are_negative() -> None:
    c = np.array([1.0, -0.9])
    claimed = toeplitz.sensitivity(c, MinSeparation(1, 2))
    dense = toeplitz.matrix(c, 2)
    assert claimed >= np.linalg.norm(dense @ [1.0, -1.0]) - 1e-12 > np.linalg.norm(dense @ [1.0, 1.0])
    assert toeplitz.pattern_norms(c, [(0, 1)])[0] == pytest.approx(np.linalg.norm(dense @ [1.0, -1.0]))


@settings(max_examples=60, deadline=None)
@given(st.lists(entries, min_size=3, max_size=9), st.integers(1, 10))
def test_pattern_norms_equal_the_dense_matrix(tail: list[float], released: int) -> None:
    c = np.array([1.0, *tail])[:released]
    n = len(c)
    patterns = [p for k in (1, 2, 3) for p in MinSeparation(1, k).patterns(n) if len(p) == k]
    dense = toeplitz.matrix(c, n)
    gram = np.abs(dense.T @ dense)
    expected = [np.sqrt(gram[np.ix_(p, p)].sum()) for p in patterns]
    np.testing.assert_allclose(toeplitz.pattern_norms(c, patterns), expected, atol=1e-12)


def test_rounds_not_yet_released_contribute_nothing() -> None:
    c = square_root(8)
    got = toeplitz.pattern_norms(c[:5], [(), (1,), (1, 6), (5, 7), (0, 4)])
    dense = toeplitz.matrix(c, 5)
    expected = [0, np.linalg.norm(dense[:, 1]), np.linalg.norm(dense[:, 1]), 0, np.linalg.norm(dense[:, [0, 4]].sum(1))]
    np.testing.assert_allclose(got, expected, atol=1e-13)


@pytest.mark.parametrize("pattern", [(1, 1), (2, 1), (-1, 3)])
def test_patterns_that_are_not_increasing_rounds_are_refused(pattern: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "pattern")):
        toeplitz.pattern_norms(square_root(8), [(0, 2), pattern])


def test_inverse_and_errors_equal_the_matrices() -> None:
    rng = np.random.default_rng(5)
    c = np.concatenate([[0.7], rng.normal(size=19) / 3])
    b = toeplitz.inverse(c, 20)
    assert np.abs(toeplitz.matrix(b, 20) @ toeplitz.matrix(c, 20) - np.eye(20)).max() < 1e-9
    ab = np.tri(20) @ toeplitz.matrix(b, 20)
    np.testing.assert_allclose(toeplitz.prefix_row_norms(b), np.linalg.norm(ab, axis=1), rtol=1e-12)
    np.testing.assert_allclose(toeplitz.row_norms(b), np.linalg.norm(toeplitz.matrix(b, 20), axis=1), rtol=1e-12)
    assert np.sum(toeplitz.prefix_row_norms(b) ** 2) == pytest.approx(np.sum(ab**2), rel=1e-12)


@pytest.mark.parametrize("bad", [[], [0.0, 1.0], [-1.0], [1.0, np.nan], [1.0, np.inf], [[1.0]]])
def test_coefficients_that_make_no_mechanism_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="coefficients"):
        toeplitz.coefficients(bad, 4)
