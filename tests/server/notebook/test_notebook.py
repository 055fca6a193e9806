"""What a notebook does: price, simulate, compare, and look at the runs."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fieldfare as ff
from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BadInput, BudgetRefused, Interrupted
from fieldfare_client.app import _hosted, user_names
from fieldfare_server.ledger.views import RunView
from fieldfare_server.notebook import simulation
from fieldfare_server.notebook.runs import Runs
from support.refusals import Coded, coded

ROOT = Path(__file__).parents[3]


class Signs(ff.Task):
    """Which side of a plane a point is on. An object: it has a parameter."""

    name = "signs"
    score_name = "accuracy"
    held_out = "drawn here"

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def build_model(self) -> torch.nn.Module:
        model = torch.nn.Linear(3, 2)
        for parameter in model.parameters():
            torch.nn.init.zeros_(parameter)
        return model

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")

    def draw(self, seed: int, rows: int) -> tuple[Any, Any]:
        x = np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)
        return x, (x[:, self.axis] > 0).astype(np.int64)

    def users(self) -> ff.UserTable:
        x, y = self.draw(1, 160)
        return ff.UserTable.grouped(np.repeat(np.arange(40), 4), {"x": x, "y": y})

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        x, y = self.draw(2, 400)
        with torch.no_grad():
            return {"accuracy": float((model(torch.from_numpy(x)).argmax(1).numpy() == y).mean())}


def plan_of(mechanism: str = "nu", **keywords: Any) -> ff.Plan:
    given = {"task": Signs(), "epsilon": 8, "delta": 1e-5, "rounds": 4, "cohort": 20, "mechanism": mechanism}
    given["participation"] = {"scheme": "min-separation", "separation": 2}
    return ff.Plan(**{**given, **keywords})


@pytest.fixture(scope="module")
def runs() -> Any:
    return ff.simulate(plan_of("nu"), plan_of("independent"), population="demo", budget=20, progress=False)


def test_a_price_is_frozen_and_shows_itself() -> None:
    priced = ff.price(plan_of())
    assert priced.epsilon == pytest.approx(8)
    assert f"noise multiplier                   {priced.noise_multiplier:.6g}" in repr(priced)
    assert f'<td style="text-align:left">{priced.noise_multiplier:.6g}</td>' in priced._repr_html_()
    assert "NOT PRIVATE" not in repr(priced)
    with pytest.raises(dataclasses.FrozenInstanceError):
        priced.noise_multiplier = 0.0  # type: ignore[misc]
    seeded = ff.price(plan_of(noise_seed=1))
    assert "NOT PRIVATE" in repr(seeded)
    assert "NOT PRIVATE" in seeded._repr_html_()


def test_a_price_needs_no_task_and_then_leaves_out_its_resolution() -> None:
    assert ff.price(plan_of(task="elsewhere:Task")).resolution == 0.0


def test_runs_have_tables_plots_models_statements_and_certificates(runs: Any) -> None:
    frame = runs.frame()
    assert list(frame["label"]) == ["nu", "independent"]
    assert (frame["rounds"] == 4).all()
    assert frame["epsilon"].to_numpy() == pytest.approx([8, 8], rel=1e-6)
    rounds = runs[0].frame()
    assert list(rounds["round"]) == [0, 1, 2, 3]
    assert rounds["epsilon"].iloc[-1] == pytest.approx(runs[0].epsilon)
    task = Signs()
    assert task.evaluate(runs[0].model())["accuracy"] == pytest.approx(runs[0].score)
    assert f"Privacy statement of run {runs[0].id}" in runs[0].statement().to_markdown()
    assert json.loads(runs[1].certificate())["run"] == runs[1].id
    assert [len(axes.lines) for axes in runs.plot().axes] == [2, 3]
    assert [len(axes.lines) for axes in runs[0].plot().axes] == [1, 2]


def test_a_statement_shows_what_an_optimiser_decided() -> None:
    """The strategy's file is at hand, and the statement said that it is not; `fieldfare report` showed its noise."""
    (run,) = ff.simulate(plan_of({"kind": "blt", "buffers": 2}), population="demo", budget=20, progress=False)
    shown = run.statement().to_json()
    assert shown["noise_multiplier"] == pytest.approx(ff.price(run.plan).noise_multiplier)
    assert isinstance(shown["sensitivity"], float)


def test_runs_are_a_sequence_that_a_notebook_shows(runs: Any) -> None:
    assert [run.id for run in runs[::-1]] == [runs[1].id, runs[0].id]
    assert repr(runs).startswith("Runs(\n  Run(nu: epsilon 8, accuracy ")
    assert f"<td>{runs[1].id}</td>" in runs._repr_html_()


def test_an_epsilon_without_end_is_not_shown_as_nothing_spent(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's `epsilon` was 0 where no finite epsilon holds."""
    run = dataclasses.replace(runs[0])
    monkeypatch.setattr(RunView, "held", (PrivacyLoss(), math.inf))
    assert run.epsilon == math.inf
    assert repr(run).startswith("Run(nu: epsilon inf")
    monkeypatch.setattr(RunView, "held", (PrivacyLoss(), 8.00004))
    assert "<td>8.001</td>" in Runs([run])._repr_html_()


def test_both_runs_were_charged_to_one_simulated_population(runs: Any) -> None:
    with ff.Ledger.open(runs[0].home.ledger) as ledger:
        population = ledger.population("demo")
    assert population.simulated
    assert (population.epsilon, population.delta) == (20, 1e-5)
    assert 8 < population.spent_epsilon <= 16


def test_a_stranger_can_check_the_certificate(runs: Any, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_bytes(runs[0].certificate())
    command = [sys.executable, str(ROOT / "docs/check_certificate.py"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_temporary_ledger_goes_with_its_runs() -> None:
    (run,) = ff.simulate(plan_of(rounds=2), budget=10, progress=False)
    root = run.home.root
    assert root.is_dir()
    del run
    assert not root.exists()


def test_a_cell_that_is_run_again_is_trained_and_not_the_class_that_had_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A named class was kept for the life of the process: the new one was checked, and the old one trained."""
    read: list[str] = []

    def run(tag: str, axis: int) -> float:
        class Cell(Signs):
            def __init__(self) -> None:
                super().__init__(axis)

            def users(self) -> ff.UserTable:
                read.append(tag)
                return super().users()

        Cell.__qualname__ = "Cell"
        monkeypatch.setattr(sys.modules[__name__], "Cell", Cell, raising=False)
        (run,) = ff.simulate(plan_of(task=Cell, epsilon=1e3), population="cells", budget=1e4, nodes=2, progress=False)
        assert run.plan.run.task == f"{__name__}:Cell"
        return float(run.frame()["score"].iloc[-1])

    assert run("first", 0) > 0.8
    assert read == ["first"]  # once, for the check, the price and both nodes
    user_names(f"{__name__}:Cell")  # as an app in this process does
    assert run("second", 1) > 0.8  # the old one's model knows nothing of the new axis
    assert read == ["first", "first", "second"]


@dataclasses.dataclass
class Sides(Signs):
    """Has no hash, as any dataclass that can be compared."""

    axis: int = 1


@pytest.mark.parametrize("task", [Sides, Sides(2)])
def test_a_task_may_be_a_dataclass(task: Any) -> None:
    """Trainers were looked up by their task, which has no hash: the node answered with a TypeError."""
    (run,) = ff.simulate(plan_of(task=task), population="sides", budget=20, progress=False)
    assert run.frame()["state"].eq("committed").all()


def test_the_users_of_a_task_object_do_not_stay_in_memory(runs: Any) -> None:
    assert _hosted.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        (0, {}, coded("not-given", "simulate")),
        (1, {"resume": "x"}, coded("not-given", "simulate")),
        (0, {"resume": "x"}, coded("conflict", "resume")),
        (1, {}, coded("not-given", "population", "'simulation'")),
        (2, {}, coded("not-given", "population", "12")),
    ],
)
def test_what_it_needs_is_said_before_anything_runs(arguments: int, keywords: dict[str, Any], words: Coded) -> None:
    with pytest.raises(BadInput, check=words):
        ff.simulate(*(plan_of() for _ in range(arguments)), **keywords)


SECRET = {"participation": {"scheme": "poisson", "rate": 0.5}, "adjacency": "add_remove", "epsilon": 1.0}
SECRET |= {"mechanism": "independent", "rounds": 2}


@pytest.mark.parametrize(
    "plans",
    [
        [{"rounds": 2}, {"rounds": 2}],
        [SECRET, SECRET],  # without the population's leak, less was named than it takes
        [{"rounds": 2}, {"rounds": 2, "delta": 1e-6}],
    ],
    ids=["public", "sampled", "two deltas"],
)
def test_the_budget_that_a_refusal_names_is_enough_and_a_smaller_one_is_not(plans: list[dict[str, Any]]) -> None:
    made = [plan_of(**keywords) for keywords in plans]
    with pytest.raises(BadInput) as refused:
        ff.simulate(*made)
    epsilon, *delta = literal_eval(refused.value.nearest.removeprefix("budget=") + ",")
    if isinstance(epsilon, tuple):
        epsilon, *delta = epsilon
    with pytest.raises(BudgetRefused):
        ff.simulate(*made, budget=(epsilon - 0.01, *delta) if delta else epsilon - 0.01, progress=False)
    assert len(ff.simulate(*made, budget=(epsilon, *delta) if delta else epsilon, progress=False)) == 2


def test_no_run_begins_where_the_budget_does_not_hold_all(tmp_path: Path) -> None:
    with pytest.raises(BudgetRefused, check=coded("budget-refused")):
        ff.simulate(plan_of(), plan_of(), budget=9, ledger=tmp_path / "runs", progress=False)
    with ff.Ledger.open(f"sqlite:///{tmp_path}/runs/ledger.sqlite3") as ledger:
        assert ledger.runs().items == ()
        assert ledger.population("simulation").committed_epsilon == 0


def test_a_budget_below_one_run_makes_no_population(tmp_path: Path) -> None:
    """Only an officer could raise it then: the same call with a larger budget was refused as well."""
    with pytest.raises(BudgetRefused, check=coded("budget-refused", "budget = 4", "budget = 8")):
        ff.simulate(plan_of(rounds=2), budget=4, ledger=tmp_path / "runs", progress=False)
    assert len(ff.simulate(plan_of(rounds=2), budget=16, ledger=tmp_path / "runs", progress=False)) == 1


def test_a_named_ledger_keeps_the_charge_and_its_budget(tmp_path: Path) -> None:
    home = tmp_path / "runs"
    (first,) = ff.simulate(plan_of(rounds=2), budget=10, ledger=home, progress=False)
    (second,) = ff.simulate(plan_of(rounds=2, epsilon=2), ledger=str(home), progress=False)
    with ff.Ledger.open(second.home.ledger) as ledger:
        assert ledger.population("simulation").spent_epsilon > first.epsilon
    with pytest.raises(BadInput, check=coded("differs", "budget", "10")):
        ff.simulate(plan_of(rounds=2), budget=11, ledger=home)
    with pytest.raises(BadInput, check=coded("wrong-form", "ledger")):
        ff.simulate(plan_of(), ledger=home / "ledger.sqlite3")


def test_several_deltas_need_one_of_the_population() -> None:
    plans = (plan_of(rounds=2), plan_of(rounds=2, delta=1e-6))
    with pytest.raises(BadInput, check=coded("conflict", "budget", "20")):
        ff.simulate(*plans, budget=20, population="both")
    assert len(ff.simulate(*plans, budget=(20.0, 1e-5), population="both", progress=False)) == 2


def test_equal_mechanisms_get_numbers() -> None:
    labels = simulation._labels([plan_of(), plan_of("blt"), plan_of(), plan_of({"kind": "blt", "buffers": 2})])
    assert labels == ["nu #1", "blt", "nu #2", "blt(buffers=2)"]


def test_an_interrupted_run_goes_on_where_its_ledger_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopping(Signs):
        patience = 2  # the check before the run, in a child, is not counted here

        def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
            self.patience -= 1
            if self.patience == -1:
                raise KeyboardInterrupt
            return super().evaluate(model)

    plan = plan_of(task=Stopping())
    with pytest.raises(Interrupted, check=coded("interrupted", "ff.simulate")) as stopped:
        ff.simulate(plan, budget=10, ledger=tmp_path, progress=False)
    run_id = str(stopped.value).split("resume='")[1].split("'")[0]
    (run,) = ff.simulate(resume=run_id, ledger=tmp_path, progress=False)
    assert list(run.frame().query("state == 'committed'")["round"]) == [0, 1, 2, 3]
    assert run.epsilon == pytest.approx(8)
    with pytest.raises(Interrupted, check=coded("interrupted")):
        ff.simulate(plan_of(task=Stopping()), budget=10, progress=False)


def test_frames_and_plots_name_the_package_that_is_missing(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for look in (runs.frame, runs[0].frame):
        with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
            look()
    with pytest.raises(ModuleNotFoundError, match="needs 'matplotlib'"):
        runs.plot()


def test_mechanisms_are_compared_at_one_budget() -> None:
    compared = ff.compare(plan_of(), ("nu", {"kind": "blt", "buffers": 2}, plan_of("tree").mechanism))
    frame = compared.frame()
    assert list(frame["label"]) == ["nu", "blt(buffers=2)", "tree"]
    assert frame["epsilon"].to_numpy() == pytest.approx([8, 8, 8])
    assert frame["score"].isna().all()
    assert "blt(buffers=2): noise multiplier" in repr(compared)
    assert "<td>blt(buffers=2)</td>" in compared._repr_html_()
    with pytest.raises(ValueError, match="nothing was trained"):
        compared.plot()


def test_rehearsals_only_touch_public_data() -> None:
    with pytest.raises(BadInput, check=coded("not-allowed", "compare --train")):
        ff.compare(plan_of(), train=True)
    compared = ff.compare(plan_of(rounds=2), ("nu",), train=True, data_is_public=True, progress=False)
    assert [trace.label for trace in compared.rehearsals] == ["nu", "no noise"]
    assert compared.rows[0]["score"] == compared.rehearsals[0].score
    assert compared.plot().axes[0].get_legend() is not None
