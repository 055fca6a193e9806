"""Under `add_remove` a user's presence is the secret: nothing that anybody can see may depend on who is there.

Two worlds that differ in one user run the same plan with the same key; everything that the service, the command line
and the log show of them must be the same, but for what is computed from the privatised model and for hashes, which
are blinded.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from flwr.app import Message
from typer.testing import CliRunner

from fieldfare.accounting import certification
from fieldfare_client.app import app as client_app
from fieldfare_client.simulation import LocalGrid
from fieldfare_flower import logs
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.events import encode
from fieldfare_server.cli.application import application
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules import runs as ledger_runs
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.clock import FakeClock
from support.federation import USERS, plan

ROUNDS = 4
COUNTS = {"users", "cohort_size", "participants", "participant_count", "hashes", "first", "count", "blind"}
"""Names under which the ledger keeps what must not be seen."""
RELEASED = {"score", "lowest_score", "highest_score", "released_norm"}
"""Computed from the privatised model alone, and therefore different where the models are."""
DIGESTS = {"hash", "previous", "head", "checkpoint"}
"""Blinded."""
START, PERIOD, A_USER = 1.7e9, 60.0, 0.121
"""When scheduled runs start, their `round_seconds`, and how long a node trains one user."""
HIDDEN = "not shown under add_remove"


class Devices(LocalGrid):
    """One user a device, so that a device that is not there is a user that is not there."""

    def __init__(self, missing: int, clock: FakeClock | None = None) -> None:
        super().__init__(client_app, USERS, {"task": "support.federation:TinyTask"})
        self._missing, self._clock = missing, clock
        self.answered = 0

    def get_node_ids(self) -> Iterable[int]:
        return list(super().get_node_ids())[self._missing :]

    def answer(self, message: Message) -> Message:
        self.answered += 1
        if self._clock is not None:
            self._clock.pass_seconds(A_USER)
        return super().answer(message)


@dataclass
class World:
    home: StateDirectory
    told: list[RoundReport]
    logged: list[str]
    clock: FakeClock | None
    answered: int
    """How many messages the devices answered. The tables say nothing of it."""


MECHANISMS = {
    # Correlated noise under this sampling is charged as a Gaussian; independent noise is amplified by it, and its
    # epsilons are composed numerically.
    "gaussian": {"kind": "nu", "nu": 0.1},
    "amplified": {"kind": "independent"},
    "scheduled": {"kind": "independent"},
    "binned": {"kind": "nu", "nu": 0.1},
}


POISSON = {"scheme": "poisson", "rate": 0.5}


def world(
    root: Path,
    url: str,
    missing: int,
    mechanism: dict[str, Any],
    clock: FakeClock | None = None,
    participation: dict[str, Any] = POISSON,
) -> World:
    home = StateDirectory(root, url, lease_patience=5.0)
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("people", 50.0, 1e-5, adjacency="add_remove", simulated=True, actor="test")
    described = plan(
        privacy={"population": "people", "noise_multiplier": 8.0, "delta": 1e-5, "adjacency": "add_remove"},
        participation=participation,
        mechanism=mechanism,
        run__cohort=USERS // 2,
        run__rounds=ROUNDS,
        run__min_reports=None,
        **({} if clock is None else {"run__round_seconds": PERIOD}),
    )
    told: list[RoundReport] = []
    logged: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(logs.JsonFormatter())

    def emit(record: logging.LogRecord) -> None:
        line = record.getMessage()
        if record.name == "fieldfare.client":  # a node's own log, which says what its clock found
            return
        if clock is not None:
            record.created = clock.now
            line = handler.format(record)  # with its time
        logged.append(line)

    handler.emit = emit  # type: ignore[method-assign]
    logger = logging.getLogger("fieldfare")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with Session.begin(home, described, True, run_id="run-1") as session:
            devices = Devices(missing, clock)
            FieldfareStrategy(session, told.append).start(devices)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    return World(home, told, logged, clock, devices.answered)


@pytest.fixture(
    scope="module",
    params=[
        "gaussian-sqlite",
        "amplified-sqlite",
        "scheduled-sqlite",
        "binned-sqlite",
        pytest.param("amplified-postgresql", marks=pytest.mark.postgres),
    ],
)
def worlds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, World]:
    charged, store = request.param.split("-")
    root = tmp_path_factory.mktemp("worlds")

    def make(name: str, missing: int) -> World:
        sqlite = f"sqlite:///{root / name}.sqlite3"
        url = sqlite if store == "sqlite" else request.getfixturevalue("postgres").new_database()
        if charged == "binned":
            with pytest.MonkeyPatch.context() as patch:
                # One seed for the certificates of both worlds: it is drawn from nothing that users have.
                patch.setattr(ledger_runs, "secrets", SimpleNamespace(token_bytes=lambda count: bytes([7] * count)))
                patch.setattr(certification, "SAMPLES", (1 << 15, 1 << 15))
                return world(
                    root / name, url, missing, MECHANISMS[charged], None, {"scheme": "balls-in-bins", "bins": 2}
                )
        if charged != "scheduled":
            return world(root / name, url, missing, MECHANISMS[charged])
        clock = FakeClock(START)
        with pytest.MonkeyPatch.context() as patch:
            clock.install(patch)
            return world(root / name, url, missing, MECHANISMS[charged], clock)

    return make("all", 0), make("one-less", 1)


@pytest.fixture
def clients(worlds: tuple[World, World]) -> Iterator[list[TestClient]]:
    opened = []
    for one in worlds:
        service = create_app(one.home.ledger, Settings(metrics_seconds=0, verify_seconds=0))
        opened.append(TestClient(service, base_url="http://localhost", client=("127.0.0.1", 1)).__enter__())
    # A first check makes a fresh schema to compare with; on a busy machine that takes longer than a probe waits.
    for client in opened:
        deadline = time.monotonic() + 60
        while client.get("/readyz").status_code != 200 and time.monotonic() < deadline:
            time.sleep(0.05)
    yield opened
    for client in opened:
        client.__exit__(None, None, None)


def same(value: Any, times: bool = False) -> Any:
    """`value` without what may differ: released figures, digests and, unless `times` are public, times."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in RELEASED | DIGESTS}
        return {k: same(v, times) for k, v in kept.items() if times or (k != "at" and not k.endswith("_at"))}
    if isinstance(value, str):
        return re.sub(r"\b[0-9a-f]{16,64}\b", "DIGEST", value)
    return [same(item, times) for item in value] if isinstance(value, list | tuple) else value


def names(value: Any) -> set[str]:
    """Every key in `value` that has something under it."""
    if isinstance(value, dict):
        inner = set().union(*(names(item) for item in value.values()))
        return inner | {key for key, item in value.items() if item not in (None, {}, [], "")}
    return set().union(*(names(item) for item in value)) if isinstance(value, list | tuple) else set()


def plain(text: str, times: bool = False) -> str:
    """Text without digests, paths, fractions and, unless `times` are public, times: whole numbers, as counts, stay."""
    if not times:
        text = re.sub(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00| UTC)?", "TIME", text)
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "DIGEST", text)
    return re.sub(r"(?<!\d)(?<!\d:)-?\d+\.\d+(e[-+]?\d+)?", "REAL", text)


def test_the_worlds_differ_in_what_is_hidden(worlds: tuple[World, World]) -> None:
    """Otherwise the other tests would compare a thing with itself."""
    full, less = worlds
    assert full.answered > less.answered > 0


GETS = (
    "/v1/populations",
    "/v1/populations/people",
    "/v1/populations/people/charges",
    "/v1/populations/people/history",
    "/v1/populations/people/participation",
    "/v1/populations/people/what-if",
    "/v1/runs",
    "/v1/runs/run-1",
    "/v1/runs/run-1/rounds",
    "/v1/runs/run-1/series",
    "/v1/runs/run-1/participation",
    "/v1/runs/run-1/report",
    "/v1/audit",
    "/v1/audit/verification",
    "/v1/me",
    "/healthz",
    "/readyz",
)
OTHERWISE = {
    # Refused for a run with a fixed seed; its text is the report's and the guarantee card's.
    "/v1/runs/{run_id}/registry-entry",
    # Digests and a signature of one; as many as /v1/audit has rows.
    "/v1/audit/head",
    # Tested below, as what they are.
    "/v1/events",
    "/v1/audit/export",
    "/metrics",
    # The page and its files, the same for every ledger.
    "/",
    "/docs",
    "/assets/{name}",
    "/assets/{path}",
    "/openapi.json",
}


def test_no_endpoint_is_forgotten(clients: list[TestClient]) -> None:
    known = {path.replace("people", "{name}").replace("run-1", "{run_id}") for path in GETS} | OTHERWISE
    paths = {path for path, ways in clients[0].get("/openapi.json").json()["paths"].items() if "get" in ways}
    assert paths <= known


@pytest.mark.parametrize("path", GETS)
def test_what_an_endpoint_says_does_not_depend_on_who_is_there(
    clients: list[TestClient], worlds: tuple[World, World], path: str
) -> None:
    full, less = (client.get(path).json() for client in clients)
    # The check of the chain is made now, by the clock of this test.
    times = worlds[0].clock is not None and path != "/v1/audit/verification"
    assert same(full, times) == same(less, times)
    assert not names(full) & COUNTS
    # These show the plan, and its cohort is a constant.
    if path not in ("/v1/runs/run-1", "/v1/runs/run-1/report", "/v1/populations/people/what-if"):
        assert not names(full) & {"reports", "cohort", "rejects"}


def test_the_run_says_its_planned_cohort_and_no_other(clients: list[TestClient]) -> None:
    detail = clients[0].get("/v1/runs/run-1").json()
    assert (detail["cohort"], detail["rejects"], detail["void_rounds"]) == (USERS // 2, {}, None)
    assert detail["adjacency"] == "add_remove"
    for item in clients[0].get("/v1/runs/run-1/rounds").json()["items"]:
        assert (item["cohort"], item["reports"], item["rejects"], item["reason"]) == (None, None, {}, None)


@pytest.mark.parametrize("kind", ["json", "markdown", "html"])
def test_the_report_says_that_it_does_not_say(
    clients: list[TestClient], worlds: tuple[World, World], kind: str
) -> None:
    full, less = (client.get(f"/v1/runs/run-1/report?format={kind}").text for client in clients)
    times = worlds[0].clock is not None
    assert plain(full, times) == plain(less, times)
    if kind == "json":
        said = json.loads(full)["participation"]
        assert (said["realised_most"], said["realised_users_by_rounds"]) == (None, None)
    else:
        assert full.replace("\\", "").count(HIDDEN) == 2


def test_metrics(clients: list[TestClient]) -> None:
    def ledger_lines(client: TestClient) -> list[str]:
        lines = client.get("/metrics").text.splitlines()
        return [line for line in lines if line.startswith("fieldfare_") and "_http_" not in line]

    full, less = (ledger_lines(client) for client in clients)
    assert full == less
    assert not [line for line in full if "rejected_total{" in line]


def test_the_exported_log_and_the_chain(clients: list[TestClient], worlds: tuple[World, World]) -> None:
    full, less = ([json.loads(line) for line in client.get("/v1/audit/export").text.splitlines()] for client in clients)
    # As many rows, of the same kinds, in the same order: also registrations happen at moments that tell nothing.
    assert [row["event"] for row in full] == [row["event"] for row in less]
    assert [row["event"] for row in full].count("users.register") == ROUNDS
    times = worlds[0].clock is not None
    assert same(full, times) == same(less, times)
    for row in full:
        assert not set(row["details"]) & (COUNTS | {"cohort", "reports", "rejects"})
    for one in worlds:
        with Ledger.open(one.home.ledger) as ledger, ledger.database.read() as connection:
            bodies = connection.exec_driver_sql("SELECT action, body FROM audit").all()
        blinds = [json.loads(body)["blind"] for action, body in bodies if action.startswith(("round.", "users."))]
        assert len(set(blinds)) == len(blinds) == 3 * ROUNDS, "a hash over counts is blinded by bits of its own"


def test_events(clients: list[TestClient], worlds: tuple[World, World]) -> None:
    seen = []
    for one in worlds:
        with Ledger.open(one.home.ledger) as ledger:
            seen.append([encode(row).decode() for row in Answers(ledger).events(0, 1000)])
    times = worlds[0].clock is not None
    assert [plain(event, times) for event in seen[0]] == [plain(event, times) for event in seen[1]]
    for event in seen[0]:
        data = json.loads(event.split("data: ")[1])
        assert set(data) == {"id", "at", "event", "population", "run", "round"}


def test_progress_and_logs(worlds: tuple[World, World]) -> None:
    full, less = worlds
    assert {(report.cohort, report.reports) for report in full.told} == {(None, None)}
    assert [report.epsilon for report in full.told] == [report.epsilon for report in less.told]
    assert full.logged == less.logged
    assert full.logged, "a run says at least that it started"
    if full.clock is not None:
        times = [datetime.fromisoformat(json.loads(line)["time"]).timestamp() for line in full.logged]
        with Ledger.open(full.home.ledger) as ledger:
            start = ledger.run("run-1").started_at
        # A line shows milliseconds; any look at the clock moves it on by one.
        assert {round((time - start) % PERIOD, 6) for time in times} <= {round((times[0] - start) % PERIOD, 6)}
        assert abs(times[0] - start) < 1e-3


@pytest.mark.parametrize(
    "command", [("budget",), ("budget", "--json"), ("runs",), ("report", "run-1"), ("verify",), ("verify", "--json")]
)
def test_the_command_line(worlds: tuple[World, World], command: tuple[str, ...]) -> None:
    said = []
    for one in worlds:
        result = CliRunner().invoke(application, [*command, "--home", str(one.home.root), "--ledger", one.home.ledger])
        assert result.exit_code == 0, result.output
        said.append(plain(result.stdout))
    assert said[0] == said[1]
    assert command[0] != "verify" or "users" not in said[0]
