"""What the commands that administer a ledger share: which ledger, who acts, how the result is printed."""

from __future__ import annotations

import functools
import getpass
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import print_json, refusals
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger


@dataclass(frozen=True)
class Answer:
    """A command's result: `value` is printed with `--json`; `tell` prints it for people."""

    value: Any
    tell: Callable[[], None]


def actor() -> str:
    """The operating system's user, as the audit log names the actor."""
    return f"cli:{getpass.getuser()}"


def on_ledger(*, create: bool = False) -> Callable[[Callable[..., Answer]], Callable[..., None]]:
    """Turn a function of (ledger, options) into a command that also takes `--home`, `--ledger` and `--json`.

    create: create the ledger if it does not exist.
    """
    return functools.partial(_with_ledger, create=create)


def _with_ledger(command: Callable[..., Answer], *, create: bool) -> Callable[..., None]:
    @functools.wraps(command)
    def run(home: HomeOption = None, ledger: LedgerOption = None, json_: JsonOption = False, **own: Any) -> None:
        with refusals(json_):
            directory = StateDirectory.of(home, ledger)
            if create:
                directory.prepare()
            with Ledger.open(directory.ledger, create=create, head_file=directory.head_file) as opened:
                answer = command(opened, **own)
            if json_:
                print_json(answer.value)
            else:
                answer.tell()

    # Typer reads options from the signature, so the command shows the function's parameters and the shared ones.
    hints = get_type_hints(command, include_extras=True)
    _, *own = inspect.signature(command).parameters.values()
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (("home", None), ("ledger", None), ("json_", False))
    ]
    hints |= {"home": HomeOption, "ledger": LedgerOption, "json_": JsonOption, "return": None}
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in (*own, *shared)]
    )
    run.__annotations__ = hints
    return run
