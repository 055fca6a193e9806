"""Other processes of a script: each imports the script once more, and must not run it once more."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fieldfare.errors import BadInput
from fieldfare_client import forked

GUARD = 'Where no process can be forked, a script that trains in several needs `if __name__ == "__main__":`.'


def require_main_guard() -> None:
    """Raise Python's own message in a process that is importing the script of the one that started it.

    Such a process runs the script a second time, up to here. Every other process passes.

    Raises:
        RuntimeError: the script has no `if __name__ == "__main__":`.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        multiprocessing.get_context("spawn").Process(target=_nothing).start()


def check_main_guard() -> None:
    """Start a process that does nothing, where those that train would be started so. Costs as long as the
    script's imports.

    Raises:
        BadInput: it ended with an error, which is on the terminal: of Python where the script has no guard.
    """
    if not forked.why_not_by_default():
        return
    process = multiprocessing.get_context("spawn").Process(target=_nothing)
    with one_thread():
        process.start()
    process.join()
    if process.exitcode:
        why = f"a training process could not begin; its error is above. {GUARD}"
        raise BadInput("client.workers", why, "1", code="worker-cannot-begin")


def _nothing() -> None:
    """What a process does that is started to see whether one can be."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Give processes that are started inside one OpenMP thread, from their first import on."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
