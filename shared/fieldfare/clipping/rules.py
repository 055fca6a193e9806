"""Clipping: what bounds one user's contribution, so that noise of a known size hides it.

Every kind maps a user's update v (d,) to a vector of norm at most `spec.bound`, whatever v is: zero, denormal, so large
that its float32 norm overflows, NaN. Clipping is the only place where sensitivity is made; everything after it is
noise and post-processing. Where the clients train from several points, they combine first and clip once: clipping
each point and combining later has sensitivity (|a| + |1 - a|) x norm (DiSK, Zhang et al. 2024, section 4.2).

| kind | result for ||v|| = r | `bound` |
|---|---|---|
| `flat` | v min(1, norm / r) | norm |
| `automatic` | v norm / (r + stabiliser) (Bu et al. 2023) | norm |
| `normalised` | (v / norm) min(1, norm / r) (De et al. 2022): the step is learning_rate x direction | 1 |
| `per-layer` | each layer flat to its own norm c_l, sum of c_l^2 = norm^2 | norm |
| `adaptive-quantile` | as `normalised`, with a norm that follows a quantile of ||v|| (Andrew et al. 2021) | 1 |

The norm decides the bias, not the step, where updates are divided by it ("eta = tau / C"). Norms around the median of
||v|| or below are near the optimum for private regression (Bombari et al. 2025): mu = P(r <= norm) is the factor by
which clipping slows the descent, while the noise grows with norm.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator

from fieldfare.errors import BadInput
from fieldfare.registry import Registry, Table

MARGIN = 2.0**-17
"""Clipped norms stay this (relative) distance below the bound. It covers the error of `norms` (at most 2^-17.9), the
rounding of the product to float32, and that of a float64 sum of many users to float32."""

_BLOCK = 128
"""Squares that are added in float32: any order of adding n positive numbers errs by at most n 2^-24, a norm by half."""

_PLAIN = (1e-6, 1e15)
"""Between these largest coordinates, no square that matters overflows or vanishes in float32."""

_CHUNK = 1 << 20
"""Elements that are widened to float64 at a time."""

Layout = Sequence[slice]
"""Where each layer lies in the flat vector, in order and without gaps: `fieldfare_flower.messages.Schema.slices()`."""


class ClippingSpec(Table, ABC):
    """The `[clipping]` part of a plan. One final subclass a kind."""

    kind: str
    norm: float = Field(default=1.0, ge=1e-20, le=1e20, description="L2 clip norm of one user's update")
    linf_filter: float | None = Field(
        default=None, gt=0, description="updates with a coordinate above this count as zero (100 in published runs)"
    )

    counts: ClassVar[int] = 0
    """How many per-user indicators the reply sums beside the update."""

    @property
    def bound(self) -> float:
        """The largest L2 norm that `clip_` leaves of one user's update."""
        return self.norm

    @property
    def joint_bound(self) -> float:
        """The largest L2 norm of one user's whole contribution, indicators included.

        This is the "clip" of noise multiplier x clip: the noise of every released coordinate has this scale.
        """
        return self.bound

    @abstractmethod
    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        """What multiplies a vector of each given norm, float64 (users,) -> float64 (users,). Norms are finite."""

    def blocks(self, layout: Layout, numel: int) -> tuple[tuple[slice, Self], ...]:
        """The parts of the vector that are clipped independently, and by what."""
        return ((slice(0, numel), self),)


clippings: Registry[ClippingSpec] = Registry("clipping")


def parse(spec: ClippingSpec | Mapping[str, Any]) -> ClippingSpec:
    """The spec of a mapping such as {"kind": "flat", "norm": 1.0}. Raises `BadInput`."""
    return clippings.parse(spec)


def _divided(bound: float, norms: torch.Tensor) -> torch.Tensor:
    return torch.where(norms > 0, bound / torch.where(norms > 0, norms, 1.0), 0.0)


def _flat(bound: float, norms: torch.Tensor) -> torch.Tensor:
    limit = bound * (1.0 - MARGIN)
    return torch.where(norms > limit, _divided(limit, norms), 1.0)


@clippings.register
class Flat(ClippingSpec):
    """v min(1, norm / ||v||) (Abadi et al. 2016; McMahan et al. 2018)."""

    kind: Literal["flat"] = "flat"

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        return _flat(self.norm, norms)


@clippings.register
class Automatic(ClippingSpec):
    """v norm / (||v|| + stabiliser) (Bu et al. 2023, AUTO-S): `norm` sets only the scale. Zero stays zero."""

    kind: Literal["automatic"] = "automatic"
    stabiliser: float = Field(default=0.01, ge=0)

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        scaled = _divided(self.norm * (1.0 - MARGIN), norms + self.stabiliser)
        return torch.where(norms > 0, scaled, 0.0)


@clippings.register
class Normalised(ClippingSpec):
    """(v / norm) min(1, norm / ||v||) (De et al. 2022): norm at most 1, so `norm` does not set the step."""

    kind: Literal["normalised"] = "normalised"

    @property
    def bound(self) -> float:
        return 1.0

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        return _flat(self.norm, norms) / self.norm


@clippings.register
class PerLayer(ClippingSpec):
    """Each layer l is clipped flat to norm x w_l, sum of w_l^2 = 1, so the whole has norm at most `norm`.

    `weighting`: "equal", w_l = 1 / sqrt(layers) (McMahan et al. 2018); "size", w_l = sqrt(d_l / d).
    """

    kind: Literal["per-layer"] = "per-layer"
    weighting: Literal["equal", "size"] = "equal"

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        return _flat(self.norm, norms)

    def blocks(self, layout: Layout, numel: int) -> tuple[tuple[slice, Self], ...]:
        filled = [where for where in layout if where.stop > where.start]
        sizes = [where.stop - where.start for where in filled]
        covered = filled and filled[0].start == 0 and filled[-1].stop == numel
        if not covered or any(a.stop != b.start for a, b in itertools.pairwise(filled)):
            raise ValueError(f"layout {layout!r} does not cover a vector of {numel} coordinates in order")
        share = [1.0 / len(sizes) if self.weighting == "equal" else size / numel for size in sizes]
        return tuple(
            (where, self.model_copy(update={"norm": self.norm * math.sqrt(part)}))
            for where, part in zip(filled, share, strict=True)
        )


@clippings.register
class AdaptiveQuantile(ClippingSpec):
    """A clip norm that follows the `quantile` of the users' update norms (Andrew et al. 2021), with any mechanism.

    Each user contributes the vector (clip(v / C_t), w e) of d + 1 coordinates, C_t the norm of this round,
    e = 1 if ||v|| > C_t else 0, w = `count_weight`. Privatising that one stream with one mechanism prices both:

    * sensitivity does not depend on C_t: the update part has norm at most 1, the indicator part at most w, so one
      contribution has norm at most `joint_bound` = sqrt(1 + w^2), reached exactly (e = 1 implies norm 1). A zero
      update gives the zero contribution, so this is the `zero_out` and `add_remove` sensitivity; `replace_one` is
      exactly sqrt(4 + w^2), below the 2 sqrt(1 + w^2) that the adjacency factor charges.
    * C_t is a function of earlier released values, which the mechanism's proof for adaptively chosen inputs covers;
      correlated noise keeps its cancellation because the stream, and not C_t times it, is what is noised.
    * the indicator's noise enters log C as a prefix sum, which is what correlated mechanisms make small.

    `rescale`: multiply the released mean by C_t, as published; without it the step is learning_rate x (v / C_t), which
    keeps learning_rate x norm, and so the scale of the noise in the model, constant (Bombari et al. 2025, section 5).
    """

    kind: Literal["adaptive-quantile"] = "adaptive-quantile"
    quantile: float = Field(default=0.5, gt=0, lt=1, description="target share of users that are not clipped")
    rate: float = Field(default=0.2, gt=0, le=2, description="eta_C of the geometric update")
    count_weight: float = Field(default=0.1, gt=0, le=1, description="w: weight of the indicator in the noised vector")
    least: float = Field(default=1e-6, gt=0)
    most: float = Field(default=1e6, gt=0)
    rescale: bool = False

    counts: ClassVar[int] = 1

    @model_validator(mode="after")
    def _in_range(self) -> Self:
        if not self.least <= self.norm <= self.most:
            nearest = min(max(self.norm, self.least), self.most)
            raise BadInput(
                f"clipping.norm = {self.norm}", f"must lie between {self.least} and {self.most}.", str(nearest)
            )
        return self

    @property
    def bound(self) -> float:
        return 1.0

    @property
    def joint_bound(self) -> float:
        return math.sqrt(1.0 + self.count_weight**2)

    def factors(self, norms: torch.Tensor) -> torch.Tensor:
        return _flat(self.norm, norms) / self.norm

    def split(self, noise_multiplier: float) -> tuple[float, float]:
        """(z_updates, z_counts): the noise multipliers that each part would have alone.

        1 / z_updates^2 + 1 / z_counts^2 = 1 / noise_multiplier^2: the budget (in mu^2 or rho) is divided in the
        proportion 1 : w^2.
        """
        scale = noise_multiplier * self.joint_bound
        return scale, scale / self.count_weight

    def init(self) -> float:
        """The norm of round 0."""
        return self.norm

    def step(self, norm: float, noised_over: float, users: int) -> float:
        """The next round's norm: norm x exp(-rate x (share not clipped - quantile)), within [least, most].

        `noised_over`: the released sum of the indicators (already divided by `count_weight`). `users`: how many it
        sums over; the number of reports where that is public (`zero_out`), the planned cohort otherwise. More users
        below the norm than wanted lower it.
        """
        if users < 1:
            raise ValueError("a norm cannot follow a quantile of no users")
        if not math.isfinite(noised_over):
            raise ValueError(f"the released count is {noised_over}")
        below = 1.0 - min(max(noised_over / users, 0.0), 1.0)
        moved = norm * math.exp(-self.rate * (below - self.quantile))
        return min(max(moved, self.least), self.most)

    def at(self, norm: float) -> Self:
        """This spec with the norm of a later round: what the nodes of that round are told."""
        return self.model_copy(update={"norm": norm})


def _columns(updates: torch.Tensor) -> list[slice]:
    users, numel = updates.shape
    width = max(1, _CHUNK // max(1, users))
    return [slice(start, min(start + width, numel)) for start in range(0, numel, width)]


def norms(updates: torch.Tensor) -> torch.Tensor:
    """The L2 norm of each row, float32 (users, d) -> float64 (users,), within a relative 2^-17.9 = 4.1e-6.

    Not finite if and only if the row is not. A row's norm depends on that row alone.
    """
    whole = updates.shape[1] // _BLOCK * _BLOCK
    parts = [updates[:, whole:].to(torch.float64)]
    if whole:
        blocks = updates[:, :whole].reshape(updates.shape[0], whole // _BLOCK, _BLOCK)
        blocks = torch.linalg.vector_norm(blocks, dim=2)
        parts.append(torch.linalg.vector_norm(blocks, dim=1, dtype=torch.float64)[:, None])
    found: torch.Tensor = torch.linalg.vector_norm(torch.cat(parts, dim=1), dim=1)
    if whole:
        peak = _peaks(updates)
        odd = (peak != 0) & ~((peak >= _PLAIN[0]) & (peak <= _PLAIN[1]))
        if bool(odd.any()):
            found[odd] = _wide_norms(updates[odd])
    return found


def _wide_norms(updates: torch.Tensor) -> torch.Tensor:
    """In float64, where the square of no float32 overflows or vanishes; slower."""
    squared = torch.zeros(updates.shape[0], dtype=torch.float64, device=updates.device)
    for columns in _columns(updates):
        squared += updates[:, columns].to(torch.float64).square().sum(dim=1)
    return squared.sqrt()


def _peaks(updates: torch.Tensor) -> torch.Tensor:
    return torch.maximum(updates.amax(dim=1), -updates.amin(dim=1))


def _screen_(updates: torch.Tensor, spec: ClippingSpec) -> None:
    if updates.ndim != 2 or updates.dtype != torch.float32:
        raise ValueError(f"updates must be float32 (users, d), not {updates.dtype} {tuple(updates.shape)}")
    if updates.shape[1] == 0:
        return
    peak = _peaks(updates)
    bad = ~torch.isfinite(peak)
    if spec.linf_filter is not None:
        bad |= peak > spec.linf_filter
    if bool(bad.any()):
        updates[bad] = 0.0


def clip_(updates: torch.Tensor, spec: ClippingSpec, layout: Layout) -> None:
    """Clip each row of `updates`, float32 (users, d), in place.

    Guarantee: every row is finite afterwards and its norm, computed in float64, is at most `spec.bound`. A row with a
    NaN or an infinity, or beyond `linf_filter`, becomes zero. Rows do not influence each other.
    Raises ValueError on another dtype or shape, or a layout that does not cover d.
    """
    _screen_(updates, spec)
    for where, part in spec.blocks(layout, updates.shape[1]):
        _scale_(updates[:, where], part.factors(norms(updates[:, where])))


def _scale_(block: torch.Tensor, factors: torch.Tensor) -> None:
    """Multiply row i by factors[i], float64 (users,). The product errs by at most 2^-23 of itself."""
    plain = (factors == 0) | ((factors > 1e-30) & (factors < 1e30))
    if bool((factors[plain] != 1.0).any()):
        block.mul_(torch.where(plain, factors, 1.0).to(torch.float32)[:, None])
    for row in torch.nonzero(~plain).flatten().tolist():
        # The factor of a huge vector is below the smallest normal float32.
        for columns in _columns(block[row : row + 1]):
            block[row, columns] = (block[row, columns].to(torch.float64) * factors[row]).to(torch.float32)


def count_over(updates: torch.Tensor, spec: ClippingSpec) -> int:
    """How many rows of `updates`, float32 (users, d), exceed `spec.norm`: the sum of e of `AdaptiveQuantile`.

    To be asked before `clip_`. Rows that `clip_` would zero are zeroed here too and do not count.
    Raises ValueError on another dtype or shape.
    """
    _screen_(updates, spec)
    return int((norms(updates) > spec.norm).sum())
