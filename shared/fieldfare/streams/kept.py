"""The vectors that a stream keeps from round to round, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fieldfare.lazily import torch
from fieldfare.noise.chunks import empty
from fieldfare.streams.ops import Array

# Width for rings of many vectors: a block of the sum stays in the first-level cache while block after block
# of the ring is added to it.
RING_WIDTH: Final = 1 << 11


class KeptVectors:
    """`slots` vectors of `numel` elements, zero at first, stored block by block.

    `width` elements of the first vector lie next to the same elements of the second, and so on: a round reads
    all of the state from one end to the other, however many vectors there are.
    """

    def __init__(self, slots: int, numel: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self.slots, self.numel, self.width = slots, numel, width
        self.memory = empty(slots * numel, dtype, device).zero_()

    def parts(self, lo: int, hi: int) -> Iterator[tuple[int, int, int]]:
        """Yield (start, end, width) of the whole blocks in [lo, hi), and of what is left; `lo` is a multiple
        of the width.
        """
        even = hi - (hi - lo) % self.width
        if even > lo:
            yield lo, even, self.width
        if hi > even:
            yield even, hi, hi - even

    def view(self, memory: Array, lo: int, hi: int, width: int) -> Array:
        """Return elements [lo, hi), one of `parts`, of every vector: a view, shape (slots, blocks, width), of
        `memory`.
        """
        mine = memory[self.slots * lo : self.slots * hi]
        return mine.reshape((hi - lo) // width, self.slots, width).swapaxes(0, 1)

    def read(self) -> torch.Tensor:
        """Return a copy, shape (slots, numel)."""
        vectors = torch.empty(self.slots, self.numel, dtype=self.memory.dtype, device=self.memory.device)
        for lo, hi, width in self.parts(0, self.numel):
            view = self.view(self.memory, lo, hi, width)
            vectors[:, lo:hi].view(view.shape).copy_(view)
        return vectors

    def write(self, vectors: torch.Tensor) -> None:
        """Undo `read`."""
        for lo, hi, width in self.parts(0, self.numel):
            view = self.view(self.memory, lo, hi, width)
            view.copy_(vectors[:, lo:hi].view(view.shape))

    def write_slot(self, slot: int, vector: torch.Tensor) -> None:
        """Set one of the vectors to `vector`, shape (numel,)."""
        for lo, hi, width in self.parts(0, self.numel):
            self.view(self.memory, lo, hi, width)[slot] = vector[lo:hi].reshape(-1, width)
