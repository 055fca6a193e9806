"""What the commands that ask or administer a ledger share: which ledger, who acts, how the result is printed."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fieldfare_server.cli.command import HOME, Command, asking
from fieldfare_server.cli.remote import CaFileOption, TokenFileOption, UrlOption, WitnessOption, service
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger

_SERVICE = {"url": UrlOption, "token_file": TokenFileOption, "ca_file": CaFileOption, "witness": WitnessOption}


def actor() -> str:
    """Return the operating system's user, as the audit log names the actor."""
    return f"cli:{getpass.getuser()}"


def on_ledger(function: Command) -> Callable[..., None]:
    """Turn a function of (ledger, options) into a command that also takes `--home`, `--ledger` and `--json`."""

    @contextmanager
    def opened(home: Path | None, ledger: str | None) -> Iterator[Ledger]:
        directory = StateDirectory.of(home, ledger)
        with Ledger.open(directory.ledger, head_file=directory.head_file) as held:
            yield held

    return asking(opened, HOME, function)


def on_service(function: Command) -> Callable[..., None]:
    """Turn a function of (service, options) into a command that takes `--url` too, or asks the ledger of
    `--home`.

    The service answers the same in either case, so the command prints the same.
    """
    return asking(service, _SERVICE | HOME, function)
