"""Sum clipped updates, one reply at a time, in O(d) memory, without trusting anything that a node says.

Invariant I4: whatever a node sends, the sum moves by at most (users it was asked to train) x clip norm, so a
node that hosts one user moves it by at most the clip norm. A reply that cannot be bounded is dropped and
counted by reason.

**Several queries.** A round may sum several clipped vectors for each user, v_1 .. v_k, each of norm at most
the clip norm. Query q has the share p_q of the round's privacy, p_1 + ... + p_k <= 1, and noise is added to
the stack of sqrt(p_q) v_q. The stack's norm is at most sqrt(sum p_q) x clip <= clip, the bound of a single
query. So one user changes the stacked sum by at most the clip norm, whatever they send in each query, and
every mechanism's sensitivity and charge hold for the stack unchanged. The price is paid in noise: query q has
1 / sqrt(p_q) times the noise of a single query. Shares may change from round to round if they are public: the
mechanisms' proofs allow inputs that depend on earlier releases.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fieldfare.errors import CheckpointError
from fieldfare.lazily import torch
from fieldfare.metrics import NO_RIDERS, Riders
from fieldfare.privatise import Grid
from fieldfare.schema import Schema
from fieldfare_flower.messages import Occasion, TrainReply
from fieldfare_flower.npy import BadReply
from fieldfare_server.ledger import OpenRound
from fieldfare_server.run.round.running_noise import RunningNoise

# Elements converted to float64 at a time: the only memory that a reply costs beyond itself and the sum. So
# few that they stay in the processor's cache from their conversion to the sum.
CHUNK = 1 << 15

# The word under which a round counts updates that are not finite.
NON_FINITE = "non-finite"


@dataclass(frozen=True)
class Contribution:
    """What one reply adds to the sum, once it was read and checked."""

    users: int
    counts: tuple[float, ...]  # sums of the users' indicators and metrics, as `Riders` has them
    # Number of an array of the stacked schema -> its values in order, `CHUNK` at a time. May be asked twice;
    # the caller may overwrite what it gets.
    chunks: Callable[[int], Iterator[NDArray[np.float64]]]
    # Whether the node should have clipped, so that a longer sum is worth counting.
    clipped_by_node: bool = True


_Read = TypeVar("_Read")

# (a reply's content, how many users its node was asked to train) -> what it adds. Raises `BadReply`.
Reader = Callable[[RecordDict, int], Contribution]


def split_chunks(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Return `values` in order, `CHUNK` elements at a time."""
    flat = values.reshape(-1)
    return (flat[start : start + CHUNK] for start in range(0, flat.size, CHUNK))


def squared_norm(chunks: Iterable[NDArray[np.float64]]) -> float:
    """Return the sum of squares. Not finite if a value is not finite, or too large for float64's squares."""
    return sum(float(chunk @ chunk) for chunk in chunks)


def read_cohort_reply(
    stacked: Schema, occasion: Occasion, riders: Riders, content: RecordDict, sent: int
) -> Contribution:
    """Return the reply of a node that sums its users' clipped updates. Raises `BadReply` as `TrainReply.read`."""
    reply = TrainReply.read(content, stacked, occasion, sent, riders.indicators, riders.metrics)
    arrays = [reply.update[name] for name in stacked.names]

    def chunks(position: int) -> Iterator[NDArray[np.float64]]:
        return (chunk.astype(np.float64) for chunk in split_chunks(arrays[position]))

    return Contribution(reply.users, reply.counts, chunks)


@dataclass
class RoundSum:
    """What a round adds up, whatever it reads of a reply."""

    users: int = field(default=0, init=False)  # users whose updates are in the sum
    # Replies that were dropped or cut, by reason.
    rejects: Counter[str] = field(default_factory=Counter, init=False)

    def reject(self, reason: str) -> None:
        """Count a reply that is not used."""
        self.rejects[reason] += 1

    def usable(self, read: Callable[[], _Read]) -> _Read | None:
        """Return what `read` makes of a reply; None, and counted by its reason, where it cannot be used."""
        try:
            return read()
        except BadReply as error:
            self.reject(error.reason)
        except Exception:
            # Whatever a crafted reply makes Flower's records raise, it is one reply that cannot be used.
            self.reject("schema")
        return None


@dataclass
class Aggregate(RoundSum):
    """The running sum of one attempt at one round. It is raw: it must not be released without noise.

    Args:
        schema: the model's parameters, d elements in all.
        occasion: the run, round and attempt that every reply must repeat.
        clip: the L2 norm that bounds one user's update in one query.
        riders: the numbers that each reply sums next to the update; only with a single query.
        shares: the share p_q of the round's privacy of each query; 0 for a query that is not asked in this
            round.
        grid: every reply is snapped to it before it is added, which makes sums exact; without one, the order
            of arrival changes the sum by less than float32 round-off.
        most_users: no reply moves the sum by more than this many clip norms (see `fieldfare.privatise`).
        reader: reads a reply; None: as that of a node that sums its users' clipped updates.

    Raises:
        ValueError: no single clip norm bounds a user's contribution under these shares and riders.
    """

    schema: Schema
    occasion: Occasion
    clip: float
    riders: Riders = NO_RIDERS
    shares: tuple[float, ...] = (1.0,)
    grid: Grid | None = None
    most_users: int | None = None
    reader: Reader | None = None
    receipt: ClassVar[None] = None  # no blinder signed anything of it
    # Shape (queries x d + riders,): the stack of sqrt(share) x sum, then the weighted riders.
    total: NDArray[np.float64] = field(init=False)
    # What the numbers that `privatise` released are about, where the release says it.
    names: list[int | str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        queries, riding = len(self.shares), len(self.riders.weights)
        if min(self.shares) < 0 or not 0 < math.fsum(self.shares) <= 1 + 1e-12 or (riding and queries > 1):
            raise ValueError(f"shares {self.shares} with {riding} riders cannot be bounded by one clip norm")
        self.stacked = self.schema.stacked(queries)
        self.total = np.zeros(self.stacked.numel + riding, np.float64)

    def add(self, content: RecordDict, sent: int, node: int = 0) -> bool:
        """Add the reply of `node`, which was asked to train `sent` users; returns whether the sum includes it."""
        reply = self.usable(lambda: self.read(content, sent))
        if reply is None:
            return False
        arrays, per_query = len(self.stacked.names), len(self.schema.names)
        norms = [
            math.sqrt(sum(squared_norm(reply.chunks(position)) for position in range(first, first + per_query)))
            for first in range(0, arrays, per_query)
        ]
        if not all(math.isfinite(norm) for norm in norms):
            self.reject(NON_FINITE)
            return False
        bound = (reply.users if self.most_users is None else min(reply.users, self.most_users)) * self.clip
        # The charge needs no more than this bound: a reply that is too long is cut, and neither trusted nor
        # dropped. An honest node clips, so this binds only nodes that lie.
        if max(norms) > bound and reply.clipped_by_node:
            self.reject("over-norm, clipped again")
        # The factor 1 - 1e-12 keeps the scaled norm below the bound in spite of float64 rounding.
        cuts = [bound / norm * (1.0 - 1e-12) if norm > bound else 1.0 for norm in norms]
        # The shares add up to at most 1, so all of a user's queries together stay within one clip norm.
        scales = [cut * math.sqrt(share) for cut, share in zip(cuts, self.shares, strict=True)]
        for position, location in enumerate(self.stacked.slices()):
            target, scale, start = self.total[location], scales[position // per_query], 0
            for chunk in reply.chunks(position):
                if scale != 1.0:
                    chunk *= scale
                target[start : start + chunk.size] += self._snap(chunk)
                start += chunk.size
        self.total[self.stacked.numel :] += self._snap(np.asarray(reply.counts, np.float64) * self.riders.weights)
        self.users += reply.users
        return True

    def read(self, content: RecordDict, sent: int) -> Contribution:
        """What a reply adds. Raises `BadReply`."""
        reader = self.reader or partial(read_cohort_reply, self.stacked, self.occasion, self.riders)
        return reader(content, sent)

    def ride(self, metrics: tuple[float, ...]) -> None:
        """Add one user's metrics in [-1, 1], shape (k,), to those of users whose update is in the sum."""
        weights = np.asarray(self.riders.weights[self.riders.indicators :])
        self.total[-len(weights) :] += self._snap(np.asarray(metrics, np.float64) * weights)

    def _snap(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.grid is not None:
            self.grid.snap_(torch.from_numpy(values))
        return values

    def sum(self) -> torch.Tensor:
        """Return `total` as a tensor that shares its memory, float64 (queries x d + counts,)."""
        return torch.from_numpy(self.total)

    def feed(self, digest: hashlib._Hash) -> None:
        """Hash what the round's nonce is bound to."""
        digest.update(self.total.data)

    def privatise(self, noise: RunningNoise) -> torch.Tensor:
        """Return the sum that may be released. It takes the memory of `total`, which is gone then."""
        return noise.privatise(torch.from_numpy(vars(self).pop("total")))


class PlainSums:
    """How a run sums replies that it reads."""

    closed: ClassVar[None] = None
    head: ClassVar[str] = ""

    def __init__(self, make: Callable[[Occasion, tuple[float, ...], Reader | None], Aggregate]) -> None:
        self.empty = make

    def meet(self, blinder: object, grid: object, run_config: object) -> None:
        """No blinder is asked."""

    def denied(self) -> None:
        """No blinder went back."""

    def require_approval(self) -> None:
        """Nobody else has to approve."""

    def instruct(self, messages: object, shares: object) -> None:
        """Tell nodes nothing more."""

    def left_closed(self, opened: OpenRound) -> None:
        """Refuse a closed round: no plain round is ever closed. Raises `CheckpointError`."""
        raise CheckpointError(f"round {opened.index}", "it is closed, and its plan has no masks.")

    def close(self, opened: OpenRound, total: object, nodes: object, reported: object) -> OpenRound:
        """Do nothing: what is summed is read."""
        return opened

    def open(self, opened: OpenRound, total: object) -> Aggregate:
        """Return the sum itself."""
        assert isinstance(total, Aggregate)
        return total

    def done(self) -> None:
        """Leave all as it is: nothing remains of a round."""
