"""Output of the command line: tables for people, `--json` for machines, a message and an exit code for a refusal."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fieldfare.errors import BadInput, BudgetRefused, FieldfareError, Refused, is_of_the_disk
from fieldfare.text import decimal
from fieldfare_flower import logs

BAD_INPUT = FieldfareError.exit_status


class Stopped(FieldfareError):
    """Ctrl-C or another signal ended the command, and left nothing to resume. What it charged stays charged."""

    exit_status = 130


# Seconds of pricing after which a caller is told of it.
_SILENT = 2.0
# Columns of output that is no terminal: wide enough that no table breaks a word.
_WIDTH = 160


def _drop(stream: IO[str]) -> None:
    """Let nothing come of what is written to `stream` from now on, and of what it still holds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Printer(Console):
    def on_broken_pipe(self) -> None:
        """Go on where nobody reads any more, as after `| head -1`; rich would end the process."""
        _drop(self.file)


def outlive_readers() -> None:
    """Let no console of this process fail where nobody reads: Typer prints helps and usage errors with its own."""
    Console.on_broken_pipe = _Printer.on_broken_pipe  # type: ignore[assignment, method-assign]


out = _Printer(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDTH)
err = _Printer(stderr=True, highlight=False, soft_wrap=True, width=None if sys.stderr.isatty() else _WIDTH)
log = logging.getLogger("fieldfare.cli")


def print_progress(text: str) -> None:
    """Print progress to standard error; under FIELDFARE_LOG=json, log it."""
    if logs.as_json():
        log.info("%s", text)
    else:
        with suppress(OSError):  # of a terminal that was closed: what it tells of goes on
            err.print(visible(text), markup=False)


@contextmanager
def told_if_slow() -> Iterator[None]:
    """Say what keeps a caller waiting where the block, which prices a plan, takes long."""
    text = "Working: a price by Monte Carlo, or of a strategy that is searched for, takes seconds to minutes."
    timer = threading.Timer(_SILENT, print_progress, [text])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def print_outcome(text: str) -> None:
    """Print what a job did to standard output; under FIELDFARE_LOG=json, log it: there a job's output is its log."""
    if logs.as_json():
        log.info("%s", text)
    else:
        print_text(text)


def print_text(text: str) -> None:
    """Print `text`, which may quote names, keys and paths that somebody else chose, to standard output."""
    out.print(visible(text), markup=False)


def fail(error: FieldfareError, as_json: bool, found: Mapping[str, object] | None = None) -> NoReturn:
    """Print what was refused, why, and the nearest allowed alternative, in JSON with what was `found`; then exit."""
    code = error.exit_status
    if as_json:
        body: dict[str, object] = {"error": type(error).__name__, "code": error.code, "message": str(error)}
        body["exit_code"] = code
        if isinstance(error, Refused):
            body |= _parts(error)
        if isinstance(error, BadInput) and len(error.faults) > 1:
            body["faults"] = [_parts(fault) for fault in error.faults]
        with suppress(OSError):
            print_json({**body, **(found or {})})
            written()
            sys.exit(code)
    with suppress(OSError):  # nobody may read it any more: the code stays
        if logs.as_json():
            log.error("%s", error)
        else:
            label = "Stopped" if code > BudgetRefused.exit_status else "Refused"
            err.print(f"[bold red]{label}.[/]", end=" ")
            err.print(visible(str(error)), markup=False)
    sys.exit(code)


def _parts(error: Refused) -> dict[str, Any]:
    parts = {"code": error.code, "what": error.what, "why": error.why, "nearest": error.nearest or None}
    line = error.line if isinstance(error, BadInput) else None
    return parts if line is None else parts | {"line": line}


@contextmanager
def refusals(as_json: bool) -> Iterator[None]:
    """Turn every `FieldfareError` inside the block into one message and an exit code, never a traceback.

    The same for a file or a disk that cannot be used, wherever that is met.
    """
    try:
        yield
    except FieldfareError as error:
        fail(error, as_json)
    except KeyboardInterrupt:
        fail(Stopped("`fieldfare runs` shows what goes on, and what can be resumed."), as_json)
    except OSError as error:
        where = error.filename or ("the working directory" if isinstance(error, FileNotFoundError) else None)
        if not (disk := is_of_the_disk(error)) and where is None:
            raise
        where, near = str(where or "the disk"), "make room, or mend the disk" if disk else "another path"
        fail(Refused(where, f"it cannot be used ({error.strerror}).", near), as_json)


def written() -> None:
    """Write what standard output still holds. Raises OSError, once, where it cannot be: the rest is dropped."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise


def print_json(value: object) -> None:
    """Print one JSON document to standard output; views in it as a service sends them."""
    print_as_it_is(json.dumps(value, indent=2, default=_plain, allow_nan=False) + "\n")


def print_as_it_is(text: str) -> None:
    """Print `text`, which ends its own lines, to standard output; to nobody where nobody reads any more."""
    with suppress(BrokenPipeError):  # `written` drops what is left
        sys.stdout.write(text)


def _plain(value: object) -> object:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], caption: str | None = None
) -> None:
    """Print a table; columns of numbers are right-aligned."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", show_header=any(columns))
    filled = [[_cell(value) for value in row] for row in rows]
    for index, column in enumerate(columns):
        numeric = bool(filled) and all(row[index][1] for row in filled)
        table.add_column(column, justify="right" if numeric else "left")
    for row in filled:
        table.add_row(*(text for text, _ in row))
    out.print(table)


def print_things(
    title: str, columns: Mapping[str, Callable[[Any], object]], things: Iterable[object], caption: str | None = None
) -> None:
    """Print a table with a row for each of `things`. columns: heading -> what is shown of one below it."""
    print_table(title, list(columns), [[shown(each) for shown in columns.values()] for each in things], caption)


def _cell(value: object) -> tuple[str, bool]:
    """Return (text, whether it is a number)."""
    if value is None:
        return "—", True
    if isinstance(value, bool):
        return ("yes" if value else "no"), False
    if isinstance(value, int | float):
        return (decimal(value, 4) if isinstance(value, float) else f"{value:,}"), True
    return visible(escape(str(value))), False


def visible(text: str) -> str:
    """Return `text` without control characters: strangers choose names, and the terminal obeys ESC."""
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def print_warnings(warnings: list[str]) -> None:
    """Print warnings on standard error, so that `--json` stays JSON."""
    for warning in warnings:
        print_progress(f"warning: {warning}")
