"""An old copy of the ledger is put back and every process is restarted: no writer charges the same budget again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from fieldfare.errors import LedgerError
from fieldfare_server.api import Settings, create_app
from fieldfare_server.cli.application import assemble
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.chain import HeadFile


@pytest.fixture
def home(tmp_path: Path) -> StateDirectory:
    """A home whose population `people` has epsilon 1, of which a charge of mu 0.2 takes more than half."""
    state = StateDirectory(tmp_path / "home", f"sqlite:///{tmp_path / 'database' / 'ledger.sqlite3'}")
    state.prepare()
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", 1.0, 1e-5, actor="test")
    return state


def database(home: StateDirectory) -> Path:
    return Path(home.ledger.removeprefix("sqlite:///")).parent


@contextmanager
def service(home: StateDirectory) -> Iterator[TestClient]:
    app = create_app(home.ledger, Settings(verify_seconds=0), home.root, home.service_head_file)
    with TestClient(app, client=("127.0.0.1", 50000), base_url="http://localhost") as client:
        yield client


def secret_of(home: StateDirectory, *scopes: Any) -> dict[str, str]:
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        return {"Authorization": f"Bearer {ledger.create_token('trainer', scopes, actor='test')[0]}"}


def charge(client: TestClient, header: dict[str, str], key: str) -> Any:
    body = {"key": key, "loss": {"mu": 0.2}, "what": "ranker", "why": "weekly"}
    return client.post("/v1/populations/people/charges", json=body, headers=header)


def ready(client: TestClient) -> Any:
    """The readiness once its first check has ended."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        answer = client.get("/readyz").json()
        if "so far" not in answer["checks"].get("chain", "") and "not checked" not in answer["checks"].get("chain", ""):
            return answer
        time.sleep(0.02)
    raise AssertionError(answer)


def put_back(home: StateDirectory, copy: Path) -> None:
    shutil.rmtree(database(home))
    shutil.copytree(copy, database(home))


def test_after_its_restart_the_service_charges_no_old_copy_and_says_why(home: StateDirectory, tmp_path: Path) -> None:
    header = secret_of(home, "charge")
    copy, newest = tmp_path / "copy", tmp_path / "newest"
    shutil.copytree(database(home), copy)
    with service(home) as client:
        assert ready(client)["status"] == "ok"
        assert charge(client, header, "a").status_code == 200
        assert charge(client, header, "b").status_code == 409, "the budget is spent"
    shutil.copytree(database(home), newest)
    put_back(home, copy)
    with service(home) as client:
        answer = ready(client)
        assert answer["status"] == "unavailable"
        assert "an old copy was put back" in answer["checks"]["chain"]
        refused = charge(client, header, "b")
        assert refused.status_code == 503, refused.text
        assert "an old copy was put back" in refused.json()["detail"]
        assert client.get("/v1/populations/people", headers=header).status_code == 200, "it can be looked at"
    with Ledger.open(home.ledger) as ledger:
        assert not ledger.charges("people")
    put_back(home, newest)
    with service(home) as client:
        assert ready(client)["status"] == "ok"
        assert charge(client, header, "b").status_code == 409


def test_what_others_wrote_is_held_too(home: StateDirectory, tmp_path: Path) -> None:
    """The service writes nothing at all: its checks hold the head."""
    copy = tmp_path / "copy"
    shutil.copytree(database(home), copy)
    secret_of(home, "read")
    with service(home) as client:
        assert ready(client)["status"] == "ok"
    put_back(home, copy)
    with service(home) as client:
        assert ready(client)["status"] == "unavailable"


def test_a_service_that_nobody_asks_holds_the_head_by_itself(home: StateDirectory, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(database(home), copy)
    with service(home):
        secret_of(home, "read")
        with Ledger.open(home.ledger) as ledger:
            written = ledger.head().count
        end = time.monotonic() + 20
        while (held := HeadFile(home.service_head_file).read()) is None or held.count < written:
            assert time.monotonic() < end, held
            time.sleep(0.02)
    put_back(home, copy)
    with service(home) as client:
        assert ready(client)["status"] == "unavailable"


def test_a_ledger_that_is_away_while_it_is_checked_is_no_old_copy(
    home: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(home) as client:
        assert ready(client)["status"] == "ok"
        with monkeypatch.context() as patch:

            def away(self: Ledger) -> None:
                raise LedgerError("ledger", "the database cannot be reached.")

            patch.setattr(Ledger, "hold_head", away)
            assert client.get("/readyz").status_code == 503
        assert ready(client)["status"] == "ok"


def test_an_old_copy_that_went_on_is_refused_as_well(home: StateDirectory, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(database(home), copy)
    header = secret_of(home, "read", "charge")
    with service(home) as client:
        ready(client)
    put_back(home, copy)
    with Ledger.open(home.ledger) as ledger:  # a writer that holds no head
        for _ in range(9):
            ledger.create_token("other", ("charge",), actor="test")
        header = {"Authorization": f"Bearer {ledger.create_token('other', ('charge',), actor='test')[0]}"}
    with service(home) as client:
        assert ready(client)["status"] == "unavailable"
        assert charge(client, header, "b").status_code == 503


def test_an_administrators_command_writes_nothing_into_an_old_copy(home: StateDirectory, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(database(home), copy)
    run, command = CliRunner(), assemble()
    named = ["--home", str(home.root), "--ledger", home.ledger]
    make = ["population", "create", "after", "--epsilon", "1", "--delta", "1e-5", *named]
    assert run.invoke(command, make).exit_code == 0
    put_back(home, copy)
    refused = run.invoke(command, ["population", "create", "after2", "--epsilon", "1", "--delta", "1e-5", *named])
    assert refused.exit_code == 2
    with Ledger.open(home.ledger) as ledger:
        assert [view.name for view in ledger.populations()] == ["people"]
