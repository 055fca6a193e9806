"""Fixtures that more than one room uses."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support.postgres import Cluster, find_programs, missing

# `make test` runs a worker a core, and PyTorch would start a thread a core in each. On two busy cores the tests of the
# training engines took 132 s of processor time so, and 14 s with one thread. PyTorch reads this when it is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples on every machine: what lands does not hang on luck. HYPOTHESIS_PROFILE=default tries new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(autouse=True)
def patient_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that a test starts waits for its check of the journal, however busy the machine is.

    In production it answers "not ready" after half a second.
    """
    if health := sys.modules.get("fieldfare_server.api.health"):  # tests without a service do not load it
        monkeypatch.setattr(health, "PATIENCE", 60.0)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a home of its own, made where it is used. Without a name: server/files/test_home.py."""
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path_factory.getbasetemp() / "homes" / uuid.uuid4().hex))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A throw-away PostgreSQL cluster of this session's own."""
    programs = find_programs()
    if programs is None:
        missing()
        return
    cluster = Cluster(programs)
    try:
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once in SQLite and once in PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    cluster: Cluster = request.getfixturevalue("postgres")
    return cluster.new_database()
