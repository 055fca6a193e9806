"""Data that do not come with a package: files of `fieldfare_client.storage` in the folder FIELDFARE_DATA."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from fieldfare.errors import BadInput
from fieldfare_client.storage import open_table
from fieldfare_client.users import UserTable

Scored = Literal["test", "tune"]
SCORED: Any = Field(
    default="test", description="whose rows are scored: tune where settings are chosen, test once they are"
)
"""The parameter of tasks with two held-out groups."""


def data_folder() -> Path | None:
    """The folder that FIELDFARE_DATA names, if it names one."""
    named = os.environ.get("FIELDFARE_DATA")
    return Path(named) if named else None


def table(
    task: str, part: str, columns: tuple[str, ...], folder: Path | None = None, remedy: str | None = None
) -> UserTable:
    """Open `{task}-{part}.arrow` in `folder` (by default FIELDFARE_DATA). `remedy`: how to get it, if not by a fetch.

    Raises `BadInput` where it is missing, with how to make it, or lacks one of `columns`.
    """
    folder = folder if folder is not None else data_folder()
    path = None if folder is None else folder / f"{task}-{part}.arrow"
    if path is None or not path.is_file():
        raise BadInput(
            f"run.task = {task!r}",
            f"needs {path or f'{task}-{part}.arrow in the folder that FIELDFARE_DATA names'}.",
            remedy or f"fieldfare data fetch {task}",
        )
    opened = open_table(path)
    if missing := set(columns) - set(opened.columns):
        raise BadInput(str(path), f"lacks the columns {', '.join(sorted(missing))}.")
    return opened
