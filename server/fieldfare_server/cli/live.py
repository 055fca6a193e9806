"""The budget page beside a run in the same process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from fieldfare.errors import BadInput
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import beside, config
from fieldfare_server.files.home import StateDirectory


@contextlib.contextmanager
def serving(home: StateDirectory, port: int, enabled: bool = True) -> Iterator[str]:
    """Serve the page on loopback while inside; yields its address (another port if `port` is taken), "" if disabled."""
    if not enabled:
        yield ""
        return
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(beside(config(create_app(home.ledger, Settings()), port=port)))
        except BadInput:
            address = stack.enter_context(beside(config(create_app(home.ledger, Settings()), port=0)))
        yield address
