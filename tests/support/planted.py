"""A task whose masked updates are all one known word, and whose score is how often the server's memory holds it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

import fieldfare_client.masking
from support.federation import TinyTask

PLANTED, TIMES = 0x5EED, 4
CHUNK = 1 << 24


def found_in(data: bytes) -> int:
    """How often the planted word stands in `data` `TIMES` in a row."""
    found = 0
    for offset in range(4):
        if (count := (len(data) - offset) // 4) < TIMES:
            continue
        read = np.frombuffer(data, "<u4", count, offset) == PLANTED
        found += int(np.logical_and.reduce([read[n : count - TIMES + 1 + n] for n in range(TIMES)]).sum())
    return found


def memory(pid: int | str) -> Iterator[bytes]:
    """All that a process may write to, chunk by chunk."""
    with Path(f"/proc/{pid}/mem").open("rb", 0) as held:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            start, end = (int(part, 16) for part in place.split("-"))
            for at in range(start, end, CHUNK):
                try:
                    held.seek(at)
                    yield held.read(min(CHUNK, end - at))
                except (OSError, ValueError, OverflowError):
                    break


def found_in_memory(pid: int | str = "self") -> int:
    return sum(found_in(chunk) for chunk in memory(pid))


def _plant(parts: list[tuple[NDArray[np.floating[Any]], float]], *ring: float) -> NDArray[np.uint32]:
    size = sum(values.size for values, _ in parts)
    with open(os.environ["PLANTED"], "a") as told:
        told.write(f"{size}\n")
    return np.full(size, PLANTED, "<u4")


if "PLANTED" in os.environ:  # at nodes: the file that tells how often
    fieldfare_client.masking.encode = _plant


class PlantedTask(TinyTask):
    name: ClassVar[str] = "planted"

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        """Called by the server once a round is opened and before it is committed."""
        return {"r": float(found_in_memory())}
