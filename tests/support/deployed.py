"""The processes of docker-compose.yml without containers: those that benchmarks/round_time.py starts."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RoundView

TASK = "support.federation:TinyTask"


def plan_text(rounds: int, round_timeout: float, max_participations: int) -> str:
    """A plan of `TASK` for three nodes, on the population of `new_home`."""
    return f"""
[privacy]
population = "people"
noise_multiplier = 5.0
delta = 1e-5
[run]
task = "{TASK}"
rounds = {rounds}
cohort = 8
min_reports = 4
round_timeout = {round_timeout}
[participation]
scheme = "min-separation"
separation = 2
max_participations = {max_participations}
[mechanism]
kind = "nu"
nu = "auto"
[client]
epochs = 1
batch_size = 3
learning_rate = 0.1
"""


def new_home(folder: Path, epsilon: float) -> StateDirectory:
    """A state directory in `folder` whose ledger has the population "people"."""
    home = StateDirectory(folder / "home", f"sqlite:///{folder / 'home/ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("people", epsilon, 1e-5, actor="test")
    return home


def require_sound(home: StateDirectory, name: str, rounds: int) -> tuple[RoundView, ...]:
    """Every round once, a charge that is the one of what was executed, and a journal that proves it; the attempts."""
    with Ledger.open(home.ledger) as ledger:
        run, views = ledger.run(name), ledger.rounds(name, limit=500).items
        report = verify(ledger, home.root, recompute=recharge, held=[ledger.head()])
    assert report.ok, str(report.fault)
    assert run.state == "done", run.message
    assert sorted(view.index for view in views if view.state == "committed") == list(range(rounds))
    assert 0.0 < run.spent_epsilon <= run.planned_epsilon * (1 + 1e-9)
    return views


def benchmark(name: str) -> Any:
    """A program of benchmarks/, as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def round_time() -> Any:
    """`benchmark("round_time")`."""
    return benchmark("round_time")
