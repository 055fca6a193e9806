"""Importance samples of the dominating pair of a secret sampler, and the certified upper bound of their mean.

The pair is P, the mixture over a user's patterns pi of N(m_pi, I), m_pi = |C| pi / sigma, against Q = N(0, I)
(`balls_in_bins` has the theorem). A `Law` is the law p of the pattern together with what the samples need of
it. With g_pi = |m_pi|^2, mbar = E m_pi, gbar = E g_pi and v = |mbar|^2:

**Proposals.** R_{a,s} draws pi with weight p(pi) exp(a (a - 1) g_pi / 2 + s <mbar, m_pi>) / Z_{a,s} and y
around a m_pi + s mbar. Two kinds are mixed, R_a = R_{a,0} and S_s = R_{1,s}.

*Removing a user.* R mixes P itself (then X <= 1); for a > 1 R_a, for which R_a / Q >= (P / Q)^a / Z_a by the
inequality of power means and so X <= Z_a e^{-(a - 1) epsilon} (a - 1)^{a - 1} / a^a; and S_s, which is P
tilted by exp(s <y, mbar>) and has the small variance. With x = P / Q, X <= (x - e^epsilon) / sum_l w_l
x^{a_l} / Z_l: M is the maximum over x.

*Adding a user.* R mixes Q moved by -s mbar, s >= 0. By Jensen log(P / Q) >= <y, mbar> - gbar / 2, so where X
> 0, <y, mbar> <= gbar / 2 - epsilon =: e, and X <= 1 / sum_s w_s exp(-s e - s^2 v / 2).

**The bound.** Both divergences are means of X = (P - e^epsilon Q)_+ / R over samples of R, and 0 <= X <= M
with a known M. Let Y = X / M, and let a stake 0 < l <= 1 be fixed by other samples. For the true mean mu of Y
the product of 1 + l (mu - Y_i) is non-negative with mean 1, so by Markov's inequality it exceeds 1 / beta
with probability at most beta. Hence (Waudby-Smith and Ramdas 2024, with one stake)

    U = M m,   m the root of  sum_i log(1 + l (m - Y_i)) = log(1 / beta)                                            (2)

is above the mean but for probability beta. Samples come from the product's own map of Philox bits to normals,
so that another machine finds the same bound up to its last digits. Uniforms lie on a grid of 2^-53, which is
far below every figure here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fieldfare.lazily import scipy

Vector: TypeAlias = NDArray[np.float64]

# Of searches and previews, which certify nothing.
PUBLIC_SEED: Final = bytes(16)
_WORKERS: Final = 2
# A bound below this is as good as a mean, and too small to divide by.
_NOTHING: Final = 1e-250
# In log(P / Q) beyond epsilon, and in how many cells, the bound of a sample is sought.
_REACH, _CELLS = 40.0, 20_000
_TILTS_REMOVE: Final = (2.5, 3.5, 4.5, 5.5)
_SHIFTS_REMOVE: Final = (1.5, 2.5, 3.5, 4.5)
_SHIFTS_ADD: Final = (1.5, 2.5, 3.5, 4.5, 5.5)


@dataclass(frozen=True)
class Tilt:
    """R_{a,s} of the module, and which samples are drawn from it: their places, shape (n,)."""

    a: float
    s: float
    samples: NDArray[np.intp]


@dataclass(frozen=True)
class CommonParts:
    """<m_pi, m_pi'> <= shared + own (number of blocks in which pi and pi' have the same round), for all pi, pi'."""

    shared: float
    own: float
    bins: int
    blocks: int = 1

    @classmethod
    def of(cls, kernel: Vector) -> CommonParts:
        """Return the parts of one block. kernel: inner products of its rounds, shape (bins, bins)."""
        others = kernel[~np.eye(len(kernel), dtype=bool)]
        shared = float(others.max(initial=0.0))
        return cls(shared, max(0.0, float(kernel.diagonal().max()) - shared), len(kernel))


class Law(Protocol):
    """The law of one user's secret pattern, and the inner products of its columns, at one noise multiplier."""

    @property
    def largest(self) -> float:
        """max g_pi: without amplification a run is sqrt(largest)-GDP."""

    @property
    def mean(self) -> float:
        """gbar."""

    @property
    def along_mean(self) -> float:
        """v."""

    @property
    def least_noise(self) -> float:
        """The least noise multiplier, in units of this law's, at which it can be sampled."""

    @property
    def coins(self) -> int:
        """Uniforms that one sample takes."""

    @property
    def turns(self) -> int:
        """How many of them decide its pattern; each other one makes a normal."""

    @property
    def chunk(self) -> int:
        """Samples that are drawn together. It belongs to the law: a sample's Philox counters follow from it."""

    @property
    def orders(self) -> Vector:
        """(a - 1) sqrt(largest) of the R_a among which the best one is sought."""

    def at(self, noise_multiplier: float) -> Law:
        """Return the same law with so many times the noise."""

    def log_z(self, a: float, s: float) -> float:
        """log Z_{a,s}."""

    def draw(self, uniforms: Vector, normals: Vector, tilts: Sequence[Tilt]) -> Vector:
        """Return what the methods below need of y, one column a sample: uniforms (n, turns), normals (n, others)."""

    def log_power(self, u: Vector, a: float) -> Vector:
        """log E_pi exp(a (<y, m_pi> - g_pi / 2)) of what `draw` returned, shape (n,): log(P / Q) at a = 1."""

    def along(self, u: Vector) -> Vector:
        """Return <y, mbar>, shape (n,)."""

    def projected(self) -> tuple[Vector, Vector]:
        """Values of <m_pi, mbar> / |mbar|, none above the true one, and their probabilities: shape (n,) each."""

    def apart(self) -> CommonParts | None:
        """What bounds every <m_pi, m_pi'> from above in the form of `sampling_free`; None where nothing does."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Samples of one order: log(P / Q), and the order's first distribution over R, both of shape (n,)."""

    log_ratio: Vector
    weight: Vector
    add: bool

    def values(self, epsilon: float, count: int | None = None) -> Vector:
        """Return X of the module at `epsilon` for the first `count` samples (None: all), shape (count,)."""
        logs = self.log_ratio[:count]
        gain = epsilon + logs if self.add else epsilon - logs
        np.negative(np.expm1(np.minimum(gain, 0.0, out=gain), out=gain), out=gain)
        return np.multiply(gain, self.weight[:count], out=gain)


class Pair:
    """The pair of a law, with the proposals of the module and the bound M of each order."""

    def __init__(self, law: Law, epsilon: float, deepest: float | None = None) -> None:
        """
        Args:
            law: at the noise that is charged.
            epsilon: where the proposals should do best; any other is as valid.
            deepest: the largest epsilon of a curve, where they should do well too.
        """
        self._law = law
        self._v, self._gbar = law.along_mean, law.mean
        # Which proposals are mixed, and how, decides only how wide the bound is: it holds for any mixture.
        wide, step = math.sqrt(law.largest), math.sqrt(self._v)
        orders = 1 + law.orders / wide
        logs = np.array([law.log_z(float(a), 0.0) for a in orders])
        # log of the bound of R_a: a Renyi bound on delta itself.
        plain = logs + (orders - 1) * np.log(orders - 1) - orders * np.log(orders)
        best, deep = (
            float(orders[int(np.argmin(plain - (orders - 1) * at))])
            for at in (epsilon, epsilon if deepest is None else deepest)
        )
        tilts = [best, deep, *(1 + t / wide for t in _TILTS_REMOVE)]
        shifts = [0.0, *(s / step for s in _SHIFTS_REMOVE)]
        weights = [0.25, 0.2, *[0.0375] * len(_TILTS_REMOVE)]
        # (weight, a, log Z_a) and (weight, s, log Z_s); s = 0 is P itself.
        self._tilts = [(w, a, law.log_z(a, 0.0)) for w, a in zip(weights, tilts, strict=True)]
        weights = [0.05, *[0.35 / len(_SHIFTS_REMOVE)] * len(_SHIFTS_REMOVE)]
        self._shifts = [(w, s, law.log_z(1.0, s)) for w, s in zip(weights, shifts, strict=True)]
        moved = [0.0, *(s / step for s in _SHIFTS_ADD)]
        self._moves = list(zip([0.1, *[0.9 / len(_SHIFTS_ADD)] * len(_SHIFTS_ADD)], moved, strict=True))

    def bound(self, epsilon: float, add: bool) -> float:
        """Return M: no sample's X is larger."""
        if add:
            furthest = self._gbar / 2 - epsilon
            logs = [math.log(w) - s * furthest - s * s * self._v / 2 for w, s in self._moves]
            return math.exp(-float(np.logaddexp.reduce(logs)))
        # sup of (x - e^epsilon) / sum_l w_l x^a_l / Z_l over t = log x. Both rise with t, so on a cell of a
        # grid the quotient is at most that of its ends, numerator above and denominator below.
        t = epsilon + np.linspace(0.0, _REACH, _CELLS + 1)
        terms = [math.log(w) + a * t - log_z for w, a, log_z in self._tilts] + [math.log(self._shifts[0][0]) + t]
        below = log_sum(terms)
        with np.errstate(divide="ignore"):
            above = t + np.log(-np.expm1(epsilon - t))
        # Beyond the grid the quotient is at most x^{1 - a} Z_a / w_a, which falls.
        beyond = min(t[-1] * (1 - a) + log_z - math.log(w) for w, a, log_z in self._tilts)
        return math.exp(max(float((above[1:] - below[:-1]).max()), beyond))

    def draw(self, seed: bytes, stream: int, count: int, add: bool) -> Draws:
        """Return `count` samples of the proposal of one order, a function of (seed, stream) alone."""
        # Where a chunk's counters lie follows from its number, so threads may take chunks in any order.
        ratio, proposal = np.empty(count), np.empty(count)
        chunk, coins, turns = self._law.chunk, self._law.coins, self._law.turns
        made = _public_noise if seed == PUBLIC_SEED else _noise

        def fill(start: int) -> None:
            part = slice(start, min(start + chunk, count))
            size = part.stop - start
            noise = made(seed, stream, start // chunk, (size, coins + 1), turns + 1)
            ratio[part], proposal[part] = (self._adding if add else self._removing)(*noise)

        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(fill, range(0, count, chunk)))
        np.subtract(0.0 if add else ratio, proposal, out=proposal)
        return Draws(ratio, np.exp(proposal, out=proposal), add)

    def _removing(self, uniforms: Vector, normals: Vector) -> tuple[Vector, Vector]:
        law, kinds = self._law, [(a, 0.0) for _, a, _ in self._tilts] + [(1.0, s) for _, s, _ in self._shifts]
        chosen = _component([w for w, *_ in self._tilts + self._shifts], uniforms[:, 0])
        tilts = [Tilt(a, s, np.flatnonzero(chosen == i)) for i, (a, s) in enumerate(kinds)]
        u = law.draw(uniforms[:, 1:], normals, tilts)
        log_ratio, along = law.log_power(u, 1.0), law.along(u)
        logs = [math.log(weight) - log_z + law.log_power(u, a) for weight, a, log_z in self._tilts]
        for weight, s, log_z in self._shifts:
            logs.append(math.log(weight) - log_z + log_ratio + s * along - s * s * self._v / 2)
        return log_ratio, log_sum(logs)

    def _adding(self, uniforms: Vector, normals: Vector) -> tuple[Vector, Vector]:
        chosen = _component([w for w, _ in self._moves], uniforms[:, 0])
        tilts = [Tilt(0.0, -s, np.flatnonzero(chosen == i)) for i, (_, s) in enumerate(self._moves)]
        u = self._law.draw(uniforms[:, 1:], normals, tilts)
        along = self._law.along(u)
        logs = [math.log(weight) - s * along - s * s * self._v / 2 for weight, s in self._moves]
        return self._law.log_power(u, 1.0), log_sum(logs)


def _component(weights: list[float], coin: Vector) -> NDArray[np.intp]:
    return np.minimum(np.searchsorted(np.cumsum(weights), coin, side="right"), len(weights) - 1)


def choose(log_weights: Vector, coin: Vector) -> NDArray[np.intp]:
    """Return indices with probabilities in proportion to exp(log_weights), one for each uniform of `coin`."""
    cumulated = np.cumsum(np.exp(log_weights - log_weights.max()))
    # The largest uniform is 1 after rounding, which lies in no interval.
    return np.minimum(np.searchsorted(cumulated / cumulated[-1], coin, side="right"), len(log_weights) - 1)


def log_mean(values: Vector) -> float:
    """Return log of the mean of exp(values)."""
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).mean()))


def log_mean_columns(values: Vector) -> Vector:
    """Return `log_mean` of every column; `values` are lost."""
    top = values.max(axis=0)
    values -= top
    return np.asarray(top + np.log(sums(np.exp(values, out=values)) / len(values)))


def sums(values: Vector) -> Vector:
    """Return the sum of every column, in the order in which numpy adds up a vector, which certificates rest on."""
    # numpy's pairwise sum: halves down to 128, eight partial sums in each.
    n = len(values)
    if n > 128:
        half = n // 2 - n // 2 % 8
        return sums(values[:half]) + sums(values[half:])
    if n < 8:
        return np.asarray(values.sum(axis=0))
    eight = values[:8].copy()
    for first in range(8, n - 7, 8):
        eight += values[first : first + 8]
    total = ((eight[0] + eight[1]) + (eight[2] + eight[3])) + ((eight[4] + eight[5]) + (eight[6] + eight[7]))
    for row in values[n - n % 8 :]:
        total += row
    return np.asarray(total)


def log_sum(logs: list[Vector]) -> Vector:
    """Return log of the sum of exp of several vectors."""
    stacked = np.stack(logs)
    top = stacked.max(axis=0)
    return np.asarray(top + np.log(np.exp(stacked - top).sum(axis=0)))


def _noise(seed: bytes, stream: int, chunk: int, shape: tuple[int, int], turns: int) -> tuple[Vector, Vector]:
    """Return uniforms in (0, 1) with 53 bits, `turns` columns, and normals from the others of `shape`.

    Their Philox counters belong to (stream, chunk) alone.
    """
    philox = np.random.Philox(key=int.from_bytes(seed, "little"), counter=[0, 0, chunk, stream])
    uniforms = np.random.Generator(philox).random(shape)
    uniforms += 2.0**-54  # to the middle of its cell: the normal of 0 would be infinite
    return uniforms[:, :turns].copy(), np.asarray(scipy.special.ndtri(uniforms[:, turns:]))


# A search asks for the same noise at every step. Four chunks are at most 40 MB.
_public_noise = lru_cache(maxsize=4)(_noise)


def upper_bound(values: Vector, most: float, stake: float, log_odds: float, count: float | None = None) -> float:
    """Return U of equation (2), never above `most`.

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
    # Most samples are 0 where epsilon is large: they are counted, not kept.
    positive = values[values > 0] / most
    zeros, share = values.size - positive.size, (1.0 if count is None else count / values.size)

    room = np.empty_like(positive)

    def staked(m: float) -> Vector:
        return np.multiply(stake, np.subtract(m, positive, out=room), out=room)

    def excess(m: float) -> float:
        return share * (zeros * math.log1p(stake * m) + float(np.log1p(staked(m), out=room).sum())) - log_odds

    m = float(positive.sum()) / values.size
    # Concave and rising: Newton's steps from the left stay on the left.
    for _ in range(100):
        slope = share * stake * (zeros / (1 + stake * m) + float((1 / (1 + staked(m))).sum()))
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


def stake_of(values: Vector, most: float, count: float, log_odds: float) -> float:
    """Return the stake l for `count` samples that are like these.

    Args:
        values: X_i in [0, most], shape (n,): a pilot's, which the bound does not use again.
        most: the largest value that X can have.
        count: how many samples the bound will have.
        log_odds: log of 1 over the bound's failure probability.
    """
    spread = float(np.var(values / most))
    return min(1.0, math.sqrt(2 * log_odds / (count * spread))) if spread > 0 else 1.0


def enough(pilot: Vector, most: float, log_odds: float, count: int) -> int:
    """Return how many of `count` samples bring a bound within about 2 % of the mean, by the pilot."""
    mean = float(pilot.mean())
    if mean < _NOTHING:
        return count
    needed = max(50 * log_odds * most / mean, 1e4 * log_odds * (float(np.std(pilot)) / mean) ** 2, 1.0)
    return min(count, 1 << math.ceil(math.log2(needed)))
