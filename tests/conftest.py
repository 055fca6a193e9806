"""Fixtures that more than one room uses."""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from support.postgres import Cluster, find_programs, missing

# `make test` runs a worker a core, and PyTorch would start a thread a core in each. On two busy cores the tests of the
# training engines took 132 s of processor time so, and 14 s with one thread. PyTorch reads this when it is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples on every machine: what lands does not hang on luck. HYPOTHESIS_PROFILE=default tries new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


SUITE = tomllib.loads((Path(__file__).parent / "suite.toml").read_text())
"""What `make test` leaves to `make test-all`."""
COSTS: dict[str, float] = tomllib.loads((Path(__file__).parent / "costs.toml").read_text())
"""CPU seconds of the tests that cost much."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the suite of `make test`: see tests/suite.toml")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--quick`, do not even import files that come later as a whole: some load large packages."""
    place = collection_path.relative_to(config.rootpath).as_posix()
    stays = any(kept.startswith((f"{place}/", f"{place}::")) for kept in SUITE["always"])
    return True if config.getoption("--quick") and place in SUITE["later"] and not stays else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--quick`, keep what tests/suite.toml leaves in `make test`: of each parametrized test, a few cases."""
    if not config.getoption("--quick"):
        return
    always = {item.nodeid for item in items if item.nodeid.startswith(tuple(SUITE["always"]))}
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not _is_later(item):
            cases[item.nodeid.partition("[")[0]].append(item)
    drawn = [sorted(one, key=lambda item: _draw(item.nodeid))[: SUITE["cases"]] for one in cases.values()]
    kept = always | {item.nodeid for one in drawn for item in one}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def pytest_collection_finish() -> None:
    """Make new ledgers fast in a process that has loaded what makes them."""
    if "fieldfare_server.ledger.sql.migrate" in sys.modules:
        from support import new_ledgers

        new_ledgers.install()


def _is_later(item: pytest.Item) -> bool:
    """Whether the test costs too much, or it, its file, a folder of it or one of its markers stands in suite.toml."""
    if any(item.get_closest_marker(marker) for marker in SUITE["later_markers"]):
        return True
    if COSTS.get(item.nodeid.partition("[")[0], 0.0) >= SUITE["seconds"]:
        return True
    return any(f"{item.nodeid}/".startswith((f"{place}/", f"{place}::", f"{place}[")) for place in SUITE["later"])


def _draw(nodeid: str) -> bytes:
    return hashlib.sha256(nodeid.encode()).digest()


@pytest.fixture(autouse=True)
def patient_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that a test starts waits for its check of the journal, however busy the machine is.

    In production it answers "not ready" after half a second.
    """
    if health := sys.modules.get("fieldfare_server.api.health"):  # tests without a service do not load it
        monkeypatch.setattr(health, "PATIENCE", 60.0)


@pytest.fixture(autouse=True)
def without_jax() -> Iterator[None]:
    """No test finds the JAX that an earlier one of its process loaded: users would not train in processes of their
    own, and a node would say so. Its threads are idle by then, so they hold no lock that a child here takes.
    """
    yield
    sys.modules.pop("jax", None)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a home of its own, made where it is used. Without a name: server/files/test_home.py.

    So has Flower: nodes of real people keep there which ledger they belong to.
    """
    root = tmp_path_factory.getbasetemp() / "homes" / uuid.uuid4().hex
    monkeypatch.setenv("FIELDFARE_HOME", str(root))
    monkeypatch.setenv("FLWR_HOME", f"{root}-flower")


@pytest.fixture(autouse=True)
def closed_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that was closed is asked nothing more: SQLAlchemy would open a connection again, and nobody close it."""
    if not (module := sys.modules.get("fieldfare_server.ledger.sql.database")):
        return
    close = module.Database.close

    def closed(self: Any) -> None:
        close(self)
        self._open = lambda _: pytest.fail("a ledger is asked after it was closed")

    monkeypatch.setattr(module.Database, "close", closed)


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
