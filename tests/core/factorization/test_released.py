"""Charging what is released: the online tree's whitened form and its worst pattern, and bounds for any Gram matrix."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from fieldfare import mechanisms
from fieldfare.factorization.released import (
    _FEW,
    WhitenedTree,
    _Steps,
    _through,
    chain_bound,
    climb,
    largest_released,
    pattern_square,
    released_gram,
)
from fieldfare.participation import MinSeparation

ONLINE = {"kind": "tree", "estimator": "online"}


def patterns(n: int, b: int, k: int) -> list[tuple[int, ...]]:
    """Every pattern of at most k of n rounds that are at least b apart."""
    return [
        p
        for size in range(1, k + 1)
        for p in itertools.combinations(range(n), size)
        if all(y - x >= b for x, y in itertools.pairwise(p))
    ]


def brute_force(gram: NDArray[np.float64], b: int, k: int) -> float:
    return max(pattern_square(gram, p) for p in patterns(len(gram), b, k))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 21, 32])
def test_the_online_trees_whitened_form_is_the_inverse_of_what_it_releases(n: int) -> None:
    gram = released_gram(mechanisms.build(ONLINE, n).noising_matrix(n))
    assert gram.min() > -1e-12
    tree = WhitenedTree(n)
    for p in [(0,), (n - 1,), tuple(range(n)), tuple(range(0, n, 2)), tuple(range(0, n, 3))]:
        square = tree.pattern_squares(np.array([p]))[0]
        assert square == pytest.approx(pattern_square(gram, p), rel=1e-12)


def test_after_some_rounds_the_leading_rows_of_b_count_not_the_leading_block_of_g() -> None:
    n = 13
    b = mechanisms.build(ONLINE, n).noising_matrix(n)
    for released in range(1, n + 1):
        gram = released_gram(b[:released])
        for p in [(0,), (0, 3, 6), (1, 5, 9, 12)]:
            inside = [t for t in p if t < released]
            square = WhitenedTree(n).pattern_squares(np.array([p]), released)[0]
            assert square == pytest.approx(pattern_square(gram, inside), rel=1e-12)


def test_the_diagonal_for_eight_rounds() -> None:
    """From exact weights; those of the stream are rounded to float32, so six digits agree."""
    diagonal = WhitenedTree(8).pattern_squares(np.arange(8)[:, None])
    expected = [3.314846, 3.314846, 3.467227, 3.086274, 3.494118, 3.494118, 3.305882, 2.647059]
    assert diagonal == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("n", "b", "k", "expected"),
    [
        (8, 1, 8, 120.0),
        (8, 2, 4, 31.1148461664),
        (13, 3, 4, 21.8644257916),
        (16, 3, 5, 54.6194454614),
        (24, 3, 8, 84.2140283131),
        (24, 5, 4, 33.9785537784),
        (30, 7, 5, 26.3522788536),
        (32, 4, 6, 82.8601908040),
        (512, 80, 6, 101.874937),
        (512, 64, 8, 160.656943),
        (1024, 160, 6, 107.201831),
        (2000, 314, 6, 70.3011731),
    ],
)
def test_the_online_trees_worst_pattern_is_what_was_computed_independently(
    n: int, b: int, k: int, expected: float
) -> None:
    worst = WhitenedTree(n).worst(b, k)
    assert worst is not None
    value, exact = worst
    assert exact
    assert value == pytest.approx(expected, rel=2e-9 if n < 100 else 1e-8)


@pytest.mark.parametrize(
    ("n", "b", "k"), [(5, 1, 3), (7, 2, 4), (11, 3, 3), (14, 4, 4), (16, 2, 3), (16, 16, 1), (9, 20, 5)]
)
def test_the_online_trees_worst_pattern_is_that_of_an_exhaustive_search(n: int, b: int, k: int) -> None:
    tree = WhitenedTree(n)
    best = max(tree.pattern_squares(np.array([p]))[0] for p in patterns(n, min(b, n), k))
    worst = tree.worst(b, k)
    assert worst is not None
    value, exact = worst
    assert exact
    assert value == pytest.approx(best, rel=1e-12)


def test_the_best_way_is_the_same_number_whether_equal_ways_are_merged_or_not() -> None:
    generator = np.random.default_rng(3)
    for size in (20, 24, 27, 40):
        steps = np.sort(generator.integers(0, 5, (2, size, size)) * 0.1, axis=1)
        before, after = np.where(generator.random((2, size, size)) < 0.2, -np.inf, steps)
        # What can be reached is a leading run of rows and a trailing run of columns, as `_product` asks.
        before, after = np.maximum.accumulate(before[::-1])[::-1], np.maximum.accumulate(after, axis=1)
        # Runs of equal ways to the border, and of equal ways from it: the other half of the way differs within a run.
        runs = np.sort(generator.integers(0, size, (2, size)), axis=1)
        before, after = (before[:, runs[0]], after) if size % 3 else (before, after[runs[1]])
        ways = (before[:, :, None] + after[None]).max(axis=1)
        joined = _through(_Steps.of(before), _Steps.of(after))
        assert np.array_equal(joined.whole(), ways)
        assert size < _FEW or joined.few.size < size * size / 2


def test_the_published_worst_pattern_of_gboard_attains_the_maximum() -> None:
    witness = np.array([[20, 340, 660, 980, 1364, 1706]])
    assert WhitenedTree(2000).pattern_squares(witness)[0] == pytest.approx(70.30117314826, rel=1e-12)


def test_with_too_many_states_the_online_tree_gives_a_bound_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from fieldfare.factorization import released

    monkeypatch.setattr(released, "_MOST_STATES", 4)
    tables = released._online_tables.__wrapped__(32, 4, 6)
    value = tables.best(32, 4, 6)
    assert not tables.exact
    assert 82.8601908040 <= value <= 82.8601908040 * 1.2


@pytest.mark.parametrize("seed", range(8))
def test_chain_bounds_are_never_below_an_exhaustive_search_and_climbing_is_never_above(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n, b, k = int(generator.integers(4, 13)), int(generator.integers(1, 4)), int(generator.integers(1, 6))
    noising = np.tril(generator.normal(size=(n, n)), -1) + np.diag(generator.uniform(0.5, 2, n))
    gram = released_gram(noising)
    best = brute_force(gram, b, k)
    low, witness = climb(gram, b, k)
    assert low == pytest.approx(pattern_square(gram, witness))
    assert low <= best * (1 + 1e-12)
    assert best <= chain_bound(gram, b, k) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("spec", "rounds", "b", "k", "low", "high"),
    [
        ({"kind": "momentum-tree", "momentum": 0.9}, 512, 80, 6, 15.6843393533, 15.6843393533),
        ({"kind": "momentum-tree", "momentum": 0.95}, 512, 64, 8, 27.0648371, 27.0658308),
        ({"kind": "fft"}, 128, 80, 6, 5.68318027, 5.68318027),
        ({"kind": "fft"}, 300, 80, 6, 17.0067720, 17.0067720),
        ({"kind": "fft"}, 512, 80, 6, 38.9441406, 38.9441406),
    ],
)
def test_bounds_of_other_kinds_close_where_they_were_found_to(
    spec: dict[str, object], rounds: int, b: int, k: int, low: float, high: float
) -> None:
    mechanism = mechanisms.build(spec, 512, MinSeparation(b, k))
    gram = released_gram(mechanism.noising_matrix(rounds))
    assert climb(gram, b, k)[0] == pytest.approx(low, rel=5e-9)
    assert chain_bound(gram, b, k) == pytest.approx(high, rel=5e-9)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_released_is_never_charged_too_little_and_never_less_after_more_rounds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n, b, k = int(generator.integers(4, 11)), int(generator.integers(1, 4)), int(generator.integers(2, 6))
    strategy = np.tril(generator.normal(size=(n, n)), -1) + np.diag(generator.uniform(0.5, 2, n))
    last = 0.0
    for released in range(1, n + 1):
        part = strategy[:released, :released]
        found = largest_released(lambda m: strategy[:m, :m], MinSeparation(b, k), released)
        assert found is not None
        bound, exact = found
        true = brute_force(np.abs(part.T @ part), b, k)
        assert bound >= max(true, last) * (1 - 1e-12)
        if exact:
            assert bound == pytest.approx(true, rel=2e-9)
        last = bound


def test_a_bound_that_would_take_long_is_not_made() -> None:
    def never(n: int) -> NDArray[np.float64]:
        raise AssertionError(n)

    assert largest_released(never, MinSeparation(100, 5), 2049) is None
    assert largest_released(never, MinSeparation(2), 2048) is None
