"""The command `fieldfare` in this process."""

from __future__ import annotations

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
    return lambda *words: runner.invoke(application, [str(word) for word in words])
