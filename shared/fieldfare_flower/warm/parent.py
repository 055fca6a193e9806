"""The warm parent: imports what a task needs, then forks once a task and does nothing else.

Its memory holds code, and what the preloaded function left there. A fork alone reads a task's token, message
and model and makes its result, and ends with the task: no task can see another's. The parent has one thread,
opens no file or connection after its start, and survives the death of any fork.
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
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from fieldfare_flower import logs, pinned, private
from fieldfare_flower.waits import shorten_part_waits
from fieldfare_flower.warm.stand_in import PATIENCE, SOCKET, TAKEN

log = logging.getLogger("fieldfare.warm")

# Upper bound of a task's arguments and environment, in bytes.
LONGEST = 1 << 20


def warm_up(preload: str) -> tuple[Callable[[], Any], int]:
    """Import what every ClientApp task imports, and what `preload` ("module", "module:function" or "") names.

    Returns Flower's task program and the number of threads that torch may use. Raises RuntimeError where
    loading left a thread running, whose locks a fork would inherit locked.
    """
    import httpcore  # noqa: F401  (httpx imports it with its first client)
    import torch

    program = private.load_program("flwr-clientapp")
    shorten_part_waits()
    threads = torch.get_num_threads()
    # A pool of OpenMP threads does not survive a fork, so none may be made here.
    torch.set_num_threads(1)
    module, _, function = preload.partition(":")
    if module:
        loaded = import_module(module)
        if function:
            getattr(loaded, function)()
    if (running := threading.active_count()) > 1:
        raise RuntimeError(f"loading left {running - 1} threads running, so forks would not be safe")
    gc.freeze()  # otherwise the collector would copy shared memory into every fork
    return program, threads


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path` that only this user can reach."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    umask = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(umask)
    listening.listen(64)
    return listening


def serve(listening: socket.socket) -> socket.socket:
    """Fork for every connection; returns only in a fork, with its connection. The parent ends when stdin closes."""
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
                    _report_end(key.fd, *running.pop(key.fd))
                    continue
                connection = _accept(listening)
                if connection is None:
                    continue
                try:
                    process = os.fork()
                except OSError:
                    connection.close()  # the caller then starts an ordinary process
                    continue
                if process == 0:
                    # A fork keeps nothing of other tasks: no connection, no handle.
                    listening.close()
                    for handle, (_, other) in running.items():
                        os.close(handle)
                        other.close()
                    return connection
                handle = os.pidfd_open(process)
                running[handle] = process, connection
                selector.register(handle, selectors.EVENT_READ)


def _accept(listening: socket.socket) -> socket.socket | None:
    """Return a connection from a process of this user, or None."""
    try:
        connection, _ = listening.accept()
    except OSError:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != os.getuid():
        connection.close()
        return None
    return connection


def _report_end(handle: int, process: int, connection: socket.socket) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with contextlib.suppress(OSError):
        connection.send(str(status if status >= 0 else 128 - status).encode())
    connection.close()
    os.close(handle)


def take_task(connection: socket.socket, threads: int) -> None:
    """Adopt the caller's arguments, environment, folder and standard streams, in a fork.

    Raises OSError, ValueError, KeyError or TypeError where that fails. The caller then gets no answer, and
    starts an ordinary process.
    """
    connection.settimeout(PATIENCE)
    message, streams, _, _ = socket.recv_fds(connection, LONGEST, 3)
    task = json.loads(message)
    for standard, stream in enumerate(streams):
        os.dup2(stream, standard)
        os.close(stream)
    os.environ.clear()
    os.environ.update(task["environment"])
    os.chdir(task["folder"])
    sys.argv = list(task["arguments"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _reseed(threads)
    connection.send(TAKEN)
    connection.settimeout(None)
    threading.Thread(target=_end_with_caller, args=(connection,), daemon=True).start()


def _reseed(threads: int) -> None:
    """Seed the generators afresh: all forks would draw the same numbers. (`random` and OpenSSL reseed themselves.)"""
    import numpy as np
    import torch

    np.random.seed(None)
    torch.seed()
    torch.set_num_threads(threads)


def _end_with_caller(connection: socket.socket) -> None:
    """End this task when its caller is killed: the caller is the process that a SuperExec knows the task by."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


def main(folder: Path, preload: str) -> None:
    """See the module."""
    # A terminal's Ctrl-C is for the SuperExec; the keeper ends this process after it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    program, threads = warm_up(preload)
    # After Flower was imported, which gives its logger a handler.
    logs.configure("info")
    log.info("ready")
    connection = serve(listen(folder / SOCKET))
    try:
        take_task(connection, threads)
    except (OSError, ValueError, KeyError, TypeError):
        os._exit(1)
    pinned.pin()
    sys.exit(program())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
