"""User tables in the folder FIELDFARE_DATA, which `fieldfare data fetch` writes, and their held-out users."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fieldfare.errors import NotFound, WrongForm
from fieldfare_client.sources import data_folder
from fieldfare_client.storage import open_table
from fieldfare_client.users import UserTable

Scored = Literal["test", "tune"]
SCORED: Any = Field(
    default="test", description="whose rows are scored: tune where settings are chosen, test once they are"
)
"""The parameter of tasks with two held-out groups."""


def table(
    task: str, part: str, columns: tuple[str, ...], folder: Path | None = None, remedy: str | None = None
) -> UserTable:
    """Open `{task}-{part}.arrow` in `folder` (by default FIELDFARE_DATA). `remedy`: how to get it, if not by a fetch.

    Raises `BadInput` where it is missing, with how to make it, or lacks one of `columns`.
    """
    folder = folder if folder is not None else data_folder()
    path = None if folder is None else folder / f"{task}-{part}.arrow"
    if path is None or not path.is_file():
        raise NotFound(
            f"run.task = {task!r}",
            f"needs {path or f'{task}-{part}.arrow in the folder that FIELDFARE_DATA names'}.",
            remedy or f"fieldfare data fetch {task}",
        )
    opened = open_table(path)
    if missing := set(columns) - set(opened.columns):
        raise WrongForm(str(path), f"lacks the columns {', '.join(sorted(missing))}.")
    return opened


def parts_by_digest(names: Iterable[str]) -> dict[str, NDArray[np.int64]]:
    """Split users into train, tune and test (18, 1 and 1 of 20) by SHA-256 of their names: {part: places, in order}.

    The split is that of the published counts, and the same whatever other users there are.
    """
    places: dict[str, list[int]] = {"train": [], "tune": [], "test": []}
    for place, name in enumerate(names):
        turn = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % 20
        places[{0: "test", 1: "tune"}.get(turn, "train")].append(place)
    return {part: np.array(chosen, np.int64) for part, chosen in places.items()}
