"""What `conftest.py` serves, and its clients, for tests that name their types.

A module `conftest` is whichever was imported last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ledger_data
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


def client_at(address: str, url: str, settings: Settings) -> TestClient:
    """A client whose connection comes from `address`, of a service that has read nothing yet."""
    return TestClient(create_app(url, settings), base_url="http://localhost", client=(address, 50000))
