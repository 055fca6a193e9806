"""PostgreSQL's primary is killed in the middle of a run, and its synchronous standby is promoted: no charge is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from test_containers_volumes import OWNER, charges, ready, told, train

from support.container_runs import TASK, check_run, plan, run_alone
from support.containers import ROOT, Federation, require_engine, wait_for

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(3600)]

LEDGER = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["ledger"]
IMAGE = LEDGER["image"].partition(":-")[2].rstrip("}")
LET_STANDBYS_IN = (
    OWNER + "echo 'host replication all all scram-sha-256' >>/var/lib/postgresql/data/pg_hba.conf; "
    "psql --quiet --dbname fieldfare --command 'SELECT pg_reload_conf()'"
)
STANDBY = (
    "until [ -s /var/lib/postgresql/data/PG_VERSION ]; do "
    "PGPASSWORD=$(cat /secrets/password) pg_basebackup --host ledger --username fieldfare --write-recovery-conf "
    "--pgdata /var/lib/postgresql/data --checkpoint fast || sleep 1; done; "
    + LEDGER["entrypoint"][2].replace("$$", "$")
)
SYNCHRONOUS = "ALTER SYSTEM SET synchronous_standby_names = '*'"


class Servers:
    """PostgreSQL's containers: whichever is primary is called `ledger` on its network."""

    def __init__(self, federation: Federation, stack: ExitStack) -> None:
        self.federation, self._stack = federation, stack
        self.primary = federation.container("ledger")
        wait_for(lambda: federation.exec("ledger", "sh", "-c", LET_STANDBYS_IN))

    def ask(self, server: str, statement: str) -> str:
        """What one server answers its owner."""
        psql = OWNER + 'psql --quiet --tuples-only --no-align --dbname fieldfare --command "$1"'
        return self.federation.engine("exec", server, "sh", "-c", psql, "-", statement).strip()

    def standby(self, name: str) -> str:
        """Start a streaming standby of the primary; returns its container once it streams."""
        project, engine = self.federation.project, self.federation.engine
        server = f"{project}_{name}"
        volumes = (f"{server}:/var/lib/postgresql/data", f"{project}_ledger-secrets:/secrets:ro")
        mounts = [word for volume in volumes for word in ("--volume", volume)]
        self._stack.callback(engine, "rm", "--force", "--volumes", server, check=False)
        made = ("run", "--detach", "--name", server, "--network", f"{project}_ledger", *mounts)
        engine(*made, "--entrypoint", "sh", IMAGE, "-c", STANDBY)
        wait_for(lambda: "streaming" in self.ask(self.primary, "SELECT state FROM pg_stat_replication"), 300)
        return server

    def fail_over(self, standby: str) -> None:
        """Kill the primary for good, promote `standby`, and give it the primary's name."""
        network = f"{self.federation.project}_ledger"
        self.federation.engine("kill", self.primary, check=False)  # it may be dead
        wait_for(lambda: self.ask(standby, "SELECT pg_promote()") == "t", 120)
        self.federation.engine("network", "disconnect", network, standby)
        self.federation.engine("network", "connect", "--alias", "ledger", network, standby)
        self.primary = standby


@pytest.fixture
def servers() -> Iterator[Servers]:
    """A federation of its own, whose first PostgreSQL does not come back."""
    require_engine()
    made = Federation("fieldfare-e2e-failover", ["docker-compose.yml", "tests/e2e/compose.e2e.yml"], TASK)
    with ExitStack() as stack:
        stack.callback(made.down)
        made.up()
        yield Servers(made, stack)


def test_a_promoted_standby_has_every_charge_and_the_run_goes_on(servers: Servers, tmp_path: Path) -> None:
    federation, text = servers.federation, plan("failover", 6, timeout=180.0)
    alone = run_alone(text, tmp_path)
    train(federation, "first")
    second = servers.standby("second")
    servers.ask(servers.primary, SYNCHRONOUS)
    servers.ask(servers.primary, "SELECT pg_reload_conf()")
    wait_for(lambda: servers.ask(servers.primary, "SELECT sync_state FROM pg_stat_replication") == "sync", 60)
    run = federation.submit(text)
    federation.wait_open(run, 2)
    told(federation, "before the primary is killed, in round 2 or later")
    before = charges(federation)
    servers.fail_over(second)
    wait_for(lambda: ready(federation))
    told(federation, "after a synchronous standby was promoted")
    after = charges(federation)
    assert after["first"] == before["first"]
    assert after["failover"][0] >= before["failover"][0] > 0
    federation.wait_done(run)
    check_run(federation, run, alone)
