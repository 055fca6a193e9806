"""`fieldfare serve`: the budget API and its page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from fieldfare.errors import BadInput, LedgerError
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.settings import LOOPBACK_HOSTS, is_loopback
from fieldfare_server.cli.options import HomeOption, LedgerOption
from fieldfare_server.cli.output import err, refusals
from fieldfare_server.home import Home
from fieldfare_server.ledger import Ledger


def serve(
    host: Annotated[str, typer.Option(help="address to bind; loopback unless you say otherwise")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8080,
    name: Annotated[list[str] | None, typer.Option(help="a host name the service answers to; repeatable")] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate (PEM)")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS private key (PEM)")] = None,
    wait: Annotated[bool, typer.Option(help="wait for the ledger instead of failing while it is not there")] = False,
    home: HomeOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Serve the budget API and page. Holds no model and no key; without a token it is read-only and loopback-only."""
    with refusals(as_json=False):
        if (certificate is None) != (key is None):
            raise BadInput("serve", "TLS needs a certificate and its key.", "--certificate FILE --key FILE")
        where = Home.of(home, ledger)
        _ledger_is_there(where, wait)
        settings = Settings(hosts=(*LOOPBACK_HOSTS, *(name or ())), hsts=certificate is not None)
        if not is_loopback(host):
            err.print(f"Binding {host}: reachable from other machines, which need a token (fieldfare token create).")
        uvicorn.run(
            create_app(where.ledger, settings),
            host=host,
            port=port,
            ssl_certfile=str(certificate) if certificate else None,
            ssl_keyfile=str(key) if key else None,
            log_level="warning",
            server_header=False,
        )


def _ledger_is_there(where: Home, wait: bool, patience: float = 600.0) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            Ledger.open(where.ledger).close()
            return
        except LedgerError:
            if not wait or time.monotonic() > deadline:
                raise
            time.sleep(1.0)
