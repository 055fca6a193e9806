"""The papers' settings as plans: each is valid, and costs what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare.task import check_parameters

FOLDER = Path(__file__).parents[2] / "deploy/plans/papers"
PATHS = sorted(FOLDER.glob("*.toml"))
DENSE = "correlated-noise-cifar10-dense"


def test_every_paper_has_its_plans() -> None:
    names = {path.stem for path in PATHS}
    assert {f"correlated-noise-cifar10-{k}" for k in ("nu", "blt", "optimal-cc", "tree", "dense", "poisson")} <= names
    assert {f"correlated-noise-stackoverflow-{k}" for k in ("nu", "blt", "optimal-cc", "tree", "poisson")} <= names
    assert {f"disk-{data}-{mode}" for data in ("cifar10", "mnist") for mode in ("base", "two-point")} <= names
    assert {f"aggressive-clipping-fig{number}" for number in (1, 2, 3)} <= names


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_plan_costs_its_epsilon(path: Path) -> None:
    plan = Plan.from_toml(path.read_text())
    check_parameters(plan.run.task, plan.task)
    if path.stem == DENSE:  # its optimisation takes minutes: the same plan with a sixteenth of the rounds
        table = plan.model_dump(mode="json")
        table["run"]["rounds"], table["participation"] = 125, {"scheme": "min-separation", "separation": 25}
        plan = Plan.parse(table)
    cost = cost_of(plan)
    if plan.privacy.epsilon is None:
        return
    assert cost.epsilon == pytest.approx(plan.privacy.epsilon, rel=1e-4)
    assert cost.epsilon <= (plan.privacy.epsilon or 0) * (1 + 1e-9)
    assert cost.loss.amplified == (plan.participation.scheme == "poisson")


def test_the_settings_are_the_papers() -> None:
    cifar = Plan.from_toml((FOLDER / "correlated-noise-cifar10-nu.toml").read_text())
    participation = cifar.participation
    assert (cifar.run.rounds, cifar.run.cohort) == (2000, 500)
    assert (participation.separation, participation.max_participations) == (100, 20)
    # Every image takes part 20 times: 2 000 rounds of 500 are 20 epochs of 50 000.
    assert cifar.run.rounds * cifar.run.cohort == 20 * cifar.task["users"]  # type: ignore[operator]
    sampled = Plan.from_toml((FOLDER / "correlated-noise-cifar10-poisson.toml").read_text())
    assert sampled.participation.rate == pytest.approx(sampled.run.cohort / 50_000)
    disk = Plan.from_toml((FOLDER / "disk-cifar10-two-point.toml").read_text())
    assert disk.run.rounds * disk.run.cohort == 80 * 50_000
    assert disk.privacy.delta == pytest.approx(50_000**-1.1, rel=0.01)
    assert disk.server_optimizer.model_dump()["kappa"] == 0.7
    first = Plan.from_toml((FOLDER / "aggressive-clipping-fig1.toml").read_text())
    assert first.clipping.model_dump()["norm"] == pytest.approx(1000**0.5, abs=1e-3)
    assert first.run.rounds * first.run.cohort == first.task["users"]
