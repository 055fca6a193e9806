"""A known update is in no memory, database, log or file of the server: SuperNodes, SuperLink and blinder are real."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psutil
import pytest
from test_masked_federation import NODES, PLAN, ROUNDS, say

from fieldfare_client import blinder as blinder_module
from fieldfare_client import masking
from fieldfare_server import faults
from fieldfare_server.deployment.simulation import superlink
from fieldfare_server.deployment.submit import submit
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence import replies
from fieldfare_server.run.round.masked import rehearse_masks
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home
from support.federation import plan as plan_of
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


def test_what_is_changed_in_containers_fits_the_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """lying/sitecustomize.py puts functions in the place of others, which change: then no test in containers passes."""
    spec = importlib.util.spec_from_file_location("lying", Path(__file__).with_name("lying") / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    lying = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    spec.loader.exec_module(lying)
    for name in ("LIES", "TOLD", "PLANT", "PLANTED", "HOLD", "HELD"):
        monkeypatch.setattr(lying, name, tmp_path / name)
    for owner, name in (
        (masking, "encode"),
        (faults, "point"),
        (blinder_module, "_write_down"),
        (blinder_module.Blinder, "answer"),
        (replies.Receiver, "receive"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end
    for name, change in lying.CHANGES.items():
        change(sys.modules[name])
    points = ["strategy.sent", "strategy.asked", "blinder.opened", "blinder.written", "blinder.durable", "NOWHERE"]
    lying.HOLD.write_text(points[0])
    lying.PLANT.write_text(str(PLANTED))

    def let_go() -> None:
        for point in points[1:]:
            while not lying.HELD.exists():
                time.sleep(0.005)
            lying.HOLD.write_text(point)
            lying.HELD.unlink()

    waiting = threading.Thread(target=let_go, daemon=True)
    waiting.start()
    state, rounds = home(tmp_path), 4
    plan = plan_of(aggregation={"kind": "masked", "least_nodes": 2}, run__rounds=rounds)
    with Session.begin(state, plan, identity_is_stable=True, run_id="run") as session:
        grid = LyingGrid(4)
        rehearse_masks(grid, session.plan, session.schema, tmp_path)  # type: ignore[arg-type]
        FieldfareStrategy(session).start(grid)
    waiting.join(10)
    assert not waiting.is_alive()
    assert lying.HOLD.read_text() == points[-1]
    assert len(lying.PLANTED.read_text().splitlines()) >= 2 * rounds


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
    # On a busy machine nodes import PyTorch for minutes before they first answer.
    plan = plan.replace("round_timeout = 60", "round_timeout = 240")
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
