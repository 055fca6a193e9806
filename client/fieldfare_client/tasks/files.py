"""Where tasks whose data do not come with a package find them: FIELDFARE_DATA, files of `fieldfare_client.storage`."""

from __future__ import annotations

import os
from pathlib import Path

from fieldfare.errors import BadInput
from fieldfare_client.storage import open_table
from fieldfare_client.users import UserTable


def table(task: str, part: str, columns: tuple[str, ...], folder: Path | None = None) -> UserTable:
    """`{task}-{part}.arrow` of `folder` (FIELDFARE_DATA by default). Raises `BadInput` saying how to make it."""
    named = os.environ.get("FIELDFARE_DATA")
    found = folder if folder is not None else Path(named) if named else None
    path = None if found is None else found / f"{task}-{part}.arrow"
    if path is None or not path.is_file():
        raise BadInput(
            f"run.task = {task!r}",
            f"needs {path or f'{task}-{part}.arrow in the folder that FIELDFARE_DATA names'}.",
            f"write it once as fieldfare_client.tasks.{task} describes",
        )
    opened = open_table(path)
    if missing := set(columns) - set(opened.columns):
        raise BadInput(str(path), f"lacks the columns {', '.join(sorted(missing))}.")
    return opened
