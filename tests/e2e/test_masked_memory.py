"""A known update is in no memory, database, log or file of the server: SuperNodes, SuperLink and blinder are real."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
from test_masked_federation import NODES, PLAN, ROUNDS, say

from fieldfare_server.deployment.simulation import superlink
from fieldfare_server.deployment.submit import submit
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.flower import supernode
from support.planted import PLANTED, TIMES, found_in, found_in_memory

TASK = "support.planted:PlantedTask"


def test_what_is_planted_is_found() -> None:
    """Once it is in memory, at any place of a byte."""
    before = found_in_memory()
    held = np.full(TIMES, PLANTED, "<u4").tobytes()
    assert [found_in(bytes(n) + held) for n in range(5)] == [1] * 5
    assert found_in(held[:-1]) == found_in(bytes(100)) == 0
    assert found_in_memory() > before
    assert held


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_planted_update_is_nowhere_at_the_server(tmp_path: Path) -> None:
    work, at, planted = tmp_path / "server", str(tmp_path / "blinder"), tmp_path / "planted"
    home = StateDirectory(work / "home", f"sqlite:///{work / 'home' / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("people", 50.0, 1e-5, simulated=True, actor="test")
    key = say("blinder", "init", "--at", at)
    plan = PLAN.format(
        task=TASK, rounds=ROUNDS, aggregation=f'kind = "masked"\nleast_nodes = {NODES}\nblinder = "{key}"'
    )
    (tmp_path / "plan.toml").write_text(plan)
    say("blinder", "approve", str(tmp_path / "plan.toml"), "--at", at)
    shared = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    env = {**shared, "FIELDFARE_HOME": str(home.root), "FIELDFARE_LEDGER": home.ledger}
    run_blinder = [str(Path(sys.executable).parent / "fieldfare"), "blinder", "run", "--at", at]
    with ExitStack() as stack:
        before = {child.pid for child in psutil.Process().children(recursive=True)}
        address = stack.enter_context(superlink(work, "--disable-runtime-dependency-installation", env=env))
        links = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
        for index in range(NODES):
            sign = tmp_path / f"{index}.sign"
            say("blinder", "admit", f"clinic {index}", say("node-key", str(sign)), "--at", at)
            pinned = f'blinder="{key}" node-key="{sign}"'
            stack.enter_context(
                supernode(tmp_path, address, index, TASK, NODES, pinned, PLANTED=str(planted), **shared)
            )
        stack.enter_context(supernode(tmp_path, address, 9, start=run_blinder, **shared))
        submit(work, address, plan=plan, task=TASK, run_id="run", env=env, timeout=400)
        assert links
        assert [found_in_memory(link.pid) for link in links if link.is_running()] == [0] * len(links)
    with Ledger.open(home.ledger) as ledger:
        assert ledger.run("run").state == "done"
        scores = [row.statistics["score"] for row in ledger.rounds("run").items if row.state == "committed"]
    assert len(planted.read_text().split()) >= NODES * ROUNDS
    assert scores == [0.0] * ROUNDS  # what the server's own memory holds, round by round
    files = [path for path in work.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if found_in(path.read_bytes())]
