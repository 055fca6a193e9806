"""A lock is let go of at the end of its block, whoever else has the file open by then."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

from fieldfare.atomic import alone_at


def test_a_process_that_was_forked_under_a_lock_does_not_hold_it(tmp_path: Path) -> None:
    """As a training worker is by one thread while another writes: whoever came next would have waited for its end."""
    with alone_at(tmp_path / "head"):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        with (tmp_path / "head.lock").open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
