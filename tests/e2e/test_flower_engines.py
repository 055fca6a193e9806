"""The same two apps, four ways: in process, under Flower's Ray simulation, on a SuperLink with two SuperNodes, and
there with TLS, node keys and warm executors, as deployed.

The noise is seeded (so the population is a simulated one), hence all must release the same model to round-off.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fieldfare.plan import Plan
from fieldfare.task import load_task
from fieldfare_server.cli.application import application
from fieldfare_server.cli.progress import local_grid, run_here
from fieldfare_server.deployment.simulation import run_flower_simulation, superlink
from fieldfare_server.deployment.submit import require_ended, submit
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.session import Session
from support.deployed import round_time
from support.flower import supernode

PLAN = """
[privacy]
population = "writers"
noise_multiplier = 0.5
delta = 1e-5
[run]
task = "digits"
rounds = 3
cohort = 12
min_reports = 6
min_available = 100
noise_seed = 7
[participation]
scheme = "min-separation"
separation = 2
max_participations = 2
[mechanism]
kind = "nu"
nu = 0.1
[client]
epochs = 1
batch_size = 8
learning_rate = 0.3
"""

OTHER = PLAN + "[task]\nhidden = 16\n"
"""The same of a narrower model: a node that drops the table [task] sends a reply of another size."""


def home_with_population(root: Path) -> StateDirectory:
    home = StateDirectory(root, f"sqlite:///{root / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("writers", 1e4, 1e-5, simulated=True, actor="test")
    return home


def model(home: StateDirectory, run: str) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for _, t in sorted(load_file(home.root / run / "model.safetensors").items())])


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    return train_in_process(tmp_path_factory.mktemp("local"), PLAN)


@pytest.fixture(scope="module")
def narrower(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    return train_in_process(tmp_path_factory.mktemp("narrower"), OTHER)


def train_in_process(root: Path, plan: str) -> torch.Tensor:
    home = home_with_population(root)
    session = Session.begin(home, Plan.from_toml(plan), identity_is_stable=True)
    trace = run_here(session, local_grid(session.plan, 2), "local", quiet=True)
    assert len(trace.reports) == 3
    return model(home, trace.run)


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(240)
def test_under_ray_the_same_model_comes_out(narrower: torch.Tensor, tmp_path: Path) -> None:
    home = home_with_population(tmp_path / "home")
    path = tmp_path / "plan.toml"
    path.write_text(OTHER)
    run = run_flower_simulation(home, path, "", nodes=2)
    torch.testing.assert_close(model(home, run), narrower, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(900)
def test_ctrl_c_under_ray_ends_everything_and_resume_gives_the_same_model(tmp_path: Path) -> None:
    text = PLAN.replace("rounds = 3", "rounds = 30").replace("max_participations = 2", "max_participations = 15")
    whole = home_with_population(tmp_path / "whole")
    with_availability = text + "[availability]\nreachable = 0.8\ndropout = 0.1\n"
    trace = run_here(
        Session.begin(whole, Plan.from_toml(with_availability), True), local_grid(Plan.from_toml(text), 2), "", True
    )
    home, path, rows = home_with_population(tmp_path / "home"), tmp_path / "plan.toml", tmp_path / "rounds.csv"
    path.write_text(with_availability)
    # A shell that started the tests in its background may have Ctrl-C ignored, and children inherit that.
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", script + "from fieldfare_server.cli import main; main()", "simulate"]
    where = ["--engine", "flower", "--nodes", "2", "--home", str(home.root), "--ledger", home.ledger, "--json"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    process = subprocess.Popen(
        [*command, str(path), *where, "--export", str(rows)], env=env, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 200
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            if rows.exists() and len(rows.read_text().splitlines()) > 2:  # live, while the run goes on
                break
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said, _ = process.communicate(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 4, said
    with Ledger.open(home.ledger) as ledger:
        (run,) = ledger.runs().items
        time.sleep(2)
        assert ledger.run(run.id) == run, "nothing trains on"
    assert run.state == "interrupted"
    assert 2 <= run.next_round < 30
    assert len(rows.read_text().splitlines()) > run.next_round
    assert run_flower_simulation(home, None, run.id, nodes=2) == run.id
    torch.testing.assert_close(model(home, run.id), model(whole, trace.run), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(240)
def test_three_queries_under_ray(tmp_path: Path) -> None:
    """Several sums a reply through Flower's own messages. One node: places of the fixed order go by registration."""
    text = PLAN.replace('"min-separation"\nseparation = 2\nmax_participations = 2', '"fixed-order"\nperiod = 2')
    text += '[server_optimizer]\nkind = "three-query"\nperiod = 2\n'
    here, there = home_with_population(tmp_path / "here"), home_with_population(tmp_path / "there")
    path = tmp_path / "plan.toml"
    path.write_text(text)
    session = Session.begin(here, Plan.from_toml(text), identity_is_stable=True)
    trace = run_here(session, local_grid(session.plan, 1), "local", quiet=True)
    run = run_flower_simulation(there, path, "", nodes=1)
    torch.testing.assert_close(model(there, run), model(here, trace.run), rtol=1e-5, atol=1e-6)


@pytest.mark.flower
@pytest.mark.timeout(240)
def test_on_a_superlink_with_two_supernodes_the_same_model_comes_out(narrower: torch.Tensor, tmp_path: Path) -> None:
    """One node says which task it trains, with its parameters; the other takes both from the run."""
    task = Plan.from_toml(OTHER).task_reference
    assert task == "digits?hidden=16"
    home = home_with_population(tmp_path / "home")
    work = tmp_path / "work"
    env = {
        "FIELDFARE_HOME": str(home.root),
        "FIELDFARE_LEDGER": home.ledger,
        "FIELDFARE_NODE_AUTH": "simulated",
        "OMP_NUM_THREADS": "1",
    }
    with (
        superlink(work, "--disable-runtime-dependency-installation", env=env) as address,
        supernode(work, address, 0, task),
        supernode(work, address, 1),
    ):
        said = submit(work, address, plan=OTHER, task=task, run_id="deployed", env=env, timeout=200)
    require_ended(home, "deployed", said)
    torch.testing.assert_close(model(home, "deployed"), narrower, rtol=1e-5, atol=1e-6)


QUESTION = """
[question]
kind = "mean"
measure = "rows"
low = 0
high = 60
[run]
task = "digits"
cohort = 100
min_reports = 90
[privacy]
population = "writers"
noise_multiplier = 2.0
delta = 1e-5
"""


@pytest.mark.flower
@pytest.mark.timeout(240)
def test_a_question_goes_to_two_supernodes_and_its_answer_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node has a task of its own, the other takes it from the run. The noise is 2 users' worth of 60 rows."""
    home, work = home_with_population(tmp_path / "home"), tmp_path / "work"
    env = {
        "FIELDFARE_HOME": str(home.root),
        "FIELDFARE_LEDGER": home.ledger,
        "FIELDFARE_NODE_AUTH": "simulated",
        "OMP_NUM_THREADS": "1",
    }
    path = tmp_path / "question.toml"
    path.write_text(QUESTION)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with (
        superlink(work, "--disable-runtime-dependency-installation", env=env) as address,
        supernode(work, address, 0, "digits"),
        supernode(work, address, 1),
    ):
        said = CliRunner().invoke(application, ["ask", str(path), "--superlink", address, "--insecure", "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout[said.stdout.index("{") :])
    rows = load_task("digits").users().sizes[:, None].astype(float)
    assert found["users"] == 100
    assert found["answer"][0]["value"] == pytest.approx(np.clip(rows, 0, 60).mean(), abs=6 * 2.0 * 30 / 100)
    with Ledger.open(home.ledger) as ledger:
        assert ledger.population("writers").spent_epsilon > 0
        assert verify(ledger, home.root, recompute=recharge, held=[ledger.head()]).ok


def kill_warm_parents(watched: Any, work: Path, killed: list[int]) -> None:
    """Kill every warm parent of the federation in `work`, not its forks, once a node has sent an update."""
    while not any(line.phase.startswith("Sent") for line in list(watched.lines)):
        time.sleep(0.1)
    found: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ours = f"FLWR_HOME={work}/".encode() in (place / "environ").read_bytes()
            if ours and b"fieldfare_flower.warm.parent" in (place / "cmdline").read_bytes():
                found[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    killed += [process for process, parent in found.items() if parent not in found]
    for process in killed:
        os.kill(process, signal.SIGKILL)


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_as_deployed_the_same_model_comes_out_also_when_the_warm_parents_die(
    in_process: torch.Tensor, tmp_path: Path
) -> None:
    home, work, killed = home_with_population(tmp_path / "home"), tmp_path / "work", list[int]()
    with round_time().federation(work, home, 2, "digits", ours=True) as (watched, address, ca):
        threading.Thread(target=kill_warm_parents, args=(watched, work, killed), daemon=True).start()
        options = {"plan": PLAN, "task": "digits", "run_id": "deployed", "root_certificates": ca, "timeout": 500}
        said = submit(work / "run", address, **options)
    require_ended(home, "deployed", said)
    assert len(killed) == 2
    torch.testing.assert_close(model(home, "deployed"), in_process, rtol=1e-5, atol=1e-6)
