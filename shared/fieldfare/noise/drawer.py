"""What draws one row of noise, piece by piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fieldfare.lazily import torch
from fieldfare.noise.chunks import in_chunks, numpy_dtype

# Elements drawn together, as UNIT / 2 Box-Muller pairs: cosines first, then sines. The granularity of seeking.
UNIT: Final = 4096


class Drawer(ABC):
    """Draws pieces of one row of one stream. Safe to use from several threads at once."""

    @abstractmethod
    def into(self, out: NDArray[np.generic], offset: int) -> None:
        """Fill `out` with elements [offset, offset + len(out)) of the row.

        Args:
            out: contiguous vector on the host, float32 or float64.
            offset: the element of the row that goes to out[0].
        """

    def to_device(self, out: torch.Tensor, offset: int) -> None:
        """Draw `into` for a tensor on an accelerator. This one draws on the host, on all threads, and copies."""
        host = np.empty(out.numel(), numpy_dtype(out.dtype))

        def fill(lo: int, hi: int) -> None:
            self.into(host[lo:hi], offset + lo)

        in_chunks(fill, len(host), offset)
        out.copy_(torch.from_numpy(host))
