"""The service over a small SQLite ledger, called as a local or as a remote caller would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ledger_data
import pytest
from fastapi.testclient import TestClient
from live_ledger import LiveLedger, client_at

from fieldfare_server.api import Settings


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveLedger]:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with ledger_data.new_ledger(url) as ledger:
        for name in ("run-1", "run-2"):
            ended = ledger_data.start(ledger, name)
            for _ in range(2):
                ledger_data.commit(ended)
            ended.finish("stopped", "enough")
        run = ledger_data.start(ledger, "run-3")
        for _ in range(6):
            ledger_data.commit(run)
        yield LiveLedger(url, ledger, run)


@pytest.fixture
def settings() -> Settings:
    return Settings(event_poll_seconds=0.02, event_ping_seconds=0.05, verify_seconds=0, metrics_seconds=0)


@pytest.fixture
def local(live: LiveLedger, settings: Settings) -> Iterator[TestClient]:
    """A client on this machine."""
    with client_at("127.0.0.1", live.url, settings) as client:
        yield client


@pytest.fixture
def remote(live: LiveLedger, settings: Settings) -> Iterator[TestClient]:
    """A client on another machine."""
    with client_at("192.0.2.7", live.url, settings) as client:
        yield client
