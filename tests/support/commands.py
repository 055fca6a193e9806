"""The command `fieldfare` in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fieldfare_server.cli.application import application

Run = Callable[..., Result]


def command_in(folder: Path, monkeypatch: pytest.MonkeyPatch, home: str = "home") -> Run:
    """`fieldfare`, typed in `folder`, with a home of its own there; its arguments are the words."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FIELDFARE_HOME", str(folder / home))
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    runner = CliRunner()

    def run(*words: object) -> Result:
        if app := sys.modules.get("fieldfare_client.app"):
            app.forget_users()  # a command is a process of its own
        return runner.invoke(application, [str(word) for word in words])

    return run
