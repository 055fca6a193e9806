"""How the command line speaks: tables for people, `--json` for machines, one message and a code for a refusal."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from fieldfare.errors import BudgetRefused, FieldfareError, Interrupted, Refused
from fieldfare_flower import logs

DONE, BAD_INPUT, BUDGET_REFUSED, INTERRUPTED = 0, 2, 3, 4

_WIDTH = 160
"""Where the output is no terminal: wide enough that no table breaks words."""

out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDTH)
err = Console(stderr=True, highlight=False, soft_wrap=True, width=None if sys.stderr.isatty() else _WIDTH)


log = logging.getLogger("fieldfare.cli")


def tell(text: str) -> None:
    """What happens meanwhile, to standard error; a log line where FIELDFARE_LOG=json."""
    if logs.as_json():
        log.info("%s", text)
    else:
        err.print(text, markup=False)


def done(text: str) -> None:
    """What a job has done, to standard output; a log line where FIELDFARE_LOG=json, for a job's output is its log."""
    if logs.as_json():
        log.info("%s", text)
    else:
        out.print(text, markup=False)


def exit_code(error: FieldfareError) -> int:
    """2 bad input, 3 budget refused, 4 interrupted but resumable."""
    if isinstance(error, BudgetRefused):
        return BUDGET_REFUSED
    return INTERRUPTED if isinstance(error, Interrupted) else BAD_INPUT


def fail(error: FieldfareError, as_json: bool) -> NoReturn:
    """Say what was refused, why, and the nearest allowed thing; then leave."""
    code = exit_code(error)
    if as_json:
        body: dict[str, Any] = {"error": type(error).__name__, "message": str(error), "exit_code": code}
        if isinstance(error, Refused):
            body |= {"what": error.what, "why": error.why, "nearest": error.nearest or None}
        print_json(body)
    elif logs.as_json():
        log.error("%s", error)
    else:
        label = "Stopped" if isinstance(error, Interrupted) else "Refused"
        err.print(f"[bold red]{label}.[/]", end=" ")
        err.print(str(error), markup=False)
    sys.exit(code)


@contextmanager
def refusals(as_json: bool) -> Iterator[None]:
    """Inside, everything that Fieldfare refuses becomes one message and an exit code, never a traceback."""
    try:
        yield
    except FieldfareError as error:
        fail(error, as_json)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, allow_nan=False) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str | None = None) -> None:
    """A table; numbers are right-aligned."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    filled = [[_cell(value) for value in row] for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(filled) and all(row[index][1] for row in filled)
        table.add_column(column, justify="right" if numeric else "left")
    for row in filled:
        table.add_row(*(text for text, _ in row))
    out.print(table)


def _cell(value: Any) -> tuple[str, bool]:
    if value is None:
        return "—", True
    if isinstance(value, bool):
        return ("yes" if value else "no"), False
    if isinstance(value, int | float):
        return (f"{value:.4g}" if isinstance(value, float) else f"{value:,}"), True
    return str(value), False
