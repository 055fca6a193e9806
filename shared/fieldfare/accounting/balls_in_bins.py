"""Balls in bins: each user takes part in one secret round of every block, the same throughout the run.

**Sampler.** A user draws one of b bins, uniformly and independently of everything else, for the whole run; in
round t the users of bin t mod b take part. Rounds of a user are exactly b apart. (Choquette-Choo, Ganesh,
Haque, Steinke and Thakurta 2024, arXiv 2410.06266, study it. Chua et al. 2412.16802 use the name for the same
law in one epoch.)

**What is charged** follows from one theorem, which is proven here and rests on no paper's claim.

*Kahane's inequality* (1986; Rhodes and Vargas 2014, Theorem 2.1). Let X, Y be centred Gaussian vectors with E
X_i X_j <= E Y_i Y_j for all i, j, and p_i >= 0. For f convex of at most linear growth, E f(sum p_i exp(X_i -
Var X_i / 2)) is at most the same of Y.

*Theorem.* A user's pattern pi is secret and independent of everything else. In round t an adversary who has
seen all earlier outputs, and who knows all other users' data and coins, picks u_t of norm at most 1. World P
shows y_t = sum_{s <= t} C_ts pi_s u_s + sigma z_t, world Q shows sigma z_t. Then for every epsilon, in both
orders, the hockey-stick divergence is at most that of

    P* = mean over bins j of N(m_j, sigma^2 I)   against   Q* = N(0, sigma^2 I),      m_j = |C| pi_j.              (1)

*Proof.* dP/dQ is a sum of weights w_pi, which begin at p(pi) and which round t multiplies by exp(<z_t, v_t> / sigma -
|v_t|^2 / (2 sigma^2)), v_t = sum_{s <= t} C_ts pi_s u_s. Backwards in t: suppose that from any weights after round t no
adversary exceeds what Gaussian exponents with covariances sum_{r > t} (|C| pi)_r (|C| pi')_r / sigma^2 give. Before
round t the history fixes u_1 .. u_t. The covariance of the exponents of round t for pi and pi' is <v_t, v_t'> /
sigma^2 <= (|C| pi)_t (|C| pi')_t / sigma^2, because |<u_s, u_s'>| <= 1; so Kahane's inequality gives the same from
round t on. f(x) = (x - e^epsilon)_+ and (1 - e^epsilon x)_+ are the two orders. []

It is tight where C has no negative entry. Where it has some, C in the place of |C| is *wrong*: for [[1, 0],
[-.5, 1]], b = 2, sigma = 1 and epsilon = 1, C would say .0587 where the updates (1, -1) reach .1019. C may be
tall, if every row is drawn after the rounds that it contains (`mode_products` checks it). A user who does not
answer contributes 0, also where the silence depends on data and history.

**Monte Carlo** of the pair (1) in u_j = <y, m_j>, which is Gaussian with covariance K: T drops out
(`importance`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from fieldfare.accounting.importance import CommonParts, Tilt, Vector, choose, log_mean, log_mean_columns, sums
from fieldfare.errors import OutOfRange, TooLarge, Unsupported
from fieldfare.factorization.dyadic import nodes
from fieldfare.mechanisms.base import Mechanism
from fieldfare.mechanisms.decaying import Decaying
from fieldfare.mechanisms.independent import Independent
from fieldfare.mechanisms.stamped import Stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.mechanisms.tree import OnlineTree, PlainTree, read_rows

MOST_BINS: Final = 256
# Rounds (of a block) up to which the whole strategy matrix is looked at.
_LARGEST_MATRIX: Final = 2048
# Most numbers of all bins' summed columns together, for longer strategies.
_MOST_ENTRIES: Final = 1 << 25


def gram(mechanism: Mechanism, bins: int) -> Vector:
    """Return <|C| pi_i, |C| pi_j> of every two bins i, j, over all rounds of the mechanism: shape (bins,
    bins), sigma 1.

    Raises:
        BadInput: too many bins, or a strategy to which the module's theorem does not apply.
    """
    if not 1 <= bins <= min(mechanism.rounds, MOST_BINS):
        most = min(mechanism.rounds, MOST_BINS)
        raise OutOfRange(
            f"participation.bins = {bins}", f"must be in [1, {most}] with {mechanism.rounds} rounds.", str(most)
        )
    return _products(mechanism, mechanism.rounds, bins)


def _products(mechanism: Mechanism, rounds: int, bins: int) -> Vector:
    """Return `gram` of the first `rounds` rounds; a bin to which none of them belongs has zeros."""
    if isinstance(mechanism, Stamped):
        return _products_of_blocks(mechanism, bins)
    if rounds <= _LARGEST_MATRIX:
        modes = mode_products(mechanism, bins, rounds)
    elif isinstance(mechanism, Independent | Decaying):
        # Columns are orthogonal: so are bins.
        norms = mechanism.row_norms(rounds) ** -2.0
        return np.diag([float(norms[j::bins].sum()) for j in range(bins)])
    elif isinstance(mechanism, OnlineTree | PlainTree) and 2 * rounds * bins <= _MOST_ENTRIES:
        modes = _modes_of_tree(mechanism, rounds, bins)
    elif isinstance(mechanism, ToeplitzMechanism) and rounds * bins <= _MOST_ENTRIES:
        modes = _modes_of_filter(mechanism.strategy_coefs[:rounds], bins)
    else:
        raise TooLarge(
            f"scheme 'balls-in-bins' with {rounds} rounds of kind {mechanism.kind!r} and {bins} bins",
            "its strategy matrix is too large to be summed over every bin.",
            f"{_LARGEST_MATRIX} rounds, fewer bins, or restart_every = {_LARGEST_MATRIX}",
        )
    return modes.T @ modes


def _products_of_blocks(mechanism: Stamped, bins: int) -> Vector:
    """Add up the products of blocks, which share no row of C. A block need not begin in the first bin."""
    total, start, seen = np.zeros((bins, bins)), 0, dict[int, Vector]()
    for length in mechanism.lengths():
        if length not in seen:
            seen[length] = _products(mechanism.block, length, bins)
        inside = (np.arange(bins) - start) % bins  # the block's bin of each bin of the run
        total += seen[length][np.ix_(inside, inside)]
        start += length
    return total


def _modes_of_filter(coefs: Vector, bins: int) -> Vector:
    """Sum each bin's columns of |C|, to a filter of |c| whose period is b, moved by the bin and cut at the horizon."""
    summed = np.abs(coefs).astype(np.float64)
    for start in range(bins, summed.size, bins):
        summed[start : start + bins] += summed[start - bins : start][: summed.size - start]
    modes = np.zeros((summed.size, bins))
    for j in range(min(bins, summed.size)):
        modes[j:, j] = summed[: summed.size - j]
    return modes


def _modes_of_tree(tree: OnlineTree | PlainTree, rounds: int, bins: int) -> Vector:
    """Count how many rounds of each bin lie in each charged node. A node is drawn when it closes (`birth`)."""
    # A node's noise hides the sum of its rounds, so its row of |C| is 1 on them and 0 elsewhere.
    spans = np.array(list(nodes(rounds)), dtype=np.int64)
    if tree.read_only:
        spans = spans[read_rows(rounds)]
    first, last = spans[:, :1] - 1, spans[:, 1:] - 1
    bin_of = np.arange(bins)
    # How many t = j (mod b) lie between `first` and `last`: those up to `last`, without those before `first`.
    return ((last - bin_of) // bins - (first - 1 - bin_of) // bins).astype(np.float64)


def mode_products(mechanism: Mechanism, bins: int, rounds: int | None = None) -> Vector:
    """Return m_j of equation (1) at sigma 1, one column for each bin, for the first `rounds` rounds: shape
    (rows of C, bins).

    Raises `BadInput` where a row of C is drawn before a round that it contains: the proof goes row by row.
    """
    # Entries by their size: a user's updates may point anywhere, so no cancellation between columns is counted on.
    c = np.abs(mechanism.strategy_matrix(mechanism.rounds if rounds is None else rounds))
    births = np.array([mechanism.birth(row) for row in range(len(c))])
    rows, columns = np.nonzero(c)
    if (columns > births[rows]).any():
        raise Unsupported(
            f"scheme 'balls-in-bins' with kind {mechanism.kind!r}",
            "its strategy draws noise before a round that this noise hides, and the charge is proven row by row.",
            "kind 'nu', 'blt', 'banded', 'independent' or 'tree' with estimator = 'plain'",
        )
    return np.stack([c[:, j::bins].sum(axis=1) for j in range(bins)], axis=1)


class Bins:
    """The law of balls in bins for `importance`: a bin is uniform, and K = (<m_i, m_j>) says all of C and sigma."""

    chunk: Final = 1 << 14
    orders: Final = np.geomspace(0.05, 40.0, 200)
    least_noise: Final = 0.0
    turns: Final = 1

    def __init__(self, kernel: Vector) -> None:
        """
        Args:
            kernel: K, shape (b, b).
        """
        self._k = kernel
        self._g = np.diag(kernel).copy()
        self._to_mean = kernel.mean(axis=1)
        self.largest, self.mean, self.along_mean = float(self._g.max()), float(self._g.mean()), float(kernel.mean())
        self.coins = len(kernel) + 1
        # K has rank at most T and may have rank below b, where Cholesky's factor would fail.
        values, vectors = np.linalg.eigh(kernel)
        self._root = vectors * np.sqrt(np.maximum(values, 0.0))

    def at(self, noise_multiplier: float) -> Bins:
        return Bins(self._k / noise_multiplier**2)

    def log_z(self, a: float, s: float) -> float:
        return log_mean(self._log_weights(a, s))

    def draw(self, uniforms: Vector, normals: Vector, tilts: Sequence[Tilt]) -> Vector:
        """Return u, shape (b, n)."""
        u = normals @ self._root.T
        for tilt in tilts:
            moved = tilt.s * self._to_mean
            if tilt.a:
                bins = choose(self._log_weights(tilt.a, tilt.s), uniforms[tilt.samples, 0])
                moved = tilt.a * self._k[bins] + moved
            u[tilt.samples] += moved
        return np.ascontiguousarray(u.T)

    def log_power(self, u: Vector, a: float) -> Vector:
        logs = u - self._g[:, None] / 2
        logs *= a
        return log_mean_columns(logs)

    def along(self, u: Vector) -> Vector:
        return sums(u) / len(u)

    def projected(self) -> tuple[Vector, Vector]:
        return self._to_mean / math.sqrt(self.along_mean), np.full(len(self._k), 1 / len(self._k))

    def apart(self) -> CommonParts:
        return CommonParts.of(self._k)

    def _log_weights(self, a: float, s: float) -> Vector:
        return np.asarray(a * (a - 1) / 2 * self._g + s * self._to_mean)


def law_of(mechanism: Mechanism, bins: int) -> Bins:
    """Return the law at noise multiplier 1. Raises `BadInput` as `gram`."""
    return Bins(gram(mechanism, bins))


def law_of_filter(coefs: Vector, bins: int) -> Bins:
    """Return the same of a Toeplitz strategy by its first column, shape (T,)."""
    modes = _modes_of_filter(coefs, bins)
    return Bins(modes.T @ modes)
