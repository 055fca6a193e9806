"""Serve the budget page while a run trains in the same process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fieldfare.errors import BadInput
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.files.home import StateDirectory


@contextlib.contextmanager
def serve_page(home: StateDirectory, port: int, enabled: bool = True) -> Iterator[str]:
    """Serve the page on loopback inside the block; yields its address, or "" if disabled. A taken port is replaced."""
    if not enabled:
        yield ""
        return
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(serve_in_thread(config(create_app(home.ledger, Settings()), port=port)))
        except BadInput:
            address = stack.enter_context(serve_in_thread(config(create_app(home.ledger, Settings()), port=0)))
        yield address
