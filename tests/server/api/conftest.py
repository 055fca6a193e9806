"""The application over the in-memory store, called as a local caller would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_store import FakeStore
from fastapi.testclient import TestClient

from fieldfare_server.api import Settings, build


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def settings() -> Settings:
    return Settings(event_poll_seconds=0.02, event_ping_seconds=0.05, verify_seconds=0, metrics_seconds=0)


@pytest.fixture
def local(store: FakeStore, settings: Settings) -> Iterator[TestClient]:
    """A client on this machine."""
    with TestClient(build(store, settings), base_url="http://localhost", client=("127.0.0.1", 50000)) as client:
        yield client


@pytest.fixture
def remote(store: FakeStore, settings: Settings) -> Iterator[TestClient]:
    """A client on another machine."""
    with TestClient(build(store, settings), base_url="http://localhost", client=("192.0.2.7", 50000)) as client:
        yield client
