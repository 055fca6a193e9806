"""Sum clipped updates: one reply at a time, O(d) memory, trusting nothing that a node says.

Invariant I4: whatever a node sends, the sum moves by at most (users it was asked to train) x clip norm, so a node that
hosts one user moves it by at most the clip norm. A reply that cannot be bounded is dropped and counted by reason.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.wire import Arrays, BadReply, Occasion, Schema, TrainReply

CHUNK = 1 << 18
"""Elements converted to float64 at a time: the only memory that a reply costs beyond itself and the sum."""


def _chunks(values: NDArray[Any]) -> list[NDArray[Any]]:
    flat = values.reshape(-1)
    return [flat[start : start + CHUNK] for start in range(0, flat.size, CHUNK)]


def squared_norm(arrays: Arrays) -> float:
    """||update||^2 in float64; not finite if and only if a coordinate is not finite (float32 squares fit float64)."""
    total = 0.0
    for values in arrays.values():
        for chunk in _chunks(values):
            wide = chunk.astype(np.float64)
            total += float(wide @ wide)
    return total


@dataclass
class Aggregate:
    """The running sum of one attempt at one round, in float64: the order of arrival is below float32 round-off."""

    schema: Schema
    occasion: Occasion
    clip: float
    counts: int = 0
    total: NDArray[np.float64] = field(init=False)
    counted: NDArray[np.float64] = field(init=False)
    users: int = field(default=0, init=False)
    rejects: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self.total = np.zeros(self.schema.numel, np.float64)
        self.counted = np.zeros(self.counts, np.float64)

    def reject(self, reason: str) -> None:
        """Count a reply that is not used."""
        self.rejects[reason] += 1

    def add(self, content: Any, sent: int) -> bool:
        """Add the reply of a node that was asked to train `sent` users; whether it was used.

        A sum longer than users x clip is scaled down to it: an honest node clips, so this binds liars only.
        """
        try:
            reply = TrainReply.read(content, self.schema, self.occasion, sent, self.counts)
        except BadReply as error:
            self.reject(error.reason)
            return False
        squared = squared_norm(reply.update)
        if not math.isfinite(squared):
            self.reject("non-finite")
            return False
        most, norm = reply.users * self.clip, math.sqrt(squared)
        scale = 1.0
        if norm > most:
            self.reject("over-norm, clipped again")
            scale = most / norm * (1.0 - 1e-12)
        for name, where in zip(self.schema.names, self.schema.slices(), strict=True):
            target = self.total[where]
            for start, chunk in zip(range(0, target.size, CHUNK), _chunks(reply.update[name]), strict=True):
                target[start : start + CHUNK] += chunk.astype(np.float64) * scale
        self.counted += np.asarray(reply.counts, np.float64)
        self.users += reply.users
        return True

    def sum(self) -> torch.Tensor:
        """The sum, float32 (d,). Still raw: never to be released without noise."""
        return torch.from_numpy(self.total.astype(np.float32))
