"""The budget page beside a run in the same process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn

from fieldfare_server.home import Home


@contextlib.contextmanager
def serving(home: Home, port: int, enabled: bool = True) -> Iterator[str]:
    """Serve the page on loopback while inside; yields its address (another port if `port` is taken), "" if disabled."""
    if not enabled:
        yield ""
        return
    from fieldfare_server.api import Settings, create_app

    bound = _bind(port)
    server = uvicorn.Server(uvicorn.Config(create_app(home.ledger, Settings()), log_level="error", server_header=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="budget-page", daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and thread.is_alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(timeout=5)
        bound.close()


def _bind(port: int) -> socket.socket:
    for wanted in (port, 0):
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("127.0.0.1", wanted))
            return bound
        except OSError:
            bound.close()
    raise OSError("no free port on loopback")
