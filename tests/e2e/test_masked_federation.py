"""Masked sums over real SuperNodes, with the blinder as a node of its own: coordinator and blinder are killed between
the closing of a round and its commit, and the model is that of a plain run, byte for byte."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fieldfare.plan import Plan
from fieldfare_server import faults
from fieldfare_server.cli.application import application
from fieldfare_server.cli.progress import local_grid, run_here
from fieldfare_server.deployment.simulation import superlink
from fieldfare_server.deployment.submit import FlowerError, submit
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.session import Session
from support.flower import supernode

NODES, ROUNDS = 3, 2
TASK = "support.federation:TinyTask"
PLAN = """
[privacy]
population = "people"
noise_multiplier = 2.0
delta = 1e-5
[run]
task = "{task}"
rounds = {rounds}
cohort = 12
min_reports = 6
min_available = 24
noise_seed = 7
round_timeout = 60
trust_node_ids = true
[mechanism]
kind = "independent"
[client]
learning_rate = 0.1
[aggregation]
{aggregation}
"""


def say(*words: str) -> str:
    said = CliRunner().invoke(application, list(words))
    assert said.exit_code == 0, said.output
    return said.stdout.strip()


def model(home: StateDirectory, run: str) -> bytes:
    return (home.root / run / "model.safetensors").read_bytes()


def actions(home: StateDirectory, run: str) -> list[tuple[str, int | None]]:
    with Ledger.open(home.ledger) as ledger:
        rows = reversed(ledger.journal_rows(limit=1000).items)
        return [(row.action, row.round) for row in rows if row.run == run and row.action.startswith("round.")]


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_masked_over_supernodes_with_coordinator_and_blinder_killed(tmp_path: Path) -> None:
    work, at = tmp_path / "work", str(tmp_path / "blinder")
    work.mkdir()
    home = StateDirectory(tmp_path / "home", f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("people", 50.0, 1e-5, simulated=True, actor="test")
    key = say("blinder", "init", "--at", at)
    assert key == say("blinder", "key", "--at", at)
    keys = [tmp_path / f"node-{index}.key" for index in range(NODES)]
    for index, file in enumerate(keys):
        say("blinder", "admit", f"clinic {index}", say("node-key", str(file)), "--at", at)
    masked = PLAN.format(
        task=TASK, rounds=ROUNDS, aggregation=f'kind = "masked"\nleast_nodes = {NODES}\nblinder = "{key}"'
    )
    (tmp_path / "plan.toml").write_text(masked)
    assert Plan.from_toml(masked).digest() in say("blinder", "approve", str(tmp_path / "plan.toml"), "--at", at)
    shared = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    env = {**shared, "FIELDFARE_HOME": str(home.root), "FIELDFARE_LEDGER": home.ledger}
    run_blinder = [str(Path(sys.executable).parent / "fieldfare"), "blinder", "run", "--at", at]

    def federation(stack: ExitStack, part: str, **fault: str) -> tuple[str, subprocess.Popen[bytes]]:
        place = work / part
        more = {**env, **fault}
        address = stack.enter_context(superlink(place, "--disable-runtime-dependency-installation", env=more))
        for index in range(NODES):
            pinned = f'blinder="{key}" node-key="{keys[index]}"'
            stack.enter_context(supernode(place, address, index, TASK, NODES, pinned, **shared))
        return address, stack.enter_context(supernode(place, address, 9, start=run_blinder, **shared))

    torch.set_num_threads(1)
    text = PLAN.format(task=TASK, rounds=ROUNDS, aggregation='kind = "plain"')
    with Session.begin(home, Plan.from_toml(text), True, run_id="plain") as session:
        run_here(session, local_grid(session.plan, NODES), "", quiet=True)

    # The coordinator dies with its first round closed, before it asks; the blinder with it.
    with ExitStack() as stack:
        address, blinder = federation(stack, "masked", **{faults.VARIABLE: "strategy.asked:kill:1"})
        with contextlib.suppress(FlowerError):  # it may also report a dead ServerApp as an end
            submit(work / "masked", address, plan=masked, task=TASK, run_id="masked", env=env, timeout=200)
        blinder.kill()
    assert actions(home, "masked") == [("round.open", 0), ("round.close", 0)]
    assert json.loads(say("blinder", "status", "--json", "--at", at))["answers"] == []
    with ExitStack() as stack:
        address, _ = federation(stack, "again")
        submit(work / "again", address, resume="masked", task=TASK, env=env, timeout=250)
    assert model(home, "masked") == model(home, "plain")
    assert actions(home, "masked") == [(f"round.{s}", n) for n in range(ROUNDS) for s in ("open", "close", "commit")]
    answers: list[list[Any]] = json.loads(say("blinder", "status", "--json", "--at", at))["answers"]
    assert [row[:4] for row in answers] == [[n + 1, "masked", n, NODES] for n in range(ROUNDS)]
    assert np.diff([row[4] for row in answers]).min() > 0
    with Ledger.open(home.ledger) as ledger:
        assert verify(ledger, home.root, recompute=recharge).ok
    # The blinder starts no code that comes from the server: it fetches none.
    for part in ("masked", "again"):
        assert not list((work / part / "flwr-9").rglob("apps/*"))
