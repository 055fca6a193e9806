#!/usr/bin/env -S python3 -P
"""Run another program, in this process, so that all that it prints is lines of `fieldfare_flower.logs`.

    PROGRAM ARGUMENT ...        where a link of that name to this file is in a directory that is first on the PATH

PROGRAM is an installed Python program; so are those that it starts by their names, where they have a link too. With
FIELDFARE_LOG=text it runs as it always does. With json its loggers get this project's handler, also those that it
configures later, and what it prints past them (usage, `print` of a task) becomes a line each. Nothing of the program is
changed but that.
"""

from __future__ import annotations

import atexit
import json
import logging
import logging.config
import os
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TextIO

from fieldfare.errors import BadInput
from fieldfare_flower import logs

PROGRAMS = ("flower-superlink", "flower-superexec", "flower-supernode", "flwr-serverapp", "flwr-clientapp")
"""What `link` makes links for: the programs of a deployment that are not ours, and what those start."""


class Lines:
    """A text stream: passes JSON objects on to `to`, line by line, and makes one of every other line."""

    def __init__(self, to: TextIO, name: str, level: int) -> None:
        self._to, self._name, self._level = to, name, level
        self._begun, self._lock = "", threading.RLock()

    def write(self, text: str) -> int:
        """Keep `text` until its line ends; returns its length."""
        length = len(text)
        with self._lock:
            if self._begun and text.endswith("\n") and _is_object(text):
                text = "\n" + text  # a log line in the midst of a progress bar
            *lines, self._begun = (self._begun + text.replace("\r", "\n")).split("\n")
            for line in filter(str.strip, lines):
                self._to.write((line if _is_object(line) else self._made(line)) + "\n")
        return length

    def finish(self) -> None:
        """End a line that was begun."""
        if self._begun:
            self.write("\n")
        self._to.flush()

    def _made(self, line: str) -> str:
        return logs.JsonFormatter().format(logging.LogRecord(self._name, self._level, "", 0, line.strip(), None, None))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


def _is_object(line: str) -> bool:
    try:
        return line.startswith("{") and isinstance(json.loads(line, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def take_over() -> None:
    """From now on all that this process prints is JSON, if the environment asks for that; call it again after imports.

    Raises `BadInput` on a bad FIELDFARE_LOG.
    """
    if not logs.wants_json():
        return
    if not isinstance(sys.stderr, Lines):
        for name, level in (("stdout", logging.INFO), ("stderr", logging.WARNING)):
            lines = Lines(getattr(sys, name), name, level)
            setattr(sys, name, lines)
            atexit.register(lines.finish)
        logging.config.dictConfig = _configured(logging.config.dictConfig)  # uvicorn's way to its own handlers
    logs.configure("info")


def _configured(original: Any) -> Any:
    def configure(config: dict[str, Any]) -> None:
        original(config)
        logs.adopt()

    return configure


def link(directory: Path) -> None:
    """Make `directory` with a link of each of `PROGRAMS` to this file."""
    directory.mkdir()
    for name in PROGRAMS:
        (directory / name).symlink_to(__file__)


def main() -> None:
    """See the module."""
    name = os.path.basename(sys.argv[0])
    found = next(iter(entry_points(group="console_scripts", name=name)), None)
    try:
        take_over()
        if found is None:
            raise BadInput(f"program {name!r}", "is not installed here.", ", ".join(PROGRAMS))
    except BadInput as error:
        sys.exit(str(error))
    program = found.load()
    take_over()
    sys.exit(program())


if __name__ == "__main__":
    main()
