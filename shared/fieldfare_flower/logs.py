"""Log lines for people or for machines, with the run and the round they belong to.

    FIELDFARE_LOG=text|json         one line for people (default), or one JSON object a line
    FIELDFARE_LOG_LEVEL=info        of Fieldfare's own lines: debug, info, warning, error

A line of JSON has `time` (UTC), `level`, `logger`, `message`, and, where they are known, `run`, `round`, `exception`.
Levels of other libraries stay at warning (Flower's at info) whatever is asked for: their debug lines hold SQL
parameters, headers and message contents. Their lines pass through the same handler where they share the process; other
programs than ours are started by `fieldfare_flower.programs`.
Secrets are not logged in the first place; what an exception of a library may quote of them is taken out here.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from fieldfare.errors import BadInput

OWN = ("fieldfare", "fieldfare_server", "fieldfare_client")
_LEVELS = ("debug", "info", "warning", "error")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_about: ContextVar[tuple[str, int | None]] = ContextVar("fieldfare_about", default=("", None))

_SECRETS = (
    (re.compile(r"(://[^:/@\s]*:)[^@\s]+@"), r"\1***@"),  # a password in a URL
    (re.compile(r"\bff_[0-9a-f]{12}_[0-9a-f]{64}"), "ff_***"),  # an API token
    (re.compile(r"(?i)(bearer\s+)[^\s\"',]+"), r"\1***"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S), "***"),
)


@contextmanager
def about(run: str, round: int | None = None) -> Iterator[None]:
    """Lines logged inside, in this thread, belong to this run and round."""
    token = _about.set((run, round))
    try:
        yield
    finally:
        _about.reset(token)


def now_about(run: str, round: int | None) -> None:
    """Lines that this thread logs from now on belong to this run and round; where there is no block to be inside of."""
    _about.set((run, round))


def redacted(text: str) -> str:
    """`text` without passwords of URLs, API tokens and private keys."""
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class TextFormatter(logging.Formatter):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        run, round_ = _about.get()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
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


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at the time, for Flower puts another stream in its place."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    def filter(self, record: logging.LogRecord) -> bool:
        # Flower's logger has a handler of its own, unless `configure` took it away: one line, not two.
        twice = record.name == "flwr" and logging.getLogger("flwr").handlers
        # Flower also logs empty lines, for the eye.
        return not twice and record.msg != "" and bool(super().filter(record))

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        raise AttributeError("always standard error")


def as_json() -> bool:
    """Whether this process writes JSON: `configure` was called and the environment asked for it."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


def wants_json() -> bool:
    """Whether the environment asks for JSON. Raises `BadInput` on a value of FIELDFARE_LOG that is no format."""
    wanted = os.environ.get("FIELDFARE_LOG") or "text"
    if wanted not in ("text", "json"):
        raise BadInput(f"FIELDFARE_LOG = {wanted!r}", "there is no such format.", "text, json")
    return wanted == "json"


def configure(default: str = "warning") -> None:
    """Send every line of this process to standard error, as the environment says; call it again after other imports.

    default: level of Fieldfare's own lines where FIELDFARE_LOG_LEVEL does not say. Raises `BadInput` on a bad value.
    """
    level = (os.environ.get("FIELDFARE_LOG_LEVEL") or default).lower()
    if level not in _LEVELS:
        raise BadInput(f"FIELDFARE_LOG_LEVEL = {level!r}", "there is no such level.", ", ".join(_LEVELS))
    json_ = wants_json()
    handler = _Stderr()
    handler.setFormatter(JsonFormatter() if json_ else TextFormatter(_TEXT))
    root = logging.getLogger()
    # One way to the console: what a library added for itself (absl does, on import) would say everything twice.
    for old in [
        h for h in root.handlers if type(h) in (_Stderr, logging.StreamHandler) or "absl" in type(h).__module__
    ]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in OWN:
        logging.getLogger(name).setLevel(level.upper())
    # Python's own warnings come as bare lines otherwise; so would Flower's, which has a handler of its own.
    logging.captureWarnings(json_)
    if json_:
        adopt()
        logging.getLogger("flwr").setLevel(logging.INFO)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def adopt() -> None:
    """Take from every library's logger the handlers that write to the console; their filters stay, with the logger."""
    for logger in [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]:
        for handler in logger.handlers[:]:
            if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
                logger.removeHandler(handler)
                logger.propagate = True
                for one in handler.filters:
                    logger.addFilter(one)


def join() -> None:
    """For code that runs in another program's process (a node's app): take its lines over if JSON is asked for."""
    if wants_json() and not as_json():
        configure("info")


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger("fieldfare").critical("uncaught", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(said: threading.ExceptHookArgs) -> None:
    if said.exc_value is not None and said.exc_type is not SystemExit:
        _log_uncaught(said.exc_type, said.exc_value, said.exc_traceback)
