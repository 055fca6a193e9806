"""The eleven ways in which a coordinator may lie, told to real SuperNodes, executors and a blinder by a SuperLink."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
from test_masked_federation import say

from fieldfare_client.budget.__main__ import main as budget
from fieldfare_server.deployment.certificates import make_node
from fieldfare_server.deployment.nodes import register_node
from fieldfare_server.deployment.submit import environment, program, write_connection
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.deployed import TASK, round_time
from support.lying_coordinator import NODES

ROOT = Path(__file__).parents[2]
PLAN = """
[privacy]
population = "people"
noise_multiplier = 5.0
delta = 1e-5
[run]
task = "{task}"
rounds = 6
cohort = 12
min_reports = 4
round_timeout = 120
[participation]
scheme = "min-separation"
separation = 2
max_participations = 3
[mechanism]
kind = "independent"
[client]
learning_rate = 0.1
[aggregation]
kind = "masked"
least_nodes = {nodes}
blinder = "{key}"
"""
APP = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "liar"
version = "1.0.0"
dependencies = []
[tool.flwr.app]
publisher = "liar"
[tool.flwr.app.components]
serverapp = "support.lying_coordinator:app"
clientapp = "fieldfare_client.app:app"
[tool.flwr.app.config]
root = "{root}"
"""
REFUSED = {
    "code not pinned": ["CodeRefused"] * NODES,
    "invented nodes": ["masks-node"],
    "swapped boxes": ["masks-box"],
    "another plan": ["masks-plan", *["another-plan"] * NODES],
    "a second set": ["masks-answered"],
    "an old round": ["masks-order"],
    "another population": [*["not-agreed"] * NODES, *["another-population"] * NODES],
    "an older log": ["older-log"] * NODES,
    "a user too soon": ["too-soon"] * NODES,
    "another clip norm": ["not-planned"] * NODES,
    "a user again": ["asked-again"] * NODES,
    "two heads": ["forked"] * NODES,
    "an older blinder": ["BlinderWentBack"] * NODES,
}
"""Lie -> the words by which blinder and nodes refuse it."""


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eleven_ways_to_lie_are_refused_by_name_by_blinder_or_node(tmp_path: Path) -> None:
    work, at = tmp_path, str(tmp_path / "blinder")
    home = StateDirectory(work / "home", f"sqlite:///{work / 'home' / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("people", 50.0, 1e-5, actor="test")
    key = say("blinder", "init", "--at", at)
    (work / "plan.toml").write_text(PLAN.format(task=TASK, nodes=NODES, key=key))
    say("blinder", "approve", str(work / "plan.toml"), "--at", at)
    signs = [work / f"{index}.sign" for index in range(NODES)]
    for index, sign in enumerate(signs):
        say("blinder", "admit", f"clinic {index}", say("node-key", str(sign)), "--at", at)
        own = work / f"own-{index}"
        own.mkdir()
        agreed = f'[populations.people]\nhead = "{home.head_file.read_text().strip()}"\nepsilon = 50.0\ndelta = 1e-5\n'
        (own / "budget.toml").write_text(agreed)
        assert budget(["init", "--file", str(own / "budget.toml")]) == 0
        (work / f"code-{index}").write_text(f"{'0' * 64}  another app\n")
    shutil.copytree(at, work / "older")
    rounds = round_time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]))
        with rounds.federation(work, home, 0, TASK, ours=True) as (watched, address, ca):
            for name in ("blinder-node", *(f"node-{index}" for index in range(NODES))):
                make_node(work / name, work / "exchange", name, ["127.0.0.1", "localhost"])
                register_node(address, ca, work / name / "node.pub", timeout=300)
            for index in range(NODES):
                more = f'blinder="{key}" node-key="{signs[index]}"'
                own = {
                    "FIELDFARE_BUDGET": str(work / f"own-{index}" / "budget.toml"),
                    "FIELDFARE_WITNESS": str(work / f"own-{index}" / "head"),
                    "FIELDFARE_CODE": str(work / f"code-{index}"),
                }
                rounds.start_node(watched, work, index, NODES, address, ca, TASK, True, more, **own)
            own = work / "blinder-node"
            watched.start(
                "blinder-process",
                -1,
                [
                    *(program("fieldfare"), "blinder", "run", "--at", at, f"--superlink={address}"),
                    *(f"--root-certificates={ca}", f"--auth-supernode-private-key={own / 'node'}"),
                    *("--host=127.0.0.1", f"--port={rounds.free_port()}", f"--ssl-keyfile={own / 'runtime.key'}"),
                    *(f"--ssl-ca-certfile={own / 'runtime-ca.crt'}", f"--ssl-certfile={own / 'runtime.crt'}"),
                    f"--superexec-auth-secret-file={own / 'superexec.secret'}",
                ],
            )
            (work / "app").mkdir()
            (work / "app" / "pyproject.toml").write_text(APP.format(root=work))
            write_connection(work / "flwr", address, ca)
            command = [program("flwr"), "run", str(work / "app"), "federation", "--stream"]
            done = subprocess.run(
                command, env=environment(work / "flwr"), capture_output=True, text=True, timeout=700, check=False
            )
    assert (work / "said.json").exists(), (done.stdout + done.stderr)[-6000:]
    said = json.loads((work / "said.json").read_text())
    assert said.pop("honest") == ["", ""]
    words = {
        lie: [word for line in lines for word in re.findall(r"[\w-]+", line) if word in REFUSED[lie]]
        for lie, lines in said.items()
    }
    assert (
        words | {"code not pinned": ["CodeRefused" for line in said["code not pinned"] if "CodeRefused" in line]}
        == REFUSED
    )
    # What an operator does about each word is on these pages; the first names the other two.
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("masked-sums.md", "node-budget.md", "head.md"))
    assert all(f"`{word}`" in pages for kinds in REFUSED.values() for word in kinds)
    with Ledger.open(home.ledger) as ledger:
        assert ledger.run("run").next_round == 2
    status = json.loads(say("blinder", "status", "--json", "--at", at))
    assert [row[1:4] for row in status["answers"]] == [["run", round, NODES] for round in (0, 1, 3)]
    for index in range(NODES):
        with sqlite3.connect(work / f"own-{index}" / "charges.sqlite3") as charges:
            asked = charges.execute("SELECT DISTINCT round FROM asked WHERE attempt >= 0 ORDER BY round").fetchall()
        assert asked == [(0,), (1,), (3,)]
