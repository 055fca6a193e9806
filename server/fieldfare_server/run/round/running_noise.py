"""The noise of one run: how a raw sum is privatised, and what is public about the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fieldfare.cost import Cost
from fieldfare.lazily import torch
from fieldfare.masking.words import Words
from fieldfare.noise import SecureNoise
from fieldfare.privatise import Privatiser
from fieldfare.streams.base import Stream

# What a stream's state has besides tensors: JSON.
StreamFacts = dict[str, int | str]


@dataclass(frozen=True, eq=False)
class RunningNoise:
    """A mechanism's stream, with the scale and grid that the plan fixes. Without a stream: no noise (a rehearsal)."""

    privatiser: Privatiser
    stream: Stream | None
    # Norms of the rows of B, shape (rounds,); larger by the noise that a blinder adds to the stream's.
    row_norms: NDArray[np.float64]
    autocovariance: tuple[float, ...] = ()  # see `StepInfo.noise_autocovariance`
    source: SecureNoise | None = None  # what the stream draws from, with the nonces of the rounds

    @classmethod
    def of(
        cls,
        cost: Cost,
        privatiser: Privatiser,
        numel: int,
        noise: SecureNoise,
        nonces: Sequence[bytes] | None,
    ) -> Self:
        """Return the noise of `cost` before its first row, for sums of `numel` elements.

        Args:
            nonces: of the run's rounds, kept by reference; None for a run without nonces.
        """
        if nonces is not None:
            noise = noise.with_nonces(nonces, cost.mechanism.birth)
        stream = privatiser.stream(cost.mechanism, numel, noise)
        norms = cost.mechanism.row_norms() * cost.plan.aggregation.widening
        return cls(privatiser, stream, norms, cost.mechanism.autocovariance(), noise)

    def std(self, row: int) -> float:
        """Return the standard deviation of all noise in round `row`, for each coordinate of the sum."""
        return self.privatiser.std * float(self.row_norms[row])

    def privatise(self, total: torch.Tensor) -> torch.Tensor:
        """Return `total`, float64 (numel,), plus the next row of noise; float32 or float64. May overwrite `total`."""
        return total if self.stream is None else self.privatiser.privatise(total, self.stream)

    def privatise_words(self, words: Words) -> torch.Tensor:
        """Return the opened words of a masked sum, (numel,), plus the next row of noise, then read; float64."""
        assert self.stream is not None
        return self.privatiser.privatise_words(words, self.stream)

    def state(self) -> tuple[dict[str, torch.Tensor], StreamFacts]:
        """Return the whole state. It never holds the key."""
        state = {} if self.stream is None else self.stream.state_dict()
        tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        return tensors, {name: value for name, value in state.items() if name not in tensors}

    def restore(self, tensors: Mapping[str, torch.Tensor], facts: StreamFacts) -> None:
        """Continue where `state` was taken."""
        if self.stream is not None:
            self.stream.load_state_dict({**facts, **tensors})
