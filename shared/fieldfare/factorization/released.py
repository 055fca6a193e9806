"""Charging what is released: the Gram matrix (B B^T)^-1, and its largest pattern.

Released is Y = X + sigma B Z with B of shape (n, m) and rank n. With the Cholesky factor B B^T = L L^T and R
= L^-1, the rows of R Y are rows of R X plus independent sigma-normal noise, and R is invertible, so nothing
is lost. One user with the participation pattern P therefore moves the released sequence by at most

    sqrt(sum_{i, j in P} |G_ij|) / sigma,        G = R^T R = (B B^T)^-1,                                            (1)

adaptively chosen updates included. For a square C = B^-1 this is C^T C, the usual charge. For a tree whose
estimator reads all nodes it is less, because the noise of the single nodes is never shown. After t rounds the
leading rows of **B** count: (B_1:t B_1:t^T)^-1, which is not the leading block of G.

Finding the worst pattern is NP-hard in general (k-clique reduces to it), so `chain_bound` proves an upper
bound and `climb` a lower one; where they meet, the maximum is exact. For the online tree `WhitenedTree.worst`
is exact by dynamic programming.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fieldfare.factorization.few_patterns import in_step_patterns
from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.lazily import scipy
from fieldfare.participation import Participation

Matrix = NDArray[np.float64]

# Decimal digits by which the online tree's states are told apart; rounding of sums is far below.
_KEY_DIGITS = 12
# More states than this, and the online tree's sums are rounded up to a grid: a bound instead of the maximum.
_MOST_STATES = 400
# Most rounds for which `largest_released` makes the Gram matrix.
_MOST_BOUNDED = 2048
# Most additions of `chain_bound` there: a few seconds.
_MOST_CHAIN = 5e8
# Most additions of the online tree's dynamic program: about ten seconds.
_MOST_JOINED = 4e9
# Relative distance at which a lower and an upper bound are one value.
_CLOSE = 1e-9
_NEVER = -np.inf
# Offsets at a border below which it is not worth looking for equal ones.
_FEW = 24


def released_gram(noising: Matrix) -> Matrix:
    """Return G of equation (1), shape (n, n), for a noising matrix B of shape (n, m) and rank n.

    Raises numpy.linalg.LinAlgError where B has not full rank.
    """
    factor = np.linalg.cholesky(noising @ noising.T)
    whitening = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
    return np.asarray(whitening.T @ whitening, dtype=np.float64)


def pattern_square(gram: Matrix, pattern: Sequence[int]) -> float:
    """Return sum_{i, j in P} |G_ij|, the square of equation (1) at sigma 1."""
    rounds = np.asarray(pattern, dtype=np.int64)
    return float(np.abs(gram[np.ix_(rounds, rounds)]).sum())


def chain_bound(gram: Matrix, separation: int, count: int) -> float:
    """Return an upper bound on `pattern_square` over `count` rounds or fewer, at least `separation` apart.

    The next participation enters exactly. The l-th next one is at least l separations later, so its inner
    product is at most the largest from there on. O(count n^2) time.

    Args:
        gram: G of the released noise, symmetric, shape (n, n).
        separation: rounds from one participation of a user to the next, at least 1.
        count: participations of one user at most, at least 1.
    """
    absolute = np.abs(gram)
    n = len(absolute)
    b, k = min(separation, n), min(count, -(-n // min(separation, n)))
    own = np.diag(absolute).copy()
    # later[l, i] = max over j >= i + l b of |G_ij|.
    suffix = np.maximum.accumulate(absolute[:, ::-1], axis=1)[:, ::-1]
    later = np.zeros((k, n))
    for lag in range(1, k):
        rows = np.arange(max(0, n - lag * b))
        later[lag, rows] = suffix[rows, rows + lag * b]
    # value[i] bounds all patterns of up to c rounds that begin in round i; each pass of the loop allows one more.
    value = own.copy()
    best = float(own.max())
    allowed = np.arange(n)[None, :] >= np.arange(n)[:, None] + b
    for c in range(2, k + 1):
        step = np.where(allowed, 2 * absolute + value[None, :], _NEVER).max(axis=1)
        value = own + 2 * later[2:c].sum(axis=0) + step
        best = max(best, float(value.max()))
    return best


def largest_released(
    strategy: Callable[[int], Matrix], participation: Participation, n: int
) -> tuple[float, bool] | None:
    """Return the largest `pattern_square` of n rounds of a square lower-triangular C; whether it is exact.

    Otherwise it is a proven upper bound. It never falls with n.

    Args:
        strategy: n -> the first n rows and columns of C.

    Returns:
        None where the bound would take more than seconds: n above 2 048, or many participations.
    """
    b, k = participation.separation_and_count(n)
    if n > _MOST_BOUNDED or (k < n and k * n * n > _MOST_CHAIN):
        return None
    # |G| may fall where products of both signs meet. The larger of their two sums is at least |G| and never falls.
    c = strategy(n)
    above, below = np.maximum(c, 0), np.maximum(-c, 0)
    largest = above.T @ above + below.T @ below
    if below.any():
        largest = np.maximum(largest, above.T @ below + below.T @ above)
    patterns = in_step_patterns(participation, n)
    if patterns is not None:
        values = [pattern_square(largest, pattern) for pattern in patterns]
        bound, witness = max(values), patterns[int(np.argmax(values))]
    elif k >= n:
        bound, witness = float(largest.sum()), tuple(range(n))  # b = 1: every pattern is part of this one
    else:
        bound, witness = chain_bound(largest, b, k), climb(largest, b, k)[1]
    attained = float(np.square(c[:, list(witness)].sum(axis=1)).sum())
    return bound, participation.allows(witness, n) and attained >= bound * (1 - _CLOSE)


class ReleasedBounds:
    """Values of `largest_released` for one mechanism, kept: each may take a second."""

    def __init__(self) -> None:
        self._known: dict[tuple[Participation, int], tuple[float, bool] | None] = {}

    def smaller(
        self, known: Sensitivity, strategy: Callable[[int], Matrix], participation: Participation, n: int
    ) -> Sensitivity:
        """Return `known`, an upper bound for the first n rounds, or what the first n rows of C prove where
        that is less.

        Monotone in n where `known` is. strategy: the number of rounds -> the leading rows and columns of C.
        """
        key = participation, n
        if key not in self._known:
            self._known[key] = largest_released(strategy, participation, n)
        found = self._known[key]
        if found is None or found[0] >= known**2 * (1 + _CLOSE):
            return known
        value = min(float(known), math.sqrt(found[0]))
        return Sensitivity(value, "exact" if found[1] else "upper bound", "chain bound over what is released")


def climb(gram: Matrix, separation: int, count: int, starts: int = 6) -> tuple[float, tuple[int, ...]]:
    """Return a pattern that no change of one or two neighbouring rounds improves, from `starts` evenly spaced
    ones.

    Returns (its square, its rounds).

    A lower bound on the maximum that `chain_bound` bounds from above, and the witness of it.

    Args:
        gram: G of the released noise, symmetric, shape (n, n).
        separation: rounds from one participation of a user to the next, at least 1.
        count: participations of one user at most, at least 1.
        starts: how many patterns the search begins with.
    """
    absolute = np.abs(gram)
    n = len(absolute)
    b = min(separation, n)
    k = min(count, -(-n // b))
    best: float = -1.0
    witness: tuple[int, ...] = (0,)
    slack = n - 1 - (k - 1) * b
    for start in range(min(starts, slack + 1)):
        rounds = [start * max(1, slack // max(1, starts)) + j * b for j in range(k)]
        if rounds[-1] >= n:
            continue
        value, before = pattern_square(absolute, rounds), -1.0
        while value > before:
            before = value
            for width in (1, 2):
                for at in range(k - width + 1):
                    _improve(absolute, rounds, at, width, b)
            value = pattern_square(absolute, rounds)
        if value > best:
            best, witness = value, tuple(rounds)
    return best, witness


def _improve(absolute: Matrix, rounds: list[int], at: int, width: int, b: int) -> None:
    """Move `width` neighbouring rounds of a pattern, from index `at` on, to where they cost most."""
    n = len(absolute)
    low = rounds[at - 1] + b if at else 0
    high = rounds[at + width] - b if at + width < len(rounds) else n - 1
    span = np.arange(low, high + 1)
    others = rounds[:at] + rounds[at + width :]
    gains = np.diag(absolute)[span] + 2 * absolute[np.ix_(np.array(others, dtype=np.int64), span)].sum(axis=0)
    if width == 1:
        rounds[at] = low + int(np.argmax(gains))
        return
    both = gains[:, None] + gains[None, :] + 2 * absolute[np.ix_(span, span)]
    # Two rounds at once: a single one is often held in place by its neighbour.
    both[span[None, :] < span[:, None] + b] = _NEVER
    first, second = np.unravel_index(int(np.argmax(both)), both.shape)
    rounds[at], rounds[at + 1] = low + int(first), low + int(second)


class WhitenedTree:
    """Honaker's online tree over `rounds` rounds, whitened: one new number a round, with weights that are
    known exactly.

    Round t (from 1) completes the node of height h = (trailing zeros of t) that ends at t. Its estimate minus
    what earlier rounds showed of it is alpha_h . (the node's sums), with fresh noise of variance nu_h:

        w_h = float32(1 / (2 - 2^-h)),   nu_0 = 1,   nu_h = w_h^2 + (1 - w_h)^2 nu_{h-1},
        alpha_0 = (1),   alpha_h = (w_h for the left half,  w_h + (1 - w_h) alpha_{h-1} for the right half).

    All weights are positive, so G >= 0 and equal updates are worst. (Honaker 2015; Kairouz et al. 2021,
    Appendix; the whitened form and its maximum are derived in the tests' reference.)
    """

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.heights = rounds.bit_length()
        self.shares, self.variances, self.weights = _online_tree(self.heights)

    def pattern_squares(self, patterns: NDArray[np.int64], released: int | None = None) -> Matrix:
        """Return the square of equation (1) for each row of `patterns`: (users, participations), rising rounds.

        released: rounds released so far (default all); participations at or after it count nothing.
        """
        n = self.rounds if released is None else released
        total = np.zeros(len(patterns))
        for height in range(n.bit_length()):
            node = patterns >> height
            # Only left children and roots are new numbers, and only once they are complete.
            shown = (node % 2 == 0) & (((node + 1) << height) <= n)
            weight = np.where(shown, self.weights[height][patterns & ((1 << height) - 1)], 0.0)
            square = (weight**2).sum(axis=1)
            for lag in range(1, patterns.shape[1]):
                together = node[:, lag:] == node[:, :-lag]
                square += 2 * (weight[:, lag:] * weight[:, :-lag] * together).sum(axis=1)
            total += square / self.variances[height]
        return total

    def worst(self, separation: int, count: int, released: int | None = None) -> tuple[float, bool] | None:
        """Return the largest pattern square over patterns of at most `count` rounds at least `separation`
        apart; whether exact, else it is an upper bound. It never falls with `released`. None where it would
        take minutes.

        Dynamic programming over nodes: a node's state is how many participations it holds and their weighted
        sum r; a matrix over (first allowed offset, how far the next is barred past its end) holds the best
        cost of what lies below. A parent's sum is w (c_left + c_right) + (1 - w) r_right, so of a left child
        only the count goes on.
        """
        n = self.rounds if released is None else released
        if min(count, -(-n // separation)) <= 1:
            return float(self.pattern_squares(np.arange(n)[:, None], n).max()), True
        if separation == 1 and count >= n:  # every pattern is part of this one
            return float(self.pattern_squares(np.arange(n)[None, :], n)[0]), True
        # The tables do not depend on `released`: a run that gives its horizon's count makes them once.
        tables = _online_tables(self.rounds, separation, min(count, -(-self.rounds // separation)))
        return None if tables is None else (tables.best(n, separation, count), tables.exact)


@dataclass(frozen=True)
class _Steps:
    """A matrix of few different rows and columns, kept small: `whole` is it again, to the bit."""

    few: Matrix
    row_of: NDArray[np.intp]
    column_of: NDArray[np.intp]

    @classmethod
    def of(cls, values: Matrix) -> _Steps:
        if len(values) < _FEW:
            return cls(values, np.arange(len(values)), np.arange(values.shape[1]))
        rows, row_of = _runs(values)
        columns, column_of = _runs(values[rows].T)
        return cls(values[np.ix_(rows, columns)], row_of, column_of)

    def whole(self) -> Matrix:
        same = self.few.shape == (len(self.row_of), len(self.column_of))
        return self.few if same else self.few[self.row_of][:, self.column_of]

    def largest(self, other: _Steps) -> _Steps:
        """Return the larger of both, entry by entry."""
        return _Steps.of(np.maximum(self.whole(), other.whole()))


@dataclass(frozen=True, eq=False)
class _Tables:
    # By height and by participations in the node: the best cost of a node that is shown, shape (b, b).
    left: list[dict[int, _Steps]]
    exact: bool

    @lru_cache(maxsize=64)  # noqa: B019  (at most eight tables are kept anyway)
    def best(self, n: int, b: int, k: int) -> float:
        """Return the best cost of the roots of n's binary expansion, left to right, of at most k participations."""
        row: dict[int, Matrix] = {0: np.where(np.arange(b) == 0, 0.0, _NEVER)}
        for height in reversed(range(n.bit_length())):
            if not n >> height & 1:
                continue
            following: dict[int, Matrix] = {}
            for c_before, reached in row.items():
                for c_here, cost in self.left[height].items():
                    c = c_before + c_here
                    if c <= k:
                        value = (reached[:, None] + cost.whole()).max(axis=0)
                        following[c] = np.maximum(following[c], value) if c in following else value
            row = following
        return max(float(value.max()) for value in row.values())


@lru_cache(maxsize=8)
def _online_tree(heights: int) -> tuple[Matrix, Matrix, tuple[Matrix, ...]]:
    shares = np.array([np.float32(1.0 / (2.0 - 2.0**-h)) for h in range(heights + 1)], dtype=np.float64)
    variances, weights = [1.0], [np.ones(1)]
    for height in range(1, heights + 1):
        share = float(shares[height])
        variances.append(share**2 + (1 - share) ** 2 * variances[-1])
        left = np.full(1 << (height - 1), share)
        weights.append(np.concatenate([left, share + (1 - share) * weights[-1]]))
    return shares, np.array(variances), tuple(weights)


@lru_cache(maxsize=8)
def _online_tables(n: int, b: int, k: int) -> _Tables | None:
    shares, variances, _ = _online_tree(n.bit_length())
    first, barred = np.arange(b)[:, None], np.arange(b)[None, :]
    # Rows: the first offset that the past still allows. Columns: how many rounds after the node stay barred.
    absent = np.where(barred >= np.maximum(first - 1, 0), 0.0, _NEVER)
    present = np.where((first == 0) & (barred >= b - 1), 0.0, _NEVER)
    below: dict[tuple[int, float], _Steps] = {(0, 0.0): _Steps.of(absent), (1, 1.0): _Steps.of(present)}
    left: list[dict[int, _Steps]] = []
    exact, work = True, 0.0
    for height in range(n.bit_length()):
        shown: dict[int, _Steps] = {}
        for (c, r), cost in below.items():
            value = replace(cost, few=cost.few + r * r / float(variances[height]))
            shown[c] = shown[c].largest(value) if c in shown else value
        left.append(shown)
        if 2 << height > n:
            break
        share = float(shares[height + 1])
        most = min(k, -(-(2 << height) // b))
        above: dict[tuple[int, float], _Steps] = {}
        coarse = len(below) > _MOST_STATES
        for c_left, before in shown.items():
            for (c_right, r_right), cost in below.items():
                c = c_left + c_right
                if c > most:
                    continue
                # A row of the product costs about as much as 10 000 additions by itself.
                work += b * (b * min(b, 1 << height) + 1e4)
                if work > _MOST_JOINED:
                    return None
                r = share * c + (1 - share) * r_right
                # Costs rise with r, so rounding it up gives a bound.
                key = (c, math.ceil(r * 64) / 64 if coarse else round(r, _KEY_DIGITS))
                both = _through(before, cost)
                above[key] = above[key].largest(both) if key in above else both
        exact = exact and not coarse
        below = above
    return _Tables(left, exact)


def _through(before: _Steps, after: _Steps) -> _Steps:
    """Return the max-plus product: the best way through two neighbouring nodes, over the offset at their border."""
    if len(before.row_of) < _FEW:
        return _Steps.of(_product(before.whole(), after.whole()))
    # Rounding keeps the order of sums, so of equal ways over the border the best one speaks for all.
    into, onward = _merged(before.few[:, before.column_of].T, after.few[after.row_of])
    onward, into = _merged(onward, into)
    joined = _Steps.of(_product(into.T, onward))
    return _Steps(joined.few, joined.row_of[before.row_of], joined.column_of[after.column_of])


def _product(before: Matrix, after: Matrix) -> Matrix:
    out = np.full((len(before), after.shape[1]), _NEVER)
    for into, onward in zip(before.T, after, strict=True):
        rows, columns = np.flatnonzero(into > _NEVER), np.flatnonzero(onward > _NEVER)
        if rows.size and columns.size:
            # What can be reached is a trailing run of columns from a leading run of rows.
            lo = columns[0]
            out[rows, lo:] = np.maximum(out[rows, lo:], into[rows, None] + onward[None, lo:])
    return out


def _runs(values: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where each run of equal rows begins, and each row's run."""
    new = np.concatenate([[True], (values[1:] != values[:-1]).any(axis=1)])
    return np.flatnonzero(new), np.cumsum(new) - 1


def _merged(values: Matrix, others: Matrix) -> tuple[Matrix, Matrix]:
    """Make one row of each run of equal rows of `values`, and of its rows of `others` one of their largest entries."""
    starts, _ = _runs(values)
    return values[starts], np.maximum.reduceat(others, starts, axis=0)
