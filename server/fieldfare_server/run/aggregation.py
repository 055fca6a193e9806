"""Sum clipped updates: one reply at a time, O(d) memory, trusting nothing that a node says.

Invariant I4: whatever a node sends, the sum moves by at most (users it was asked to train) x clip norm, so a node that
hosts one user moves it by at most the clip norm. A reply that cannot be bounded is dropped and counted by reason.

**Several queries.** A round may sum several clipped vectors a user, v_1 .. v_k, each of norm at most the clip norm.
Query q has the share p_q of the round's privacy, p_1 + ... + p_k <= 1, and what is noised is the stack of
sqrt(p_q) v_q: its norm is at most sqrt(sum p_q) x clip <= clip, that of one query. So one user changes the stacked sum
by at most the clip norm, whatever users send in whichever query, and any mechanism's sensitivity and charge hold for
the stack as they are. The price is paid in noise: query q has 1 / sqrt(p_q) times the noise of a single one. Shares may
change from round to round if they are public (the mechanisms' proofs let inputs depend on what was released).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.privatise import Grid
from fieldfare.schema import Arrays, Schema
from fieldfare_flower.messages import BadReply, Occasion, TrainReply

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
    """The running sum of one attempt at one round: float64, `total` (queries x numel + counts,), weighted counts last.

    On a `grid` every reply is snapped to it before it is added, so sums are exact; else the order of arrival is below
    float32 round-off. `most_users`: no reply moves the sum by more than that many clip norms (see `rounding`).
    """

    schema: Schema
    occasion: Occasion
    clip: float
    counts: int = 0
    shares: tuple[float, ...] = (1.0,)
    """Of each query; 0 for one that is not asked in this round, and then not released either."""
    count_weight: float = 1.0
    grid: Grid | None = None
    most_users: int | None = None
    total: NDArray[np.float64] = field(init=False)
    users: int = field(default=0, init=False)
    rejects: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        if min(self.shares) < 0 or not 0 < math.fsum(self.shares) <= 1 + 1e-12 or (self.counts and self.queries > 1):
            raise ValueError(f"shares {self.shares} with {self.counts} counts cannot be bounded by one clip norm")
        self.stacked = self.schema.stacked(self.queries)
        self.total = np.zeros(self.stacked.numel + self.counts, np.float64)

    @property
    def queries(self) -> int:
        """How many vectors a user's contribution has."""
        return len(self.shares)

    def reject(self, reason: str) -> None:
        """Count a reply that is not used."""
        self.rejects[reason] += 1

    def add(self, content: Any, sent: int) -> bool:
        """Add the reply of a node that was asked to train `sent` users; whether it was used.

        A sum longer than users x clip is scaled down to it: an honest node clips, so this binds liars only.
        """
        try:
            reply = TrainReply.read(content, self.stacked, self.occasion, sent, self.counts)
        except BadReply as error:
            self.reject(error.reason)
            return False
        each, names = len(self.schema.names), self.stacked.names
        norms = [
            math.sqrt(squared_norm({name: reply.update[name] for name in names[first : first + each]}))
            for first in range(0, len(names), each)
        ]
        if not all(math.isfinite(norm) for norm in norms):
            self.reject("non-finite")
            return False
        most = (reply.users if self.most_users is None else min(reply.users, self.most_users)) * self.clip
        if max(norms) > most:
            self.reject("over-norm, clipped again")
        roots = [math.sqrt(share) for share in self.shares]
        scales = [most / norm * (1.0 - 1e-12) if norm > most else 1.0 for norm in norms]
        for place, (name, where) in enumerate(zip(names, self.stacked.slices(), strict=True)):
            target = self.total[where]
            for start, chunk in zip(range(0, target.size, CHUNK), _chunks(reply.update[name]), strict=True):
                scaled = chunk.astype(np.float64) * (scales[place // each] * roots[place // each])
                target[start : start + CHUNK] += self._snapped(scaled)
        self.total[self.stacked.numel :] += self._snapped(np.asarray(reply.counts, np.float64) * self.count_weight)
        self.users += reply.users
        return True

    def _snapped(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.grid is not None:
            self.grid.snap_(torch.from_numpy(values))
        return values

    def sum(self) -> torch.Tensor:
        """The stack of sqrt(share) x sum, and the counts, float64 (queries x d + counts,), not a copy. Still raw: never
        to be released without noise."""
        return torch.from_numpy(self.total)

    def unstacked(self, noised: torch.Tensor) -> torch.Tensor:
        """What was released of the stack (queries x d,), without the shares: 0 for queries of share 0."""
        factors = [1.0 / math.sqrt(share) if share else 0.0 for share in self.shares]
        return (noised.view(self.queries, -1) * noised.new_tensor(factors)[:, None]).view(-1)

    @property
    def asked(self) -> int:
        """Coordinates of what is released: of the queries that have a share."""
        return self.schema.numel * sum(share > 0 for share in self.shares)

    @property
    def spread(self) -> float:
        """The noise of `unstacked` in units of that of `sum`: root mean square over what was asked."""
        wide = [1.0 / share for share in self.shares if share]
        return math.sqrt(math.fsum(wide) / len(wide))
