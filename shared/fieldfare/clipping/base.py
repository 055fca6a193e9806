"""What every kind of clipping says of itself: its norm, its bounds, and the factor for a vector of a given norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fieldfare.lazily import torch
from fieldfare.registry import NORM, Registry, Table

# Clipped norms stay this (relative) distance below the bound. It covers the error of `norms` (at most
# 2^-17.9), the rounding of the product to float32, and that of a float64 sum of many users to float32.
MARGIN = 2.0**-17

# Of PyTorch or of numpy: nodes without PyTorch clip by the same formulas.
Norms = TypeVar("Norms", "torch.Tensor", NDArray[np.float64])
# Where each layer lies in the flat vector, in order and without gaps: `fieldfare.schema.Schema.slices()`.
Layout = Sequence[slice]


class ClippingSpec(Table):
    """The `[clipping]` part of a plan. One final subclass a kind."""

    kind: str
    norm: float = Field(
        default=1.0, ge=1e-20, le=1e20, description="longest update of one user", json_schema_extra=NORM
    )
    linf_filter: float | None = Field(
        default=None, gt=0, description="updates with a coordinate above this count as zero (100 in published runs)"
    )

    counts: ClassVar[int] = 0  # how many indicators the reply sums for each user, in addition to the update

    @property
    def bound(self) -> float:
        """The largest L2 norm of one user's clipped update."""
        return self.norm

    @property
    def joint_bound(self) -> float:
        """The largest L2 norm of one user's whole contribution, indicators included.

        This is the "clip" of noise multiplier x clip: the noise of every noised coordinate has this scale.
        """
        return self.bound

    @property
    def indicator_weight(self) -> float:
        """What multiplies an indicator in the noised vector."""
        return 1.0

    def at(self, norm: float) -> Self:
        """Return this spec with the norm of a later round, which is what the nodes of that round receive."""
        return self if norm == self.norm else self.model_copy(update={"norm": norm})

    def mean_scale(self, norm: float) -> float:
        """Return what multiplies the noised mean update of a round that was clipped at `norm`."""
        return 1.0

    def factors(self, norms: Norms) -> Norms:
        """Return what multiplies a vector of each given norm, float64 (users,) -> float64 (users,). Norms are
        finite.

        By default min(1, norm / r), in units in which the longest result has the length `bound`.
        """
        limit = self.norm * (1.0 - MARGIN)
        shortened: Norms = where(norms > limit, divide(limit, norms), 1.0)
        return shortened / (self.norm / self.bound)

    def blocks(self, layout: Layout, numel: int) -> tuple[tuple[slice, Self], ...]:
        """Return the parts of a vector of `numel` coordinates that are clipped independently, each with its
        own spec.
        """
        return ((slice(0, numel), self),)


clippings: Registry[ClippingSpec] = Registry("clipping")
# The spec of a mapping such as {"kind": "flat", "norm": 1.0}. Raises `BadInput`.
parse = clippings.parse


def where(condition: Any, value: Any, other: Any) -> Any:
    """Return `torch.where` or `numpy.where`, as `condition` is."""
    choose = np.where if isinstance(condition, np.ndarray) else torch.where
    return choose(condition, value, other)


def divide(bound: float, norms: Norms) -> Norms:
    """bound / norms, and 0 where a norm is 0."""
    quotient: Norms = where(norms > 0, bound / where(norms > 0, norms, 1.0), 0.0)
    return quotient
