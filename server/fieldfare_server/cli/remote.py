"""A budget service asked over HTTP instead of a ledger opened here: the options, and a client made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fieldfare.errors import BadInput
from fieldfare_server.api.http_client import Client

UrlOption = Annotated[str | None, typer.Option("--url", help="ask this budget service instead of opening a ledger")]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", help="with --url: a file that holds the bearer token")
]
CaFileOption = Annotated[
    Path | None, typer.Option("--ca-file", help="with --url: certificates (PEM) to trust instead of the system's")
]

_LONGEST_TOKEN = 4096


def remote(url: str, token_file: Path | None, ca_file: Path | None, *, local: bool) -> Client:
    """A client of the service at `url`. local: whether a ledger was named too, which would leave open whom to believe.

    The token comes from a file, never from an option: options are in the shell's history and in the process list.
    """
    if local:
        raise BadInput("--url", "a service and a ledger were both named.", "one of --url, --home, --ledger")
    if ca_file is not None and not ca_file.is_file():
        raise BadInput(f"--ca-file {ca_file}", "there is no such file.", "a PEM file")
    return Client(url, _token(token_file), verify=True if ca_file is None else str(ca_file))


def refuse_without_url(token_file: Path | None, ca_file: Path | None) -> None:
    """Raise `BadInput` where an option of --url was given without it: it would be ignored in silence."""
    if token_file is not None or ca_file is not None:
        raise BadInput("--token-file, --ca-file", "they say how to ask a service, and none was named.", "--url URL")


def _token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it cannot be read"
        raise BadInput(f"--token-file {path}", f"{why}.", "a file that holds one token") from None
    if not text or len(text) > _LONGEST_TOKEN or not text.isascii() or any(c.isspace() for c in text):
        raise BadInput(f"--token-file {path}", "it does not hold one token.", "what `fieldfare token create` printed")
    return text
