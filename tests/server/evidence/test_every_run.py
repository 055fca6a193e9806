"""Whatever a page tells its reader to run about a run works: for every starter, shipped plan, plan feature, and end.

Each run is small: its rounds are cut, and twenty-four made-up users stand for the data. What is asked of it afterwards
is not cut: `verify`, `audit`, `certificate` with the stranger's checker, `report` in three formats, and `model`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from click.testing import Result
from pydantic import Field
from safetensors.torch import load_file
from typer.testing import CliRunner

import fieldfare as ff
from fieldfare.accounting import certification
from fieldfare.clipping import clippings
from fieldfare.mechanisms.registry import kinds as mechanisms
from fieldfare.plan import Plan
from fieldfare.registry import Table
from fieldfare_server.cli.application import application
from fieldfare_server.evidence import canary_runs, residual_test
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.states import EndState
from fieldfare_server.optimizers import kinds as optimizers
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, TinyTask, home, plan

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "deploy" / "plans").rglob("*.toml"))
ROUNDS, COHORT = 6, 6


class ScaledParameters(Table):
    """The table [task] of `ScaledTask`."""

    scale: float = Field(default=1.0, description="What the targets are multiplied by.")


class ScaledTask(TinyTask):
    """The tiny task with a parameter."""

    Parameters: ClassVar[type[Table]] = ScaledParameters

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return super().loss(outputs, self.scale * targets)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer numbers in the residual test, plays of canaries and samples of a charge: enough for six rounds."""
    monkeypatch.setitem(residual_test.run_residual_test.__kwdefaults__, "numbers", 2**15)
    monkeypatch.setattr(canary_runs, "_ROUNDS", 2 * ROUNDS)
    monkeypatch.setattr(certification, "SAMPLES", (1 << 19, 1 << 18))


@cache
def checker() -> Any:
    path = ROOT / "docs" / "check_certificate.py"
    spec = importlib.util.spec_from_file_location("check_certificate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(where: StateDirectory, *arguments: str) -> Result:
    return CliRunner().invoke(application, [*arguments, "--home", str(where.root), "--ledger", where.ledger])


def require_evidence(where: StateDirectory, run: str, folder: Path) -> None:
    """Every command about `run` works, and what they say agrees with the ledger."""
    with Ledger.open(where.ledger) as ledger:
        view = ledger.run(run)

    def answer(*arguments: str) -> str:
        result = ask(where, *arguments)
        assert result.exit_code == 0, (arguments, result.output)
        return result.stdout

    test = json.loads(answer("audit", run, "--json"))
    assert test["residual"]["passed"]
    for style in ("markdown", "html"):
        assert run in answer("report", run, "--format", style)
    statement = json.loads(answer("report", run, "--format", "json"))
    assert statement["epsilon_spent"] == view.spent_epsilon
    assert statement["noise_audit"]["passed"]
    file = folder / "run.json"
    if view.noise_source == "seeded":
        refused = ask(where, "certificate", run, "--out", str(file))
        assert refused.exit_code == 2
        assert "the run is not private" in refused.output
    else:
        answer("certificate", run, "--out", str(file))
        checked = checker().check(json.loads(file.read_text()))
        assert checked.startswith(f"yes: ({statement['population_epsilon']['limit']}, ")
    model = folder / "model.safetensors"
    answer("model", run, "--out", str(model))
    assert all(bool(value.isfinite().all()) for value in load_file(model).values())
    assert json.loads(answer("verify", "--json"))["ok"]


def begin(root: Path, a_plan: Plan) -> tuple[StateDirectory, Session]:
    where = home(root, adjacency=a_plan.privacy.adjacency, epsilon=1e4)
    return where, Session.begin(where, a_plan, identity_is_stable=True)


def train(session: Session) -> None:
    FieldfareStrategy(session).start(LyingGrid(3, task=session.plan.task_reference))


def cut(path: Path) -> Plan:
    """A shipped plan of `ROUNDS` rounds on the tiny task. What it says of noise, clipping and optimizer stays."""
    table = tomllib.loads(path.read_text())
    table["privacy"] |= {"population": "people", "delta": 1e-5}
    table["run"] |= {"task": "support.federation:TinyTask", "rounds": ROUNDS, "cohort": COHORT, "round_timeout": 5.0}
    for gone in ("min_reports", "min_available", "evaluate_every", "max_participants"):
        table["run"].pop(gone, None)
    table.pop("task", None)
    small = {"separation": 3, "max_participations": 2, "bins": 3, "period": 3, "groups": 2, "rate": 0.25}
    participation = table.get("participation", {"scheme": "single"})
    table["participation"] = {key: small.get(key, value) for key, value in participation.items()}
    if participation["scheme"] == "truncated-poisson":
        table["participation"] |= {"cap": 20, "enrolled": USERS}
    if "bands" in table["mechanism"]:
        table["mechanism"]["bands"] = 2
    return Plan.parse(table)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_plan_leaves_evidence(path: Path, tmp_path: Path) -> None:
    where, session = begin(tmp_path, cut(path))
    with session:
        train(session)
    require_evidence(where, session.account.id, tmp_path)


SAMPLED: dict[str, Any] = {"privacy__adjacency": "add_remove", "run__min_reports": None, "run__noise_seed": None}
FIXED: dict[str, Any] = {"scheme": "fixed-order", "period": 3}
MECHANISMS: dict[str, dict[str, Any]] = {
    "banded": {"bands": 3},
    "banded-inverse": {"bands": 3},
    "blt": {"buffers": 2},
    "momentum-tree": {"momentum": 0.9},
    "spectral": {"eigenvalues": [0.5, 0.1], "learning_rate": 0.5},
}
OPTIMIZERS: dict[str, dict[str, Any]] = {"ftrl": {"radius": 1.0}, "three-query": {"period": 3}}
FEATURES: dict[str, dict[str, Any]] = {
    "task": {"task": {"scale": 2.0}, "run__task": f"{__name__}:ScaledTask"},
    "task left at its defaults": {"run__task": f"{__name__}:ScaledTask"},
    "epsilon": {"privacy": {"population": "people", "epsilon": 8.0, "delta": 1e-5}},
    "individual": {"privacy__accounting": "individual"},
    "worst case": {"privacy__accounting": "worst-case"},
    "replace_one": {"privacy__adjacency": "replace_one"},
    "restarts": {"mechanism": {"kind": "nu", "nu": 0.1, "restart_every": 3}},
    "seeded": {"run__noise_seed": 3},
    "poisson": {**SAMPLED, "participation": {"scheme": "poisson", "rate": 0.25}, "mechanism": {"kind": "independent"}},
    "not amplified": {**SAMPLED, "participation": {"scheme": "poisson", "rate": 0.25}},
    "discrete": {"privacy__rounding": "discrete", "mechanism": {"kind": "independent"}},
    "not rounded": {"privacy__rounding": "none"},
    **{f"clipping {kind}": {"clipping": {"kind": kind}} for kind in clippings.kinds()},
    **{f"mechanism {kind}": {"mechanism": {"kind": kind, **MECHANISMS.get(kind, {})}} for kind in mechanisms()},
    **{
        f"optimizer {kind}": {"server_optimizer": {"kind": kind, **OPTIMIZERS.get(kind, {})}, "participation": FIXED}
        for kind in optimizers()
    },
}


@pytest.mark.parametrize("feature", FEATURES)
def test_every_plan_feature_leaves_evidence(feature: str, tmp_path: Path) -> None:
    where, session = begin(tmp_path, plan(**{"run__noise_seed": None, **FEATURES[feature]}))
    with session:
        train(session)
    require_evidence(where, session.account.id, tmp_path)


# -- runs that did not go to their end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["stopped", "failed", "exhausted", None])
@pytest.mark.parametrize("feature", ["task", "poisson"])
def test_a_run_that_did_not_reach_its_end_leaves_evidence(end: EndState | None, feature: str, tmp_path: Path) -> None:
    """None: it is still under way, or its coordinator was killed."""
    where, session = begin(tmp_path, plan(**{"run__noise_seed": None, **FEATURES[feature]}))
    with session:
        FieldfareStrategy(session).run_round(LyingGrid(3))
        if end is not None:
            session.finish(end, "test")
    require_evidence(where, session.account.id, tmp_path)


def test_a_resumed_run_leaves_evidence(tmp_path: Path) -> None:
    where, session = begin(tmp_path, plan(run__noise_seed=None, **FEATURES["task"]))
    with session:
        FieldfareStrategy(session).run_round(LyingGrid(3))
    with Session.resume(where, session.account.id, identity_is_stable=True) as again:
        train(again)
    require_evidence(where, again.account.id, tmp_path)


def test_an_abandoned_run_without_a_round_leaves_evidence(tmp_path: Path) -> None:
    where, session = begin(tmp_path, plan(run__noise_seed=None))
    with session:
        pass
    assert ask(where, "abandon", session.account.id, "--reason", "test").exit_code == 0
    require_evidence(where, session.account.id, tmp_path)


# -- what a reader has who follows the pages ---------------------------------------------------------------------------


def test_the_starter_leaves_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    monkeypatch.delitem(sys.modules, "csv_task", raising=False)
    assert CliRunner().invoke(application, ["init"]).exit_code == 0
    text = Path("plan.toml").read_text()
    Path("plan.toml").write_text(
        text.replace("rounds = 40", "rounds = 25").replace("max_participations = 8", "max_participations = 5")
    )
    ran = CliRunner().invoke(application, ["simulate", "--json"])
    assert ran.exit_code == 0, ran.output
    where = StateDirectory.of(None, None)
    require_evidence(where, json.loads(ran.stdout)["run"], tmp_path)


# Each of a hundred patients is trained in a process of its own: one round of that is enough.
@pytest.mark.parametrize(("name", "nodes", "rounds"), [("quickstart", 50, 2), ("hospitals", 4, 1)])
def test_an_example_leaves_evidence(
    name: str, nodes: int, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ROOT / "examples" / name
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "runs"))
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    monkeypatch.syspath_prepend(str(folder))
    config = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    client, server = (importlib.import_module(f"{name}.{half}_app").app for half in ("client", "server"))
    ff.LocalGrid(client, nodes, {**config, "num-server-rounds": rounds}).run_app(server)
    where = StateDirectory.of(None, None)
    with Ledger.open(where.ledger) as ledger:
        (run,) = ledger.runs().items
    require_evidence(where, run.id, tmp_path)
