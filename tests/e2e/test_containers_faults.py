"""What may happen to a deployment: containers die, networks part, nodes lie, backups are put back.

On the federation of test_containers.py, one after another; the last ones change whom it trusts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fieldfare_server.ledger.sql.migrate import latest
from support.container_runs import check_ledger, check_run, plan, run_alone
from support.containers import SERVICES, Federation, wait_for

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(7200)]

MORTAL = ("superlink", "gate", "ledger", "node-1", "executor-2", "supervisor", "api")
"""Killed one a round; the coordinator is in test_containers.py."""


def test_each_container_is_killed_in_the_middle_of_a_round(federation: Federation, tmp_path: Path) -> None:
    text = plan("crashes", len(MORTAL) + 2)
    alone = run_alone(text, tmp_path)
    run = federation.submit(text)
    index = -1
    for service in MORTAL:
        index = federation.wait_open(run, index + 1)
        federation.kill(service)
    federation.wait_done(run)
    check_run(federation, run, alone)


@contextmanager
def parted(federation: Federation, service: str, network: str) -> Iterator[None]:
    """While inside, `service` is not on `network`."""
    name, container = f"{federation.project}_{network}", federation.container(service)
    federation.engine("network", "disconnect", name, container)
    try:
        yield
    finally:
        federation.engine("network", "connect", "--alias", service, name, container)


def test_a_partition_of_two_minutes_costs_time_and_nothing_else(federation: Federation, tmp_path: Path) -> None:
    text = plan("parted", 4)
    alone = run_alone(text, tmp_path)
    run = federation.submit(text)
    federation.wait_open(run, 1)
    with parted(federation, "gate", "node-1"):
        time.sleep(120)
        assert federation.state(run) == "running"
    federation.wait_done(run)
    check_run(federation, run, alone)


def test_the_server_side_may_be_parted_too(federation: Federation, tmp_path: Path) -> None:
    text = plan("parted-inside", 4)
    alone = run_alone(text, tmp_path)
    run = federation.submit(text)
    federation.wait_open(run, 1)
    with parted(federation, "coordinator", "ledger"):
        time.sleep(30)
    federation.wait_done(run)
    check_run(federation, run, alone)


LIES = {
    "nan": "non-finite",
    "huge": "over-norm, clipped again",
    "shape": "shape",
    "stale": "round",
    "crowd": "users",
    "slow": None,
}
"""What executor-2's client does in a round of its own, and what the server counts for it."""


def test_a_node_that_lies_or_is_slow_changes_no_charge(federation: Federation, tmp_path: Path) -> None:
    text = plan("liars", len(LIES), min_reports=4)
    run_alone(text, tmp_path)
    lies = {str(index): lie for index, lie in enumerate(LIES)}
    federation.exec("executor-2", "sh", "-c", "cat >/state/lies", stdin=json.dumps(lies).encode())
    try:
        run = federation.submit(text)
        federation.wait_done(run)
    finally:
        federation.exec("executor-2", "rm", "/state/lies")
    rounds = federation.rounds(run)
    assert [(r["index"], r["state"]) for r in rounds] == [(index, "committed") for index in range(len(LIES))]
    for attempt, counted in zip(rounds, LIES.values(), strict=True):
        assert attempt["rejects"] == ({counted: 1} if counted else {})
        # A clipped reply counts; one that is dropped does not, and neither do its users.
        assert (attempt["reports"] == 24) == (counted in (None, "over-norm, clipped again"))
        assert attempt["epsilon"] <= 8.0 * (1 + 1e-9)
    check_ledger(federation)


def test_state_budget_and_models_outlive_a_restart_of_everything(federation: Federation, tmp_path: Path) -> None:
    text = plan("restarted", 4)
    alone = run_alone(text, tmp_path)
    run = federation.submit(text)
    federation.wait_open(run, 1)
    federation.compose("stop", *SERVICES)
    federation.compose("start", *SERVICES)
    federation.wait_done(run)
    check_run(federation, run, alone)
    models = federation.exec("keeper", "sh", "-c", f"ls -l /state/runs/{run}/model.safetensors")
    assert models.strip()


def refusal(federation: Federation, text: str) -> str:
    """What `fieldfare run` says of a plan, followed to its end."""
    said = federation.ask_for(text, "--root-certificates", "/secrets/ca.crt", check=False)
    return " ".join(said.split())


PSQL = "PGPASSWORD=$(cat /secrets/password) psql --host 127.0.0.1 --username fieldfare --dbname fieldfare"
DUMP = "PGPASSWORD=$(cat /secrets/password) pg_dump --host 127.0.0.1 --username fieldfare fieldfare >/tmp/ledger.sql"
RESTORE = """
set -e
export PGPASSWORD=$(cat /secrets/password) PGHOST=127.0.0.1 PGUSER=fieldfare
psql --quiet --dbname postgres --command 'DROP DATABASE fieldfare WITH (FORCE)'
psql --quiet --dbname postgres --command 'CREATE DATABASE fieldfare'
psql --quiet --set ON_ERROR_STOP=1 --dbname fieldfare --file /tmp/ledger.sql >/dev/null
"""


def test_a_backup_can_be_put_back_and_an_old_ledger_alone_is_refused(federation: Federation, tmp_path: Path) -> None:
    first = federation.submit(plan("kept", 4))
    federation.wait_done(first)
    # deploy/README.md, "Backup": the ledger and the coordinator's volume, while nobody writes.
    federation.compose("stop", "coordinator", "supervisor")
    federation.exec("ledger", "sh", "-c", DUMP)
    federation.exec("keeper", "tar", "-C", "/state", "-cf", "/tmp/coordinator.tar", ".")
    federation.compose("start", "coordinator", "supervisor")
    second = federation.submit(plan("forgotten", 4))
    federation.wait_done(second)

    federation.compose("stop", "coordinator", "supervisor")
    federation.exec("ledger", "sh", "-c", RESTORE)
    federation.compose("start", "coordinator", "supervisor")
    assert "forgotten" not in {p["name"] for p in federation.get("/v1/populations?limit=100")["items"]}
    assert "an old copy was put back" in refusal(federation, plan("after", 4))
    assert "after" not in {r["population"] for r in federation.get("/v1/runs?limit=100")["items"]}

    federation.compose("stop", "coordinator", "supervisor")
    federation.exec("keeper", "sh", "-c", "find /state -mindepth 1 -delete; tar -C /state -xf /tmp/coordinator.tar")
    federation.compose("start", "coordinator", "supervisor")
    # The pair is whole, but older than what the nodes were shown: they answer again once they forget it.
    for node in ("executor-1", "executor-2"):
        federation.exec(node, "sh", "-c", "test -s /state/witness && rm /state/witness")
    third = federation.submit(plan("after", 4))
    federation.wait_done(third)
    assert federation.state(first) == "done"
    check_ledger(federation)


NEXT = """
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "next", {newest!r}, None, None
def upgrade():
    op.add_column("populations", sa.Column("colour", sa.String(10), nullable=True))
"""
BACK = "ALTER TABLE populations DROP COLUMN colour; UPDATE alembic_version SET version_num = '{newest}'"


def test_an_upgrade_keeps_the_data_and_the_older_services_refuse_to_write(
    federation: Federation, tmp_path: Path
) -> None:
    newest = latest()
    migration = tmp_path / "next.py"
    migration.write_text(NEXT.format(newest=newest))
    migration.chmod(0o644)
    tmp_path.chmod(0o755)
    inside = federation.exec(
        "api", "python", "-c", "from fieldfare_server.ledger import migrate as m; print(m.LOCATION)"
    )
    next_version = [
        *("run", "--rm", "--network", f"{federation.project}_ledger"),
        *("--volume", f"{federation.project}_migrate-secrets:/secrets:ro"),
        *("--volume", f"{migration}:{inside.strip()}/versions/next.py:ro"),
        *("--env", "FIELDFARE_LEDGER_FILE=/secrets/ledger.url", "fieldfare:local", "fieldfare"),
    ]
    before = federation.exec("supervisor", "fieldfare", "runs", "--json")
    try:
        federation.engine(*next_version, "migrate")
        assert federation.engine(*next_version, "runs", "--json") == before
        assert "newer than this program" in refusal(federation, plan("kept", 4))
        assert federation.engine(*next_version, "runs", "--json") == before
    finally:
        federation.exec("ledger", "sh", "-c", PSQL + ' --command "$1"', "-", BACK.format(newest=newest))
    assert federation.exec("supervisor", "fieldfare", "runs", "--json") == before


def test_a_node_whose_key_is_revoked_takes_part_no_more(federation: Federation) -> None:
    superlink = ["--superlink", "superlink:8000", "--root-certificates", "/secrets/ca.crt"]
    key = federation.exec("node-2", "cat", "/exchange/node-2.pub")
    federation.exec("supervisor", "sh", "-c", "cat >/tmp/node-2.pub", stdin=key.encode())
    run = federation.submit(plan("revoked", 4, min_reports=4, min_available=200))
    federation.wait_open(run, 1)
    federation.exec("supervisor", "fieldfare", "nodes", "revoke", "/tmp/node-2.pub", *superlink)
    federation.wait_done(run)
    rounds = [r for r in federation.rounds(run) if r["state"] == "committed"]
    assert rounds[-1]["index"] == 3
    again = federation.submit(plan("revoked-after", 4, min_reports=4, min_available=200))
    federation.wait_done(again)
    # node-1's half alone: the revoked node's users are not asked any more.
    assert federation.get("/v1/populations/revoked-after")["users"] < 400
    assert '"path":"/v1/fleet/activate-node","status":412' in federation.logs("gate")


RENEW = """
from pathlib import Path
from fieldfare_server.deployment.certificates import renew_server
renew_server(Path("/secrets"), Path("/exchange"), ["superlink", "localhost"], ["gate", "localhost"], days={days})
"""
SIDES = ("superlink", "gate", "coordinator", "api", "ledger")


def renew(federation: Federation, days: int) -> None:
    """deploy/README.md, "Certificates": new ones in place of the old, and a restart of who had read those."""
    volumes = [f"{federation.project}_{side}-secrets:/secrets/{side}" for side in SIDES]
    mounts = [word for v in (*volumes, f"{federation.project}_exchange:/exchange") for word in ("--volume", v)]
    federation.engine(
        "run",
        "--rm",
        "--interactive",
        *mounts,
        "fieldfare:local",
        "python",
        "-",
        stdin=RENEW.format(days=days).encode(),
    )
    tls = ("superlink", "gate", "coordinator", "supervisor", "node-1", "node-2")
    federation.compose("stop", *tls)
    federation.compose("start", *tls)


def test_expired_certificates_stop_the_federation_and_renewed_ones_start_it(federation: Federation) -> None:
    renew(federation, days=0)
    check = ["python", "/opt/fieldfare/healthcheck.py", "https://gate:8000/health", "/exchange/ca.crt"]
    wait_for(lambda: "expired" in federation.say("node-1", *check))
    renew(federation, days=397)
    wait_for(lambda: federation.exec("node-1", *check) == "")
    run = federation.submit(plan("renewed", 4, min_reports=4, min_available=200))
    federation.wait_done(run)
    check_ledger(federation)
