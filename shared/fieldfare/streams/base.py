"""What every stream of running noise offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypedDict

from fieldfare.errors import WrongForm
from fieldfare.lazily import torch
from fieldfare.streams.ops import ops_on

Take: TypeAlias = "Callable[[int, torch.Tensor], None]"
"""`take(lo, piece)` gets elements [lo, lo + len(piece)) of a row."""


class OnDevice(TypedDict, total=False):
    """Arguments that every stream takes by name; see `ChunkedStream`."""

    dtype: torch.dtype | None
    device: str | torch.device


class HorizonError(ValueError):
    """Row T of a T-round mechanism was asked for."""


class Stream(ABC):
    """The running noise of one mechanism: row t of B z, one row a call. State is explicit and exactly resumable."""

    numel: int
    dtype: torch.dtype
    device: torch.device
    round: int
    """The next row to be drawn."""

    @abstractmethod
    def next(self, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return row `round` of B z, shape (numel,), and advance. Raises `HorizonError` past the mechanism's rounds."""

    @abstractmethod
    def each_piece(self, take: Take) -> None:
        """Hand row `round` of B z to `take`, piece by piece while each is in the cache; then advance.

        Pieces come in any order and from several threads at once. Together they are the row, each element
        once; where they are cut depends on `numel` alone. `take` may change a piece until it returns.

        Raises:
            HorizonError: as `next`.
            Exception: what `take` raises. The round is torn then: the stream refuses to go on until
                `load_state_dict` or `skip`.
        """

    def add_to(self, total: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Add scale x row `round` of B z to `total`, in place, without a vector in between, and advance.

        The floats are those of `total += scale * next()`.

        Args:
            total: shape (numel,), float32 or float64, on the stream's device.
            scale: applied in the stream's dtype.

        Raises:
            HorizonError: as `next`.
            BadInput: `total` does not fit; nothing is drawn.
        """
        require_fit(total, self.numel, (torch.float32, torch.float64), self.device)
        ops = ops_on(total.device)
        whole = ops.array(total)

        def add(lo: int, piece: torch.Tensor) -> None:
            noise = ops.array(piece)  # numpy on the host, where a call costs half of one of torch
            if scale != 1.0:
                noise *= scale
            whole[lo : lo + len(noise)] += noise

        self.each_piece(add)
        return total

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state as tensors, ints and strings only; never the key."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, object]) -> None:
        """Continue exactly (bit for bit) where `state` was taken. Raises ValueError on a foreign or torn state."""

    @abstractmethod
    def position(self) -> dict[str, int | str]:
        """Return what `state_dict` has besides tensors: the round, and what tells this stream from every other."""

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Of the tensors of `state_dict`."""

    @abstractmethod
    def replayed_rows(self, t: int) -> int:
        """Return how many rows `skip(t)` goes through in a new stream: what it costs, in rounds."""

    @abstractmethod
    def skip(self, t: int) -> None:
        """Go to row `t` from the key alone: afterwards `next` gives bit for bit what an uninterrupted stream gives."""


def require_fit(vector: torch.Tensor, numel: int, dtypes: Sequence[torch.dtype], device: torch.device) -> None:
    """Raise `BadInput` unless `vector` has shape (numel,), one of `dtypes`, and lies on that kind of device."""
    if vector.shape != (numel,) or vector.dtype not in dtypes or vector.device.type != device.type:
        raise WrongForm(
            f"vector of shape {tuple(vector.shape)}, {vector.dtype}, {vector.device}",
            "does not fit this stream.",
            f"shape ({numel},), {' or '.join(map(str, dtypes))}, {device}",
        )
