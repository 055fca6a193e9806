"""Many users, much less memory: each case runs in a separate process, which reports its peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

HEAD = """
import json, resource
import numpy as np, torch
from fieldfare.plan_tables import ClientSpec
from fieldfare.task import Task, seeded
from fieldfare.schema import Schema
from fieldfare_client.training.trainer import Trainer
from fieldfare_client.users import UserTable

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
"""


def outcome(script: str) -> dict[str, Any]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", HEAD + script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(figures)
    return figures


TEN_THOUSAND_REPORTS = """
class Wide(Task):
    name, score_name, held_out = "wide", "none", "Nothing is evaluated."
    def build_model(self):
        with seeded(0):
            return torch.nn.Sequential(torch.nn.Linear(999, 1000), torch.nn.Tanh(), torch.nn.Linear(1000, 10))
    def loss(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")
    def users(self):
        x = np.random.default_rng(0).standard_normal((10_000, 999), np.float32)
        return UserTable([str(u) for u in range(10_000)], np.arange(10_001), {"x": x, "y": np.arange(10_000) % 10})
    def evaluate(self, model):
        return {"none": 0.0}

task = Wide()
table, model = task.users(), task.build_model()
start = Schema.of(model).flatten(dict(model.named_parameters()))
trainer = Trainer(task, ClientSpec(batch_size=1), lambda updates: None)
trainer.train([start], [1.0], table, np.arange(2), at_round=0)      # what torch allocates once
small = Trainer(task, ClientSpec(batch_size=1), lambda updates: None)
before = peak()
cohort = small.train([start], [1.0], table, np.arange(10_000), at_round=0)
print(json.dumps({"users": cohort.users, "sizes": (peak() - before) / start.numel() / 4, "d": start.numel()}))
"""


def test_ten_thousand_reports_of_a_million_parameters_take_six_model_sizes() -> None:
    figures = outcome(TEN_THOUSAND_REPORTS)
    assert figures["users"] == 10_000
    assert figures["d"] >= 1_000_000
    assert figures["sizes"] <= 6


A_MILLION_USERS = """
import sys, tempfile
from pathlib import Path
from fieldfare.plan import Plan
from fieldfare_client import app as client_app
from fieldfare_client.simulation import LocalGrid
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.session import Session
from fieldfare_server.run.round.strategy import FieldfareStrategy

USERS = {users}

class Many(Task):
    name, score_name, held_out = "many", "none", "Nothing is evaluated."
    def build_model(self):
        with seeded(0):
            return torch.nn.Sequential(torch.nn.Linear(8, 1))
    def loss(self, outputs, targets):
        return (outputs[:, 0] - targets) ** 2
    def users(self):
        if not hasattr(Many, "table"):
            x = np.random.default_rng(0).standard_normal((USERS, 8), np.float32)
            ids = np.random.default_rng(1).permutation(np.arange(1, USERS + 1, dtype=np.uint64) << np.uint64(20))
            Many.table = UserTable(ids, np.arange(USERS + 1), {{"x": x, "y": x[:, 0].copy()}})
        return Many.table
    def evaluate(self, model):
        return {{"none": 0.0}}

root = Path(tempfile.mkdtemp())
home = StateDirectory(root, f"sqlite:///{{root / 'ledger.sqlite3'}}")
home.prepare()
with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
    ledger.create_population("people", 100.0, 1e-7, simulated=True, actor="test")
plan = Plan.parse({{
    "privacy": {{"population": "people", "noise_multiplier": 1.0, "delta": 1e-7}},
    "run": {{"task": "__main__:Many", "rounds": {rounds}, "cohort": 1000, "over_selection": 1.2, "noise_seed": 1}},
    "participation": {{"scheme": "min-separation", "separation": 20}},
    "mechanism": {{"kind": "independent"}},
    "availability": {{"reachable": 0.5, "daily_swing": 0.5, "dropout": 0.1}},
}})
peaks = []
with Session.begin(home, plan, True) as session:
    FieldfareStrategy(session, lambda report: peaks.append(peak())).start(
        LocalGrid(client_app.app, 1, {{"task": "__main__:Many"}})
    )
data = sum(c.nbytes for c in Many.table.columns.values()) + Many.table.offsets.nbytes + Many.table.pseudonyms.nbytes
print(json.dumps({{"first": peaks[0], "fifth": peaks[4], "last": peaks[-1], "data": data, "rounds": len(peaks)}}))
"""


def test_memory_is_flat_with_a_million_users_beyond_their_data() -> None:
    figures = outcome(A_MILLION_USERS.format(users=1_000_000, rounds=60))
    assert figures["rounds"] == 60
    assert figures["last"] - figures["fifth"] < 64e6  # rounds add nothing but the ledger's caches
    few = outcome(A_MILLION_USERS.format(users=10_000, rounds=5))
    beyond = figures["last"] - few["last"] - figures["data"]
    # What the roster, the ledger's index and the selector know of a user: names, owners, places, hashes, last rounds.
    assert beyond / 1_000_000 < 300
