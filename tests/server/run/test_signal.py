"""Noise against signal: a plan is judged by its own numbers, and by users' updates only where these may be seen."""

from __future__ import annotations

import json
import math
import os
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.plan_tables import RunSpec
from fieldfare_server import optimizers
from fieldfare_server.cli.application import application
from fieldfare_server.ledger import Ledger
from fieldfare_server.optimizers.base import StepInfo
from fieldfare_server.run.signal import noise_in_model, noise_share, reach, require_signal
from support.refusals import coded

MOMENTUM = {"kind": "sgd", "learning_rate": 0.5, "momentum": 0.9, "schedule": {"kind": "cool-down", "share": 0.5}}


def plan(**tables: Any) -> Plan:
    privacy: dict[str, object] = {"population": "people", "epsilon": 8.0, "delta": 1e-5}
    return Plan.parse(
        {
            "privacy": privacy,
            "run": {"rounds": 12, "cohort": 20},
            "participation": {"scheme": "min-separation", "separation": 4},
            "mechanism": {"kind": "blt"},
            "server_optimizer": MOMENTUM,
            **tables,
        }
    )


def test_noise_in_the_model_is_that_of_simulated_noise() -> None:
    """20 000 coordinates: the norm's relative standard deviation is .5 %, so 3 % is six of them: 2e-9."""
    cost, d = cost_of(plan()), 20_000
    z = np.random.default_rng(1).normal(size=(12, d)) * cost.noise_multiplier / 20
    noise = torch.from_numpy(cost.mechanism.noising_matrix(12) @ z).float()
    optimizer = optimizers.build(cost.plan.server_optimizer)
    params = torch.zeros(d)
    state = optimizer.init(params)
    for round in range(12):
        params, state = optimizer.step(state, params, noise[round], StepInfo(round, 12, 0.0))
    expected = noise_in_model(cost, d)
    assert expected is not None
    assert float(params.norm()) == pytest.approx(expected, rel=0.03)


def test_steps_that_are_not_linear_have_no_such_figure() -> None:
    assert noise_in_model(cost_of(plan(server_optimizer={"kind": "fedadam", "learning_rate": 0.1})), 10) is None


def test_reach_of_momentum_is_its_geometric_sum() -> None:
    constant = {"kind": "sgd", "learning_rate": 0.5, "momentum": 0.9}
    found = reach(plan(server_optimizer=constant, clipping={"kind": "flat", "norm": 0.2}), 7)
    assert found == pytest.approx(0.5 * 0.2 * sum((1 - 0.9 ** (t + 1)) / 0.1 for t in range(12)), rel=1e-5)


def test_the_share_does_not_change_with_the_unit_of_updates() -> None:
    shares = [noise_share(cost_of(plan(clipping={"kind": "flat", "norm": n})), n) for n in (1e-3, 1.0, 50.0)]
    assert shares == pytest.approx([shares[1]] * 3, rel=1e-4)


def test_a_plan_that_drowns_whatever_the_data_is_refused_without_a_look() -> None:
    cost = cost_of(plan(privacy={"population": "people", "epsilon": 0.1, "delta": 1e-5}))
    numel = math.ceil(noise_share(cost) ** -2)
    assert require_signal(cost, numel // 20) == []
    (warning,) = require_signal(cost, numel - 1)
    assert "expect little" in warning
    with pytest.raises(BadInput, check=coded("signal-below-noise", "signal below noise")) as refused:
        require_signal(cost, numel + 1)
    assert refused.value.code == "signal-below-noise"
    anyway = cost.plan.model_copy(update={"run": RunSpec(rounds=12, cohort=20, accept_noise=True)})
    (warning,) = require_signal(replace(cost, plan=anyway), numel + 1)
    assert "little would be learned" in warning


@pytest.mark.parametrize(("norm", "code"), [(1e-9, "model-cannot-move"), (1000.0, "signal-below-noise")])
def test_a_clip_norm_far_from_public_updates_is_refused(norm: float, code: str) -> None:
    cost = cost_of(plan(clipping={"kind": "flat", "norm": norm}))
    assert require_signal(cost, 41) == []  # people's updates were not looked at
    with pytest.raises(BadInput, check=coded(code, "clipping.norm = 0.27")):
        require_signal(cost, 41, 0.27)


def test_a_wide_clip_norm_is_pointed_out() -> None:
    (warning,) = require_signal(cost_of(plan()), 41, 0.27)
    assert "clipping.norm = 1 is 3.7 times a typical update" in warning
    assert require_signal(cost_of(plan(clipping={"kind": "flat", "norm": 0.27})), 41, 0.27) == []
    assert require_signal(cost_of(plan(clipping={"kind": "adaptive-quantile", "norm": 9.0})), 41, 0.27) == []


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the starter, whose plan has a clip norm of 1e-9."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "csv_task", raising=False)
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "runs"))
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    assert ask("init").exit_code == 0
    _clip(1e-9)
    return tmp_path


def _clip(norm: float) -> None:
    text = Path("plan.toml").read_text()
    head, table, rest = text.partition("\n[clipping]\n")
    rest = rest.replace('kind = "adaptive-quantile"', 'kind = "flat"', 1)
    lines = [f"norm = {norm!r}" if line.startswith("norm = ") else line for line in rest.splitlines()]
    Path("plan.toml").write_text("\n".join([*(head + table).splitlines(), *lines]) + "\n")


@pytest.mark.parametrize("seed", range(12))
def test_what_a_refusal_of_clip_or_rate_names_is_admitted(seed: int) -> None:
    """A refusal named a clip norm where the step was too small, or where noise stayed above the signal even with it."""
    draw = random.Random(seed)
    tables: dict[str, dict[str, Any]] = {
        "clipping": {"kind": "flat", "norm": 10 ** draw.uniform(-4, 3)},
        "server_optimizer": {"kind": "sgd", "learning_rate": 10 ** draw.uniform(-5, 1)},
        "privacy": {"population": "people", "epsilon": draw.choice([0.1, 1.0, 8.0]), "delta": 1e-5},
    }
    norm, numel, near = 10 ** draw.uniform(-2, 1), draw.choice([5, 41, 410]), "a larger server_optimizer.learning_rate"
    while near == "a larger server_optimizer.learning_rate":  # until it is larger enough
        try:
            require_signal(cost_of(plan(**tables)), numel, norm)
            return
        except BadInput as refused:
            near = refused.nearest.removesuffix(", or run.accept_noise = true")
        tables["server_optimizer"]["learning_rate"] *= 2.0
    if near.startswith("clipping.norm = ") and " and " not in near:
        tables["server_optimizer"]["learning_rate"] /= 2.0
        tables["clipping"]["norm"] = float(near.removeprefix("clipping.norm = ").partition(",")[0])
        require_signal(cost_of(plan(**tables)), numel, norm)


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(application, arguments)


def test_made_up_people_decide_and_real_ones_do_not(started: Path) -> None:
    refused = ask("task", "check", "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["code"] == "model-cannot-move"
    text = Path("plan.toml").read_text()
    Path("plan.toml").write_text(text.replace("# accept_noise = (not set)", "accept_noise = true"))
    assert ask("task", "check").exit_code == 0
    Path("plan.toml").write_text(text)
    assert ask("population", "create", "patients", "--epsilon", "9", "--delta", "1e-5").exit_code == 0
    Path("plan.toml").write_text(text.replace('population = "example"', 'population = "patients"'))
    shown = ask("task", "check")
    assert shown.exit_code == 0, shown.output
    assert "users have norms" in shown.output
    assert ask("task", "check", "--data-is-public").exit_code == 2


def test_a_run_that_cannot_learn_is_refused_before_it_spends_and_one_that_ends_says_what_noise_cost(
    started: Path,
) -> None:
    assert ask("simulate", "--json").exit_code == 2
    with Ledger.open(f"sqlite:///{started / 'runs' / 'ledger.sqlite3'}") as ledger:
        assert ledger.population("example").spent_epsilon == 0
    _clip(0.1)
    ended = ask("simulate", "--json")
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert 0 < told["noise_norm"] < told["moved_norm"]
    assert os.path.exists(told["model"])
