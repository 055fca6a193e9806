"""What the checkpoints of a run keep of its noise: no more than it would cost to make again.

The key, the nonces and the row rebuild the state of any stream, bit for bit. For some streams that takes a
few rows (independent noise, trees, banded B); nothing of them is kept. For recursions it takes all rows since
the last restart: for those the whole state is written once in `MOST_ROWS` rounds, to a file that the
checkpoints name, and a resumed run draws the rows since. A small state simply is in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from fieldfare.errors import CheckpointError
from fieldfare.lazily import torch
from fieldfare.nonces import Nonces
from fieldfare_server.files.checkpoint import NOISE_BASE, RunFiles
from fieldfare_server.run.round.running_noise import RunningNoise, StreamFacts

# Rows that a resumed run draws again, at most.
MOST_ROWS: Final = 64
# Bytes of a state that every checkpoint may hold.
SMALL: Final = 1 << 22
_BASE_ROUND: Final = "base_round"

Tensors: TypeAlias = "dict[str, torch.Tensor]"


class NoiseState:
    """The noise of one run, as its checkpoints keep it."""

    def __init__(self, noise: RunningNoise, files: RunFiles | None, nonces: Nonces | None) -> None:
        """
        Args:
            files: where whole states go; None: nowhere (a rehearsal).
            nonces: of the run's rounds, the list that `noise` draws under; None for a run without nonces.
        """
        self._noise, self._files, self._nonces = noise, files, nonces
        self._base: tuple[str, int] | None = None  # (digest, round) of the newest whole state

    def take(self) -> tuple[Tensors, StreamFacts]:
        """Return what a checkpoint of the present state holds, for exact resume: tensors, and JSON. It never
        holds the key.

        Raises `CheckpointError` where a whole state is due and the disk refuses it.
        """
        stream, files = self._noise.stream, self._files
        if stream is None:
            return {}, {}
        position = stream.position()
        # Cheap to draw again from the key: the position alone is enough, and no noise lies on the disk.
        if stream.replayed_rows(stream.round) <= MOST_ROWS:
            return {}, position
        # A few vectors are smaller than the model that the checkpoint holds anyway.
        if files is None or stream.state_bytes <= SMALL:
            return self._noise.state()
        if self._base is None or stream.round - self._base[1] > MOST_ROWS:
            tensors, facts = self._noise.state()
            self._base = files.write_noise(stream.round, tensors, facts), stream.round
        digest, since = self._base
        return {}, {**position, NOISE_BASE: digest, _BASE_ROUND: since}

    def restore(self, tensors: Mapping[str, torch.Tensor], facts: StreamFacts) -> None:
        """Continue where `take` was called. The nonces are those of the rounds up to there.

        Raises:
            CheckpointError: the whole state that the checkpoint names is missing or changed.
            BadInput: the state is of another key, mechanism, size or branch of the run.
        """
        stream = self._noise.stream
        if stream is None:
            return
        if tensors:
            self._noise.restore(tensors, facts)
            return
        position = {name: value for name, value in facts.items() if name not in (NOISE_BASE, _BASE_ROUND)}
        if NOISE_BASE in facts:
            self._restore_base(str(facts[NOISE_BASE]), int(facts[_BASE_ROUND]))
        # Draws again what the position alone does not hold; the comparison below finds another key or other nonces.
        stream.skip(int(facts["round"]))
        if stream.position() != position:
            raise CheckpointError(
                "the noise state of a checkpoint", "belongs to another key, mechanism, nonces, horizon, size or dtype."
            )

    def _restore_base(self, digest: str, since: int) -> None:
        if self._files is None:
            raise CheckpointError(f"noise state {digest}", "a rehearsal has no files.")
        tensors, facts = self._files.read_noise(digest)
        # A state is tied to the nonces of the rounds before it, and to no later ones.
        later = [] if self._nonces is None else self._nonces.cut(since)
        try:
            self._noise.restore(tensors, facts)
        finally:
            if self._nonces is not None:
                self._nonces.extend(later)
        self._base = digest, since
