"""Log lines for people or for machines, with the run and the round they belong to.

    FIELDFARE_LOG=text|json         one line for people (default), or one JSON object a line
    FIELDFARE_LOG_LEVEL=info        the level of Fieldfare's own lines: debug, info, warning, error

A JSON line has `time` (UTC), `level`, `logger` and `message`, and `run`, `round` and `exception` where they
are known. Other libraries stay at warning (Flower at info) whatever level is set: their debug lines hold SQL
parameters, headers and message contents. Only what goes through Python's logging is formatted here. What
Flower's programs print is theirs.

Fieldfare logs no secrets. What an exception of a library quotes of them is redacted here.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import TextIO

from fieldfare.errors import Unknown

# Loggers whose level the environment sets.
OWN = ("fieldfare", "fieldfare_flower", "fieldfare_server", "fieldfare_client")
_LEVELS = ("debug", "info", "warning", "error")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_context: ContextVar[tuple[str, int | None]] = ContextVar("fieldfare_log_context", default=("", None))
_stamp: ContextVar[Callable[[float], float] | None] = ContextVar("fieldfare_log_stamp", default=None)

_SECRETS = (
    (re.compile(r"(://[^:/@\s]*:)[^@\s]+@"), r"\1***@"),  # a password in a URL
    (re.compile(r"(?i)([?&](?:ssl)?password=)[^&\s]+"), r"\1***"),  # in its query
    (re.compile(r"\bff_[0-9a-f]{12}_[0-9a-f]{64}"), "ff_***"),  # an API token
    (re.compile(r"(?i)(bearer\s+)[^\s\"',]+"), r"\1***"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S), "***"),
)


class about:
    """Mark the lines that this thread logs inside the block with `run` and `round`.

    stamp: when a line was logged (seconds since 1970) -> the time that it shows; None: as the block around
    this one, and without one the time itself. A run whose times are secret shows its scheduled times.

    Not a generator: one that a Ctrl-C ends as its block begins would put its old marks back whenever it is collected.
    """

    def __init__(self, run: str, round: int | None = None, stamp: Callable[[float], float] | None = None) -> None:
        self._marks, self._stamps = (run, round), stamp

    def __enter__(self) -> None:
        self._context, self._stamped = _context.set(self._marks), _stamp.set(self._stamps or _stamp.get())

    def __exit__(self, *raised: object) -> None:
        _context.reset(self._context)
        _stamp.reset(self._stamped)


def _shown_time(record: logging.LogRecord) -> float:
    stamp = _stamp.get()
    return record.created if stamp is None else stamp(record.created)


def redacted(text: str) -> str:
    """Return `text` without passwords in URLs, API tokens and private keys."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class TextFormatter(logging.Formatter):
    """For people."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        shown = datetime.fromtimestamp(_shown_time(record)).astimezone()
        return shown.strftime(datefmt or f"%Y-%m-%d %H:%M:%S,{shown.microsecond // 1000:03d}")

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        run, round_ = _context.get()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(_shown_time(record), UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if run:
            line["run"] = run
        if round_ is not None:
            line["round"] = round_
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=True)


def as_text(output: str) -> str:
    """Return a program's output with what `JsonFormatter` wrote as text: the message, and the traceback below it."""

    def said(line: str) -> str:
        try:
            found = json.loads(line) if line.startswith('{"time": ') else {"message": line}
        except ValueError:  # a part of a line
            return line
        return "\n".join(found[key] for key in ("message", "exception") if key in found)

    return "\n".join(map(said, output.splitlines()))


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever `sys.stderr` is at the time, because Flower replaces it while an app runs."""

    def __init__(self) -> None:
        # Not StreamHandler's, which would store a stream.
        logging.Handler.__init__(self)

    def filter(self, record: logging.LogRecord) -> bool:
        # Where Flower's logger still has its own handler, that one prints the line.
        duplicate = record.name == "flwr" and logging.getLogger("flwr").handlers
        # Flower logs empty lines as spacing.
        return not duplicate and record.msg != "" and bool(super().filter(record))

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        raise AttributeError("always standard error")


def as_json() -> bool:
    """Return whether this process writes JSON: `configure` was called, and the environment asks for it."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def configure(default: str = "warning") -> None:
    """Send the log lines of this process to standard error in the format that the environment names.

    Call it after the imports of libraries that configure logging themselves; calling it again is harmless.

    Args:
        default: the level of Fieldfare's own lines where FIELDFARE_LOG_LEVEL is not set.

    Raises:
        BadInput: the environment names an unknown level or format.
    """
    level = (os.environ.get("FIELDFARE_LOG_LEVEL") or default).lower()
    if level not in _LEVELS:
        raise Unknown(f"FIELDFARE_LOG_LEVEL = {level!r}", "there is no such level.", ", ".join(_LEVELS))
    json_ = _wants_json()
    handler = _Stderr()
    handler.setFormatter(JsonFormatter() if json_ else TextFormatter(_TEXT))
    root = logging.getLogger()
    # Console handlers that libraries installed (absl does so on import) would print every line a second time.
    for old in [
        h for h in root.handlers if type(h) in (_Stderr, logging.StreamHandler) or "absl" in type(h).__module__
    ]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(level.upper())
    # Otherwise Python's warnings would be lines without the format.
    logging.captureWarnings(json_)
    if json_:
        flower = logging.getLogger("flwr")
        flower.handlers.clear()
        flower.propagate = True
        flower.setLevel(logging.INFO)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def configure_app() -> None:
    """Log as JSON if the environment asks for it, in code that Flower's process runs (a node's ClientApp).

    Does nothing where the process is configured already, as in a simulation or in a fork of a warm parent.
    """
    if _wants_json() and not as_json():
        configure("info")


def _wants_json() -> bool:
    wanted = os.environ.get("FIELDFARE_LOG") or "text"
    if wanted not in ("text", "json"):
        raise Unknown(f"FIELDFARE_LOG = {wanted!r}", "there is no such format.", "text, json")
    return wanted == "json"


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):  # a person at a terminal, for whom Python's own lines will do
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("fieldfare").critical("uncaught", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and args.exc_type is not SystemExit:
        _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
