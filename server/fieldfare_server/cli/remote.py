"""The budget service that a command asks: one over HTTP, or the ledger's own in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fieldfare.errors import Conflict, NotFound, Unreadable
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger

if TYPE_CHECKING:
    from fieldfare_server.api.http_client import Client
    from fieldfare_server.api.service import Service

UrlOption = Annotated[str | None, typer.Option("--url", help="ask this budget service instead of opening a ledger")]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", help="with --url: a file that holds the bearer token")
]
CaFileOption = Annotated[
    Path | None, typer.Option("--ca-file", help="with --url: certificates (PEM) to trust instead of the system's")
]
WitnessOption = Annotated[
    Path | None,
    typer.Option(help="with --url: keep the newest signed head in this file; refuse a journal that went back"),
]

_LONGEST_TOKEN = 4096


@contextmanager
def service(
    *,
    url: str | None = None,
    token_file: Path | None = None,
    ca_file: Path | None = None,
    witness: Path | None = None,
    home: Path | None = None,
    ledger: str | None = None,
) -> Iterator[Service]:
    """Connect to the budget service at `url`; for None, one in this process over the ledger of `home`.

    The token comes from a file: options show in shell histories and process lists.

    Raises `BadInput` where both or neither are fully named, and for a file that cannot be used; `HeadRefused`
    if the journal does not go on from the head in the file `witness`.
    """
    if url is not None:
        refuse_two(home, ledger)
        with remote(url, token_file, ca_file, witness) as client:
            yield client
        return
    refuse_without_url(token_file, ca_file, witness)
    from fieldfare_server.api.in_process import InProcessClient

    directory = StateDirectory.of(home, ledger)
    with InProcessClient(Ledger.open(directory.ledger), directory.root) as here:
        yield here


def remote(url: str, token_file: Path | None, ca_file: Path | None, witness: Path | None = None) -> Client:
    """Return a client of the service at `url`. Raises as `service`."""
    from fieldfare_server.api.http_client import Client

    if ca_file is not None and not ca_file.is_file():
        raise NotFound(f"--ca-file {ca_file}", "there is no such file.", "a PEM file")
    token = None if token_file is None else read_token(token_file)
    client = Client(url, token, verify=True if ca_file is None else str(ca_file))
    if witness is not None:
        client.watch_head(witness)
    return client


def refuse_two(home: Path | None, ledger: str | None) -> None:
    """Raise `BadInput` if a ledger was named beside `--url`."""
    if home or ledger:
        raise Conflict("--url", "a service and a ledger were both named.", "one of --url, --home, --ledger")


def refuse_without_url(token_file: Path | None, ca_file: Path | None, witness: Path | None = None) -> None:
    """Raise `BadInput` if an option that goes with --url was given without it: it would be ignored silently."""
    if token_file is not None or ca_file is not None or witness is not None:
        raise Conflict(
            "--token-file, --ca-file, --witness", "they say how to ask a service, and none was named.", "--url URL"
        )


def read_token(path: Path) -> str:
    """Return the one token in a file. Raises `BadInput` for a file that cannot be read or holds something else."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it cannot be read"
        raise Unreadable(f"--token-file {path}", f"{why}.", "a file that holds one token") from None
    if not text or len(text) > _LONGEST_TOKEN or not text.isascii() or any(c.isspace() for c in text):
        raise Unreadable(f"--token-file {path}", "it does not hold one token.", "what `fieldfare token create` printed")
    return text
