"""Sum clipped updates, one reply at a time, in O(d) memory, without trusting anything that a node says.

Invariant I4: whatever a node sends, the sum moves by at most (users it was asked to train) x clip norm, so a node that
hosts one user moves it by at most the clip norm. A reply that cannot be bounded is dropped and counted by reason.

**Several queries.** A round may sum several clipped vectors for each user, v_1 .. v_k, each of norm at most the clip
norm. Query q has the share p_q of the round's privacy, p_1 + ... + p_k <= 1, and noise is added to the stack of
sqrt(p_q) v_q. The stack's norm is at most sqrt(sum p_q) x clip <= clip, the bound of a single query. So one user
changes the stacked sum by at most the clip norm, whatever they send in each query, and every mechanism's sensitivity
and charge hold for the stack unchanged. The price is paid in noise: query q has 1 / sqrt(p_q) times the noise of a
single query. Shares may change from round to round if they are public: the mechanisms' proofs allow inputs that depend
on earlier releases.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray

from fieldfare.privatise import Grid
from fieldfare.schema import Arrays, Schema
from fieldfare_flower.messages import BadReply, Occasion, TrainReply

CHUNK = 1 << 18
"""Elements converted to float64 at a time: the only memory that a reply costs beyond itself and the sum."""


def _split_chunks(values: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    flat = values.reshape(-1)
    return [flat[start : start + CHUNK] for start in range(0, flat.size, CHUNK)]


def squared_norm(arrays: Arrays) -> float:
    """||update||^2 in float64. Not finite if and only if a coordinate is not finite: float32 squares fit float64."""
    total = 0.0
    for values in arrays.values():
        for chunk in _split_chunks(values):
            wide = chunk.astype(np.float64)
            total += float(wide @ wide)
    return total


@dataclass
class Aggregate:
    """The running sum of one attempt at one round. It is raw: it must not be released without noise.

    Args:
        schema: the model's parameters, d elements in all.
        occasion: the run, round and attempt that every reply must repeat.
        clip: the L2 norm that bounds one user's update in one query.
        counts: how many per-user indicators each reply sums next to the update; only with a single query.
        shares: the share p_q of the round's privacy of each query; 0 for a query that is not asked in this round.
        count_weight: the weight of an indicator in the noised vector.
        grid: every reply is snapped to it before it is added, which makes sums exact; without one, the order of
            arrival changes the sum by less than float32 round-off.
        most_users: no reply moves the sum by more than this many clip norms (see `fieldfare.privatise`).

    Raises:
        ValueError: no single clip norm bounds a user's contribution under these shares and counts.
    """

    schema: Schema
    occasion: Occasion
    clip: float
    counts: int = 0
    shares: tuple[float, ...] = (1.0,)
    count_weight: float = 1.0
    grid: Grid | None = None
    most_users: int | None = None
    total: NDArray[np.float64] = field(init=False)
    """Shape (queries x d + counts,): the stack of sqrt(share) x sum, then the weighted counts."""
    users: int = field(default=0, init=False)
    """Users whose updates are in `total`."""
    rejects: Counter[str] = field(default_factory=Counter, init=False)
    """Replies that were dropped or cut, by reason."""

    def __post_init__(self) -> None:
        queries = len(self.shares)
        if min(self.shares) < 0 or not 0 < math.fsum(self.shares) <= 1 + 1e-12 or (self.counts and queries > 1):
            raise ValueError(f"shares {self.shares} with {self.counts} counts cannot be bounded by one clip norm")
        self.stacked = self.schema.stacked(queries)
        self.total = np.zeros(self.stacked.numel + self.counts, np.float64)

    def reject(self, reason: str) -> None:
        """Count a reply that is not used."""
        self.rejects[reason] += 1

    def add(self, content: RecordDict, sent: int) -> bool:
        """Add the reply of a node that was asked to train `sent` users; returns whether the sum includes it.

        A query's sum longer than users x clip is scaled down to that norm. An honest node clips, so this binds only
        nodes that lie.
        """
        try:
            reply = TrainReply.read(content, self.stacked, self.occasion, sent, self.counts)
        except BadReply as error:
            self.reject(error.reason)
            return False
        names, per_query = self.stacked.names, len(self.schema.names)
        norms = [
            math.sqrt(squared_norm({name: reply.update[name] for name in names[first : first + per_query]}))
            for first in range(0, len(names), per_query)
        ]
        if not all(math.isfinite(norm) for norm in norms):
            self.reject("non-finite")
            return False
        bound = (reply.users if self.most_users is None else min(reply.users, self.most_users)) * self.clip
        if max(norms) > bound:
            self.reject("over-norm, clipped again")
        # The factor 1 - 1e-12 keeps the scaled norm below the bound in spite of float64 rounding.
        cuts = [bound / norm * (1.0 - 1e-12) if norm > bound else 1.0 for norm in norms]
        scales = [cut * math.sqrt(share) for cut, share in zip(cuts, self.shares, strict=True)]
        for position, (name, location) in enumerate(zip(names, self.stacked.slices(), strict=True)):
            target = self.total[location]
            for start, chunk in zip(range(0, target.size, CHUNK), _split_chunks(reply.update[name]), strict=True):
                target[start : start + CHUNK] += self._snap(chunk.astype(np.float64) * scales[position // per_query])
        self.total[self.stacked.numel :] += self._snap(np.asarray(reply.counts, np.float64) * self.count_weight)
        self.users += reply.users
        return True

    def _snap(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.grid is not None:
            self.grid.snap_(torch.from_numpy(values))
        return values

    def sum(self) -> torch.Tensor:
        """`total` as a tensor that shares its memory, float64 (queries x d + counts,)."""
        return torch.from_numpy(self.total)
