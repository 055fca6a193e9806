"""Volumes that fill up: nothing is released without a durable charge, and the run goes on once there is room.

The volumes are made by the engine with a limit, and nothing is written before that limit was seen from inside.
"""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.container_runs import TASK, check_run, plan, run_alone
from support.containers import Federation, require_engine, wait_for

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(3600)]

MIB = 1 << 20
PAGE = 4096
"""What tmpfs counts blocks in. Podman takes `size` for a quota, which few file systems have."""
SIZES = {"coordinator": 64, "ledger": 256, "superlink": 64}
"""MiB of each volume. PostgreSQL's begins with 40 of tables and up to 80 of log, and makes its directory its own."""
OWNER = {"coordinator": ",uid=49999,gid=49999,mode=0700", "superlink": ",uid=49999,gid=49999,mode=0700", "ledger": ""}
FILES = ["docker-compose.yml", "tests/e2e/compose.e2e.yml", "tests/e2e/compose.full.yml"]

FILL = """
import errno, os, sys
volume, limit = sys.argv[1], int(sys.argv[2])
status = os.statvfs(volume)
size = status.f_blocks * status.f_frsize
assert size <= limit, f"{volume} has {size} bytes: it is not limited, and is not filled"
written = 0
with open(volume + "/fill", "ab", buffering=0) as file:
    try:
        while written <= size:
            written += file.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
assert os.statvfs(volume).f_bavail == 0
"""


@pytest.fixture(scope="module")
def small() -> Iterator[Federation]:
    """A federation whose volumes are small."""
    require_engine()
    made = Federation("fieldfare-e2e-full", FILES, TASK)
    try:
        made.down()
        for volume, size in SIZES.items():
            limit = [
                "--opt",
                "type=tmpfs",
                "--opt",
                "device=tmpfs",
                "--opt",
                f"o=nr_blocks={size * MIB // PAGE}{OWNER[volume]}",
            ]
            made.engine("volume", "create", *limit, f"{made.project}_{volume}")
        made.up(anew=False)
        yield made
    finally:
        made.down()


def fill(federation: Federation, volume: str) -> None:
    """Leave not one free block on a volume, after a look at its limit."""
    federation.exec("filler", "python", "-c", FILL, f"/full/{volume}", str(SIZES[volume] * MIB))


@contextmanager
def full(federation: Federation, volume: str) -> Iterator[None]:
    """While inside, nothing more can be written to a volume but what was set aside before."""
    try:
        fill(federation, volume)
        yield
    finally:
        federation.exec("filler", "rm", "-f", f"/full/{volume}/fill")


def test_the_engine_limits_the_volumes(small: Federation) -> None:
    places = {"coordinator": "/state", "ledger": "/var/lib/postgresql/data", "superlink": "/state"}
    for service, place in places.items():
        said = wait_for(lambda service=service, place=place: small.exec(service, "stat", "-f", "-c", "%b %S", place))
        blocks, size = (int(word) for word in said.split())
        assert blocks * size == SIZES[service] * MIB


def released(federation: Federation, run: str) -> set[str]:
    """Digests of the checkpoints that may be read, and "model" once there is a last one."""
    there = federation.exec("filler", "sh", "-c", f"cd /full/coordinator/runs/{run}; ls checkpoints; ls model* || true")
    return {name.removesuffix(".safetensors") for name in there.split()}


def committed(federation: Federation, run: str) -> set[str]:
    """Digests that the ledger has charged."""
    number = f"(SELECT seq FROM runs WHERE id = '{run}')"
    rows = federation.sql(f"SELECT checkpoint FROM rounds WHERE state = 'committed' AND run_seq = {number}")
    return {digest for (digest,) in rows}


def test_a_full_volume_of_the_coordinator_stops_the_run_and_room_lets_it_go_on(
    small: Federation, tmp_path: Path
) -> None:
    text = plan("full-coordinator", 8)
    alone = run_alone(text, tmp_path)
    run = small.submit(text)
    small.wait_open(run, 1)
    with full(small, "coordinator"):
        wait_for(lambda: small.state(run) == "interrupted")
        stopped = small.get(f"/v1/runs/{run}")
        assert "No space left on device" in stopped["message"]
        assert "make room, then resume the run" in stopped["message"]
        assert "make room, then resume the run" in small.logs("coordinator")
        # The supervisor's first resume finds no room either.
        wait_for(lambda: f"{run}: no coordinator holds it" in small.logs("supervisor"))
        assert 1 <= stopped["committed_rounds"] < 8
        assert released(small, run) <= committed(small, run)
        spent = small.get("/v1/populations/full-coordinator")["spent"]["epsilon"]
        assert spent == pytest.approx(alone[stopped["committed_rounds"] - 1][1], rel=1e-9)
    small.wait_done(run)
    check_run(small, run, alone)


WRITE_ON = """
export PGPASSWORD=$(cat /secrets/password)
psql --host 127.0.0.1 --username fieldfare fieldfare <<'SQL'
SELECT pg_logical_emit_message(true, 'full', 'x'), pg_switch_wal()
WHERE (pg_stat_file('fill', true)).size > 0 \\watch 0.5
SQL
"""
"""PostgreSQL writes on in the piece of its log that it has, for connections that it has; so new pieces are begun from
when the volume is being filled."""


def test_a_full_volume_of_the_ledger_stops_the_run_and_room_lets_it_go_on(small: Federation, tmp_path: Path) -> None:
    text = plan("full-ledger", 12)
    alone = run_alone(text, tmp_path)
    run = small.submit(text)
    small.engine("exec", "--detach", small.container("ledger"), "sh", "-c", WRITE_ON)
    small.wait_open(run, 1)
    before = given_up(small)
    with full(small, "ledger"):
        wait_for(lambda: "No space left on device" in small.logs("ledger"), 120)
        wait_for(lambda: readiness(small) == 503)
        seen = released(small, run)
        assert "model" not in seen
        # Longer than the coordinator waits for its ledger.
        wait_for(lambda: given_up(small) > before)
        assert released(small, run) == seen
    small.wait_done(run)
    assert seen <= committed(small, run)
    check_run(small, run, alone)
    rows = small.sql(f"SELECT count(*) FROM audit WHERE action = 'run.resume' AND run = '{run}'")
    assert rows[0][0] >= 1


def given_up(federation: Federation) -> int:
    """How often a coordinator has ended for want of its ledger."""
    lines = [line for line in federation.logs("coordinator").splitlines() if '"fieldfare.app"' in line]
    return sum("the database refused" in line for line in lines)


def readiness(federation: Federation) -> int:
    """The status of the API's /readyz."""
    try:
        federation.get("/readyz", None)
    except urllib.error.HTTPError as error:
        return error.code
    return 200


EMPTY_LOG = """
import sqlite3, time
database = sqlite3.connect("/full/superlink/superlink.db", timeout=30)
while database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
    time.sleep(0.1)
"""
"""SQLite writes on in the file of its log that it has, from its beginning again; so that needs to grow."""


def test_a_full_volume_of_the_superlink_stops_the_run_and_room_lets_it_go_on(small: Federation, tmp_path: Path) -> None:
    text = plan("full-superlink", 8)
    alone = run_alone(text, tmp_path)
    run = small.submit(text)
    small.wait_open(run, 1)
    small.exec("filler", "python", "-c", EMPTY_LOG)
    with full(small, "superlink"):
        wait_for(lambda: "disk is full" in small.logs("superlink"))
        # Its nodes hear of it too, and go on.
        wait_for(lambda: "answered a heartbeat with 500" in small.logs("node-1") + small.logs("node-2"))
        stopped = small.get(f"/v1/runs/{run}")["committed_rounds"]
        assert stopped < 8
        spent = small.get("/v1/populations/full-superlink")["spent"]["epsilon"]
        assert spent == pytest.approx(alone[stopped - 1][1], rel=1e-9)
    small.wait_done(run)
    check_run(small, run, alone)
