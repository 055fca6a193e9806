"""Which rows a user trains on, batch by batch.

A pure function of (run seed, round, user): the same whichever node hosts the user, whichever other users
train there, and whichever engine trains them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fieldfare.hashing import mix
from fieldfare.plan_tables import ClientSpec


def user_keys(users: NDArray[np.uint64], seed: int, at_round: int) -> NDArray[np.uint64]:
    """Derive each user's key for this round of this run, shape (users,): the source of all local randomness."""
    # Hashed in turn: of seed ^ round, seed 1 in round 2 would be seed 2 in round 1.
    occasion = mix(mix(np.array([seed % 2**64], np.uint64)) ^ np.uint64(at_round))
    return mix(mix(users) ^ occasion)


def step_keys(keys: NDArray[np.uint64], step: int) -> NDArray[np.int64]:
    """Derive each user's key for the randomness inside the model (dropout) at one step, shape (users,)."""
    # From the complement: `schedule` counts epochs up from the key itself.
    return mix(~keys + np.uint64(step)).view(np.int64)


@dataclass(frozen=True)
class BatchSchedule:
    """Batches of a chunk of users.

    `width` is the widest batch. A short batch is padded at its end with the user's own first row, so that no
    slot of a user ever holds another user's data; no loss sees the padding.
    """

    rows: NDArray[np.int64]  # rows of the chunk, shape (users, steps, width)
    counts: NDArray[np.int64]  # real rows in each batch, shape (users, steps); 0 after the user's last step
    keys: NDArray[np.uint64]  # shape (users,), see `user_keys`
    sizes: NDArray[np.int64]  # rows of each user, shape (users,)

    @property
    def steps(self) -> NDArray[np.int64]:
        """Batches of each user, shape (users,). 0 for a user without rows."""
        steps: NDArray[np.int64] = (self.counts > 0).sum(1)
        return steps


def steps_of(sizes: NDArray[np.int64], client: ClientSpec) -> NDArray[np.int64]:
    """Count the batches of users with `sizes` rows, shape (users,)."""
    per_epoch: NDArray[np.int64] = -(-sizes // client.batch_size)
    if client.local_epochs is not None:
        return np.asarray(per_epoch * client.local_epochs)
    return np.where(sizes > 0, client.steps or 0, 0).astype(np.int64)


def schedule(
    sizes: NDArray[np.int64], keys: NDArray[np.uint64], client: ClientSpec, width: int | None = None
) -> BatchSchedule:
    """Draw the batches: each epoch goes once through a user's rows in a random order; `steps` may cut the last.

    Args:
        sizes: rows of each user, adjacent in the chunk in the same order, (users,).
        keys: each user's key (`user_keys`), (users,).
        client: batch size, and epochs or steps.
        width: of all batches, at least that of the widest; None: as wide as that.
    """
    users, batch = len(sizes), client.batch_size
    steps, per_epoch = steps_of(sizes, client), -(-sizes // batch)
    width, most = width or int(min(batch, sizes.max(initial=1))), int(steps.max(initial=0))
    starts = np.cumsum(sizes) - sizes

    epochs = -(-steps // np.maximum(per_epoch, 1))
    user = np.repeat(np.arange(users), epochs)
    epoch = _places(epochs)
    pair_key = mix(keys[user] + epoch.astype(np.uint64))
    lengths = sizes[user]
    row, owner = _places(lengths), np.repeat(user, lengths)
    # One sort for all: epochs of users one after another, each by the upper 32 bits of its rows' hashes.
    pair = np.repeat(np.arange(len(user), dtype=np.uint64), lengths)
    hashed = mix(np.repeat(pair_key, lengths) + row.astype(np.uint64))
    order = np.argsort(pair << np.uint64(32) | hashed >> np.uint64(32), kind="stable")

    # The place of each row among all batches of its user; an epoch starts a new batch.
    place = np.repeat(epoch * per_epoch[user] * batch, lengths) + row
    kept = place < steps[owner] * batch
    owner, place, chosen = owner[kept], place[kept], row[order][kept]
    rows = np.broadcast_to(starts[:, None, None], (users, most, width)).copy()
    at = owner * most + place // batch
    rows.reshape(-1)[at * width + place % batch] = starts[owner] + chosen
    counts = np.bincount(at, minlength=users * most).reshape(users, most)
    return BatchSchedule(rows, counts, keys, sizes)


def _places(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate 0, 1, ..., length - 1 for each length."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
