"""How a function becomes a command: the options that it shares with others, refusals, and its result printed."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import dataclass
from types import NoneType
from typing import Any, NoReturn, get_type_hints

from fieldfare.errors import FieldfareError
from fieldfare_server.cli.options import HomeOption, JsonOption, LedgerOption
from fieldfare_server.cli.output import err, fail, print_json, refusals
from fieldfare_server.files.home import StateDirectory


@dataclass(frozen=True)
class CommandResult:
    """A command's result: `value` is printed with `--json`; `tell` prints it for people.

    refusal: ends the command once the result is shown; with `--json` both are one document.
    """

    value: Any
    tell: Callable[[], None]
    refusal: FieldfareError | None = None


Command = Callable[..., CommandResult | None]

# Where Rich would take a word in brackets for markup, and show nothing of it.
_MARKUP = re.compile(r"(?<!\\)\[(?=[a-z#/@])")

HOME = {"home": HomeOption, "ledger": LedgerOption}


def _raised(status: int, here: int = os.getpid(), end: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """Stand for `os._exit`: a task that calls it ended its command with 0, a success. A process forked here ends."""
    if os.getpid() != here:
        end(status)
    raise SystemExit(status)


def command(function: Command) -> Callable[..., None]:
    """Turn a function of options into a command. One that returns a result also takes `--json`."""
    return asking(None, {}, function)


def on_home(function: Command) -> Callable[..., None]:
    """Turn a function of (state directory, options) into a command that also takes `--home` and `--ledger`."""
    return asking(lambda home, ledger: nullcontext(StateDirectory.of(home, ledger)), HOME, function)


def asking(
    opened: Callable[..., AbstractContextManager[Any]] | None, options: dict[str, Any], function: Command
) -> Callable[..., None]:
    """Turn a function into a command that also takes `options`: `opened` makes its first argument of them.

    A function that returns a result takes `--json` too, and is told of it where it has a parameter `json_`. One
    that returns None prints by itself.
    """
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[opened is not None :]
    is_told, returns = any(each.name == "json_" for each in own), hints["return"] is not NoneType

    @functools.wraps(function)
    def run(json_: JsonOption = False, **given: object) -> None:
        with refusals(json_):
            if is_told:
                given["json_"] = json_
            end, os._exit = os._exit, _raised
            try:
                # What a task prints is no part of the one JSON document.
                with redirect_stdout(sys.stderr) if json_ and returns else nullcontext():
                    if opened is None:
                        answer = function(**given)
                    else:
                        with opened(**{name: given.pop(name, None) for name in options}) as asked:
                            answer = function(asked, **given)
            except SystemExit as error:  # a command returns or refuses: this code would be taken for its own
                from fieldfare.task import task_exits  # only here: commands start without it

                raise task_exits("the task", "its code ends the program", error) from error
            except Exception as error:
                from fieldfare_client.task_faults import fault_of  # only here: likewise

                if (fault := fault_of(error)) is None:
                    raise
                if not json_ and (trace := fault.trace()):
                    err.print(trace, markup=False)
                raise fault from fault.cause
            finally:
                os._exit = end
            if answer is not None and not json_:
                answer.tell()
            if answer is not None and answer.refusal is not None:
                fail(answer.refusal, json_, answer.value)
            if answer is not None and json_:
                print_json(answer.value)

    # Typer reads options from the signature, so the command shows the function's parameters and the shared ones.
    more: dict[str, object] = dict.fromkeys(options)
    if returns and not is_told:
        more["json_"] = False
    hints |= {**options, "json_": JsonOption, "return": None}
    shared = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in more.items()]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY, annotation=hints[p.name]) for p in (*own, *shared)]
    )
    run.__annotations__ = hints
    # Helps are shown as they are written, and their paragraphs as wide as the terminal.
    for info in (each for hint in hints.values() for each in getattr(hint, "__metadata__", ())):
        info.help = info.help and _MARKUP.sub(r"\[", info.help)
    run.__doc__ = "\n\n".join(" ".join(part.split()) for part in (function.__doc__ or "").split("\n\n"))
    return run
