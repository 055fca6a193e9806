"""Where noise meets the sum: a rounding grid that closes the floating-point side channel.

**The problem.** The set of floats that x + noise can reach depends on x, so the low bits of a released float
can say which x it came from, whatever the noise's distribution (Mironov 2012; Casacuberta, Shoemate, Vadhan,
Wagaman 2022).

**The grid.** Let g be a power of two. Every reply is snapped to g Z^d before it is summed, and sums are
float64: exact up to 2^53 cells, so neither the order of arrival nor any other reply changes how a reply is
rounded. To the sum x' `Grid.add_noise_` adds g rint(w / g) for the noise w. Because x' / g is an integer, the
result is exactly g rint((x' + w) / g): a function of x' + w. It is therefore as private as adding the
real-valued w to x' and rounding afterwards (post-processing, round by round, for correlated noise too). Every
x' reaches the same grid points.

**What one user can change of a snapped sum** is `Grid.charged_clip`. The noise grows by as much, and the
noise multiplier, and with it the charge, stay what the plan says. A user's data reach the sum through one
reply, that of the user's node. Two worlds that differ in one user give replies R, R' of that node and equal
replies of all others, in every round in which the user takes part; in other rounds all replies are equal.

1. *Snapping* moves each coordinate by at most g / 2, in either world: it adds at most g sqrt(d) to ||R -
   R'||. It does not matter that a reply is the sum of several users: only the difference of two replies
   counts.
2. *One user in a reply*: R is a float32 vector of norm at most `clip` (the server checks, and cuts what is
   longer), R' is zero. A hostile node can do no more.
3. *U users in a reply*: an honest node adds clipped updates in float64 and rounds the sum to float32 for the
   wire. Each world's sum has norm at most U clip, so the rounding adds at most 2 x 2^-24 U clip, and the
   float64 additions at most 2 x U x 2^-53 U clip: ||R - R'|| <= clip (1 + 2^-23 U + 2^-52 U^2). U is at most
   the users asked in a round. Where that number is random, replies longer than U clip are cut to that norm:
   projecting onto a ball brings no two points further apart, and shrinks the rounding of longer sums with
   them. (What a hostile node does to the users that it hosts is outside the guarantee: it holds their raw
   data.)

Under `replace_one` the user is in both worlds' replies; the difference is at most twice the above, as is
charged.

Other code settles the rest. The clip norm is a function of earlier releases, so both worlds use the same one.
A client may train from several points, but it combines the results into one vector before it clips. Per-layer
clipping and the l_inf filter bound the same norm. An indicator that travels with the update is part of the
vector, in the joint bound (`joint_bound` of the clipping) and in the snapping. The division by the planned
cohort, and the multiplication by an adaptive norm, come after the noise.

**What remains** of floating point is the resolution of w itself. w must have at least 2^20 floats in a cell
of the grid (`add_noise_` checks this); a cell's probability is then right to a factor exp(+-eta), eta <=
2^-19. `Privatiser` chooses a grid for which eta = 2^-51 (largest noise) / g is about 2^-28, where that costs
less than `COST` of the noise: the grid of a large model is finer and its eta larger.

In one round, given all earlier ones, let Q0, Q1 be the laws of its release in two neighbouring worlds, and
P0, P1 those with exact noise. Nothing is assumed of the error: it may depend on the sum and be the worst one,
so it is not composed with the signal as if it were independent of it. Q0 and P0 differ by a factor exp(+-eta)
in each number, no more than (eta, 0)-DP allows, whose Gaussian price is -2 Phi^-1(1 / (1 + exp(eta))) <
sqrt(pi / 2) eta; in all numbers of the round they are sqrt(pi / 2 sum eta^2)-GDP. So are P1 and Q1. P0 and P1
are mu_t-GDP. Along the chain Q0, P0, P1, Q1 these parameters add up (as in Dong, Roth, Su 2022, Theorem
2.14). The round costs (mu_t + r_t)^2, and by the inequality of Cauchy and Schwarz all rounds together at most

    (mu + r)^2 = mu^2 + 2 mu r + r^2,  r = sqrt(2 pi sum of eta^2 over all released numbers)  (`Privatiser.resolution`)

where mu^2 is what the noise costs. With amplification by sampling, the chain is made for the rounds of one sampled
event, before its coin: what a participating user changes is then 1 / sigma + r of these rounds
(`costing.with_resolution`). It is charged from the first released round, and it grows with a model's size:
for 2 000 rounds of the online tree at noise multiplier 7, whose mu^2 is 1.43, it adds .016 to it at 1e6
parameters, .2 at 1e7 and 1.5 at 1e8. `fieldfare plan` shows it. B z itself errs by some 2^-51 of the noise,
which matters far less. "discrete" noise is exact; "none" has no grid and no such bound.

**Masked sums** (`fieldfare.masking`) are the same whole cells, modulo 2^bits. The integer sum plus the
noise's whole cells is private whatever anybody adds to it, and reading it modulo 2^bits is a function of
that: post-processing. So the noise is added to the *words*, and only then are they read as numbers. The other
way round, a node that lies moves a number next to the edge of the ring, where one cell of an honest user
flips what is read by 2^bits cells, and no noise hides that. Where nothing wraps, both ways give the same
floats. Words are so wide, or the grid so coarse, that honest sums and 16 standard deviations of the noise fit
in the ring.

**Not covered.** How long a draw takes. Under `zero_out` and `replace_one`, the rounding of batched training
on a node: it depends on how many users train together, which is public there, and on which engine a clock
found faster (`client.engine = "auto"`). Where presence is secret neither decides
(`fieldfare_client.training.isolation`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting.discretised import SMALLEST_SCALE
from fieldfare.errors import BadInput
from fieldfare.lazily import torch
from fieldfare.masking.words import Words, read, whole_cells
from fieldfare.noise.chunks import DEVICE_CHUNK, scratch
from fieldfare.noise.compiled import Pass
from fieldfare.noise.discrete import LARGEST_SCALE, DiscreteNoise, Rounding
from fieldfare.streams.base import require_fit

if TYPE_CHECKING:
    from fieldfare.mechanisms.base import Mechanism
    from fieldfare.noise import SecureNoise
    from fieldfare.streams.base import Stream

# Share by which the grid may raise the sensitivity, and with it the noise.
COST: Final = 2.0**-10
# Share by which a coarser grid may raise the noise so that the words of a masked sum take fewer bytes.
RING_COST: Final = 2.0**-6
# Elements worked on at a time: they fit in the cache, and torch starts no threads for so few.
_CHUNK: Final = 1 << 15
# Grid cells on either side of 0 that float64 adds without error.
_CELLS: Final = 2.0**53
# A float next to which the unit in the last place is 1.
_ANCHOR: Final = 1.5 * 2.0**52
# The same as `_CELLS` for sums that are taken next to an anchor of `_ANCHOR` cells.
_ANCHORED: Final = 2.0**50
_EPS: Final = float(np.finfo(np.float64).eps)
# Largest spacing of noise floats, in cells.
_RESOLUTION: Final = 2.0**-20
# The spacing to aim at where it costs next to nothing.
_FINE: Final = 2.0**-28
# Standard deviations that no noise reaches: a number does with probability 1e-57.
_FAR: Final = 16.0


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
            raise BadInput(f"grid spacing = {self.spacing}", "must be a power of two.", str(near), code="grid-spacing")

    @classmethod
    def fit(cls, clip: float, numel: int, cost: float = COST) -> Grid:
        """Return the coarsest grid for vectors of `numel` elements that raises the sensitivity by at most the
        share `cost`.

        Args:
            clip: the most that one user changes a sum, above 0.
            numel: numbers in the sum.
            cost: the share, above 0 and at most 1.
        """
        if not (math.isfinite(clip) and clip > 0 and numel >= 1 and 0 < cost <= 1):
            raise BadInput(
                f"grid for clip = {clip}, numel = {numel}, cost = {cost}",
                "need clip > 0, 0 < cost <= 1.",
                code="grid-arguments",
            )
        return cls(2.0 ** math.floor(math.log2(clip * cost / math.sqrt(numel))))

    def charged_clip(self, clip: float, numel: int, users: int = 0) -> float:
        """clip (1 + 2^-23 users + 2^-52 users^2) + spacing sqrt(numel): what one user can change of a snapped
        sum.

        `users`: of one reply, summed in float64 and sent as float32; 0: every reply is one user's. Rounded
        up.
        """
        # "U users in a reply" in the module: float32 on the wire, float64 in the additions.
        sent = clip * (1.0 + users * (2.0**-23 + users * 2.0**-52))
        return (sent + self.spacing * math.sqrt(numel)) * (1.0 + 2.0**-50)

    def snap_(self, values: torch.Tensor) -> torch.Tensor:
        """Round every element to the nearest multiple of `spacing` (ties to even), in place; return `values`.

        Exact: division and multiplication by a power of two and rounding lose nothing. Floats too large to
        have a fraction in units of the grid are multiples already.
        """
        return values.div_(self.spacing).round_().mul_(self.spacing)

    def add_noise_(self, total: torch.Tensor, noise: torch.Tensor, std: float) -> torch.Tensor:
        """Compute total <- snapped total + snapped std x noise, in place; return `total`.

        Computed in float64, chunk by chunk; a float32 `total` is rounded last, which is post-processing.

        Args:
            total: shape (d,), the sum of snapped replies.
            noise: shape (d,), float64, a row of B z or a piece of one.
            std: standard deviation of z in the units of the sum.

        Raises:
            BadInput: shapes differ, something is not finite or too large to add exactly, or the noise's
                floats are too coarse for the grid (float32 noise, or a grid below 2^-28 of the noise).
        """
        if not (math.isfinite(std) and std > 0):
            raise BadInput(f"noise std = {std}", "must be positive and finite.", code="noise-std")
        return self._add_(total, noise, std, whole=False)

    def add_cells_(self, total: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """Compute total <- snapped total + spacing x cells, in place, exactly: `cells`, shape (d,), are whole
        float64 numbers.

        Raises `BadInput` as `add_noise_`, and for numbers that are not whole.
        """
        return self._add_(total, cells, self.spacing, whole=True)

    def add_noise_to_words_(self, words: Words, noise: torch.Tensor, std: float, *, whole: bool = False) -> Words:
        """Compute words <- words + cells of std x noise, modulo the ring, in place; return `words`, which may
        then be read.

        Args:
            words: shape (d,), the sum of whole cells, opened and not read (`fieldfare.masking`).
            noise: shape (d,), float64 on the host: a row of B z or a piece of one.
            std: standard deviation of z in the units of the sum.
            whole: `noise` is whole cells already, and is added as it is.

        Raises:
            BadInput: shapes differ, noise is not float64, not finite, too coarse for the grid, or not whole.
        """
        if words.shape != tuple(noise.shape) or noise.dtype != torch.float64:
            raise BadInput(
                f"words of shape {words.shape}, noise {tuple(noise.shape)}, {noise.dtype}",
                "must be equal vectors, and float64 noise.",
                code="sum-shape",
            )
        if not (math.isfinite(std) and std > 0):
            raise BadInput(f"noise std = {std}", "must be positive and finite.", code="noise-std")
        for lo in range(0, len(words), _CHUNK):
            drawn = noise[lo : lo + _CHUNK].numpy()
            cells = drawn if whole else drawn * (std / self.spacing)
            if whole and not np.array_equal(drawn, np.rint(drawn)):
                raise BadInput("discrete noise", "must be whole numbers.", code="noise-not-whole")
            if not (whole or _largest_on_host(cells) * _EPS <= _RESOLUTION):  # "not <=" refuses NaN too
                raise BadInput(
                    f"noise on a grid of {self.spacing:.3g}",
                    "is too coarse: a grid cell must hold 2^20 of its floats.",
                    code="noise-too-coarse",
                )
            # Overflow is meant: words count modulo the ring, and the noise joins before anybody reads them.
            words[lo : lo + _CHUNK] += whole_cells(cells).astype(words.dtype)
        return words

    def _add_(self, total: torch.Tensor, noise: torch.Tensor, std: float, *, whole: bool) -> torch.Tensor:
        if total.shape != noise.shape or total.ndim != 1:
            raise BadInput(
                f"sum of shape {tuple(total.shape)}, noise {tuple(noise.shape)}",
                "must be equal vectors.",
                code="sum-shape",
            )
        step = _CHUNK if total.device.type == "cpu" else DEVICE_CHUNK
        start = 0 if whole else self._add_on_host(total, noise, std)
        for lo in range(start, total.numel(), step):
            span, drawn = total[lo : lo + step], noise[lo : lo + step]
            # Everything is counted in cells from here on. The division by a power of two is exact.
            added = drawn.double() * (std / self.spacing)
            largest = _largest(added)
            if whole:
                if not torch.equal(drawn, drawn.round()):
                    raise BadInput("discrete noise", "must be whole numbers.", code="noise-not-whole")
            elif not largest * torch.finfo(noise.dtype).eps <= _RESOLUTION:  # "not <=" refuses NaN too
                near = "float64 noise" if noise.dtype != torch.float64 else f"spacing {self.spacing * 2.0**20}"
                raise BadInput(
                    f"noise of {noise.dtype} up to {largest * self.spacing:.3g} on a grid of {self.spacing:.3g}",
                    "is too coarse: a grid cell must hold 2^20 of its floats.",
                    near,
                    code="noise-too-coarse",
                )
            exact = (span.double() * (1.0 / self.spacing)).round_()
            bound = _largest(exact) + largest
            # Beyond 2^53 cells float64 has gaps: a sum would round by an amount that depends on the data.
            if not bound < _CELLS:
                raise BadInput(
                    f"sum up to {bound * self.spacing:.3g}",
                    f"does not add exactly on a grid of {self.spacing:.3g}.",
                    code="sum-not-exact",
                )
            # Both are whole numbers of cells, so this addition is exact and the noise is the only thing that
            # was rounded.
            span.copy_(exact.add_(added.round_()).mul_(self.spacing))
        return total

    def _add_on_host(self, total: torch.Tensor, noise: torch.Tensor, std: float) -> int:
        """Do `add_noise_` of float64 on the host, to the same floats in a third of the time.

        Next to `anchor` the unit in the last place is the spacing: adding it to the noise rounds to the grid
        (ties to even), taking it from the sum does, and the two results add exactly.

        Returns:
            How many elements, from the first on, are done. What comes next must be refused, or is too large
                for this.
        """
        both = (total, noise)
        if any(x.device.type != "cpu" or x.dtype != torch.float64 or not x.is_contiguous() for x in both):
            return 0
        sums, drawn = total.numpy(), noise.numpy()
        for lo in range(0, len(sums), _CHUNK):
            if not _add_anchored(sums[lo : lo + _CHUNK], drawn[lo : lo + _CHUNK], std, self.spacing):
                return lo
        return len(sums)


def _largest(values: torch.Tensor) -> float:
    """Return the largest absolute value; NaN where there is one."""
    least, most = torch.aminmax(values)
    return max(-float(least), float(most))


def _largest_on_host(values: NDArray[np.float64]) -> float:
    """Return `_largest` of an array: two reductions of numpy are quicker than one of torch, and than numpy's
    methods.
    """
    least, most = np.minimum.reduce(values), np.maximum.reduce(values)
    return max(-float(least), float(most))


def _add_in_passes(sums: NDArray[np.float64], noise: NDArray[np.float64], std: float, spacing: float) -> bool:
    added = scratch("added", len(sums), sums.dtype)
    np.multiply(noise, std, out=added)
    largest = _largest_on_host(added)
    bound = largest + _largest_on_host(sums)
    # "not <=" refuses NaN too
    if not (largest * _EPS <= _RESOLUTION * spacing and bound <= _ANCHORED * spacing):
        return False
    np.add(added, _ANCHOR * spacing, out=added)
    np.subtract(sums, _ANCHOR * spacing, out=sums)
    np.add(sums, added, out=sums)
    return True


def _add_in_a_loop(sums: NDArray[np.float64], noise: NDArray[np.float64], std: float, spacing: float) -> bool:
    anchor, largest, of_sums, numbers = _ANCHOR * spacing, 0.0, 0.0, True
    for i in range(sums.size):
        added, there = abs(noise[i] * std), abs(sums[i])
        numbers &= added == added and there == there  # NaN equals nothing, and `max` may pass over it
        largest, of_sums = max(largest, added), max(of_sums, there)
    if not (numbers and largest * _EPS <= _RESOLUTION * spacing and largest + of_sums <= _ANCHORED * spacing):
        return False
    for i in range(sums.size):
        sums[i] = (sums[i] - anchor) + (noise[i] * std + anchor)
    return True


# Computes sums <- snapped sums + snapped std x noise. False, with nothing done, where that may not be exact.
_add_anchored = Pass(_add_in_passes, _add_in_a_loop, "boolean(float64[::1], float64[::1], float64, float64)")


@dataclass(frozen=True)
class Privatiser:
    """How the raw sums of one run become releases; `Privatiser.of` chooses the numbers.

    Args:
        std: standard deviation of z in the units of the sum.
        grid: where the noise is rounded to; None for plain floats.
        cells: if not 0, z is a discrete Gaussian of that scale, in grid cells.
        bits: of the words of a masked sum; 0 where the server reads floats.
    """

    std: float
    grid: Grid | None = None
    cells: int = 0
    bits: int = 0

    @property
    def spacing_log2(self) -> int:
        """The spacing of its grid, which it must have, is 2 to this."""
        assert self.grid is not None
        return math.frexp(self.grid.spacing)[1] - 1

    @classmethod
    def of(
        cls,
        rounding: Rounding,
        noise_multiplier: float,
        clip: float,
        numel: int,
        users: int,
        row_norm: float,
        rings: Sequence[int] = (),
    ) -> Privatiser:
        """Return the privatiser on the finest grid that float64 noise resolves well, or on a coarser one if
        it must be.

        The grid has 2^28 noise floats in a cell where that costs less than `COST` of the noise; else it costs
        that much, or more where a cell must hold 2^20. What it costs is part of `std` in any case.

        Args:
            rounding: the plan's `privacy.rounding`.
            noise_multiplier: standard deviation of z, in clip norms.
            clip: norm by which one user moves the sum, before any rounding.
            numel: elements of the sum.
            users: most users that one reply is the sum of.
            row_norm: largest norm of a row of B.
            rings: bits of the words that a masked sum may have, fewest first; () for plain sums. The first
                are taken that raise the noise by at most the share `RING_COST`. `users` bounds the whole sum,
                too.

        Raises:
            BadInput: no grid is fine enough for the clip norm and coarse enough for float64.
        """
        if rounding == "none":
            return cls(noise_multiplier * clip)
        # The largest noise float that may occur, in its own resolution: a cell of this size holds 2^28 of them.
        finest = _FAR * noise_multiplier * clip * row_norm * _EPS / _FINE
        grid = Grid(min(Grid.fit(clip, numel).spacing, 2.0 ** math.ceil(math.log2(finest))))
        # Every coarser grid makes the scale smaller.
        scale = noise_multiplier * grid.charged_clip(clip, numel, users) / grid.spacing
        if rounding == "discrete" and scale < SMALLEST_SCALE:
            raise BadInput(
                "privacy.rounding = 'discrete'",
                f"noise of {noise_multiplier:g} clip norms on {numel} parameters is {scale:.3g} cells of the finest "
                f"grid, and discrete noise is charged from {SMALLEST_SCALE} cells on.",
                "more noise, or rounding = 'grid'",
                code="discrete-too-coarse",
            )
        setting = (rounding, noise_multiplier, clip, numel, users, row_norm)
        widest = cls._finest(grid, setting, _CELLS / 4)
        # Few bits save traffic but force a coarser grid, and so more noise: the first ring that costs little is taken.
        for bits in rings or (64,):
            found = cls._finest(grid, setting, min(_CELLS / 4, 2.0 ** (bits - 1)))
            if widest is not None and found is not None and found.std <= (1 + RING_COST) * widest.std:
                return replace(found, bits=bits if rings else 0)
        raise BadInput(
            f"privacy.rounding = {rounding!r}",
            f"noise of {noise_multiplier:g} clip norms on {numel} parameters needs a grid as coarse as the clip norm.",
            "less noise, or 'none'",
            code="grid-too-coarse",
        )

    @classmethod
    def _finest(
        cls, grid: Grid, setting: tuple[Rounding, float, float, int, int, float], most: float
    ) -> Privatiser | None:
        """Return the privatiser on the finest grid from `grid` on whose sums and noise stay below `most`
        cells; None for none.

        setting: the arguments of `of`, in order.
        """
        rounding, noise_multiplier, clip, numel, users, row_norm = setting
        while grid.spacing * math.sqrt(numel) <= clip:
            charged = grid.charged_clip(clip, numel, users)
            std = noise_multiplier * charged
            # In cells. It is a bound on the noise, which the check in `_add_` makes sure of, number by number.
            largest = _FAR * std * row_norm / grid.spacing
            # Sum and noise must fit in the cells that add exactly, with room to spare for both.
            if largest + users * charged / grid.spacing < most:
                # A scale below SMALLEST_SCALE would cost more than is charged.
                if rounding == "discrete" and SMALLEST_SCALE <= std / grid.spacing <= LARGEST_SCALE:
                    # Rounded up, because a smaller scale would be less noise than is charged.
                    cells = math.ceil(std / grid.spacing)
                    return cls(cells * grid.spacing, grid, cells)
                if rounding == "grid" and largest * _EPS <= _RESOLUTION:
                    return cls(std, grid)
            grid = Grid(2.0 * grid.spacing)
        return None

    def resolution(self, numel: int, row_norms: NDArray[np.float64]) -> float:
        """Return r of "What remains" in the module: what the resolution of float64 adds to mu over these
        rounds.

        Args:
            numel: numbers released in a round.
            row_norms: norms of the rows of B of these rounds, shape (rounds,).
        """
        if self.grid is None or self.cells:
            return 0.0
        eta = 2 * _EPS * _FAR * self.std / self.grid.spacing  # of a row of norm 1
        return math.sqrt(2 * math.pi * numel * float(np.square(row_norms).sum())) * eta

    def stream(self, mechanism: Mechanism, numel: int, noise: SecureNoise) -> Stream:
        """Return the running noise that `privatise` takes, of unit z: float64 on a grid, whole cells for
        discrete noise.

        Args:
            mechanism: whose B is applied.
            numel: numbers that a round releases.
            noise: the run's source.
        """
        if self.grid is None:
            return mechanism.stream(numel, noise)
        return mechanism.stream(numel, DiscreteNoise(noise, self.cells) if self.cells else noise, dtype=torch.float64)

    def privatise(self, total: torch.Tensor, stream: Stream) -> torch.Tensor:
        """Return `total` plus the next row of `stream`: the sum that may be released.

        Args:
            total: shape (d,), float64: on a grid a sum of snapped replies, and overwritten.
            stream: made by `stream`.

        Returns:
            Shape (d,): on a grid `total` itself, float64; else a new vector, float32.

        Raises:
            BadInput: `total` does not fit the stream (nothing is drawn), or as `Grid.add_noise_`: part of
                `total` may be overwritten then, and the stream is torn.
            HorizonError: the mechanism has no further row.
        """
        if self.grid is None:
            noisy = total.float()
            stream.add_to(noisy, self.std)
            return noisy
        require_fit(total, stream.numel, (torch.float64,), stream.device)  # an element too many would get no noise
        grid = self.grid

        def add(lo: int, piece: torch.Tensor) -> None:
            span = total[lo : lo + len(piece)]
            if self.cells:
                grid.add_cells_(span, piece)
            else:
                grid.add_noise_(span, piece, self.std)

        stream.each_piece(add)
        return total

    def privatise_words(self, words: Words, stream: Stream) -> torch.Tensor:
        """Return the opened sum `words` plus the next row of `stream`, then read: the sum that may be
        released.

        Never read `words` before: see "Masked sums" in the module.

        Args:
            words: shape (d,), of `bits` bits; overwritten.
            stream: made by `stream`, on the host.

        Returns:
            Shape (d,), float64: where nothing wraps, what `privatise` makes of the same cells.

        Raises:
            BadInput: `words` do not fit (nothing is drawn), or as `Grid.add_noise_to_words_`.
            HorizonError: the mechanism has no further row.
        """
        assert self.grid is not None
        return torch.from_numpy(read(self.add_to_words_(words, stream), self.grid.spacing))

    def add_to_words_(self, words: Words, stream: Stream) -> Words:
        """Add the next row of `stream` to `words`, modulo the ring, in place; return `words`. Raises as
        `privatise_words`.
        """
        if self.grid is None or words.shape != (stream.numel,) or 8 * words.itemsize != self.bits:
            raise BadInput(
                f"{words.size} words of {8 * words.itemsize} bits",
                f"are not the {stream.numel} of {self.bits} bits that this run sums.",
                code="sum-shape",
            )
        grid = self.grid

        def add(lo: int, piece: torch.Tensor) -> None:
            grid.add_noise_to_words_(words[lo : lo + len(piece)], piece, self.std, whole=self.cells > 0)

        stream.each_piece(add)
        return words
