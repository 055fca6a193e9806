"""A discrete Gaussian, drawn exactly, and a noise source whose rows of z are made of it.

`discrete_gaussian` draws from exp(-n^2 / (2 s^2)) on the integers *exactly*, with integer arithmetic only (Karney 2016,
algorithm D, with the Bernoulli(exp(-x)) trials of Canonne, Kamath, Steinke 2020); some 5 microseconds a draw.

`DiscreteNoise` puts such draws in the place of z. A mechanism whose C and B are matrices of whole numbers
(`Mechanism.whole`) then adds whole numbers B z to a sum x of whole cells of a grid, without any rounding: what is
released is a function of C x + z, a discrete Gaussian around whole numbers. Its zero-concentrated privacy loss is that
of the Gaussian with the same s (Canonne et al., Theorem 4, each coordinate by itself; with adaptively chosen x the sum
of squared shifts stays bounded by the squared sensitivity), so it is charged by zCDP. The exact Gaussian trade-off
curve does not apply.

How long a draw takes depends on what is drawn (rejection sampling); nobody outside of the server should see that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fieldfare.errors import BadInput
from fieldfare.noise import Drawer, SecureNoise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_BLOCK: Final = 4096
_BLOCK_BYTES: Final = 1 << 24
"""Bytes of keystream set aside for a block of discrete draws: 4 096 a draw, where about 150 are used."""
LARGEST_SCALE: Final = 1 << 31


class DiscreteNoise(SecureNoise):
    """A source like `noise`, with the same key, whose every entry is a discrete Gaussian of `scale` instead of N(0, 1).

    Float64 only, where these whole numbers are exact. Rows of different scales share bits: use one scale a key.

    Raises:
        BadInput: `scale` is not an integer in [1, 2^31].
    """

    __slots__ = ("scale",)

    def __init__(self, noise: SecureNoise, scale: int) -> None:
        _require_scale(scale)
        super().__init__(noise._key, noise.device, source=noise.source, threads=noise.threads)
        self._first = noise._first
        self.scale = scale

    def from_row(self, first: int) -> DiscreteNoise:
        return DiscreteNoise(super().from_row(first), self.scale)

    def fingerprint(self) -> str:
        return self._subkey("fingerprint", f"discrete:{self.scale}").hex()[:32]

    def drawer(self, stream: str, row: int, offset: int, n: int) -> Drawer:
        super().drawer(stream, row, offset, n)  # refuses what is out of range
        return _Draws(self, row + self._first if stream == "z" else row, stream)


class _Draws(Drawer):
    """Pieces of one row."""

    def __init__(self, noise: DiscreteNoise, row: int, stream: str) -> None:
        self._noise, self._row, self._stream = noise, row, stream

    def into(self, out: NDArray[Any], offset: int) -> None:
        if out.dtype != np.float64:
            raise BadInput(f"discrete noise as {out.dtype}", "whole numbers of any size need float64.", "float64")
        out[:] = discrete_gaussian(
            len(out), self._noise.scale, self._noise, row=self._row, offset=offset, stream=self._stream
        )


def discrete_gaussian(
    n: int, scale: int, noise: SecureNoise, *, row: int, offset: int = 0, stream: str = "z"
) -> Integers:
    """n exact draws from P(v) proportional to exp(-v^2 / (2 scale^2)) on the integers: int64, shape (n,).

    Element [offset + i] of row `row` is fixed by the key, whatever the split, like `SecureNoise.normal_`; its bits are
    shared with no other use.

    Raises:
        BadInput: `scale` is not an integer in [1, 2^31].
    """
    _require_scale(scale)
    first, last = offset // _BLOCK, -(-(offset + n) // _BLOCK)
    blocks = [_block(scale, _Words(noise, row, block, f"discrete:{stream}")) for block in range(first, last)]
    whole = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)
    return whole[offset - first * _BLOCK :][:n]


def _require_scale(scale: int) -> None:
    if not 1 <= scale <= LARGEST_SCALE:
        raise BadInput(f"scale = {scale}", "must be in [1, 2^31].", str(min(max(scale, 1), LARGEST_SCALE)))


class _Words:
    """The random 64-bit words of one block, in order."""

    def __init__(self, noise: SecureNoise, row: int, block: int, stream: str) -> None:
        self._noise, self._row, self._stream = noise, row, stream
        self._at, self._end = block * _BLOCK_BYTES, (block + 1) * _BLOCK_BYTES

    def take(self, n: int) -> NDArray[np.uint64]:
        if self._at + 8 * n > self._end:
            raise RuntimeError("a block of discrete draws used up its keystream; this has probability below 2^-1000")
        words = np.frombuffer(self._noise.bytes(8 * n, row=self._row, offset=self._at, stream=self._stream), "<u8")
        self._at += 8 * n
        return words

    def below(self, n: int, bound: int) -> Integers:
        """n exact uniform integers in [0, bound), bound <= 2^40: a word past the last multiple of bound is redrawn."""
        out = self.take(n).copy()
        limit = np.uint64((2**64 // bound) * bound - 1)
        while (bad := np.flatnonzero(out > limit)).size:
            out[bad] = self.take(bad.size)
        return (out % np.uint64(bound)).astype(np.int64)


def _block(scale: int, words: _Words) -> Integers:
    """`_BLOCK` draws. |v| = k scale + j has probability proportional to exp(-k^2/2) exp(-k x) exp(-x^2/2), x = j/scale.

    Step by step (Karney 2016, algorithm D): k geometric with ratio exp(-1/2), kept with probability
    exp(-k (k - 1) / 2); a sign; j uniform; kept with probability exp(-k x) exp(-x^2 / 2); and -0 is dropped so that 0
    counts once.
    """
    out = np.zeros(_BLOCK, dtype=np.int64)
    open_ = np.arange(_BLOCK)
    while open_.size:
        k = _geometric(open_.size, words)
        kept = _all_of(k * (k - 1), lambda m: _bernoulli_exp_half(m, words))
        open_kept, k = open_[kept], k[kept]
        negative = words.below(k.size, 2) == 1
        j = words.below(k.size, scale)
        kept = ~(negative & (k == 0) & (j == 0))
        kept[kept] = _exp_of_square(j[kept], scale, words)
        kept[kept] = _exp_of_multiple(k[kept], j[kept], scale, words)
        value = k * scale + j
        out[open_kept[kept]] = np.where(negative, -value, value)[kept]
        open_ = np.setdiff1d(open_, open_kept[kept], assume_unique=True)
    return out


def _geometric(n: int, words: _Words) -> Integers:
    """k with probability exp(-k / 2) (1 - exp(-1/2)): successes before the first failure."""
    k = np.zeros(n, dtype=np.int64)
    going = np.arange(n)
    while going.size:
        going = going[_bernoulli_exp_half(going.size, words)]
        k[going] += 1
    return k


def _all_of(trials: Integers, trial: Any) -> NDArray[np.bool_]:
    """Whether trials[i] independent trials all succeed; `trial(m)` makes m of them."""
    good = np.ones(len(trials), dtype=np.bool_)
    done = 0
    while (going := np.flatnonzero(good & (trials > done))).size:
        good[going] = trial(going.size)
        done += 1
    return good


def _series(n: int, trial: Any) -> NDArray[np.bool_]:
    """Bernoulli(exp(-y)) for 0 <= y <= 1: run trials of probability y / 1, y / 2, ... to the first failure, the m-th;
    m is odd with probability exp(-y) (Canonne, Kamath, Steinke 2020, algorithm 1). `trial(indices, m)` makes them."""
    result = np.zeros(n, dtype=np.bool_)
    going, m = np.arange(n), 1
    while going.size:
        success = trial(going, m)
        result[going[~success]] = m % 2 == 1
        going, m = going[success], m + 1
    return result


def _bernoulli_exp_half(n: int, words: _Words) -> NDArray[np.bool_]:
    return _series(n, lambda going, m: words.below(going.size, 2 * m) == 0)


def _exp_of_square(j: Integers, scale: int, words: _Words) -> NDArray[np.bool_]:
    """Bernoulli(exp(-x^2 / 2)), x = j / scale: x^2 / (2m) is the chance of three independent events."""

    def trial(going: Integers, m: int) -> NDArray[np.bool_]:
        twice = (words.below(going.size, scale) < j[going]) & (words.below(going.size, scale) < j[going])
        return np.asarray(twice & (words.below(going.size, 2 * m) == 0), dtype=np.bool_)

    return _series(len(j), trial)


def _exp_of_multiple(k: Integers, j: Integers, scale: int, words: _Words) -> NDArray[np.bool_]:
    """Bernoulli(exp(-k x)), x = j / scale: k trials of Bernoulli(exp(-x))."""
    good = np.ones(len(k), dtype=np.bool_)
    done = 0
    while (going := np.flatnonzero(good & (k > done))).size:
        share = j[going]

        def trial(inner: Integers, m: int, share: Integers = share) -> NDArray[np.bool_]:
            below = words.below(inner.size, scale) < share[inner]
            return np.asarray(below & (words.below(inner.size, m) == 0), dtype=np.bool_)

        good[going] = _series(going.size, trial)
        done += 1
    return good
