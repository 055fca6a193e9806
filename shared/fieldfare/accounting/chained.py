"""Secret samplers of banded strategies whose pattern is a Markov chain: the pair by dynamic programs.

By the theorem of `balls_in_bins` the run is dominated by the mixture of N(m_pi, I), m_pi = |C| pi / sigma,
against N(0, I), for any law p of the secret pattern pi. Let c_t be column t of |C| / sigma, u_t = <y, c_t>,
D_st = <c_s, c_t>, and let C have at most w rows in a column, from the diagonal down, so that D_st = 0 where
|s - t| >= w. Then

    P / Q = E_pi exp(sum_t pi_t u_t - g_pi / 2),      g_pi = sum_st pi_s D_st pi_t                                  (1)

and what `importance` asks for besides, Z_{a,s} and E_pi exp(a (u_pi - g_pi / 2)), is the same mean of other
weights.

**b-min-sep** (Dong and Ganesh 2026, arXiv 2602.09338). A user who may take part does so with probability p in
each round, and then rests for b - 1 rounds. *Warm start*: a user may take part from round 0 on with
probability 1 / (1 + (b - 1) p), and from round i = 1 .. b - 1 on with p / (1 + (b - 1) p) each, so that every
round has the same chance, 1 / (b - 1 + 1 / p). With w <= b no two rounds of a user share noise: g_pi = sum_t
pi_t D_tt, and the mean for a user who may take part from round i on is

    F_i = (1 - p) F_{i+1} + p exp(u_i - D_ii / 2) F_{i+b},      F_i = 1 for i >= T.                                 (2)

With wider bands the next column overlaps, and (2) is wrong. p = 1 is balls in bins, b = 1 is Poisson
sampling.

**Random allocation**: a uniform round in each block of b, blocks independent. Rounds of a block and of the
next but one are at least b + 1 apart, so with w <= b + 1 only neighbouring blocks share noise. For f_j(s),
the part of blocks 0 .. j in which the last round is s,

    f_{j+1}(s') = exp(u_s' - D_s's' / 2) / b  sum_s f_j(s) exp(-D_ss').                                             (3)

A round beyond the end of the run has no column: a user who draws it stays out.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting.importance import CommonParts, Tilt, Vector, choose
from fieldfare.errors import OutOfRange, TooLarge, Unsupported
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import Mechanism
from fieldfare.participation import BMinSep, Participation, RandomAllocation

Rounds = NDArray[np.intp]

MOST_ROUNDS: Final = 2048
# Of random allocation: (3) costs T b for each sample.
MOST_BINS: Final = 256
# Largest norm of a column: with it all exponents of a chain stay inside float64's range.
_LOUDEST: Final = 10.0
# About how many uniforms are drawn together.
_TOGETHER: Final = 1 << 20
# Fewest columns of one product of y with C.
_SLICE: Final = 32
# Values that a user's sum over all rounds may have in `projected`.
_FINE: Final = 1 << 12
# -log of what counts as no probability.
_CERTAIN: Final = 690.0


class Chain(ABC):
    """A `Law` of `importance` for banded strategies."""

    orders: Final = np.geomspace(0.3, 8.0, 32)

    def __init__(self, c: Vector, bands: int, turns: int, padded: int) -> None:
        """
        Args:
            c: |C|, shape (T, T).
            bands: w.
            turns: uniforms that decide a pattern.
            padded: rounds of the whole last block.
        """
        self._rounds, self._bands, self.turns = len(c), bands, turns
        self._c = np.pad(c, ((0, 0), (0, padded - len(c))))
        self._columns = np.zeros((padded + 1, bands))
        for t in range(self._rounds):
            column = c[t : t + bands, t]
            self._columns[t, : column.size] = column
        self._square = np.sum(np.square(self._columns[:-1]), axis=1)
        share = np.zeros(padded)
        share[: self._rounds] = self._share
        self._shares = share
        self._mean_column = self._c @ share
        self._to_mean = self._c.T @ self._mean_column
        self.along_mean = float(self._mean_column @ self._mean_column)
        # A sample takes `turns` uniforms for its pattern, and one for the noise of each round.
        self.coins = turns + self._rounds
        self.chunk = min(1 << 14, max(64, 1 << int(math.log2(_TOGETHER / self.coins))))
        self.least_noise = math.sqrt(float(self._square.max())) / _LOUDEST

    @property
    @abstractmethod
    def _share(self) -> float:
        """The probability that a user takes part in a round, the same for all."""

    @property
    @abstractmethod
    def largest(self) -> float: ...

    @property
    @abstractmethod
    def mean(self) -> float: ...

    @abstractmethod
    def at(self, noise_multiplier: float) -> Self: ...

    @abstractmethod
    def log_z(self, a: float, s: float) -> float: ...

    @abstractmethod
    def log_power(self, u: Vector, a: float) -> Vector: ...

    @abstractmethod
    def _patterns(self, a: float, s: float, turns: Vector) -> list[Rounds]:
        """Return the rounds of tilted patterns, one of each a time, shape (n,): from uniforms of shape (n, turns)."""

    def draw(self, uniforms: Vector, normals: Vector, tilts: Sequence[Tilt]) -> Vector:
        """Return u, shape (rounds of whole blocks, n)."""
        y = np.zeros((len(uniforms), len(self._columns) + self._bands))
        y[:, : self._rounds] = normals
        # From each place of y on, as many places as C has bands: where a user's part in that round goes.
        places = np.lib.stride_tricks.sliding_window_view(y.reshape(-1), self._bands, writeable=True)
        for tilt in tilts:
            chosen = tilt.samples
            if tilt.s:
                y[chosen, : self._rounds] += tilt.s * self._mean_column
            if tilt.a:
                for rounds in self._patterns(tilt.a, tilt.s, uniforms[chosen]):
                    places[chosen * y.shape[1] + rounds] += tilt.a * self._columns[rounds]
        width = max(_SLICE, self._bands)
        u = np.empty((self._c.shape[1], len(y)))
        for first in range(0, len(u), width):
            rows = slice(first, min(first + width + self._bands, self._rounds))
            u[first : first + width] = self._c[rows, first : first + width].T @ y[:, rows].T
        return u

    def along(self, u: Vector) -> Vector:
        return np.asarray(self._shares @ u)

    def projected(self) -> tuple[Vector, Vector]:
        steps = self._to_mean / math.sqrt(self.along_mean)
        width = float(steps.max()) * self.turns / _FINE
        weights = self._sums(np.floor(steps / width).astype(np.intp))
        return np.asarray(width * np.arange(weights.size, dtype=np.float64)), weights

    @abstractmethod
    def _sums(self, steps: Rounds) -> Vector:
        """Probabilities of 0, 1, .. for the sum of `steps` over a user's rounds. steps: of each round of all blocks."""

    @abstractmethod
    def apart(self) -> CommonParts | None: ...

    def _gains(self, a: float, s: float) -> Vector:
        """Return what a round adds to the log of a pattern's tilted weight, but for products with other rounds."""
        return np.asarray(a * (a - 1) / 2 * self._square + s * self._to_mean)


class MinSep(Chain):
    """The law of b-min-sep with warm start."""

    def __init__(self, c: Vector, bands: int, separation: int, rate: float) -> None:
        self._b, self._p = separation, rate
        self._log_off = math.log1p(-rate) if rate < 1 else -math.inf
        super().__init__(c, bands, 1 + -(-len(c) // separation), len(c))

    @property
    def _share(self) -> float:
        return 1 / (self._b - 1 + 1 / self._p)

    @property
    def largest(self) -> float:
        # best[i]: the largest g of a pattern from round i on. At p = 1 no round may be passed.
        best = np.zeros(self._rounds + self._b)
        for i in reversed(range(self._rounds)):
            taking = self._square[i] + best[i + self._b]
            best[i] = taking if self._p == 1 else max(best[i + 1], taking)
        return float(best[: self._b].max())

    @property
    def mean(self) -> float:
        return self._share * float(self._square.sum())

    def at(self, noise_multiplier: float) -> Self:
        return type(self)(self._c / noise_multiplier, self._bands, self._b, self._p)

    def log_z(self, a: float, s: float) -> float:
        return float(scipy.special.logsumexp(self._starts(self._messages(a, s)))) - math.log1p((self._b - 1) * self._p)

    def _messages(self, a: float, s: float) -> list[float]:
        """log F_i of (2) with tilted weights instead of a sample's."""
        gains, out = (math.log(self._p) + self._gains(a, s)).tolist(), [0.0] * (self._rounds + self._b)
        for i in reversed(range(self._rounds)):
            one, other = self._log_off + out[i + 1], gains[i] + out[i + self._b]
            out[i] = max(one, other) + math.log1p(math.exp(-abs(one - other)))
        return out

    def _starts(self, messages: list[float]) -> Vector:
        """log weights of the round from which on a user may take part."""
        # 1 for round 0 and p for rounds 1 .. b - 1, over the 1 + (b - 1) p of the warm start.
        starts = np.array(messages[: self._b])
        starts[1:] += math.log(self._p)
        return starts

    def _sums(self, steps: Rounds) -> Vector:
        later = [np.eye(1, (self.turns + 1) * int(steps.max()) + 1)[0]] * self._b
        for i in reversed(range(self._rounds)):
            taking = np.roll(later[-1], steps[i])  # nothing comes round: no user takes part more than `turns` times
            later = [(1 - self._p) * later[0] + self._p * taking, *later[:-1]]
        return np.asarray((later[0] + self._p * np.sum(later[1:], axis=0)) / (1 + (self._b - 1) * self._p))

    def apart(self) -> CommonParts | None:
        return None

    def _patterns(self, a: float, s: float, turns: Vector) -> list[Rounds]:
        messages = self._messages(a, s)
        # Each user's coins, in one search instead of a loop over rounds (inversion of a hazard).
        # From round i on, rounds i .. t - 1 are all passed with probability exp(passed[i] - passed[t]).
        off = [min(m - after - self._log_off, _CERTAIN) for m, after in itertools.pairwise(messages)]
        passed = np.concatenate([[0.0], np.cumsum(np.maximum(off[: self._rounds], 0.0))])
        free, rounds = choose(self._starts(messages), turns[:, 0]), []
        for turn in turns.T[1:]:
            free = np.minimum(free, self._rounds)
            # -log of a uniform is exponential: the user takes part where the rounds' hazards first exceed it.
            taken = np.searchsorted(passed, passed[free] - np.log(turn), side="right") - 1
            rounds.append(taken)
            free = taken + self._b
        return rounds

    def log_power(self, u: Vector, a: float) -> Vector:
        b, p = self._b, self._p
        gain = np.empty(u.shape[1])
        # F_i .. F_{i+b-1}, each in the place of its remainder; (2) needs the oldest and the newest.
        later, scale = np.ones((b, u.shape[1])), np.zeros(u.shape[1])
        for i in reversed(range(self._rounds)):
            place = later[i % b]
            np.subtract(u[i], self._square[i] / 2, out=gain)
            gain *= a
            np.exp(gain, out=gain)
            gain *= p
            gain *= place
            np.multiply(later[(i + 1) % b], 1 - p, out=place)
            place += gain
            # The recursion is linear, so it may be scaled: products over many rounds stay within float64.
            if i % b == 0:
                top = np.maximum(later.max(axis=0), 1e-300)
                later /= top
                scale += np.log(top)
        mean = (later[0] + p * later[1:].sum(axis=0)) / (1 + (b - 1) * p)
        return np.asarray(scale + np.log(mean))


class AllocationLaw(Chain):
    """The law of random allocation."""

    def __init__(self, c: Vector, bands: int, bins: int) -> None:
        self._b, self._k = bins, -(-len(c) // bins)
        super().__init__(c, bands, self._k, self._k * bins)
        # D_ss' of rounds s of a block and s' of the next, shape (blocks - 1, b, b).
        self._near = np.stack(
            [
                self._c[:, j : j + bins].T @ self._c[:, j + bins : j + 2 * bins]
                for j in range(0, (self._k - 1) * bins, bins)
            ]
            or [np.zeros((bins, bins))]
        )

    @property
    def _share(self) -> float:
        return 1 / self._b

    @property
    def largest(self) -> float:
        square = self._square.reshape(self._k, self._b)
        # The largest g: each round's square, and twice the product with the next block's round, from the end.
        best = square[-1]
        for j in reversed(range(self._k - 1)):
            best = square[j] + (2 * self._near[j] + best).max(axis=1)
        return float(best.max())

    @property
    def mean(self) -> float:
        return float(self._square.sum()) / self._b + 2 * float(self._near.sum()) / self._b**2

    def at(self, noise_multiplier: float) -> Self:
        return type(self)(self._c[:, : self._rounds] / noise_multiplier, self._bands, self._b)

    def log_z(self, a: float, s: float) -> float:
        first = self._gains(a, s)[: self._b] + self._messages(a, s)[0]
        return float(scipy.special.logsumexp(first)) - self._k * math.log(self._b)

    def _messages(self, a: float, s: float) -> list[Vector]:
        """Return, for each block, the log weight of all that follows, by the block's round: shape (b,)."""
        gains, out = self._gains(a, s).reshape(self._k, self._b), [np.zeros(self._b)]
        for j in reversed(range(self._k - 1)):
            weights = a * (a - 1) * self._near[j] + gains[j + 1] + out[0]
            top = weights.max(axis=1)
            out.insert(0, top + np.log(np.exp(weights - top[:, None]).sum(axis=1)))
        return out

    def _sums(self, steps: Rounds) -> Vector:
        total = np.ones(1)
        for block in steps.reshape(self._k, self._b):
            total = np.convolve(total, np.bincount(block) / self._b)
        return total

    def apart(self) -> CommonParts | None:
        blocks = [self._c[:, j : j + self._b] for j in range(0, self._k * self._b, self._b)]
        inside = [CommonParts.of(block.T @ block) for block in blocks]
        shared = sum(one.shared for one in inside) + 2 * float(self._near.max(axis=(1, 2), initial=0.0).sum())
        return CommonParts(shared, max(one.own for one in inside), self._b, self._k)

    def _patterns(self, a: float, s: float, turns: Vector) -> list[Rounds]:
        gains, messages = self._gains(a, s).reshape(self._k, self._b), self._messages(a, s)
        rounds = [choose(gains[0] + messages[0], turns[:, 0])]
        for j in range(1, self._k):
            weights = a * (a - 1) * self._near[j - 1] + gains[j] + messages[j]
            # A row for each round that the block before may have: the law of the next, by inversion.
            cumulated = np.cumsum(np.exp(weights - weights.max(axis=1, keepdims=True)), axis=1)
            limits = cumulated[:, :-1] / cumulated[:, -1:]
            rounds.append((limits[rounds[-1]] <= turns[:, j, None]).sum(axis=1))
        return [taken + j * self._b for j, taken in enumerate(rounds)]

    def log_power(self, u: Vector, a: float) -> Vector:
        # Neighbouring blocks share noise (D_ss' = `_near`), others do not: so a chain of first order is exact.
        logs = (a * (u - self._square[:, None] / 2)).reshape(self._k, self._b, -1)
        total, part = np.zeros(u.shape[1]), np.empty(0)
        for j in range(self._k):
            top = logs[j].max(axis=0)
            # The forward recursion of a hidden Markov chain: `part` is the law of the last block's round,
            # given what of the sample was read, and `total` the log of its weight so far.
            weights = np.exp(logs[j] - top)
            if j:
                weights *= np.exp(-a * self._near[j - 1]).T @ part
            size = weights.sum(axis=0)
            part = weights / size
            total += top + np.log(size)
        return np.asarray(total - self._k * math.log(self._b))


def law_of(mechanism: Mechanism, participation: Participation) -> Chain:
    """Return the law at noise multiplier 1.

    Raises `BadInput` where the strategy has more bands than the module's programs hold for, or too many
    rounds.
    """
    return of_matrix(np.abs(_require_square(mechanism, participation)), participation)


def of_matrix(c: Vector, participation: Participation) -> Chain:
    """Return `law_of` the strategy |C| itself, shape (T, T)."""
    rows, columns = np.nonzero(c)
    bands = int((rows - columns).max()) + 1
    require_bands(bands, participation)
    if isinstance(participation, BMinSep):
        return MinSep(c, bands, participation.separation, participation.rate)
    assert isinstance(participation, RandomAllocation)  # `require_bands`
    return AllocationLaw(c, bands, participation.bins)


def _require_square(mechanism: Mechanism, participation: Participation) -> Vector:
    if mechanism.rounds > MOST_ROUNDS:
        raise TooLarge(
            f"run.rounds = {mechanism.rounds} with scheme {_scheme(participation)!r}",
            "the samples of its certificate would take too long.",
            f"{MOST_ROUNDS}, or scheme 'balls-in-bins'",
        )
    require_bands(mechanism.bandwidth(), participation, mechanism.kind)
    return mechanism.strategy_matrix(mechanism.rounds)


def require_bands(bands: int | None, participation: Participation, kind: str = "banded") -> None:
    """Raise `BadInput` where a strategy of so many bands (None: not banded) is not charged with this sampler."""
    if isinstance(participation, BMinSep):
        most, why = participation.separation, "a user's rounds would share noise"
    elif isinstance(participation, RandomAllocation):
        most, why = participation.bins + 1, "noise of a block would reach beyond the next one"
        if participation.bins > MOST_BINS:
            raise OutOfRange(
                f"participation.bins = {participation.bins} with correlated noise",
                f"must be at most {MOST_BINS}.",
                str(MOST_BINS),
            )
    else:
        raise Unsupported(f"participation {type(participation).__name__}", "has no chain of rounds.", "BMinSep")
    if bands is None or bands > most:
        width = "has no bands" if bands is None else f"has {bands} bands"
        raise Unsupported(
            f"participation.scheme = {_scheme(participation)!r} with mechanism.kind = {kind!r}",
            f"the strategy {width}: it may have {most}, or {why} and the charge is not proven.",
            f"mechanism.kind = 'banded' with bands = {most}; or scheme 'balls-in-bins', which any kind with a square "
            "strategy may have",
        )


def _scheme(participation: Participation) -> str:
    return "b-min-sep" if isinstance(participation, BMinSep) else "random-allocation"
