"""Files that exist whole or not at all, also after a power cut: write, fsync, rename, fsync the directory."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make renames and creations in the directory `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes, mode: int = 0o600, *, at_once: bool = True) -> None:
    """Replace the content of `path`: a reader sees the whole old file or the whole new one. Raises OSError.

    at_once: the change is durable on return; otherwise a power cut may bring the old content back, whole.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if at_once:
        sync_directory(path.parent)
