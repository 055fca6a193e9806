"""The warm parent: imports what a task needs, then forks once a task and does nothing else.

Only code is in its memory, and where FIELDFARE_WARM_TASK names a task, that task's users. A task's token, message,
model and result are read and made in the fork alone, which ends with the task: no task can see another's. The parent
has one thread, opens no file or connection after its start, and outlives any death of a fork.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import selectors
import signal
import socket
import struct
import sys
import threading
from pathlib import Path

from fieldfare_flower import logs
from fieldfare_flower import programs as logged
from fieldfare_flower.waits import look_sooner
from fieldfare_flower.warm.stand_in import PATIENCE, SOCKET, TAKEN

log = logging.getLogger("fieldfare.warm")

LONGEST = 1 << 20
"""Bytes of a task's arguments and environment."""


def warm_up() -> int:
    """Import all that a ClientApp task imports, and have it look sooner for a message's parts.

    Returns the number of threads that torch may use. Raises `BadInput` for an unknown task, and
    RuntimeError where loading left a thread running, whose locks a fork would keep.
    """
    import flwr.supernode.cli  # noqa: F401
    import httpcore  # noqa: F401  (httpx imports it with its first client)
    import torch
    from flwr.supercore.inflatable import inflatable_utils

    import fieldfare_client.app

    look_sooner(inflatable_utils.pull_and_inflate_object_from_tree)
    threads = torch.get_num_threads()
    # A pool of OpenMP threads does not survive a fork: none is made here.
    torch.set_num_threads(1)
    if task := os.environ.get("FIELDFARE_WARM_TASK"):
        fieldfare_client.app.user_count(task)
    if (left := threading.active_count()) > 1:
        raise RuntimeError(f"loading left {left - 1} threads running, so forks would not be safe")
    gc.freeze()  # the collector would otherwise copy shared memory into every fork
    return threads


def listen(path: Path) -> socket.socket:
    """A listening socket that only this user can reach."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    listening.listen(64)
    return listening


def serve(listening: socket.socket) -> socket.socket:
    """Fork for every connection; returns in each fork, with its connection. The parent ends with its standard input."""
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    os._exit(0)
                if key.fd in running:
                    selector.unregister(key.fd)
                    _ended(key.fd, *running.pop(key.fd))
                    continue
                connection = _accept(listening)
                if connection is None:
                    continue
                try:
                    process = os.fork()
                except OSError:
                    connection.close()  # what called then starts an ordinary process
                    continue
                if process == 0:
                    # Nothing of other tasks stays reachable: no connection, no handle.
                    listening.close()
                    for handle, (_, other) in running.items():
                        os.close(handle)
                        other.close()
                    return connection
                handle = os.pidfd_open(process)
                running[handle] = process, connection
                selector.register(handle, selectors.EVENT_READ)


def _accept(listening: socket.socket) -> socket.socket | None:
    """A connection of this user's own, or None."""
    try:
        connection, _ = listening.accept()
    except OSError:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.getuid():
        connection.close()
        return None
    return connection


def _ended(handle: int, process: int, connection: socket.socket) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with contextlib.suppress(OSError):
        connection.send(str(status if status >= 0 else 128 - status).encode())
    connection.close()
    os.close(handle)


def become(connection: socket.socket, threads: int) -> None:
    """In a fork: take over arguments, environment, folder and streams of what called.

    Raises OSError, ValueError, KeyError or TypeError for what cannot be taken over; what called is then told nothing.
    """
    connection.settimeout(PATIENCE)
    message, streams, _, _ = socket.recv_fds(connection, LONGEST, 3)
    told = json.loads(message)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["folder"])
    sys.argv = list(told["arguments"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _own_randomness(threads)
    connection.send(TAKEN)
    connection.settimeout(None)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()


def _own_randomness(threads: int) -> None:
    """Forks would otherwise all draw what the parent would have drawn. (`random` and OpenSSL see to it themselves.)"""
    import numpy as np
    import torch

    np.random.seed(None)
    torch.seed()
    torch.set_num_threads(threads)


def _end_with(connection: socket.socket) -> None:
    """End this task where what called is killed: it is what a SuperExec knows the task by."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


def main(folder: Path) -> None:
    """See the module."""
    # A terminal's Ctrl-C is for the SuperExec; whoever keeps this process ends it after that.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logged.take_over()
    threads = warm_up()
    logs.configure("info")
    log.info("ready")
    connection = serve(listen(folder / SOCKET))
    try:
        become(connection, threads)
    except (OSError, ValueError, KeyError, TypeError):
        # Not taken, so what called starts an ordinary process.
        os._exit(1)
    from flwr.supernode.cli import flwr_clientapp

    sys.exit(flwr_clientapp())  # type: ignore[func-returns-value]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
