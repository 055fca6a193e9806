"""`fieldfare serve`: the budget API and its page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import BadInput, LedgerError
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config
from fieldfare_server.api.server import serve as run_service
from fieldfare_server.api.settings import LOOPBACK_HOSTS
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
    plaintext_network: Annotated[
        bool, typer.Option("--plaintext-network", help="no TLS beyond this machine: the network is closed otherwise")
    ] = False,
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
        service = config(
            create_app(where.ledger, settings),
            host,
            port,
            certificate=certificate,
            key=key,
            plaintext_network=plaintext_network,
        )
        err.print(f"Budget page: {'https' if certificate else 'http'}://{host}:{port}/")
        run_service(service)


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
