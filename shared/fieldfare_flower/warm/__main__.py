"""Run a SuperExec whose ClientApp tasks are forks of a warm parent instead of new interpreters.

    python -Pm fieldfare_flower.warm [--preload MODULE[:FUNCTION]] flower-superexec ARGUMENT ...

This process becomes the SuperExec, with a stand-in for `flwr-clientapp` first on its PATH: it has the same
process id, signals and exit status. A keeper process starts the parent, restarts it when it dies, and ends it
with the SuperExec. While there is no parent, and for every task that the parent does not take, tasks start
the ordinary way.

--preload: a module that the parent imports, and a function in it that the parent then calls, once. All tasks
share what they leave in memory, so neither may draw random numbers or start a thread.

Upstream: Flower 1.41 starts an interpreter for each message (issue 3670 asks for a ClientApp that stays). Its
own warm executors are Kubernetes pods, and serve no ClientApp. This package becomes unnecessary once they do
without a cluster.
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
# Seconds before a dead parent is started again; doubled until one lives for a minute.
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


def keep_parent(superexec: int, folder: Path, preload: str) -> None:
    """Keep a parent running until the process behind the pidfd `superexec` ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pause = SHORTEST_PAUSE
    while True:
        began = time.monotonic()
        command = [sys.executable, "-Pm", "fieldfare_flower.warm.parent", str(folder), preload]
        # The parent ends when its standard input closes, which also happens when this process is killed.
        parent = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603
        handle = os.pidfd_open(parent.pid)
        ended = superexec in select.select([superexec, handle], [], [])[0]
        os.close(handle)
        if ended:
            parent.terminate()
        parent.wait()
        # A parent that cannot start must not take the processor; one that lived begins at the shortest again.
        pause = SHORTEST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
        if ended or select.select([superexec], [], [], pause)[0]:
            return
        log.warning("the warm parent ended with %d; starting another", parent.returncode)


def start_keeper(superexec: int, preload: str) -> None:
    """Put the stand-in on this process's PATH, and fork a keeper. superexec: this process's pidfd."""
    folder = Path(tempfile.mkdtemp(prefix="fieldfare-warm-"))  # mode 0700
    # A link, because the place for temporary files may be mounted without the right to execute.
    (folder / TASK_PROGRAM).symlink_to(stand_in.__file__)
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            keep_parent(superexec, folder, preload)
        shutil.rmtree(folder, ignore_errors=True)
        # Not sys.exit: the rest of this program belongs to the other process.
        os._exit(0)
    os.environ["PATH"] = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])


def main(arguments: list[str]) -> None:
    """Become the SuperExec, as the module says."""
    logs.configure("info")
    preload = ""
    if arguments[:1] == ["--preload"]:
        preload, arguments = arguments[1], arguments[2:]
    try:
        start_keeper(os.pidfd_open(os.getpid()), preload)
    except (AttributeError, OSError) as error:
        # No pidfd (not Linux, or an old one), or no place for a socket.
        log.warning("no warm parent here, so tasks start the ordinary way: %s", error)
    os.execvp(arguments[0], arguments)  # noqa: S606  (the operator's own command)


if __name__ == "__main__":
    main(sys.argv[1:])
