"""Run a SuperExec whose ClientApp tasks are forks of a warm parent instead of new interpreters.

    python -Pm fieldfare_flower.warm flower-superexec ARGUMENT ...

This process becomes the SuperExec, with a stand-in for `flwr-clientapp` first on its PATH: same process, same signals,
same exit status. Beside it a keeper starts the parent, starts it again when it dies, and ends it when the SuperExec
ends. While there is no parent, and for whatever it does not take, tasks start the ordinary way.

FIELDFARE_WARM_TASK: a task whose users the parent reads once. Unset: every task of Flower's reads them for itself. Set
it only where the data do not change while the executor runs, and where importing the task's module draws no random
numbers, for every task would then work with the same ones.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fieldfare_flower import logs
from fieldfare_flower.warm import stand_in

log = logging.getLogger("fieldfare.warm")

TASK_PROGRAM = "flwr-clientapp"
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a dead parent is started again; doubled while it does not live for a minute."""


def keep(superexec: int, folder: Path) -> None:
    """Keep a parent running until the process of the pidfd `superexec` ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pause = SHORTEST_PAUSE
    while True:
        began = time.monotonic()
        command = [sys.executable, "-Pm", "fieldfare_flower.warm.parent", str(folder)]
        # It ends with its standard input, so also where this process is killed.
        parent = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603
        handle = os.pidfd_open(parent.pid)
        ended = superexec in select.select([superexec, handle], [], [])[0]
        os.close(handle)
        if ended:
            parent.terminate()
        parent.wait()
        pause = SHORTEST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
        if ended or select.select([superexec], [], [], pause)[0]:
            return
        log.warning("the warm parent ended with %d; starting another", parent.returncode)


def accompany(superexec: int) -> None:
    """Put the stand-in on this process's PATH, and a keeper beside it. superexec: this process's pidfd."""
    folder = Path(tempfile.mkdtemp(prefix="fieldfare-warm-"))  # mode 0700
    # A link, because the place for temporary files may forbid to run what lies there.
    (folder / TASK_PROGRAM).symlink_to(stand_in.__file__)
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            keep(superexec, folder)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])


def main(command: list[str]) -> None:
    """See the module."""
    logs.configure("info")
    try:
        accompany(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        # Not a Linux of today, or no place for a socket.
        log.warning("no warm parent here, so tasks start the ordinary way: %s", error)
    os.execvp(command[0], command)  # noqa: S606  (the operator's own command)


if __name__ == "__main__":
    main(sys.argv[1:])
