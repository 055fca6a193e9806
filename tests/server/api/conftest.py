"""The service over a small SQLite ledger, called as a local or as a remote caller would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ledger_data
import pytest
from fastapi.testclient import TestClient

from fieldfare_server.api import Settings, create_app
from fieldfare_server.ledger import Ledger, RunHandle


@dataclass
class LiveLedger:
    """Population `aircraft` (limit 8), two ended runs of 2 rounds, and `run-3`, which has committed 6 of 16 rounds."""

    url: str
    ledger: Ledger
    run: RunHandle

    @property
    def rows(self) -> int:
        """The number of audit rows."""
        return self.ledger.head().count

    def commit(self) -> None:
        """Commit a round of `run-3`: two audit rows."""
        ledger_data.commit(self.run)

    def token(self, *scopes: str) -> str:
        """The secret of a new token."""
        return self.ledger.create_token("officer", scopes, actor="test")[0]  # type: ignore[arg-type]

    @contextmanager
    def away(self) -> Iterator[None]:
        """Inside the block nothing can read the ledger."""
        path = self.ledger.database.path
        assert path is not None
        elsewhere = path.rename(path.with_suffix(".away"))
        try:
            yield
        finally:
            elsewhere.rename(path)


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


def client_at(address: str, url: str, settings: Settings) -> TestClient:
    """A client whose connection comes from `address`, of a service that has read nothing yet."""
    return TestClient(create_app(url, settings), base_url="http://localhost", client=(address, 50000))


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
