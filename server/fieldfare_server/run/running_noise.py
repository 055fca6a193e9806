"""The noise of one run: how a raw sum is privatised, and what is public about the noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.cost import Cost
from fieldfare.noise import SecureNoise
from fieldfare.privatise import Grid, Privatiser, Rounding
from fieldfare.streams.base import Stream
from fieldfare_server.optimizers.noise_profile import autocovariance

StreamFacts: TypeAlias = dict[str, int | str]
"""What a stream's state has besides tensors: JSON."""


class RunningNoise:
    """The mechanism's stream, on the grid and with the scale that the plan fixes. Without a `Cost`: no noise."""

    def __init__(
        self,
        privatiser: Privatiser,
        stream: Stream | None,
        row_norms: NDArray[np.float64],
        correlation: tuple[float, ...],
    ) -> None:
        self.privatiser, self._stream, self._row_norms = privatiser, stream, row_norms
        self.autocovariance = correlation
        """See `StepInfo.noise_autocovariance`."""

    @classmethod
    def none(cls, rounds: int) -> Self:
        """For a rehearsal whose sums are shown as they are."""
        return cls(Privatiser(0.0), None, np.zeros(rounds), ())

    @classmethod
    def of(cls, cost: Cost, rounding: Rounding, bound: float, numel: int, most_users: int, noise: SecureNoise) -> Self:
        """The noise of `cost` before its first row.

        Args:
            bound: the L2 norm by which one user moves the sum, indicators included.
            numel: elements of the noised vector: queries x d + counts.
            most_users: how many users one reply may sum.

        Raises:
            BadInput: no rounding grid fits this bound and noise.
        """
        norms = cost.mechanism.row_norms()
        privatiser = Privatiser.of(rounding, cost.noise_multiplier, bound, numel, most_users, float(norms.max()))
        stream = privatiser.stream(cost.mechanism, numel, noise)
        return cls(privatiser, stream, norms, autocovariance(cost.mechanism))

    @property
    def grid(self) -> Grid | None:
        """Where replies are snapped before they are summed."""
        return self.privatiser.grid

    @property
    def row(self) -> int | None:
        """The row of B z that the next sum gets; None without noise."""
        return None if self._stream is None else self._stream.round

    def std(self, row: int) -> float:
        """Standard deviation of row `row` of the noise, for each coordinate of the sum."""
        return self.privatiser.std * float(self._row_norms[row])

    def privatise(self, total: torch.Tensor) -> torch.Tensor:
        """The sum plus the next row of noise, float32 or float64 (numel,). May overwrite `total`, float64 (numel,)."""
        return total if self._stream is None else self.privatiser.privatise(total, self._stream)

    def state(self) -> tuple[dict[str, torch.Tensor], StreamFacts]:
        """What a checkpoint keeps, for exact resume. It never holds the key."""
        state = {} if self._stream is None else self._stream.state_dict()
        tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        return tensors, {name: value for name, value in state.items() if name not in tensors}

    def restore(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, int | str]) -> None:
        """Continue where `state` was taken."""
        if self._stream is not None:
            self._stream.load_state_dict({**facts, **tensors})
