"""What the commands that ask or administer a ledger share: which ledger, who acts, how the result is printed."""

from __future__ import annotations

import functools
import getpass
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import print_json, refusals
from fieldfare_server.cli.remote import CaFileOption, TokenFileOption, UrlOption, WitnessOption, service
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger


@dataclass(frozen=True)
class CommandResult:
    """A command's result: `value` is printed with `--json`; `tell` prints it for people."""

    value: object
    tell: Callable[[], None]


Command = Callable[..., CommandResult]

_LEDGER = {"home": HomeOption, "ledger": LedgerOption}
_SERVICE = {"url": UrlOption, "token_file": TokenFileOption, "ca_file": CaFileOption, "witness": WitnessOption}


def actor() -> str:
    """Return the operating system's user, as the audit log names the actor."""
    return f"cli:{getpass.getuser()}"


def on_ledger(*, create: bool = False) -> Callable[[Command], Callable[..., None]]:
    """Turn a function of (ledger, options) into a command that also takes `--home`, `--ledger` and `--json`.

    create: create the ledger if it does not exist.
    """

    @contextmanager
    def opened(home: Path | None, ledger: str | None) -> Iterator[Ledger]:
        directory = StateDirectory.of(home, ledger)
        if create:
            directory.prepare()
        with Ledger.open(directory.ledger, create=create, head_file=directory.head_file) as held:
            yield held

    return functools.partial(_asking, opened, _LEDGER)


def on_service(command: Command) -> Callable[..., None]:
    """Turn a function of (service, options) into a command that takes `--url` too, or asks the ledger of
    `--home`.

    The service answers the same in either case, so the command prints the same.
    """
    return _asking(service, _SERVICE | _LEDGER, command)


def _asking(
    opened: Callable[..., AbstractContextManager[Any]], options: dict[str, Any], command: Command
) -> Callable[..., None]:
    @functools.wraps(command)
    def run(json_: JsonOption = False, **given: object) -> None:
        with refusals(json_):
            with opened(**{name: given.pop(name, None) for name in options}) as asked:
                answer = command(asked, **given)
            if json_:
                print_json(answer.value)
            else:
                answer.tell()

    # Typer reads options from the signature, so the command shows the function's parameters and the shared
    # ones.
    hints = get_type_hints(command, include_extras=True)
    _, *own = inspect.signature(command).parameters.values()
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (*dict.fromkeys(options).items(), ("json_", False))
    ]
    hints |= {**options, "json_": JsonOption, "return": None}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in (*own, *shared)]
    )
    run.__annotations__ = hints
    return run
