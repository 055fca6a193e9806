"""`fieldfare suggest`: nothing is shown that the plan's own accountant prices worse."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fieldfare.accounting import certification, sampled_optimum
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.population_size import judge_rate
from fieldfare_server.cli.application import assemble
from fieldfare_server.files.plan_file import plan_text
from fieldfare_server.planning import suggest as planning
from fieldfare_server.planning.admission import admit
from fieldfare_server.planning.feasibility import is_feasible
from fieldfare_server.planning.suggest import suggest
from fieldfare_server.run.pricing import price
from fieldfare_server.run.signal import noise_share
from support.refusals import Coded, coded

ROOT = Path(__file__).parents[3]
PLAN = """
[privacy]
population = "people"
epsilon = 1.0
delta = 1e-4

[run]
task = "no.such.module:nowhere"
rounds = 8
cohort = 5

[participation]
scheme = "min-separation"
separation = 4

[mechanism]
kind = "nu"

[server_optimizer]
kind = "sgd"
learning_rate = 0.5
"""
SECRET = PLAN.replace("delta = 1e-4", 'delta = 1e-4\nadjacency = "add_remove"')
POISSON = SECRET.replace('scheme = "min-separation"\nseparation = 4', 'scheme = "poisson"\nrate = 0.25')
POISSON = POISSON.replace('kind = "nu"', 'kind = "independent"')


def drawn(seed: int) -> tuple[Plan, dict[str, Any]]:
    """A plan and what is asked of it."""
    choose = random.Random(seed)
    rounds, apart = choose.choice([4, 10, 24]), choose.choice([1, 2, 3])
    scheme: dict[str, object] = choose.choice(
        [
            {"scheme": "min-separation", "separation": apart},
            {"scheme": "min-separation", "separation": apart, "max_participations": 1},
            {"scheme": "single"},
            {"scheme": "fixed-order", "period": 2},
            {"scheme": "poisson", "rate": choose.choice([0.05, 0.5, 1.0])},
        ]
    )
    sampled = scheme["scheme"] == "poisson"
    plan = Plan.parse(
        {
            "privacy": {
                "population": "people",
                "epsilon": choose.choice([0.5, 3.0, 12.0]),
                "delta": 1e-5,
                "adjacency": "add_remove" if sampled else choose.choice(["zero_out", "replace_one"]),
            },
            "run": {"rounds": rounds, "cohort": choose.choice([3, 40])},
            "participation": scheme,
            "mechanism": {"kind": "independent" if sampled else choose.choice(["independent", "nu", "blt", "tree"])},
            "clipping": {"kind": choose.choice(["flat", "normalised", "adaptive-quantile"]), "norm": 0.5},
        }
    )
    return plan, {"work": choose.choice([1.0, 4.0]), "update_norm": choose.choice([None, 0.1, 2.0])}


@pytest.mark.parametrize("seed", range(8))
def test_no_suggestion_is_priced_worse_by_its_own_measure(seed: int) -> None:
    plan, asked = drawn(seed)
    found, norm = suggest(plan, **asked), asked["update_norm"]
    best = found.best.plan
    assert noise_share(price(plan), norm) == pytest.approx(found.planned.share, rel=1e-12)
    assert noise_share(price(best), norm) == pytest.approx(found.best.share, rel=1e-12)
    assert found.best.share <= found.planned.share
    assert best.privacy == plan.privacy
    assert found.best.visits <= asked["work"] * found.planned.visits
    assert best.run.rounds >= plan.run.rounds
    # What is suggested is what the file says, and the users that were assumed can fill it.
    assert Plan.from_toml(plan_text(best)).digest() == best.digest()
    if not plan.samples:
        users = planning._needed_users(plan)
        assert is_feasible(best.participation.build(), best.run.rounds, best.run.cohort, users)


def test_a_cheaper_way_is_found_where_there_is_one() -> None:
    """Independent noise at many participations: every correlated mechanism has less."""
    plan = Plan.from_toml(PLAN.replace('kind = "nu"', 'kind = "independent"').replace("rounds = 8", "rounds = 32"))
    found = suggest(plan, work=1.0)
    assert found.best.plan.mechanism.kind != "independent"
    assert found.best.share < 0.7 * found.planned.share


def test_more_users_make_larger_cohorts_and_the_run_goes_as_far() -> None:
    plan = Plan.from_toml(PLAN)
    found = suggest(plan, users=1000, fewest_rounds=1)
    best = found.best.plan
    assert best.run.rounds * best.run.cohort == 4 * 40
    assert best.participation.scheme == "single"
    rate = best.server_optimizer.learning_rate  # type: ignore[attr-defined]
    assert rate * best.run.rounds == pytest.approx(0.5 * 8)
    assert suggest(plan, users=1000).best.plan.run.rounds == 8


def test_a_plan_for_more_users_than_there_are_is_fitted_to_them() -> None:
    found = suggest(Plan.from_toml(PLAN), users=8)
    assert found.fitted
    assert found.because[0].startswith("These users cannot fill")
    assert found.fitted == pytest.approx(found.planned.share / planning._priced(Plan.from_toml(PLAN), None).share)
    assert found.fitted > 1
    assert "privacy costs more" in found.because[1]
    for way in (found.planned, found.best):
        assert is_feasible(way.plan.participation.build(), way.plan.run.rounds, way.plan.run.cohort, 8)
    with pytest.raises(BadInput, check=coded("too-few")):
        suggest(
            Plan.from_toml(PLAN.replace('scheme = "min-separation"\nseparation', 'scheme = "fixed-order"\nperiod')),
            users=8,
        )


@pytest.mark.parametrize(("users", "most"), [(None, 20), (20, 20), (100, 40)])
def test_no_cohort_is_suggested_that_the_users_cannot_make(users: int | None, most: int) -> None:
    """20 users at rate 1 were to make cohorts of 40, and noise was told for sums of updates that nobody sends."""
    found = suggest(Plan.from_toml(POISSON.replace("rounds = 8", "rounds = 2")), users=users, work=8.0)
    assert max(way.plan.run.cohort for way in found.ways) == most
    assert found.best is not found.planned
    for way in found.ways:
        assert judge_rate(way.plan, users or 20) == []
        assert way.share == noise_share(price(way.plan))


@pytest.mark.parametrize("users", [1, 2, 3, 7])
@pytest.mark.parametrize("epsilon", [1e-3, 100.0])
def test_what_is_suggested_for_a_handful_of_users_is_accepted_for_them(users: int, epsilon: float) -> None:
    text = PLAN.replace("epsilon = 1.0", f"epsilon = {epsilon}").replace("delta = 1e-4", f"delta = {0.09 / users}")
    found = suggest(Plan.from_toml(text.replace('kind = "nu"', 'kind = "independent"')), users=users, fewest_rounds=1)
    assert found.fitted
    for way in (found.planned, found.best, *found.ways):
        admit(way.plan, None, None, users)
        assert way.share == noise_share(price(way.plan))


@pytest.mark.parametrize(("norm", "clip", "rate"), [(0.25, 0.25, 0.5), (4.0, 1.0, 0.5), (None, 1.0, 0.5)])
def test_a_clip_norm_above_the_updates_is_lowered_and_the_step_stays(
    norm: float | None, clip: float, rate: float
) -> None:
    best = suggest(Plan.from_toml(PLAN), update_norm=norm, work=1.0).best.plan
    assert best.clipping.norm == clip
    assert best.server_optimizer.learning_rate == pytest.approx(rate)  # type: ignore[attr-defined]


@pytest.fixture
def few_samples() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certification, "SAMPLES", (1 << 16, 1 << 15))
        patch.setattr(certification, "_FINE", 1 << 15)
        patch.setattr(sampled_optimum, "_COUNT", 1 << 11)
        yield


def test_a_certified_suggestion_is_priced_before_it_is_shown(
    few_samples: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Estimates far too low are dropped: what is shown has the price of `plan`."""
    plan, estimate = Plan.from_toml(POISSON.replace("rounds = 8", "rounds = 4")), planning._estimated

    def rosy(plan: Plan, norm: float | None) -> planning.Way:
        way = estimate(plan, norm)
        return replace(way, share=way.share / 100) if way.estimated else way

    monkeypatch.setattr(planning, "_estimated", rosy)
    found = suggest(plan, certified=True)
    assert not found.best.estimated
    assert found.best.share <= found.planned.share
    assert found.best.share == pytest.approx(noise_share(price(found.best.plan)), rel=1e-9)


def test_bands_are_compared_up_to_the_widest_that_random_allocation_may_have() -> None:
    plan = Plan.from_toml(POISSON.replace("rate = 0.25", "rate = 0.166666").replace("rounds = 8", "rounds = 12"))
    shape = plan.model_dump(mode="json", exclude_none=True)
    ways = list(planning._sampled(plan, shape, 30, certified=True))
    drawn = [table.get("bands", 1) for table, spec in ways if spec["scheme"] == "random-allocation"]
    assert sorted(drawn) == [1, 2, 4, 6, 7]
    assert {spec.get("bins", 6) for _, spec in ways} == {6}
    for table, spec in ways:  # none is refused
        Plan.parse({**shape, "mechanism": table, "participation": spec})


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("epsilon = 1.0", "noise_multiplier = 1.0", coded("conflict", "privacy.noise_multiplier")),
        ("rounds = 8", "rounds = 3000", coded("too-large", "run.rounds", "rounds = 3000")),
    ],
)
def test_what_cannot_be_compared_is_refused(old: str, new: str, what: Coded) -> None:
    with pytest.raises(BadInput, check=what):
        suggest(Plan.from_toml(PLAN.replace(old, new)))


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(assemble("suggest"), ["suggest", *arguments])


def test_the_command_says_why_and_writes_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(PLAN)
    said = ask()
    assert said.exit_code == 0, said.output
    assert "Assumed: as many users as the plan's own promise needs (20)" in said.output.replace("\n", " ")
    listed = ask("--json")
    assert listed.exit_code == 0, listed.output  # over its own file
    told = json.loads(listed.stdout)
    written = price(Plan.from_toml(Path("suggested.toml").read_text()))
    assert written.prefix_noise_rms == pytest.approx(told["best"]["prefix_noise"])
    assert told["best"]["noise_share"] < told["planned"]["noise_share"]
    assert told["because"]
    assert told["assumed"]
    refused = ask("--out", "plan.toml")
    assert refused.exit_code == 2
    assert tomllib.loads(Path("plan.toml").read_text()) == tomllib.loads(PLAN)


def test_nothing_is_suggested_for_users_for_whom_plan_refuses_the_delta(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    refused = ask(str(path), "--users", "10000", "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["what"] == "privacy.delta = 0.0001"


def test_how_many_users_there_are_is_no_hint_where_it_is_the_secret(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(POISSON)
    refused = ask(str(path), "--users", "task", "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["what"] == "--users task"


def test_a_plan_that_keeps_its_shape_says_so() -> None:
    """A way within a percent is no reason to change a plan."""
    first = suggest(Plan.from_toml(PLAN)).best.plan
    again = suggest(first, work=1.0)
    assert again.best is again.planned
    assert again.because[0].startswith("Keep the plan")
