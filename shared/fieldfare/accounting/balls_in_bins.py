"""Balls in bins: each user takes part in one secret round of every block, the same throughout the run.

**Sampler.** A user draws one of b bins, uniformly and independently of everything else, for the whole run; in round t
the users of bin t mod b take part. Rounds of a user are exactly b apart. (Choquette-Choo, Ganesh, Haque, Steinke and
Thakurta 2024, arXiv 2410.06266, study it. Chua et al. 2412.16802 use the name for the same law in one epoch.)

**What is charged** follows from one theorem, which is proven here and rests on no paper's claim.

*Kahane's inequality* (1986; Rhodes and Vargas 2014, Theorem 2.1). Let X, Y be centred Gaussian vectors with
E X_i X_j <= E Y_i Y_j for all i, j, and p_i >= 0. For f convex of at most linear growth, E f(sum p_i exp(X_i -
Var X_i / 2)) is at most the same of Y.

*Theorem.* A user's pattern pi is secret and independent of everything else. In round t an adversary who has seen all
earlier outputs, and who knows all other users' data and coins, picks u_t of norm at most 1. World P shows y_t =
sum_{s <= t} C_ts pi_s u_s + sigma z_t, world Q shows sigma z_t. Then for every epsilon, in both orders, the
hockey-stick divergence is at most that of

    P* = mean over bins j of N(m_j, sigma^2 I)   against   Q* = N(0, sigma^2 I),      m_j = |C| pi_j.              (1)

*Proof.* dP/dQ is a sum of weights w_pi, which begin at p(pi) and which round t multiplies by exp(<z_t, v_t> / sigma -
|v_t|^2 / (2 sigma^2)), v_t = sum_{s <= t} C_ts pi_s u_s. Backwards in t: suppose that from any weights after round t no
adversary exceeds what Gaussian exponents with covariances sum_{r > t} (|C| pi)_r (|C| pi')_r / sigma^2 give. Before
round t the history fixes u_1 .. u_t. The covariance of the exponents of round t for pi and pi' is <v_t, v_t'> /
sigma^2 <= (|C| pi)_t (|C| pi')_t / sigma^2, because |<u_s, u_s'>| <= 1; so Kahane's inequality gives the same from
round t on. f(x) = (x - e^epsilon)_+ and (1 - e^epsilon x)_+ are the two orders. []

It is tight where C has no negative entry. Where it has some, C in the place of |C| is *wrong*: for [[1, 0], [-.5, 1]],
b = 2, sigma = 1 and epsilon = 1, C would say .0587 where the updates (1, -1) reach .1019. C may be tall, if every row
is drawn after the rounds that it contains (`mode_products` checks it). A user who does not answer contributes 0, also
where the silence depends on data and history.

**Monte Carlo.** Both divergences are means of X = (P - e^epsilon Q)_+ / R over samples of a proposal R. Proposals are
mixtures of components each of which bounds X (`_Pair`), so that 0 <= X <= M with a known M. Let Y = X / M, and let
a stake 0 < l <= 1 be fixed by other samples. For the true mean mu of Y the product of 1 + l (mu - Y_i) is non-negative
with mean 1, so by Markov's inequality it exceeds 1 / beta with probability at most beta. Hence (Waudby-Smith and Ramdas
2024, with one stake)

    U = M m,   m the root of  sum_i log(1 + l (m - Y_i)) = log(1 / beta)                                            (2)

is above the mean but for probability beta. All points and both orders share the failure probability (a union), and the
whole of it is added to delta: with probability 1 - beta over the seed, which is independent of data and run, the run is
(epsilon, delta)-DP. Samples come from the product's own map of Philox bits to normals, so that another machine finds
the same bound up to its last digits. Uniforms lie on a grid of 2^-53, which is far below every figure here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from fieldfare.accounting.certified import LARGEST_EPSILON, CertifiedCurve
from fieldfare.accounting.gaussian import gaussian_epsilon, gaussian_mu
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.factorization.dyadic import nodes
from fieldfare.mechanisms.base import Mechanism
from fieldfare.mechanisms.decaying import Decaying
from fieldfare.mechanisms.independent import Independent
from fieldfare.mechanisms.stamped import Stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.mechanisms.tree import OnlineTree, PlainTree, read_rows
from fieldfare.text import decimal

Vector: TypeAlias = NDArray[np.float64]

FAILURE: Final = 1e-9
"""All certifications of one plan together are wrong with at most this probability."""
SAMPLES: Final = (1 << 22, 1 << 19)
"""Samples of a certification: for removing a user, which has the larger spread, and for adding one."""
MOST_BINS: Final = 256
_LARGEST_MATRIX: Final = 2048
"""Rounds (of a block) up to which the whole strategy matrix is looked at."""
_MOST_ENTRIES: Final = 1 << 25
"""Most numbers of all bins' summed columns together, for longer strategies."""
_LEVELS: Final = 48
"""Points of a curve, besides that of the plan's own epsilon."""
_DEEPEST: Final = 1e-3
"""The last point's delta, as a share of the plan's: what the price of a run in a population leaks is of that size."""
_CHUNK: Final = 1 << 14
_WORKERS: Final = 2
_PILOT: Final = 1 << 16
"""Samples that set the stakes of the bound."""
_ROUGH, _FINE = 1 << 14, 1 << 17
"""Samples of the searches for the noise: to find about where it is, and to find it."""
_MARGIN: Final = 2e-3
"""Added to the noise that a search finds, for the search's own error: some 3 % of delta."""
_PUBLIC_SEED: Final = bytes(16)
"""Of searches and previews, which certify nothing."""
_NOTHING: Final = 1e-250
"""A bound below this is as good as a mean, and too small to divide by."""
_REACH, _CELLS = 40.0, 20_000
"""In log(P / Q) beyond epsilon, and in how many cells, the bound of a sample is sought."""
_TILTS_REMOVE: Final = (2.5, 3.5, 4.5, 5.5)
_SHIFTS_REMOVE: Final = (1.5, 2.5, 3.5, 4.5)
_SHIFTS_ADD: Final = (1.5, 2.5, 3.5, 4.5, 5.5)
_REMOVE, _ADD, _PILOT_REMOVE, _PILOT_ADD = range(4)


def gram(mechanism: Mechanism, bins: int) -> Vector:
    """<|C| pi_i, |C| pi_j> of every two bins i, j, over all rounds of the mechanism: shape (bins, bins), sigma 1.

    Raises:
        BadInput: too many bins, or a strategy to which the module's theorem does not apply.
    """
    if not 1 <= bins <= min(mechanism.rounds, MOST_BINS):
        most = min(mechanism.rounds, MOST_BINS)
        raise BadInput(
            f"participation.bins = {bins}", f"must be in [1, {most}] with {mechanism.rounds} rounds.", str(most)
        )
    return _products(mechanism, mechanism.rounds, bins)


def _products(mechanism: Mechanism, rounds: int, bins: int) -> Vector:
    """`gram` of the first `rounds` rounds; a bin to which none of them belongs has zeros."""
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
        raise BadInput(
            f"scheme 'balls-in-bins' with {rounds} rounds of kind {mechanism.kind!r} and {bins} bins",
            "its strategy matrix is too large to be summed over every bin.",
            f"{_LARGEST_MATRIX} rounds, fewer bins, or restart_every = {_LARGEST_MATRIX}",
        )
    return modes.T @ modes


def _products_of_blocks(mechanism: Stamped, bins: int) -> Vector:
    """Blocks share no row of C, so their products add up. A block need not begin in the first bin."""
    total, start, seen = np.zeros((bins, bins)), 0, dict[int, Vector]()
    for length in mechanism.lengths():
        if length not in seen:
            seen[length] = _products(mechanism.block, length, bins)
        inside = (np.arange(bins) - start) % bins  # the block's bin of each bin of the run
        total += seen[length][np.ix_(inside, inside)]
        start += length
    return total


def _modes_of_filter(coefs: Vector, bins: int) -> Vector:
    """A bin's columns of |C| sum to a filter of |c| whose period is b, moved by the bin and cut at the horizon."""
    summed = np.abs(coefs).astype(np.float64)
    for start in range(bins, summed.size, bins):
        summed[start : start + bins] += summed[start - bins : start][: summed.size - start]
    modes = np.zeros((summed.size, bins))
    for j in range(min(bins, summed.size)):
        modes[j:, j] = summed[: summed.size - j]
    return modes


def _modes_of_tree(tree: OnlineTree | PlainTree, rounds: int, bins: int) -> Vector:
    """How many rounds of each bin lie in each charged node. A node is drawn when it closes (`birth`)."""
    spans = np.array(list(nodes(rounds)), dtype=np.int64)
    if tree.read_only:
        spans = spans[read_rows(rounds)]
    first, last = spans[:, :1] - 1, spans[:, 1:] - 1
    bin_of = np.arange(bins)
    return ((last - bin_of) // bins - (first - 1 - bin_of) // bins).astype(np.float64)


def mode_products(mechanism: Mechanism, bins: int, rounds: int | None = None) -> Vector:
    """m_j of equation (1) at sigma 1, one column for each bin, for the first `rounds` rounds: shape (rows of C, bins).

    Raises `BadInput` where a row of C is drawn before a round that it contains: the proof goes row by row.
    """
    c = np.abs(mechanism.strategy_matrix(mechanism.rounds if rounds is None else rounds))
    births = np.array([mechanism.birth(row) for row in range(len(c))])
    rows, columns = np.nonzero(c)
    if (columns > births[rows]).any():
        raise BadInput(
            f"scheme 'balls-in-bins' with kind {mechanism.kind!r}",
            "its strategy draws noise before a round that this noise hides, and the charge is proven row by row.",
            "kind 'nu', 'blt', 'banded', 'independent' or 'tree' with estimator = 'plain'",
        )
    return np.stack([c[:, j::bins].sum(axis=1) for j in range(bins)], axis=1)


# -- the dominating pair ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Draws:
    """Samples of one order: log(P / Q) and log(R / Q), both of shape (n,)."""

    log_ratio: Vector
    log_proposal: Vector
    add: bool

    def first(self, count: int) -> _Draws:
        """The first `count` samples."""
        return _Draws(self.log_ratio[:count], self.log_proposal[:count], self.add)

    def values(self, epsilon: float) -> Vector:
        """X of the module, shape (n,)."""
        if self.add:
            return np.maximum(0.0, -np.expm1(np.minimum(epsilon + self.log_ratio, 0.0))) * np.exp(-self.log_proposal)
        gain = np.maximum(0.0, -np.expm1(np.minimum(epsilon - self.log_ratio, 0.0)))
        return np.asarray(gain * np.exp(self.log_ratio - self.log_proposal))


class _Pair:
    """The pair of equation (1), its proposals, and the bound M of each order.

    With u_j = <y, m_j>, everything in units of sigma: log(P / Q) = log mean exp(u_j - g_j / 2), g_j = |m_j|^2, and u is
    Gaussian with covariance K, so T drops out.

    *Removing a user.* R mixes P itself (then X <= 1); for a > 1 R_a, which draws bin j with weight exp(a (a - 1) g_j /
    2) / Z_a and y around a m_j, so that R_a / Q >= (P / Q)^a / Z_a by the inequality of power means and X <= Z_a
    e^{-(a - 1) epsilon} (a - 1)^{a - 1} / a^a; and S_s, which is P tilted by exp(s <y, mbar>) and has the small
    variance. With x = P / Q, X <= (x - e^epsilon) / sum_l w_l x^{a_l} / Z_l: M is the maximum over x.
    *Adding a user.* R mixes Q moved by -s mbar, s >= 0. By Jensen log(P / Q) >= <y, mbar> - gbar / 2, so where X > 0,
    <y, mbar> <= gbar / 2 - epsilon =: e, and X <= 1 / sum_s w_s exp(-s e - s^2 v / 2), v = |mbar|^2.
    """

    def __init__(self, kernel: Vector, epsilon: float, deepest: float | None = None) -> None:
        """
        Args:
            kernel: K, shape (b, b).
            epsilon: where the proposals should do best; any other is as valid.
            deepest: the largest epsilon of a curve, where they should do well too.
        """
        self._k, self._bins = kernel, len(kernel)
        self._g = np.diag(kernel).copy()
        self._to_mean = kernel.mean(axis=1)
        self._v, self._gbar = float(kernel.mean()), float(self._g.mean())
        values, vectors = np.linalg.eigh(kernel)
        self._root = vectors * np.sqrt(np.maximum(values, 0.0))
        wide, step = math.sqrt(float(self._g.max())), math.sqrt(self._v)
        orders = 1 + np.geomspace(0.05, 40.0, 200) / wide
        best, deep = (
            float(orders[int(np.argmin([self._log_bound(a, at) for a in orders]))])
            for at in (epsilon, epsilon if deepest is None else deepest)
        )
        tilts = [best, deep, *(1 + t / wide for t in _TILTS_REMOVE)]
        shifts = [0.0, *(s / step for s in _SHIFTS_REMOVE)]
        # (weight, a) and (weight, s); s = 0 is P itself.
        self._tilts = list(zip([0.25, 0.2, *[0.0375] * len(_TILTS_REMOVE)], tilts, strict=True))
        self._shifts = list(zip([0.05, *[0.35 / len(_SHIFTS_REMOVE)] * len(_SHIFTS_REMOVE)], shifts, strict=True))
        moved = [0.0, *(s / step for s in _SHIFTS_ADD)]
        self._moves = list(zip([0.1, *[0.9 / len(_SHIFTS_ADD)] * len(_SHIFTS_ADD)], moved, strict=True))

    def _log_z(self, a: float) -> float:
        return _log_mean(a * (a - 1) / 2 * self._g)

    def _log_bound(self, a: float, epsilon: float) -> float:
        """log of the bound of R_a: a Renyi bound on delta itself."""
        return self._log_z(a) - (a - 1) * epsilon + (a - 1) * math.log(a - 1) - a * math.log(a)

    def bound(self, epsilon: float, add: bool) -> float:
        """M: no sample's X is larger."""
        if add:
            furthest = self._gbar / 2 - epsilon
            logs = [math.log(w) - s * furthest - s * s * self._v / 2 for w, s in self._moves]
            return math.exp(-float(np.logaddexp.reduce(logs)))
        # sup of (x - e^epsilon) / sum_l w_l x^a_l / Z_l over t = log x. Both rise with t, so on a cell of a grid the
        # quotient is at most that of its ends, numerator above and denominator below.
        t = epsilon + np.linspace(0.0, _REACH, _CELLS + 1)
        terms = [math.log(w) + a * t - self._log_z(a) for w, a in self._tilts] + [math.log(self._shifts[0][0]) + t]
        below = _log_sum(terms)
        with np.errstate(divide="ignore"):
            above = t + np.log(-np.expm1(epsilon - t))
        # Beyond the grid the quotient is at most x^{1 - a} Z_a / w_a, which falls.
        beyond = min(t[-1] * (1 - a) + self._log_z(a) - math.log(w) for w, a in self._tilts)
        return math.exp(max(float((above[1:] - below[:-1]).max()), beyond))

    def draw(self, seed: bytes, stream: int, count: int, add: bool) -> _Draws:
        """`count` samples of the proposal of one order, a function of (seed, stream) alone, whatever the threads."""
        ratio, proposal = np.empty(count), np.empty(count)

        def fill(start: int) -> None:
            part = slice(start, min(start + _CHUNK, count))
            size = part.stop - start
            uniforms = _uniforms(seed, stream, start // _CHUNK, size * (self._bins + 2)).reshape(size, -1)
            noise = ndtri(uniforms[:, 2:]) @ self._root.T
            ratio[part], proposal[part] = (self._adding if add else self._removing)(
                uniforms[:, 0], uniforms[:, 1], noise
            )

        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(fill, range(0, count, _CHUNK)))
        return _Draws(ratio, proposal, add)

    def _removing(self, coin: Vector, bin_coin: Vector, noise: Vector) -> tuple[Vector, Vector]:
        weights = np.array([w for w, _ in self._tilts + self._shifts])
        chosen = np.minimum(np.searchsorted(np.cumsum(weights), coin, side="right"), len(weights) - 1)
        u = noise
        for index in range(len(weights)):
            mine = np.flatnonzero(chosen == index)
            if index < len(self._tilts):
                a = self._tilts[index][1]
                bins = _choose(a * (a - 1) / 2 * self._g, bin_coin[mine])
                u[mine] += a * self._k[bins]
            else:
                s = self._shifts[index - len(self._tilts)][1]
                bins = _choose(s * self._to_mean, bin_coin[mine])
                u[mine] += self._k[bins] + s * self._to_mean
        along = u.mean(axis=1)
        w = u - self._g / 2
        log_ratio = _log_mean_rows(w)
        logs = [math.log(weight) - self._log_z(a) + _log_mean_rows(a * w) for weight, a in self._tilts]
        for weight, s in self._shifts:
            log_z = _log_mean(s * self._to_mean)
            logs.append(math.log(weight) - log_z + log_ratio + s * along - s * s * self._v / 2)
        return log_ratio, _log_sum(logs)

    def _adding(self, coin: Vector, _: Vector, noise: Vector) -> tuple[Vector, Vector]:
        weights = np.array([w for w, _ in self._moves])
        chosen = np.minimum(np.searchsorted(np.cumsum(weights), coin, side="right"), len(weights) - 1)
        u = noise - np.array([s for _, s in self._moves])[chosen][:, None] * self._to_mean
        along = u.mean(axis=1)
        logs = [math.log(weight) - s * along - s * s * self._v / 2 for weight, s in self._moves]
        return _log_mean_rows(u - self._g / 2), _log_sum(logs)


def _choose(log_weights: Vector, coin: Vector) -> NDArray[np.intp]:
    cumulated = np.cumsum(np.exp(log_weights - log_weights.max()))
    return np.minimum(np.searchsorted(cumulated / cumulated[-1], coin, side="right"), len(log_weights) - 1)


def _log_mean(values: Vector) -> float:
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).mean()))


def _log_mean_rows(values: Vector) -> Vector:
    top = values.max(axis=1)
    return np.asarray(top + np.log(np.exp(values - top[:, None]).mean(axis=1)))


def _log_sum(logs: list[Vector]) -> Vector:
    stacked = np.stack(logs)
    top = stacked.max(axis=0)
    return np.asarray(top + np.log(np.exp(stacked - top).sum(axis=0)))


def _uniforms(seed: bytes, stream: int, chunk: int, count: int) -> Vector:
    """`count` uniforms in (0, 1) with 53 bits: their Philox counters belong to (stream, chunk) alone."""
    generator = np.random.Philox(key=int.from_bytes(seed, "little"), counter=[0, 0, chunk, stream])
    return ((generator.random_raw(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


# -- the certified bound ----------------------------------------------------------------------------------------------


def upper_bound(values: Vector, most: float, stake: float, log_odds: float, count: float | None = None) -> float:
    """U of equation (2), never above `most`.

    Args:
        values: X_i in [0, most], shape (n,).
        stake: l in (0, 1], fixed without these values.
        log_odds: log(1 / beta).
        count: as if there were this many such values (a forecast); None: n.

    Raises ArithmeticError where a value is out of its range, which would void the bound.
    """
    if not (values.min() >= 0 and values.max() <= most * (1 + 1e-9)):
        raise ArithmeticError("a sample of a certified charge is out of the range that its bound rests on")
    if most < _NOTHING:
        return most
    positive = values[values > 0] / most
    zeros, share = values.size - positive.size, (1.0 if count is None else count / values.size)

    def excess(m: float) -> float:
        return share * (zeros * math.log1p(stake * m) + float(np.log1p(stake * (m - positive)).sum())) - log_odds

    m = float(positive.sum()) / values.size
    # Concave and rising: Newton's steps from the left stay on the left.
    for _ in range(100):
        slope = share * stake * (zeros / (1 + stake * m) + float((1 / (1 + stake * (m - positive))).sum()))
        step = -excess(m) / slope
        m += step
        if m >= 1:
            return most
        if step <= 1e-13 * m:
            break
    # The root finder's error must be no error of the bound.
    rise = 1e-11
    while m < 1 and excess(m * (1 + rise)) < 0:
        rise *= 2
    return min(most, most * m * (1 + rise))


def _stake(values: Vector, most: float, count: float, log_odds: float) -> float:
    spread = float(np.var(values / most))
    return min(1.0, math.sqrt(2 * log_odds / (count * spread))) if spread > 0 else 1.0


def _enough(pilot: Vector, most: float, log_odds: float, count: int) -> int:
    """How many of `count` samples bring a bound within about 2 % of the mean, by the pilot."""
    mean = float(pilot.mean())
    if mean < _NOTHING:
        return count
    needed = max(50 * log_odds * most / mean, 1e4 * log_odds * (float(np.std(pilot)) / mean) ** 2, 1.0)
    return min(count, 1 << math.ceil(math.log2(needed)))


def certify(
    products: Vector,
    noise_multiplier: float,
    epsilons: tuple[float, ...],
    *,
    target: float,
    seed: bytes,
    attempt: int = 1,
    samples: tuple[int, int] = SAMPLES,
) -> CertifiedCurve:
    """The certified curve of a run: its points at `epsilons` are bounds but for the probability `failure`.

    Args:
        products: of `gram`, shape (b, b).
        noise_multiplier: std of z over the clip norm.
        epsilons: increasing from 0, fixed without this seed.
        target: the epsilon for which the samples should be best.
        seed: 16 bytes, fixed (and written down) before this call: a second try has another `attempt`.
        attempt: from 1. The failure probability is `FAILURE` / 2^attempt, so that all attempts share it.
        samples: for removing a user, and for adding one.
    """
    kernel = products / noise_multiplier**2
    pair, failure = _Pair(kernel, target, epsilons[-1]), FAILURE / 2**attempt
    log_odds = math.log(2 * len(epsilons) / failure)
    worst = np.zeros(len(epsilons))
    for add, stream, pilot_stream, count in (
        (False, _REMOVE, _PILOT_REMOVE, samples[0]),
        (True, _ADD, _PILOT_ADD, samples[1]),
    ):
        pilot = pair.draw(seed, pilot_stream, _PILOT, add)
        draws = pair.draw(seed, stream, count, add)
        for at, epsilon in enumerate(epsilons):
            most, tried = pair.bound(epsilon, add), pilot.values(epsilon)
            used = _enough(tried, most, log_odds, count)
            stake = _stake(tried, most, used, log_odds)
            worst[at] = max(worst[at], upper_bound(draws.first(used).values(epsilon), most, stake, log_odds))
    points = tuple((e, min(1.0, _round_up(d + failure))) for e, d in zip(epsilons, worst.tolist(), strict=True))
    mu = math.sqrt(float(np.diag(kernel).max()))
    return CertifiedCurve(mu, points, failure, seed.hex(), attempt, samples)


def _round_up(value: float) -> float:
    """Seven digits, upwards: another machine's last digits then rarely show."""
    scale = 10.0 ** (6 - math.floor(math.log10(value)))
    return math.ceil(value * scale) / scale


# -- the noise --------------------------------------------------------------------------------------------------------


class _Forecast:
    """What a certification would say at other noise, by the same normals for each: smooth, and no certificate."""

    def __init__(self, products: Vector, count: int, failure: float, samples: tuple[int, int]) -> None:
        self._products, self._count, self._samples = products, count, samples
        self._log_odds = math.log(2 * (_LEVELS + 1) / failure)

    def delta(self, noise_multiplier: float, epsilon: float, *, certified: bool = True) -> float:
        """The bound that is to be expected (certified), or the estimate itself."""
        pair = _Pair(self._products / noise_multiplier**2, epsilon)
        worst = 0.0
        for add, stream, count in ((False, _REMOVE, self._samples[0]), (True, _ADD, self._samples[1])):
            values = pair.draw(_PUBLIC_SEED, stream, self._count, add).values(epsilon)
            value = float(values.mean())
            if certified:
                most = pair.bound(epsilon, add)
                stake = _stake(values, most, count, self._log_odds)
                value = upper_bound(values, most, stake, self._log_odds, count)
            worst = max(worst, value)
        return worst

    def curve(self, noise_multiplier: float, epsilons: Vector, target: float) -> Vector:
        """Estimates of delta at many epsilons, falling."""
        pair = _Pair(self._products / noise_multiplier**2, target)
        worst = np.zeros(len(epsilons))
        for add, stream in ((False, _REMOVE), (True, _ADD)):
            draws = pair.draw(_PUBLIC_SEED, stream, self._count, add)
            worst = np.maximum(worst, [float(draws.values(float(e)).mean()) for e in epsilons])
        return np.minimum.accumulate(worst)


def estimate_delta(products: Vector, noise_multiplier: float, epsilon: float, count: int = _ROUGH) -> float:
    """delta of the pair in its worse order, by `count` samples of a public seed: for optimisers. Never a charge."""
    return _Forecast(products, count, FAILURE, SAMPLES).delta(noise_multiplier, epsilon, certified=False)


def estimate_noise(products: Vector, epsilon: float, delta: float, count: int = _ROUGH) -> float:
    """The noise multiplier at which `estimate_delta` is `delta`: for optimisers. Never a charge."""
    forecast = _Forecast(products, count, FAILURE, SAMPLES)
    return _search(lambda sigma: forecast.delta(sigma, epsilon, certified=False), products, epsilon, delta, 1e-4)


def least_noise(
    products: Vector, epsilon: float, delta: float, *, samples: tuple[int, int] = SAMPLES, attempt: int = 1
) -> float:
    """The noise multiplier with which a certification is expected to come out at most at (epsilon, delta).

    A little more for each later `attempt`. Found with a public seed, so that it says nothing of a certification's own
    samples, and is the same on every machine up to last digits.

    Raises `BudgetRefused` where delta is too small for any certificate.
    """
    failure = FAILURE / 2**attempt
    if delta <= 2 * failure:
        raise BudgetRefused(
            f"delta = {decimal(delta)} with scheme 'balls-in-bins'",
            f"the certificate's own failure probability, {decimal(failure, 2)}, is part of delta.",
            f"{100 * FAILURE:g}",
        )
    goal = delta - failure
    rough, fine = (_Forecast(products, count, failure, samples) for count in (_ROUGH, _FINE))
    near = _search(lambda sigma: rough.delta(sigma, epsilon), products, epsilon, goal, 1e-3)

    def off(log: float) -> float:
        return math.log(fine.delta(math.exp(log), epsilon) / goal)

    # One secant step from close by, at a slope that hardly changes.
    here, there = math.log(near), math.log(near) + 5e-3
    value, other = off(here), off(there)
    slope = (other - value) / (there - here)
    found = here - value / slope if slope < 0 else there
    found = min(max(found, here - 0.05), here + 0.05)
    unamplified = math.sqrt(float(np.diag(products).max())) / gaussian_mu(epsilon, delta)
    return min(unamplified, math.exp(found) * (1 + _MARGIN * attempt))


def _search(cost: Callable[[float], float], products: Vector, epsilon: float, goal: float, tolerance: float) -> float:
    """Where the falling `cost` of a noise multiplier is `goal`."""

    def off(log: float) -> float:
        return math.log(max(cost(math.exp(log)), 1e-300) / goal)

    low = top = math.log(math.sqrt(float(np.diag(products).max())) / gaussian_mu(epsilon, goal))
    if off(top) > 0:
        return math.exp(top)  # so few samples cannot show any amplification
    while off(low) <= 0 and low > top - 12:
        low -= 0.4
    return math.exp(brentq(off, low, low + 0.4, xtol=tolerance)) if off(low) > 0 else math.exp(low)


def points_for(products: Vector, noise_multiplier: float, epsilon: float, delta: float) -> tuple[float, ...]:
    """Where a run's curve is certified: at `epsilon`, and where delta falls in equal steps to a share of `delta`.

    A function of the plan alone: public samples find it, never those of a certification.
    """
    mu = math.sqrt(float(np.diag(products).max())) / noise_multiplier
    furthest = min(gaussian_epsilon(mu, _DEEPEST * delta), LARGEST_EPSILON)
    grid = np.unique(np.concatenate([np.linspace(0.0, furthest, 240), [epsilon]]))
    falling = np.log(
        np.maximum(_Forecast(products, _ROUGH, FAILURE, SAMPLES).curve(noise_multiplier, grid, epsilon), 1e-300)
    )
    levels = np.linspace(falling[0], max(falling[-1], math.log(_DEEPEST * delta)), _LEVELS)
    epsilons = np.interp(-levels, -falling, grid)
    chosen = {0.0, epsilon, *(round(float(e), 6) for e in epsilons[1:])}
    return tuple(sorted(e for e in chosen if e <= furthest or e == epsilon))


def estimated_epsilon(products: Vector, noise_multiplier: float, delta: float) -> float:
    """About the epsilon of a noise multiplier at `delta`, by public samples: where its curve is to be sharpest."""
    forecast = _Forecast(products, _ROUGH, FAILURE, SAMPLES)
    high = gaussian_epsilon(math.sqrt(float(np.diag(products).max())) / noise_multiplier, delta)
    if forecast.delta(noise_multiplier, 0.0, certified=False) <= delta or high <= 1e-6:
        return 0.0
    if forecast.delta(noise_multiplier, high, certified=False) >= delta:
        return round(high, 6)
    found = brentq(
        lambda e: math.log(forecast.delta(noise_multiplier, e, certified=False) / delta), 0.0, high, xtol=1e-4
    )
    return round(float(found), 6)
