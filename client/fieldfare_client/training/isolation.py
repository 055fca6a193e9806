"""How many users may train at once without moving a bit of each other's updates: found out on this machine.

Where presence is secret, a user's update must have the same bits whoever else is in the chunk, in whichever
slot, and in a chunk of whichever size. Nothing promises that the bits of batched operations do not depend on
the size of the batch, or on the place in memory. So nothing is assumed:

* All chunks that the engine sees have one of few sizes (`ladder`), filled up with dummy users.
* Before a size is used for batches of a length, it is tried on this machine (`Isolation.fits`): users of
  made-up rows are trained in it, and again in a chunk of `base` users, in other slots, next to other users,
  of whom some have numbers that are not finite. Every bit must agree.
* A size that fails is not used. Where `base` itself fails, the loop trains one user at a time; the log says so.
* What was found holds for torch's settings as they were then. Once they change in a run, users train alone.

Which users train batched, in batches of which width, follows from each user's own number of rows and from
what this machine was found to do, never from who else trains. The made-up rows are the task's `prepare` of
ones, with random numbers in the place of real ones: no user's data decide what is found.

Where no Python of the task may see two users, engines are sealed before anybody trains (`Engine.seal`): steps
of each length and of few sizes are recorded, the task's Python is called so often whoever takes part, and no
other size is tried.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Hashable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.hashing import mix
from fieldfare.plan_tables import ClientSpec
from fieldfare_client.own_randomness import own_randomness
from fieldfare_client.training.batched import BatchedEngine
from fieldfare_client.training.choice import Candidate, EngineChoice
from fieldfare_client.training.engines import Chunk, Engine
from fieldfare_client.training.loss_gradient import LONGEST
from fieldfare_client.training.schedule import schedule

log = logging.getLogger("fieldfare.client")

BASE = {"cpu": 16, "cuda": 64}  # users of the chunk that all others are compared with
# Rows up to which all batches are as wide as the plan's: a padded batch costs less than a chunk of its own.
WIDEST = 32
SLOW = 0.1  # CPU seconds of two steps from which the loop is not sealed: a child costs 30 ms
WIDE = 1 << 32  # added to the width of batches in chunks whose first layer is not copied
# What this process has found, by work and (slots, width, count).
FOUND: dict[Hashable, dict[tuple[int, int, int], bool]] = {}


def ladder(users: int) -> int:
    """Return the smallest size of a chunk that holds `users` users. Beyond 32, at most a ninth of it is filled up."""
    step: int = 1 << max(0, users.bit_length() - (4 if users > 32 else 2))
    return max(2, -(-users // step) * step)


class Isolation:
    """The sizes of chunks that leave users alone, for one engine and shape of rows.

    Args:
        updates: the engine: (start, chunk) -> the users' updates, float32 (users, d).
        rows: made-up inputs and targets of one row, (1, ...) each.
        start: a model to train from, float32 (d,).
        client: the local training of the plan.
        most: the most users of a chunk, at least 2.
        work: what the answers hold for: model, plan, device, torch's settings; None for this object alone.
        wide: whether the first layer is not copied (`Chunk.wide`).
    """

    def __init__(
        self,
        updates: Callable[[torch.Tensor, Chunk], torch.Tensor],
        rows: Sequence[torch.Tensor],
        start: torch.Tensor,
        client: ClientSpec,
        most: int,
        work: Hashable | None,
        wide: bool = False,
    ) -> None:
        self._updates, self._rows, self._most, self._wide = updates, rows, most, wide
        generator = torch.Generator().manual_seed(1)
        # Of some size, because a model that begins at zero has zeros to add in any order.
        self._start = start + 0.05 * torch.randn(start.shape, generator=generator).to(start.device)
        # One epoch: a step and the next one are enough for users to differ; the second one of a wide layer is another.
        self._client = client.model_copy(update={"epochs": 2 if wide else 1, "steps": None})
        base = ladder(min(BASE.get(start.device.type, BASE["cuda"]), most))
        self.base = base if base <= most else 2  # another base may round in another way
        self.only: Collection[int] = ()  # the sizes that are recorded, where nothing else is to be tried
        self._warned = False
        shapes = [tuple(part.shape[1:]) for part in rows]
        self._found = {} if work is None else FOUND.setdefault((work, wide, *shapes), {})

    def width(self, rows: int) -> int:
        """Return the width of the batches of a user with `rows` rows, padding included."""
        batch = self._client.batch_size
        return batch if batch <= WIDEST or rows >= batch else min(batch, max(WIDEST, 1 << (rows - 1).bit_length()))

    def trains(self, rows: int) -> bool:
        """Return whether a user with `rows` rows can train in a chunk of `base` users."""
        batch, width = self._client.batch_size, self.width(rows)
        return all(self.fits(self.base, width, count) for count in {min(batch, rows), rows % batch or batch})

    def room(self, users: int, width: int, count: int) -> int:
        """Do as `Sizes.room`. Raises RuntimeError where none is known: fewer users must train at once."""
        slots = ladder(users)
        while slots < 2 * max(users, self.base):
            if self.fits(slots, width, count):
                return slots
            slots = self.base if slots < self.base and not self.only else ladder(slots + 1)
        raise RuntimeError(f"no chunk for {users} users leaves each of them alone on this machine")

    def parts(self, users: int, width: int, count: int) -> list[int]:
        """Do as `Sizes.parts`."""
        if users <= self.base:
            return [self.room(users, width, count)]
        slots = ladder(users)
        if self.fits(slots, width, count):
            return [slots]
        whole, rest = divmod(users, self.base)
        return [self.base] * whole + ([self.room(rest, width, count)] if rest else [])

    def most(self, users: int, width: int) -> int:
        """Return the most users that a chunk may hold, of `users` who wait."""
        slots = ladder(min(users, self._most))
        while slots > self.base:
            if self.fits(slots, width, width):
                return slots
            slots = ladder(slots // 2)
        return self.base

    def fits(self, slots: int, width: int, count: int) -> bool:
        """Return whether users have the same bits in a chunk of `slots` users as in any other that fits.
        Tried only once.

        Args:
            slots: users of the chunk.
            width: rows of its widest batches.
            count: rows of another batch of theirs.
        """
        if self.only and slots not in self.only:
            return False
        key = slots, width, count
        if key not in self._found:
            try:
                self._found[key] = self._agree(slots, width, count)
            except Exception as error:  # whatever torch or the task raises: then the loop trains
                log.warning("training many users at once fails for made-up rows: %s", type(error).__name__)
                self._found[key] = False
            if not self._found[key] and slots == self.base and not self._warned and not self._wide:
                self._warned = True
                log.warning(
                    "users train one at a time: in chunks of %d, batches of %d rows, this machine does not give "
                    "every user the same bits whoever else trains",
                    slots,
                    count,
                )
        return self._found[key]

    def _agree(self, slots: int, width: int, count: int) -> bool:
        # A user with fewer rows than a batch has only one batch.
        rows = count if width < self._client.batch_size else width + count
        seeds, chance = np.arange(1, slots + 1), np.random.default_rng(slots)
        # Every bit below is compared with this chunk, which has the size that is being tried.
        whole = self.train(seeds, rows, width)
        # Nothing is shown by updates that are all zero, or all alike.
        if not bool(whole.isfinite().all()) or bool((whole == whole[:1]).all()):
            return False
        # Some of them, from both ends and between, in other slots of the smallest chunk and next to others.
        some = min(slots, self.base - max(1, self.base // 4))
        kept = np.linspace(0, slots - 1, some).astype(np.int64)
        for _ in range(max(2, BASE["cpu"] // self.base)):
            # -1 is a user with infinite numbers: what one user's numbers do to another's shows most with those.
            seated, free = np.full(self.base, -1), chance.permutation(self.base)
            seats, others = free[: len(kept)], free[len(kept) + 1 :: 2]
            seated[others] -= np.arange(slots, slots + len(others))
            seated[seats] = seeds[kept]
            if not _same_bits(self.train(seated, rows, width)[seats], whole[kept]):
                return False
            kept = chance.choice(slots, some, replace=False)
        return True

    def train(self, seeds: NDArray[np.int64], rows: int, width: int) -> torch.Tensor:
        """Train users with rows that are made up from their seeds."""
        return self._updates(self._start, self.chunk(seeds, rows, width))

    def chunk(self, seeds: NDArray[np.int64], rows: int, width: int) -> Chunk:
        """Make up users of `rows` rows from their seeds. Those of -1 have numbers that are not finite."""
        inputs, targets = [], []
        first, second = (row.cpu().expand(rows, *row.shape[1:]) for row in self._rows)
        for seed in seeds.tolist():
            generator = torch.Generator().manual_seed(abs(seed))
            if first.is_floating_point():
                values = torch.randn(first.shape, generator=generator, dtype=first.dtype)
                inputs.append(values if seed != -1 else values * torch.inf)
            else:
                inputs.append(first * torch.randint(0, 2, first.shape, generator=generator).to(first.dtype))
            targets.append(second)
        # A user's order of rows and dropout follow from the key, hence from the seed, and not from the slot.
        keys = mix(seeds.astype(np.uint64))
        plan = schedule(np.full(len(seeds), rows), keys, self._client, width)
        first, second = (torch.cat(parts).to(self._start.device) for parts in (inputs, targets))
        return Chunk(first, second, plan, _Tried(), self._wide)


class _Tried:
    """Sizes for a chunk that tries one: as many slots as users."""

    def fits(self, slots: int, width: int, count: int) -> bool:
        return True

    def room(self, users: int, width: int, count: int) -> int:
        return users

    def parts(self, users: int, width: int, count: int) -> list[int]:
        return [users]


class Apart:
    """How users train where it is secret who else does: chosen on made-up rows, before anybody trains.

    No clock decides it: the workers of a node choose for themselves, and who else trains may decide which of
    them trains a user.

    Args:
        loop: the engine that trains one user after another.
        batched: the engine that trains many at once; None where it does not suit the task or the plan.
        sizes: the sizes of its chunks.
        wide: likewise where the first layer is not copied.
        alone: makes up users for the loop, where both engines must do without the task's Python (`seal`); None: they
            need not.
    """

    def __init__(
        self,
        loop: Engine,
        batched: BatchedEngine | None = None,
        sizes: Isolation | None = None,
        wide: Isolation | None = None,
        *,
        alone: Isolation | None = None,
    ) -> None:
        self.loop, self.batched, self.sizes, self.wide = loop, batched, sizes, wide
        self._widths: dict[int, int] = {}
        self._longest = -1  # rows of the longest batch with which the sealed loop trains
        if alone is None:
            return
        with own_randomness(0):
            if batched is not None and sizes is not None and wide is not None:
                try:
                    few = wide.base // 4, wide.base
                    batched.seal(lambda users, rows: wide.train(np.arange(users), rows, rows), few)
                    sizes.only = few if batched.recorded else ()
                except Exception as error:  # whatever torch or the task raises
                    self.sizes = None
                    log.info("users train one at a time: %s", error)
            try:
                for _ in range(2):  # the first fills caches
                    began, rows = time.thread_time(), min(LONGEST, loop.client.batch_size)
                    alone.train(np.arange(1), rows, rows)
                if time.thread_time() - began > SLOW:  # recorded or not, a user has the same bits
                    raise ValueError("its steps take so long that a child costs little beside them")
                self._longest = loop.seal(lambda users, rows: alone.train(np.arange(users), rows, rows))
            except Exception as error:
                log.info("each user trains in a process of its own: %s", error)

    def here(self, rows: int) -> bool:
        """Return whether a user with `rows` rows trains in this process, on recorded operations."""
        return self.width(rows) > 0 or min(rows, self.loop.client.batch_size) <= self._longest

    def width(self, rows: int) -> int:
        """Return the width of the batches in which a user with `rows` rows trains with others, plus `WIDE` where the
        first layer is not copied; 0 for alone.
        """
        if rows not in self._widths:
            self._widths[rows] = 0
            if self.batched is not None and self.sizes is not None and rows > 0 and self.batched.gains(rows):
                if self.wide is not None and self.batched.is_wide(rows) and self.wide.trains(rows):
                    self._widths[rows] = self.wide.width(rows) + WIDE
                elif self.sizes.trains(rows):
                    self._widths[rows] = self.sizes.width(rows)
        return self._widths[rows]

    def candidates(self, users: int, width: int) -> EngineChoice:
        """Return how chunks of users of one width train. All candidates give the same bits."""
        wide, width = divmod(width, WIDE)
        sizes = self.wide if wide else self.sizes
        if not width or sizes is None or self.batched is None:
            alone = [Candidate(self.loop, 1, "one user at a time")]
            return EngineChoice(alone, "who else trains must not change a bit")
        most = sizes.most(users, width)
        tried = [most] if self.batched.layers else sorted({most, min(most, sizes.base)})
        why = "whoever else is in such a chunk, no bit of a user changes on this machine"
        return EngineChoice([Candidate(self.batched, size, f"{size} users at once") for size in tried], why)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))
