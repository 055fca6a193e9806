"""A run on a Ray cluster that is there: two machines' worth of Ray on this one, an actor on each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare_server.cli.progress import local_grid, run_here
from fieldfare_server.deployment.simulation import Ray
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.session import Session
from support.refusals import Coded, coded

PLAN = """
[privacy]
population = "writers"
noise_multiplier = 0.5
delta = 1e-5
[run]
task = "noted:NotedTask"
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
batch_size = 8
learning_rate = 0.3
"""

TASK = """
import os, sys
from pathlib import Path
from fieldfare_client.tasks.digits import DigitsTask

trained = []

def note(what):
    ray = sys.modules.get("ray")
    actor = bool(ray and ray.is_initialized() and ray.get_runtime_context().get_actor_id())
    with Path(__file__).with_suffix(".log").open("a") as log:
        log.write(f"{what} {os.getpid()} {os.getppid()} {actor}\\n")

class NotedTask(DigitsTask):
    def users(self):
        note("reads")
        return super().users()

    def loss(self, outputs, targets):
        if not trained:
            trained.append(note("trains"))
        return super().loss(outputs, targets)
"""
"""Notes who reads its users and who trains: process, parent process (a Ray node's), and whether it is an actor."""

CLUSTER = """
import sys
from ray.cluster_utils import Cluster
one = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 100 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args=one)
cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@contextmanager
def two_nodes(env: dict[str, str]) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin
    assert process.stdout
    try:
        address = next((line.strip() for line in process.stdout if line.strip().rpartition(":")[2].isdecimal()), "")
        assert address, "the cluster did not start"
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(120)
        finally:
            process.kill()


def home_with_population(root: Path) -> StateDirectory:
    home = StateDirectory(root, f"sqlite:///{root / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("writers", 1e4, 1e-5, simulated=True, actor="test")
    return home


def model(home: StateDirectory, run: str) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for _, t in sorted(load_file(home.root / run / "model.safetensors").items())])


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(600)
def test_on_a_cluster_of_two_nodes_the_local_model_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "noted.py").write_text(TASK)
    (tmp_path / "plan.toml").write_text(PLAN)
    monkeypatch.syspath_prepend(str(tmp_path))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    home = home_with_population(tmp_path / "home")
    command = [sys.executable, "-c", "from fieldfare_server.cli import main; main()", "simulate"]
    command += [str(tmp_path / "plan.toml"), "--engine", "flower", "--nodes", "4", "--json", "--home", str(home.root)]
    with two_nodes(env) as address:
        done = subprocess.run(
            [*command, "--ledger", home.ledger, "--ray-address", address],
            env=env,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["rounds"] == 3

    notes = [line.split() for line in (tmp_path / "noted.log").read_text().splitlines()]
    trained = {(pid, node) for what, pid, node, actor in notes if (what, actor) == ("trains", "True")}
    checked = {pid for pid, parent in trained if parent in {pid for pid, _ in trained}}  # in a child of an actor
    actors = {(pid, node) for pid, node in trained if pid not in checked}
    assert len(actors) == 2
    assert len({node for _, node in actors}) == 2, "an actor on each node"
    assert [what for what, _, _, actor in notes if actor == "True"].count("reads") == 1, "once a machine"

    here = home_with_population(tmp_path / "here")
    session = Session.begin(here, Plan.from_toml(PLAN), identity_is_stable=True)
    trace = run_here(session, local_grid(session.plan, 4), "local", quiet=True)
    torch.testing.assert_close(model(home, answer["run"]), model(here, trace.run), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("ray://127.0.0.1:10001", coded("unsupported")),
        ("cluster", coded("wrong-form", "--ray-address cluster")),
        ("127.0.0.1:1", coded("not-found", "--ray-address 127.0.0.1:1")),
    ],
)
def test_an_address_that_is_no_clusters_is_refused(address: str, says: Coded) -> None:
    with pytest.raises(BadInput, check=says):
        Ray(address).require()
