"""Volumes that are lost or put back: no charge is lost with one, as deploy/README.md says under "Backup".

On the federation of test_containers.py. Three losses, one after another; each time everything starts again.
"""

from __future__ import annotations

import json
import urllib.error
from typing import Any

import pytest

from support.container_runs import plan
from support.containers import SERVICES, Federation, wait_for

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(7200)]

WRITERS = ("coordinator", "supervisor", "api")
OWNER = "export PGPASSWORD=$(cat /secrets/password) PGHOST=127.0.0.1 PGUSER=fieldfare; set -e; "
EMPTY = (
    OWNER + "psql --quiet --dbname postgres --command 'DROP DATABASE fieldfare WITH (FORCE)'; "
    "psql --quiet --dbname postgres --command 'CREATE DATABASE fieldfare'"
)
DUMP = OWNER + "pg_dump fieldfare >/tmp/old.sql"
PUT_BACK = EMPTY + "; psql --quiet --set ON_ERROR_STOP=1 --dbname fieldfare --file /tmp/old.sql >/dev/null"


def charges(federation: Federation) -> dict[str, Any]:
    """What each population has spent and holds."""
    names = [item["name"] for item in federation.get("/v1/populations?limit=100")["items"]]
    shown = {name: federation.get(f"/v1/populations/{name}") for name in names}
    return {
        name: (item["spent"]["epsilon"], item["committed"]["epsilon"], item["users"]) for name, item in shown.items()
    }


def in_the_coordinators_home(federation: Federation, *command: str) -> str:
    """`fieldfare COMMAND` with the coordinator's volume and the owner's URL, which `migrate` alone has."""
    volumes = ("migrate-secrets:/secrets:ro", "coordinator:/state", "exchange:/exchange")
    mounts = [word for volume in volumes for word in ("--volume", f"{federation.project}_{volume}")]
    settings = ("FIELDFARE_LEDGER_FILE=/secrets/ledger.url", "FIELDFARE_HOME=/state/runs", "FIELDFARE_LOG=text")
    told = [word for setting in settings for word in ("--env", setting)]
    network = ("--network", f"{federation.project}_ledger")
    return federation.engine("run", "--rm", *network, *mounts, *told, "fieldfare:local", "fieldfare", *command)


def restart(federation: Federation) -> None:
    federation.compose("stop", *SERVICES)
    federation.compose("start", *SERVICES)


def ready(federation: Federation) -> bool:
    try:
        return bool(federation.get("/readyz", None)["status"] == "ok")
    except OSError:
        return False


def refusal(federation: Federation) -> str:
    """Why the service is not ready, as `/readyz` tells the page; "" where it is, or does not answer."""
    try:
        federation.get("/readyz")
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        pass
    return ""


def told(federation: Federation, what: str) -> None:
    """Print what each population has spent: before and after a loss."""
    print(f"{what}: { {name: round(spent, 6) for name, (spent, _, _) in charges(federation).items()} }")


def train(federation: Federation, name: str) -> None:
    federation.wait_done(federation.submit(plan(name, 4, timeout=180.0)))


def test_no_volume_takes_a_charge_with_it(federation: Federation) -> None:
    train(federation, "first")
    # A key that is kept offline, in case the coordinator's home is lost.
    offline = "/exchange/offline.key"
    public = in_the_coordinators_home(federation, "head", "new-key", offline).strip()
    in_the_coordinators_home(federation, "head", "enrol", public)
    federation.exec("ledger", "sh", "-c", DUMP)
    train(federation, "second")
    before = charges(federation)
    assert before["second"][0] > 0
    told(federation, "before an old database is put back")

    # The database's volume is put back from an older copy, and everything starts again.
    federation.compose("stop", *WRITERS)
    federation.exec("ledger", "sh", "-c", PUT_BACK)
    restart(federation)
    wait_for(lambda: "second" not in charges(federation))
    wait_for(lambda: "an old copy was put back" in refusal(federation))
    told(federation, "while it is there")
    federation.compose("stop", *WRITERS)
    done = json.loads(in_the_coordinators_home(federation, "ledger", "mend", "--yes", "--json"))
    assert done["restored"] > 0
    assert (done["dropped"], done["whole"], done["closed"]) == ([], [], [])
    restart(federation)
    wait_for(lambda: ready(federation))
    assert charges(federation) == before
    told(federation, "after `ledger mend`")
    train(federation, "third")

    # The database's volume is lost.
    before = charges(federation)
    federation.compose("stop", *WRITERS)
    federation.exec("ledger", "sh", "-c", EMPTY)
    federation.compose("run", "--rm", "migrate")
    said = in_the_coordinators_home(federation, "ledger", "import", "/state/runs/ledger.segments")
    assert "every table says what they prove" in " ".join(said.split())
    restart(federation)
    wait_for(lambda: ready(federation))
    assert charges(federation) == before
    told(federation, "after a lost database and `ledger import`")
    train(federation, "fourth")

    # The coordinator's volume is lost.
    before = charges(federation)
    federation.compose("stop", *WRITERS)
    federation.exec("keeper", "find", "/state", "-mindepth", "1", "-delete")
    in_the_coordinators_home(federation, "head", "rotate", "--offline-key", offline)
    restart(federation)
    wait_for(lambda: ready(federation))
    assert charges(federation) == before
    told(federation, "after a lost coordinator's volume and `head rotate`")
    train(federation, "fifth")
    assert {name: charges(federation)[name] for name in before} == before
    kept = federation.exec("keeper", "find", "/state/runs/ledger.segments", "-name", "*.segment").split()
    assert kept, "the new home keeps the log again"
    # The strategies that runs applied were in the lost volume, and the words of `verify` say so of each run.
    said = federation.say("coordinator", "fieldfare", "verify")
    assert "the ledger is whole" in said
    assert "a copy of it from the state directory in which the run began" in said
