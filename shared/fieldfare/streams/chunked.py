"""The engine of all streams: a round draws z, applies B, and hands the row on, chunk by chunk.

Each chunk goes through all three steps while it is in the cache, so a round needs no memory besides the state
and the vector that the noise goes to: the one that `add_to` adds to, or the one that `next` returns.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

import numpy as np

from fieldfare.errors import Differs, OutOfRange, Unreadable, WrongForm
from fieldfare.lazily import torch
from fieldfare.noise import SecureNoise
from fieldfare.noise.chunks import CHUNK, DEVICE_CHUNK, empty
from fieldfare.streams.base import HorizonError, OnDevice, Stream, Take, require_fit
from fieldfare.streams.kept import KeptVectors
from fieldfare.streams.ops import Array, Vector, ops_on

# `round` while a round runs, and after an exception ended it half-way: such a state is refused.
_TORN: Final = -1

# Elements that a rule gets at a time on the host, so that the state is read once, and noise, state and row
# stay in the cache for what follows. (Noise is drawn for `CHUNK` elements at a time, which is cheaper.)
RULE_STEP: Final = 1 << 15

# `rule(lo, z, out, kept)`: turn the elements from `lo` on of row t of z into those of row t of B z.
#
# The arrays have shape (blocks, width). `z` is scratch: overwrite it freely. `out` takes the result. `kept`,
# shape (slots, blocks, width), is a view of the same elements of the state, to be updated. Several threads
# call a rule at once.
Rule = Callable[[int, Array, Array, Array], None]


class StreamSettings(OnDevice, total=False):
    """Arguments that every stream of chunks takes by name; see `ChunkedStream`."""

    restart_every: int | None


class ChunkedStream(Stream):
    """A stream whose rows are made chunk by chunk, each chunk independently of the others.

    A subclass gives the rule that turns a piece of z into a piece of B z.

    Args:
        numel: elements of a row.
        noise: the source of z.
        horizon: rounds of the mechanism. Its charge covers no further row.
        slots: vectors of `numel` elements to keep from round to round.
        coefficients: the bytes of all that B depends on; they become part of the state's identity.
        dtype: float32 (the default) or float64, of z, the state and the rows.
        device: where state and rows lie.
        restart_every: rounds of a block of a block-diagonal B; None for one block.

    Raises:
        BadInput: numel or horizon below 1, restart_every below 1, or another dtype.
    """

    name: ClassVar[str]
    # Width of the blocks in which `KeptVectors` stores the state on the host.
    width: ClassVar[int] = RULE_STEP
    # Whether z is drawn where the row goes: the rule then gets one array as `z` and as `out`.
    draws_in_place: bool = False

    def __init__(
        self,
        numel: int,
        noise: SecureNoise,
        horizon: int,
        *,
        slots: int = 0,
        coefficients: bytes = b"",
        dtype: torch.dtype | None = None,
        device: str | torch.device = "cpu",
        restart_every: int | None = None,
    ) -> None:
        for field, value in (("numel", numel), ("horizon", horizon), ("restart_every", restart_every)):
            if value is not None and value < 1:
                raise OutOfRange(f"{field} = {value}", "must be at least 1.", "1")
        dtype = dtype or torch.float32
        if dtype not in (torch.float32, torch.float64):
            raise WrongForm(f"dtype = {dtype}", "noise is drawn in float32 or float64.", "torch.float32")
        self.numel, self.horizon, self.restart_every = numel, horizon, restart_every
        self.slots, self.dtype, self.device, self.round = slots, dtype, torch.device(device), 0
        self._noise, self._ops = noise, ops_on(self.device)
        width = self.width if self.device.type == "cpu" else DEVICE_CHUNK
        # Without a state nothing but z is in the cache: then one call a chunk is cheapest.
        self._step = CHUNK if self.draws_in_place and not slots else max(width, RULE_STEP)
        self._kept = KeptVectors(slots, numel, width, dtype, self.device)
        self._coefficients = coefficients

    def next(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Put row `round` of B z into `out` (or a new vector), shape (numel,), and advance.

        Raises `HorizonError` past the horizon, and `BadInput` where `out` does not fit or the state is torn.
        """
        self._require_row()
        if out is None:
            out = empty(self.numel, self.dtype, self.device)
        require_fit(out, self.numel, (self.dtype,), self.device)
        self._advance(out, None)
        return out

    def each_piece(self, take: Take) -> None:
        """Hand row `round` of B z to `take` in pieces of at most 2^17 elements (2^24 on an accelerator).

        Torch starts threads in addition to ours on more than 2^15 elements: a `take` that uses torch cuts
        further.
        """
        self._require_row()
        self._advance(None, take)

    def state_dict(self) -> dict[str, object]:
        """Return `buffers` (slots, numel), `round` and `identity`: a digest of kind, shape, coefficients, key
        and nonces.

        Secret like the key: buffers and released values together give the noise away.
        """
        return {**self.position(), "buffers": self._kept.read()}

    def position(self) -> dict[str, int | str]:
        """Return `round` and `identity` of `state_dict`. Raises `BadInput` where the state is torn."""
        self._require_untorn()
        return {"identity": self._identity(), "round": self.round}

    @property
    def state_bytes(self) -> int:
        """Of `buffers`."""
        return self.slots * self.numel * self.dtype.itemsize

    def replayed_rows(self, t: int) -> int:
        """Return the rounds since the last restart, or since the last one that the state depends on."""
        return t - max(self._block_start(t), self._replay_from(t))

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Continue bit for bit where `state` was taken. Raises `BadInput` if it is foreign, incomplete or torn."""
        differing = {"identity", "round", "buffers"} ^ set(state)
        if differing:
            raise Differs(
                f"noise state with fields {sorted(state)}", f"differs in {sorted(differing)}.", "state_dict()"
            )
        if state["identity"] != self._identity():
            raise Differs(
                "noise state",
                "belongs to another key, mechanism, nonces, horizon, size or dtype, or an older Fieldfare wrote it.",
                "a state of this very stream",
            )
        buffers, t = state["buffers"], state["round"]
        if not isinstance(t, int) or isinstance(t, bool) or not 0 <= t <= self.horizon:
            raise OutOfRange(f"noise state at round {t!r}", f"must be in [0, {self.horizon}].", "skip(round)")
        if not isinstance(buffers, torch.Tensor) or buffers.shape != (self.slots, self.numel):
            raise WrongForm("noise state", f"needs buffers of shape {(self.slots, self.numel)}.", "skip(round)")
        if buffers.dtype != self.dtype or not bool(torch.isfinite(buffers).all()):
            raise Unreadable("noise state", f"needs finite buffers of {self.dtype}: it is torn.", "skip(round)")
        self._kept.write(buffers)
        self.round = t

    def skip(self, t: int) -> None:
        """Go to row t from the key alone; afterwards `next` gives bit for bit what an uninterrupted stream
        gives.

        Costs as many rounds as `_replay_from` says: none for streams without state, the window for windows,
        all rounds since the last restart for recursions. Raises `BadInput` unless 0 <= t <= horizon.
        """
        self._require_target(t)
        start = t - self.replayed_rows(t)
        # Where the stream already stands between `start` and t, going on from there is the shorter way to the
        # same state.
        if not start <= self.round <= t:
            self._kept.memory.zero_()
            self.round = start
        while self.round < t:
            self._advance(None, None)

    @abstractmethod
    def _rule(self, t: int, age: int) -> Rule:
        """Return the rule of round t, which is round `age` of its block. Called once a round, before the pieces."""

    def _identity(self) -> str:
        noise, shape = self._noise, f"{self.name}:{self.numel}:{self.horizon}:{self.restart_every}:{self.dtype}"
        # Not the key itself: a digest of a state may lie in a file or a log, and a key never may.
        whole = f"{shape}:{noise.source}:{noise.fingerprint()}:".encode() + self._coefficients
        return hashlib.blake2b(whole, digest_size=16).hexdigest()

    def _replay_from(self, t: int) -> int:
        """Return the earliest round that the state before round t depends on, if there is no restart in between."""
        return 0

    def _noise_row(self, t: int) -> int:
        """Return the row of z that round t draws; trees, which have more rows than rounds, number their nodes."""
        return t

    def _block_start(self, t: int) -> int:
        """Return the first round of the stamped block that round t belongs to."""
        return t - t % self.restart_every if self.restart_every else 0

    def _require_row(self) -> None:
        self._require_untorn()
        if self.round >= self.horizon:
            raise HorizonError(
                f"round {self.round}: the mechanism was built and charged for {self.horizon} rounds. "
                f"Nearest allowed: round {self.horizon - 1}, or a new mechanism with more rounds."
            )

    def _require_untorn(self) -> None:
        if self.round == _TORN:
            raise Unreadable("noise state", "is torn: an exception ended a round half-way.", "skip(round)")

    def _require_target(self, t: int) -> None:
        if not 0 <= t <= self.horizon:
            raise OutOfRange(
                f"skip to round {t}", f"must be in [0, {self.horizon}].", str(min(max(t, 0), self.horizon))
            )

    def _advance(self, out: torch.Tensor | None, take: Take | None) -> None:
        """Run one round: into `out`, or piece by piece to `take`, or for the state alone."""
        t, ops, kept = self.round, self._ops, self._kept
        age = t - self._block_start(t)
        rule = self._rule(t, age)
        # One drawer a row, shared by all threads: element i depends on the key, the row and i alone, so the
        # cuts change nothing.
        drawer = self._noise.drawer("z", self._noise_row(t), 0, self.numel)
        whole = None if out is None else ops.array(out)
        memory = ops.array(kept.memory)

        def work(lo: int, hi: int) -> None:
            in_place = self.draws_in_place
            z = whole[lo:hi] if in_place and whole is not None else ops.scratch("z", hi - lo, memory)
            ops.draw(drawer, z, lo)
            for first in range(lo, hi, self._step):
                last = min(first + self._step, hi)
                drawn = z[first - lo : last - lo]
                if in_place:
                    row = drawn
                else:
                    row = ops.scratch("row", last - first, memory) if whole is None else whole[first:last]
                for start, end, width in kept.parts(first, last):
                    inside = slice(start - first, end - first)
                    blocks_of_z, blocks_of_row = drawn[inside].reshape(-1, width), row[inside].reshape(-1, width)
                    rule(start, blocks_of_z, blocks_of_row, kept.view(memory, start, end, width))
                if take is not None:
                    take(first, ops.tensor(row))

        self.round = _TORN  # an exception from here on leaves some chunks with their next state and others without
        # A block begins: B is block-diagonal, so nothing of the block before is in its rows.
        if age == 0:
            kept.memory.zero_()
        ops.each_chunk(work, self.numel, self._noise.threads)
        self.round = t + 1


def require_vector(field: str, values: Vector, least: int = 0) -> Vector:
    """Return `values` as a contiguous float64 vector. Raises `BadInput` unless it is finite and has `least` numbers."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least or not np.isfinite(array).all():
        raise WrongForm(f"{field} of shape {array.shape}", f"must be a finite vector of at least {least} numbers.")
    return array
