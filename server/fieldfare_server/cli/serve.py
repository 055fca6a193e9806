"""`fieldfare serve`: the budget API and its page."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from fieldfare.atomic import replace_file
from fieldfare.errors import NotGiven
from fieldfare_server.cli.options import HomeOption, LedgerOption
from fieldfare_server.cli.output import print_progress, refusals
from fieldfare_server.cli.waiting import retry
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger


def serve(
    host: Annotated[str, typer.Option(help="address to bind; loopback unless you say otherwise")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one")] = 8080,
    name: Annotated[list[str] | None, typer.Option(help="a host name the service answers to; repeatable")] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate (PEM)")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS private key (PEM)")] = None,
    plaintext_network: Annotated[
        bool, typer.Option("--plaintext-network", help="no TLS beyond this machine: the network is closed otherwise")
    ] = False,
    page_token: Annotated[
        Path | None, typer.Option(help="keep a read token in this file, made at the first start; for the page")
    ] = None,
    metrics_token: Annotated[
        Path | None, typer.Option(help="the same, in another file; for the scraper of /metrics")
    ] = None,
    backups: Annotated[
        Path | None, typer.Option(help="where the ledger's backups go: /metrics then tells their age")
    ] = None,
    alert_hook: Annotated[
        Path | None, typer.Option(help="a file with the URL of a web hook: it is told of budgets at 80 and 100 %")
    ] = None,
    alert_mail: Annotated[
        list[str] | None, typer.Option(help="an address that is told of budgets at 80 and 100 %; repeatable")
    ] = None,
    mail_relay: Annotated[str, typer.Option(help="smtp://HOST[:PORT] or smtps://HOST[:PORT]")] = "smtp://localhost",
    wait: Annotated[bool, typer.Option("--wait", help="retry until the ledger and its secret exist")] = False,
    home: HomeOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Serve the budget API and page. Holds no model and no key; without a token it is read-only and loopback-only."""
    from fieldfare_server.api import Settings, create_app  # all that a service imports, and its help needs not
    from fieldfare_server.api import server as service
    from fieldfare_server.api.settings import LOOPBACK_HOSTS, is_this_machine

    def open_directory() -> StateDirectory:
        directory = StateDirectory.of(home, ledger)
        Ledger.open(directory.ledger, to_show=True).close()
        return directory

    with refusals(as_json=False):
        if (certificate is None) != (key is None):
            raise NotGiven("serve", "TLS needs a certificate and its key.", "--certificate FILE --key FILE")
        directory = retry(open_directory) if wait else open_directory()
        print_progress(f"State: {directory.root}")
        for use, path in (("page", page_token), ("metrics", metrics_token)):
            if path is not None:
                keep_token(directory, path, use)
        settings = Settings(hosts=(*LOOPBACK_HOSTS, *(name or ())), hsts=certificate is not None)
        if not is_this_machine(host):
            print_progress(
                f"Binding {host}: reachable from other machines, which need a token (fieldfare token create)."
            )
        if alert_hook or alert_mail:
            from fieldfare_server.api.alerts import Alerts, Hook, Mail  # with a client of HTTP: 4 MB

            channels: list[Hook | Mail] = [Hook(alert_hook.read_text(errors="replace").strip())] if alert_hook else []
            channels += [Mail(mail_relay, alert_mail)] if alert_mail else []
        app = create_app(directory.ledger, settings, directory.root, directory.service_head_file, backups)
        server_config = service.config(
            app, host, port, certificate=certificate, key=key, plaintext_network=plaintext_network
        )
        taken = service.listen(server_config)
        shown = f"[{host}]" if ":" in host else host
        print_progress(f"Budget page: {'https' if certificate else 'http'}://{shown}:{taken.getsockname()[1]}/")
        book = directory.service_head_file.with_name("alerts.json")
        with Alerts(app.state.answers, book, channels).watching() if alert_hook or alert_mail else nullcontext():
            service.serve(server_config, taken)


def keep_token(directory: StateDirectory, path: Path, use: str) -> None:
    """Make sure that `path` holds a valid token with scope read, readable by its owner alone."""
    with Ledger.open(directory.ledger, head_file=directory.service_head_file, to_show=True) as opened:
        if path.exists() and opened.check_token(path.read_text(errors="replace").strip()) is not None:
            return
        secret, _ = opened.create_token(use, ("read",), actor="service")
    # The file may hold a token of an older ledger, which opens nothing.
    replace_file(path, f"{secret}\n".encode())
