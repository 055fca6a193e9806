"""A rounding grid for released sums, and a discrete Gaussian on it: what closes the floating-point side channel.

**The problem.** The set of floats that x + noise can reach depends on x, so the low bits of a released float can say
which x it came from, whatever the noise's distribution (Mironov 2012; Casacuberta, Shoemate, Vadhan, Wagaman 2022).

**The grid.** Let g be a power of two. `Grid.release_` first snaps the clipped sum to x' in g Z^d, and then adds
g rint(w / g) for the noise w. Because x' / g is an integer, x' + g rint(w / g) = g rint((x' + w) / g) exactly: the
release is a function of x' + w, so it is as private as adding the real-valued w to x' and rounding afterwards
(post-processing, round by round, for correlated noise too). Every x' reaches the same grid points. What remains of
floating point is the resolution of w itself: w must have at least 2^20 floats in a cell of the grid, which `release_`
checks; the probabilities of neighbouring cells are then right to 2^-20 relatively, a divergence of about d 2^-40.

**What it costs.** Snapping moves each coordinate by at most g / 2, so two sums that differ by at most `clip` in L2 norm
differ by at most clip + g sqrt(d) on the grid: `charged_clip`. Rounds in which a user takes no part have equal
sums and equal grid points. `Grid.fit` picks g so that this is 1e-6 of the clip norm. Snap each reply *before* it is
summed and add in float64 (exact on the grid up to 2^53 cells): then the order of summation changes nothing either.

**Discrete Gaussian.** `discrete_gaussian` draws from exp(-n^2 / (2 s^2)) on the integers *exactly*, with integer
arithmetic only (Karney 2016, algorithm D, with the Bernoulli(exp(-x)) trials of Canonne, Kamath, Steinke 2020); some
5 microseconds a draw. For integer sums its zero-concentrated privacy loss is that of the Gaussian with the same s
(Canonne et al., Theorem 4), so charge it by zCDP; the exact Gaussian trade-off curve does not apply. It needs C x on
the grid, hence integer C: `independent` and the trees' node sums; a real-valued C takes `release_`.

**Not covered.** How long a draw takes (rejection sampling is not constant-time). The rounding inside clipping: a norm
computed in floats may be off by a relative 1e-6 and belongs into the clip norm's margin. What happens on the nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from fieldfare.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fieldfare.noise import SecureNoise

    Integers = NDArray[np.int64]

_CHUNK: Final = 1 << 20
_CELLS: Final = 2.0**53
"""Grid cells on either side of 0 that float64 adds without error."""
_RESOLUTION: Final = 2.0**-20
"""Largest spacing of noise floats, in cells."""
_BLOCK: Final = 4096
_BLOCK_BYTES: Final = 1 << 24
"""Bytes of keystream set aside for a block of discrete draws: 4 096 a draw, where about 150 are used."""
LARGEST_SCALE: Final = 1 << 31


@dataclass(frozen=True)
class Grid:
    """Multiples of `spacing`, a power of two, in the units of the sum.

    Raises:
        BadInput: `spacing` is not a positive finite power of two.
    """

    spacing: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.spacing) and self.spacing > 0 and math.frexp(self.spacing)[0] == 0.5):
            near = 2.0 ** round(math.log2(self.spacing)) if 0 < self.spacing < math.inf else 2.0**-20
            raise BadInput(f"grid spacing = {self.spacing}", "must be a power of two.", str(near))

    @classmethod
    def fit(cls, clip: float, numel: int, cost: float = 1e-6) -> Grid:
        """The coarsest grid for vectors of `numel` elements that raises the sensitivity by at most the share `cost`."""
        if not (math.isfinite(clip) and clip > 0 and numel >= 1 and 0 < cost <= 1):
            raise BadInput(f"grid for clip = {clip}, numel = {numel}, cost = {cost}", "need clip > 0, 0 < cost <= 1.")
        return cls(2.0 ** math.floor(math.log2(clip * cost / math.sqrt(numel))))

    def charged_clip(self, clip: float, numel: int) -> float:
        """clip + spacing sqrt(numel): what one user can change of a snapped sum. Charge this instead of `clip`."""
        return math.nextafter(clip + math.nextafter(self.spacing * math.sqrt(numel), math.inf), math.inf)

    def snap_(self, values: torch.Tensor) -> torch.Tensor:
        """Round every element to the nearest multiple of `spacing` (ties to even), in place; returns `values`.

        Exact: division and multiplication by a power of two and rounding lose nothing. Floats too large to have a
        fraction in units of the grid are multiples already.
        """
        return values.div_(self.spacing).round_().mul_(self.spacing)

    def release_(self, total: torch.Tensor, noise: torch.Tensor, std: float) -> torch.Tensor:
        """total <- snapped total + snapped std x noise, in place: shape (d,), `noise` a row of B z in float64.

        Computed in float64, chunk by chunk; a float32 `total` is rounded last, which is post-processing.

        Raises:
            BadInput: shapes differ, something is not finite or too large to add exactly, or the noise's floats are
                too coarse for the grid (float32 noise, or a grid below 2^-28 of the noise).
        """
        if total.shape != noise.shape or total.ndim != 1:
            raise BadInput(f"sum of shape {tuple(total.shape)}, noise {tuple(noise.shape)}", "must be equal vectors.")
        if not (math.isfinite(std) and std > 0):
            raise BadInput(f"noise std = {std}", "must be positive and finite.")
        for lo in range(0, total.numel(), _CHUNK):
            span = total[lo : lo + _CHUNK]
            wide = noise[lo : lo + _CHUNK].double().mul_(std)
            largest = float(wide.abs().max())
            fineness = largest * torch.finfo(noise.dtype).eps / self.spacing
            if not fineness <= _RESOLUTION:
                near = "float64 noise" if noise.dtype != torch.float64 else f"spacing {self.spacing * 2.0**20}"
                raise BadInput(
                    f"noise of {noise.dtype} up to {largest:.3g} on a grid of {self.spacing:.3g}",
                    "is too coarse: a grid cell must hold 2^20 of its floats.",
                    near,
                )
            exact = self.snap_(span.double())
            bound = float(exact.abs().max()) + largest
            if not bound < _CELLS * self.spacing:
                raise BadInput(f"sum up to {bound:.3g}", f"does not add exactly on a grid of {self.spacing:.3g}.")
            span.copy_(exact.add_(self.snap_(wide)))
        return total

    def release_discrete_(
        self, total: torch.Tensor, noise: SecureNoise, std: float, *, row: int, stream: str = "z"
    ) -> torch.Tensor:
        """total <- snapped total + spacing x discrete Gaussian of at least `std`, in place: for C = I (one z a round).

        The scale is rounded up to a whole number of cells: never less noise than asked for.

        Raises:
            BadInput: `total` is not a vector, too large to add exactly, or std is not in [1, 2^31] cells.
        """
        if total.ndim != 1:
            raise BadInput(f"sum of shape {tuple(total.shape)}", "must be a vector.")
        if not (math.isfinite(std) and self.spacing <= std <= self.spacing * LARGEST_SCALE):
            allowed = f"must be in [{self.spacing}, {self.spacing * LARGEST_SCALE}], 1 to 2^31 cells."
            raise BadInput(f"noise std = {std}", allowed)
        scale = math.ceil(std / self.spacing)
        for lo in range(0, total.numel(), _CHUNK):
            span = total[lo : lo + _CHUNK]
            drawn = discrete_gaussian(span.numel(), scale, noise, row=row, offset=lo, stream=stream)
            exact = self.snap_(span.double())
            if not float(exact.abs().max()) + 64.0 * scale * self.spacing < _CELLS * self.spacing:
                raise BadInput(f"sum up to {float(exact.abs().max()):.3g}", "does not add exactly on this grid.")
            steps = torch.from_numpy(drawn.astype(np.float64)).to(total.device)
            span.copy_(exact.add_(steps.mul_(self.spacing)))
        return total


def discrete_gaussian(
    n: int, scale: int, noise: SecureNoise, *, row: int, offset: int = 0, stream: str = "z"
) -> Integers:
    """n exact draws from P(v) proportional to exp(-v^2 / (2 scale^2)) on the integers: int64, shape (n,).

    Element [offset + i] of row `row` is fixed by the key, whatever the split, like `SecureNoise.normal_`; its bits are
    shared with no other use.

    Raises:
        BadInput: `scale` is not an integer in [1, 2^31].
    """
    if not 1 <= scale <= LARGEST_SCALE:
        raise BadInput(f"scale = {scale}", "must be in [1, 2^31].", str(min(max(scale, 1), LARGEST_SCALE)))
    first, last = offset // _BLOCK, -(-(offset + n) // _BLOCK)
    blocks = [_block(scale, _Words(noise, row, block, f"discrete:{stream}")) for block in range(first, last)]
    whole = np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)
    return whole[offset - first * _BLOCK :][:n]


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
