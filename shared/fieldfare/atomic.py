"""Files that exist whole or not at all, also after a power cut: write, fsync, rename, fsync the directory."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Hold off every other process and thread inside the block: they wait. Raises OSError.

    For what reads the file `path` and then replaces it. The lock is that of a file beside it, which stays;
    the system frees it when the process ends, however it ends.
    """
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with locked(descriptor):
            yield
    finally:
        os.close(descriptor)


@contextmanager
def locked(descriptor: int) -> Iterator[None]:
    """Hold the lock of an open file inside the block. Raises OSError.

    Closing the file would not always free it: a process that another thread forks meanwhile has it open too.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


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
    with _written(path, content, mode) as temporary:
        temporary.replace(path)
    if at_once:
        sync_directory(path.parent)


def write_out(path: Path, text: str) -> None:
    """Write a file that a person named: whole, or it stays as it was. What is no file is written to. Raises OSError."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
    else:
        path = path.resolve()
        replace_file(path, text.encode(), path.stat().st_mode & 0o777 if path.exists() else 0o666)


def make_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Make `path` with this content, durably. Of several makers one makes it: the others get `FileExistsError`."""
    with _written(path, content, mode) as temporary:
        try:
            path.hardlink_to(temporary)
        finally:
            sync_directory(path.parent)  # for those who came second, too: what they go on with is durable


@contextmanager
def _written(path: Path, content: bytes, mode: int) -> Iterator[Path]:
    """Write a durable file beside `path` with this content; it is gone afterwards, unless it was renamed."""
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"  # "." has no name
    try:
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            error.filename = str(path)  # a refused write names no file
            raise
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
