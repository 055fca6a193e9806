"""A discrete Gaussian, drawn exactly, and a noise source whose rows of z consist of it.

`discrete_gaussian` draws from exp(-n^2 / (2 s^2)) on the integers *exactly*, with integer arithmetic only
(Karney 2016, algorithm D, with the Bernoulli(exp(-x)) trials of Canonne, Kamath, Steinke 2020); a draw takes
some 5 microseconds.

`DiscreteNoise` puts such draws in the place of z. A mechanism whose C and B are matrices of whole numbers
(`Mechanism.whole`) then adds whole numbers B z to a sum x of whole cells of a grid, without any rounding:
what is released is a function of C x + z, a discrete Gaussian around whole numbers. `accounting.discretised`
says why it costs what a Gaussian of almost the same s costs. Runs of charge format 0 are charged by zCDP,
which holds too (Canonne et al., Theorem 4, coordinate by coordinate; with adaptively chosen x the sum of
squared shifts stays bounded by the squared sensitivity).

The time of a draw depends on its value (rejection sampling): it must not be visible outside the server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from fieldfare.errors import OutOfRange, WrongForm
from fieldfare.noise.drawer import Drawer
from fieldfare.noise.secure import Births, SecureNoise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Booleans = NDArray[np.bool_]

# `privacy.rounding`: Gaussian noise rounded to a grid; a discrete Gaussian on it; or floats as they come.
Rounding = Literal["grid", "discrete", "none"]

LARGEST_SCALE: Final = 1 << 31
# Draws made together: the granularity of seeking.
_BLOCK: Final = 4096
# Bytes of keystream reserved for a block: 4 096 a draw, of which about 150 are used.
_BLOCK_BYTES: Final = 1 << 24


class DiscreteNoise(SecureNoise):
    """The source `noise` with discrete Gaussians of `scale` instead of N(0, 1), from the same key.

    Float64 only, where these whole numbers are exact. Rows of different scales share bits: use one scale a
    key.

    Raises:
        BadInput: `scale` is not an integer in [1, 2^31].
    """

    __slots__ = ("scale",)

    def __init__(self, noise: SecureNoise, scale: int) -> None:
        _require_scale(scale)
        super().__init__(noise._key, noise.device, source=noise.source, threads=noise.threads)
        self._first, self._nonces, self._birth = noise._first, noise._nonces, noise._birth
        self.scale = scale

    def from_row(self, first: int) -> DiscreteNoise:
        return DiscreteNoise(super().from_row(first), self.scale)

    def with_nonces(self, nonces: Sequence[bytes], birth: Births) -> DiscreteNoise:
        return DiscreteNoise(super().with_nonces(nonces, birth), self.scale)

    def fingerprint(self) -> str:
        return self._subkey("fingerprint", f"discrete:{self.scale}{self._nonce_digest()}").hex()[:32]

    def _drawer_of_row(self, stream: str, row: int) -> Drawer:
        return _DiscreteDrawer(self, stream, row)


class _DiscreteDrawer(Drawer):
    """Draws pieces of one row."""

    def __init__(self, noise: DiscreteNoise, stream: str, row: int) -> None:
        self._noise, self._stream, self._row = noise, stream, row

    def into(self, out: NDArray[np.generic], offset: int) -> None:
        if out.dtype != np.float64:
            raise WrongForm(f"discrete noise as {out.dtype}", "whole numbers of any size need float64.", "float64")
        out[:] = discrete_gaussian(
            len(out), self._noise.scale, self._noise, row=self._row, offset=offset, stream=self._stream
        )


def discrete_gaussian(
    n: int, scale: int, noise: SecureNoise, *, row: int, offset: int = 0, stream: str = "z"
) -> Integers:
    """Return n exact draws from P(v) proportional to exp(-v^2 / (2 scale^2)) on the integers: int64, shape
    (n,).

    The key (and the nonce of the row's round, where `noise` has nonces) fixes element [offset + i] of row
    `row`, whatever the split, as in `SecureNoise.normal_`. No other use shares its bits.

    Args:
        n: how many numbers.
        scale: a whole number from 1 to 2^31.
        noise: the source of bits.
        row, offset, stream: as in `SecureNoise.normal_`.

    Raises:
        BadInput: `scale` is not an integer in [1, 2^31].
    """
    _require_scale(scale)
    # Rejection takes an unknown number of words, so each block has its own part of the keystream: an element
    # is the same whichever piece of the row is asked for.
    first, last = offset // _BLOCK, -(-(offset + n) // _BLOCK)
    noise = noise._source_of_row(stream, row)
    blocks = [_draw_block(scale, _Words(noise, row, block, f"discrete:{stream}")) for block in range(first, last)]
    whole = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)
    return whole[offset - first * _BLOCK :][:n]


def _require_scale(scale: int) -> None:
    if not 1 <= scale <= LARGEST_SCALE:
        raise OutOfRange(f"scale = {scale}", "must be in [1, 2^31].", str(min(max(scale, 1), LARGEST_SCALE)))


class _Words:
    """The random 64-bit words of one block, in order."""

    def __init__(self, noise: SecureNoise, row: int, block: int, stream: str) -> None:
        self._noise, self._row, self._stream = noise, row, stream
        self._next, self._end = block * _BLOCK_BYTES, (block + 1) * _BLOCK_BYTES

    def take(self, n: int) -> NDArray[np.uint64]:
        if self._next + 8 * n > self._end:
            raise RuntimeError("a block of discrete draws used up its keystream; this has probability below 2^-1000")
        words = np.frombuffer(self._noise.bytes(8 * n, row=self._row, offset=self._next, stream=self._stream), "<u8")
        self._next += 8 * n
        return words

    def below(self, n: int, bound: int) -> Integers:
        """Return n exact uniform integers in [0, bound), bound <= 2^40: a word past the last multiple of
        bound is redrawn.
        """
        out = self.take(n).copy()
        limit = np.uint64((2**64 // bound) * bound - 1)
        while (refused := np.flatnonzero(out > limit)).size:
            out[refused] = self.take(refused.size)
        return (out % np.uint64(bound)).astype(np.int64)


def _draw_block(scale: int, words: _Words) -> Integers:
    """Return `_BLOCK` draws by rejection (Karney 2016, algorithm D).

    |v| = k scale + j has probability proportional to exp(-k^2/2) exp(-k x) exp(-x^2/2), where x = j / scale.
    """
    out = np.zeros(_BLOCK, dtype=np.int64)
    pending = np.arange(_BLOCK)
    while pending.size:
        # k: geometric with ratio exp(-1/2), kept with probability exp(-k (k - 1) / 2), gives exp(-k^2 / 2).
        k = _geometric(pending.size, words)
        kept = _all_succeed(k * (k - 1), lambda running: _bernoulli_exp_half(running.size, words))
        candidates, k = pending[kept], k[kept]
        negative = words.below(k.size, 2) == 1
        j = words.below(k.size, scale)
        kept = ~(negative & (k == 0) & (j == 0))  # -0 is dropped, so that 0 counts once
        kept[kept] = _bernoulli_exp_power(j[kept], 2, scale, words)
        kept[kept] = _bernoulli_exp_multiple(k[kept], j[kept], scale, words)
        # The two trials make exp(-x^2 / 2) and exp(-k x), with which |v| = k + x has exp(-v^2 / 2) in all.
        value = k * scale + j
        out[candidates[kept]] = np.where(negative, -value, value)[kept]
        pending = np.setdiff1d(pending, candidates[kept], assume_unique=True)
    return out


def _geometric(n: int, words: _Words) -> Integers:
    """Draw k with probability exp(-k / 2) (1 - exp(-1/2)): successes before the first failure."""
    k = np.zeros(n, dtype=np.int64)
    running = np.arange(n)
    while running.size:
        running = running[_bernoulli_exp_half(running.size, words)]
        k[running] += 1
    return k


def _all_succeed(trials: Integers, trial: Callable[[Integers], Booleans]) -> Booleans:
    """Return whether trials[i] independent trials all succeed; `trial(indices)` makes one for each of those i."""
    good = np.ones(len(trials), dtype=np.bool_)
    done = 0
    while (running := np.flatnonzero(good & (trials > done))).size:
        good[running] = trial(running)
        done += 1
    return good


def _bernoulli_exp(n: int, trial: Callable[[Integers, int], Booleans]) -> Booleans:
    """Return n draws of Bernoulli(exp(-y)), 0 <= y <= 1, where y may differ from draw to draw.

    Trials of probability y / 1, y / 2, ... run to the first failure, the m-th; m is odd with probability
    exp(-y) (Canonne, Kamath, Steinke 2020, algorithm 1). `trial(indices, m)` makes those of probability y /
    m.
    """
    result = np.zeros(n, dtype=np.bool_)
    running, m = np.arange(n), 1
    while running.size:
        success = trial(running, m)
        result[running[~success]] = m % 2 == 1
        running, m = running[success], m + 1
    return result


def _bernoulli_exp_half(n: int, words: _Words) -> Booleans:
    """Return n draws of Bernoulli(exp(-1/2))."""
    return _bernoulli_exp(n, lambda running, m: words.below(running.size, 2 * m) == 0)


def _bernoulli_exp_power(j: Integers, power: int, scale: int, words: _Words) -> Booleans:
    """Draw Bernoulli(exp(-x^power / power)), x = j / scale, for a power of 1 or 2.

    A trial of probability x^power / (power m) is `power` independent events of probability x and one of 1 /
    (power m).
    """

    def trial(running: Integers, m: int) -> Booleans:
        success = np.ones(running.size, dtype=np.bool_)
        for _ in range(power):
            success &= words.below(running.size, scale) < j[running]
        success &= words.below(running.size, power * m) == 0
        return success

    return _bernoulli_exp(len(j), trial)


def _bernoulli_exp_multiple(k: Integers, j: Integers, scale: int, words: _Words) -> Booleans:
    """Draw Bernoulli(exp(-k x)), x = j / scale: k trials of Bernoulli(exp(-x))."""
    return _all_succeed(k, lambda running: _bernoulli_exp_power(j[running], 1, scale, words))
