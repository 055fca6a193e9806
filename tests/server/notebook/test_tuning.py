"""`ff.tune`: all of it is admitted first, trials are charged to the share alone, and the winner is for the others."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import fieldfare as ff
from fieldfare.accounting.filter import Rectangle
from fieldfare.accounting.sealed import least_mu
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.plan import Plan
from fieldfare.registry import Table
from fieldfare.schema import Schema
from fieldfare_client.app import forget_users
from fieldfare_client.users import UserTable
from fieldfare_server import faults
from fieldfare_server.cli import tune as tune_command
from fieldfare_server.cli.tune import _completed
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.plan_file import plan_text
from fieldfare_server.ledger import Ledger
from fieldfare_server.notebook.simulation import home_of
from fieldfare_server.planning.tuning import Tuned, Tuning, Ways
from fieldfare_server.run import pricing
from oracles import questions as oracle
from support.commands import command_in
from support.federation import TinyTask
from support.refusals import coded

TASK = "support.federation:TinyTask"
RATES = {"server_optimizer.learning_rate": [0.1, 1.0, 4.0]}


def plan(**changes: Any) -> Plan:
    keys = {
        "task": TASK,
        "population": "people",
        "epsilon": 4,
        "delta": 1e-5,
        "rounds": 2,
        "cohort": 12,
        "client": {"steps": 2},
        "participation": {"scheme": "min-separation", "separation": 1, "max_participations": 2},
        "tuning": 0.4,
    }
    return Plan(**{**keys, **changes})


def tune(home: Path, **keywords: Any) -> Tuned:
    tuned = ff.tune(plan(), RATES, **{"ledger": home, "progress": False, **keywords})
    assert isinstance(tuned, Tuned)
    return tuned


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    forget_users()
    faults.load({})


def ledger_of(home: Path, create: bool = False) -> Ledger:
    return Ledger.open(f"sqlite:///{home / 'ledger.sqlite3'}", create=create)


def charges(home: Path) -> tuple[int, float, int]:
    """(runs, what the user who has spent most has spent, commits in the log)."""
    with ledger_of(home) as ledger:
        assert verify(ledger, home).ok
        commits = sum(event.action == "round.commit" for event in ledger.events())
        return len(ledger.runs().items), ledger.population("people").spent.mu_squared, commits


def test_three_trials_leave_a_tenth_more_noise_on_a_share_and_twice_the_noise_charged_to_all() -> None:
    """From the accountant: plans and their prices alone."""
    whole = Plan(task=TASK, epsilon=1, delta=1e-5, rounds=64, cohort=200, mechanism="blt", participation="single")
    one = ff.price(whole)
    noise = one.noise_multiplier / 200
    alike = ff.price(Plan(**_keys(whole), noise_multiplier=2.0 * one.noise_multiplier))
    # Four runs with twice the noise cost what one costs: epsilon 1 for three trials and a final run.
    assert 4 * alike.loss.mu_squared == pytest.approx(one.loss.mu_squared, rel=1e-5)
    assert oracle.delta(math.sqrt(4 * alike.loss.mu_squared), 1.0) == pytest.approx(1e-5, rel=1e-4)
    rest = ff.price(Plan(**{**_keys(whole), "cohort": 180}, epsilon=1))
    assert rest.noise_multiplier / 180 / noise == pytest.approx(1.11, abs=0.005)
    offer = ff.tune(whole, RATES, share=0.1, dry_run=True)
    assert isinstance(offer, Ways)
    share, everybody, sealed = offer.ways
    # Between the two: three sealed trials cost mu(1) together.
    assert share.noise < sealed.noise < everybody.noise
    assert least_mu(0.2680511232 / sealed.noise, 3, 1e-20) == pytest.approx(0.2680511232, rel=2e-3)
    assert share.noise == pytest.approx(rest.noise_multiplier / 180 / noise)
    assert everybody.noise == pytest.approx(2.0)
    assert (share.tuning_users_pay, share.others_pay) == (pytest.approx(1.0, abs=1e-6), 0.0)
    # mu(1) sqrt 3 / 2, three quarters of the charge, as an epsilon.
    assert oracle.delta(0.2680511232 * math.sqrt(0.75), everybody.others_pay) == pytest.approx(1e-5, rel=1e-6)


APART = {"scheme": "min-separation", "separation": 1}
LONG = plan(epsilon=None, noise_multiplier=4, rounds=4, mechanism="nu", participation=APART)
DEARER = {
    "rounds": {"run.rounds": [2, 8]},
    "all cheaper": {"run.rounds": [1, 2]},
    "participations": {"participation.max_participations": [1, 2, 4]},
    "separation": {"participation.separation": [1, 2]},
    "noise": {"mechanism.nu": [0.01, 0.5], "run.rounds": [4, 6]},
    "resolution": {"clipping.norm": [0.1, 10]},
}


@pytest.mark.parametrize("score", ["held-out", "correct"])
@pytest.mark.parametrize("over", DEARER.values(), ids=DEARER.keys())
def test_what_is_offered_is_what_is_charged_where_settings_change_the_price(over: Any, score: str) -> None:
    """With a fixed noise multiplier each setting has a price of its own."""
    tuning = Tuning.of(LONG, over, score=score)
    finals = [ff.price(final) for final in tuning.finals]
    trials = [ff.price(tuning.trial(index)) for index in range(len(finals))]
    asked = tuning.question([f"run-{index}" for index in range(len(finals))], 20)
    paid = [cost.loss.mu_squared for cost in trials]
    paid += [] if asked is None else [ff.price(asked.plan_for_nodes()).loss.mu_squared]
    ways = tuning.offer()
    assert ways.epsilon == pytest.approx(max(cost.epsilon for cost in finals), rel=1e-9)
    share, everybody, _ = ways.ways
    dearest = max(cost.epsilon for cost in trials)
    assert dearest <= share.dearest_trial < 1.001 * dearest
    assert oracle.delta(math.sqrt(sum(paid)), share.tuning_users_pay) <= 1e-5
    assert oracle.delta(math.sqrt(sum(paid)), 0.999 * share.tuning_users_pay) > 1e-5
    assert share.tuning_users_pay <= ways.epsilon
    assert everybody.dearest_trial < share.dearest_trial
    assert everybody.tuning_users_pay < ways.epsilon
    told = float(str(ways).partition("at most epsilon ")[2].partition(" at")[0])
    assert ways.epsilon <= told < 1.001 * ways.epsilon, "rounded up: it is a promise"


def test_trials_of_a_large_model_cost_no_more_than_their_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What floats' resolution costs does not fall with the noise: eight trials cost half as much again as was said."""
    monkeypatch.setattr(pricing, "_schema_of", lambda task: Schema(("weight",), ((30_000_000,),)))
    spaced = {"scheme": "min-separation", "separation": 16}
    whole = Plan(task=TASK, epsilon=4, delta=1e-6, rounds=64, cohort=200, mechanism="tree", participation=spaced)
    rates = {"server_optimizer.learning_rate": [0.1 * step for step in range(1, 9)]}
    tuning = Tuning.of(whole, rates)
    part = tuning.dearest / len(tuning.settings)
    assert 0.999 * part < ff.price(tuning.trial(0)).loss.mu_squared <= part
    sealed = Tuning.of(whole, rates, sealed=True)
    _, loss = sealed.sealed()
    assert loss.mu is not None
    assert 0.99 * sealed.dearest < least_mu(loss.mu, len(sealed.settings), 2.0**-62 * 1e-6) ** 2 <= sealed.dearest


def _keys(whole: Plan) -> dict[str, Any]:
    return {"task": TASK, "delta": 1e-5, "rounds": 64, "cohort": whole.run.cohort, "mechanism": "blt"}


@pytest.mark.parametrize("score", ["held-out", "correct", "loss=0,9"])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_a_user_of_the_share_pays_no_more_than_the_final_run_costs(score: str, adjacency: str) -> None:
    tuning = Tuning.of(plan(adjacency=adjacency, cohort=200, tuning=0.1), RATES, score=score)
    final = ff.price(tuning.finals[0]).loss.mu_squared
    trials = [ff.price(tuning.trial(index)).loss.mu_squared for index in range(3)]
    asked = tuning.question(["a", "b", "c"], 20)
    looks = [] if asked is None else [ff.price(asked.plan_for_nodes()).loss.mu_squared]
    assert 0.999 * final < sum(trials) + sum(looks) <= final
    assert tuning.trial(1).run.cohort == 20
    assert tuning.trial(1).tuning is not None
    assert tuning.trial(1).tuning.users == "share"


def test_the_winner_trains_the_others_and_everybody_has_paid_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = tune(tmp_path, budget=4)  # exactly what one run costs
    assert len(tuned.trials) == 3
    assert tuned.trials[0].score == max(tried.score or -math.inf for tried in tuned.trials)
    rate = tuned.trials[0].values["server_optimizer.learning_rate"]
    assert tuned.plan == plan(server_optimizer={"kind": "sgd", "learning_rate": rate})
    before = charges(tmp_path)
    assert before[0] == 3
    # The same call again: what the ledger has is neither run nor charged once more.
    assert tune(tmp_path).trials == tuned.trials
    assert charges(tmp_path) == before
    with monkeypatch.context() as error:  # the largest error was handed to the final run
        error.setattr(TinyTask, "least_is_best", True)
        assert tune(tmp_path).trials == tuned.trials[::-1]
    ff.simulate(tuned.plan, ledger=tuned.ledger, progress=False)
    assert tune(tmp_path).trials == tuned.trials
    with ledger_of(tmp_path) as ledger:
        assert ledger.population("people").spent_epsilon <= 4.0
    with pytest.raises(BudgetRefused):  # other trials find nobody who could pay
        ff.tune(plan(), {"client.learning_rate": [0.2, 0.3]}, ledger=tmp_path, progress=False)


def test_trials_are_compared_by_a_charged_question_on_the_share(tmp_path: Path) -> None:
    tuned = tune(tmp_path, budget=4, score="loss=0,9")
    scores = [tried.score for tried in tuned.trials]
    assert scores == sorted(scores, key=lambda score: score if score is not None else math.inf)
    assert all(tried.low is not None and tried.high is not None for tried in tuned.trials)
    runs, spent, _ = charges(tmp_path)
    assert runs == 4
    assert spent <= Rectangle.of(4, 1e-5, 0.0).mu_squared
    with ledger_of(tmp_path) as ledger:
        newest = ledger.runs().items[0]
        assert newest.plan["task"]["question"]["kind"] == "choose"
        assert newest.plan["tuning"] == {"share": 0.4, "users": "share"}
    assert tune(tmp_path, score="loss=0,9").trials == tuned.trials
    assert charges(tmp_path)[:2] == (runs, spent)


def test_all_of_it_is_admitted_before_the_first_trial(tmp_path: Path) -> None:
    with ledger_of(tmp_path, create=True) as ledger:
        ledger.create_population("people", 3.9, 1e-5, simulated=True, actor="test")
    with pytest.raises(BudgetRefused):  # the trials fit, the final run does not
        tune(tmp_path, budget=3.9)
    many = plan(cohort=18, min_reports=18, population="many")
    with pytest.raises(BadInput):  # the others are too few for the final run
        ff.tune(many, RATES, budget=4, ledger=tmp_path, progress=False)
    assert charges(tmp_path) == (0, 0.0, 0)


RATE = "server_optimizer.learning_rate"
WRONG: dict[str, tuple[Any, str, str]] = {
    "a number": ({RATE: 0.3}, "wrong-form", RATE),
    "a text": ({RATE: "0.1,0.3"}, "wrong-form", RATE),
    "a set": ({RATE: {0.1, 0.3}}, "wrong-form", RATE),
    "pairs": ([(RATE, [0.1, 0.3])], "wrong-form", "over"),
    "equal values": ({RATE: [0.1, 1, 1.0]}, "conflict", RATE),
    "another task": ({"run.task": [TASK, "digits"]}, "unknown", "run.task"),
    "a product that no memory holds": ({RATE: range(10**7), "run.rounds": range(10**7)}, "out-of-range", "trials"),
}


@pytest.mark.parametrize(("over", "code", "named"), WRONG.values(), ids=WRONG.keys())
def test_what_is_tried_is_lists_of_different_values(over: Any, code: str, named: str) -> None:
    with pytest.raises(BadInput, check=coded(code, named)):
        ff.tune(plan(), over, dry_run=True)


class FewerUsers(Table):
    fewer: int = 0


@dataclass
class FewerUsersTask(TinyTask):
    """Leaves as many users out as its parameter says."""

    Parameters: ClassVar[type[Table]] = FewerUsers
    fewer: int = 0

    def users(self) -> UserTable:
        x = np.ones((24 - self.fewer, 3), np.float32)
        return UserTable.grouped([f"user-{index}" for index in range(len(x))], {"x": x, "y": x[:, 0]})


class Fails(Table):
    fails: bool = False


@dataclass
class FailsTask(TinyTask):
    Parameters: ClassVar[type[Table]] = Fails
    fails: bool = False

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise ValueError
        return super().loss(outputs, targets)


@pytest.mark.parametrize("sealed", [False, True])
def test_the_task_of_every_trial_is_checked_before_the_first_is_paid(sealed: bool, tmp_path: Path) -> None:
    whole = plan(task=f"{__name__}:FailsTask", parameters={"fails": False}, **({"tuning": None} if sealed else {}))
    with pytest.raises(BadInput, check=coded("faulty", "FailsTask")):
        ff.tune(whole, {"task.fails": [False, True]}, budget=4, ledger=tmp_path, progress=False, sealed=sealed)
    assert charges(tmp_path) == (0, 0.0, 0)


def test_cohorts_that_a_share_makes_one_are_no_two_trials() -> None:
    """The second setting was shown the first one's run, and a question named that twice after it was charged."""
    with pytest.raises(BadInput, check=coded("conflict", "'run.cohort': 7", "cohorts that a share tells apart")):
        Tuning.of(plan(), {"run.cohort": [6, 7]})
    assert [Tuning.of(plan(), {"run.cohort": [6, 8]}).trial(at).run.cohort for at in (0, 1)] == [2, 3]
    assert len(Tuning.of(plan(tuning=None), {"run.cohort": [6, 7]}, sealed=True).settings) == 2


def test_a_share_of_nobody_is_said_as_such(tmp_path: Path) -> None:
    """`run.cohort = 0` was refused, which nobody wrote."""
    with pytest.raises(BadInput, check=coded("too-few", "there are 0 users to ask")):
        ff.tune(plan(tuning=1e-9), RATES, score="correct", budget=4, ledger=tmp_path, dry_run=True)


def test_a_limit_that_is_lowered_between_trials_holds_for_what_comes(tmp_path: Path) -> None:
    """The next trial asks those of the share who have enough left; the run of the others waits for a higher limit."""
    over = {"server_optimizer.learning_rate": [0.1, 1.0]}
    ff.tune(plan(), over, budget=4, ledger=tmp_path, dry_run=True)
    first = _completed(home_of(tmp_path)[0], Tuning.of(plan(), over), 1, quiet=True)
    limit = 1.05 * first.spent_epsilon
    with ledger_of(tmp_path) as ledger:
        ledger.tighten_population("people", epsilon=limit, reason="less", actor="officer")
    tuned = ff.tune(plan(), over, ledger=tmp_path, progress=False)
    assert isinstance(tuned, Tuned)
    assert first.id in {tried.run for tried in tuned.trials}
    with pytest.raises(BudgetRefused):
        ff.simulate(tuned.plan, ledger=tmp_path, progress=False)
    with ledger_of(tmp_path) as ledger:
        assert ledger.population("people").spent_epsilon <= limit
        ledger.raise_population("people", epsilon=4, reason="as before", actor="officer")
    ff.simulate(tuned.plan, ledger=tmp_path, progress=False)
    assert charges(tmp_path)[0] == 3
    with ledger_of(tmp_path) as ledger:
        assert ledger.population("people").spent_epsilon <= 4
        assert [run.plan["tuning"]["users"] for run in ledger.runs().items] == ["others", "share", "share"]


def test_a_limit_that_is_lowered_while_trials_run_lets_none_run_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second trial was run, and charged, although the third could not be."""
    run_here = tune_command.run_here

    def tightened(*args: Any, **keywords: Any) -> Any:
        trace = run_here(*args, **keywords)
        with ledger_of(tmp_path) as ledger:
            limit = 1.05 * ledger.population("people").spent_epsilon
            ledger.tighten_population("people", epsilon=limit, reason="less", actor="officer")
        return trace

    monkeypatch.setattr(tune_command, "run_here", tightened)
    with pytest.raises(BudgetRefused, check=coded("users-spent", "a run of")):
        tune(tmp_path, budget=4)
    assert charges(tmp_path)[0] == 1


def test_a_trials_task_has_the_users_of_the_final_run(tmp_path: Path) -> None:
    fewer = plan(task=f"{__name__}:FewerUsersTask", parameters={"fewer": 0})
    with pytest.raises(BadInput, check=coded("differs", "over [task]")):
        ff.tune(fewer, {"task.fewer": [0, 3]}, budget=4, ledger=tmp_path, progress=False)
    assert charges(tmp_path) == (0, 0.0, 0)


@pytest.mark.parametrize(
    ("over", "more"),
    [
        ({"server_optimizer.learning_rate": [0.1]}, {}),
        ({}, {}),
        ({"privacy.epsilon": [1, 2]}, {}),
        ({"tuning.share": [0.1, 0.2]}, {}),
        ({"epsilon": [1, 2]}, {}),
        ({"server_optimizer.rate": [1, 2]}, {}),
        (RATES, {"score": "accuracy"}),
        (RATES, {"score": "loss"}),
        (RATES, {"score": "loss=4,0"}),
        (RATES, {"share": 1.5}),
    ],
)
def test_what_cannot_be_tuned_is_refused(over: Any, more: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        ff.tune(plan(), over, dry_run=True, **more)


def test_a_population_without_odometers_is_refused(tmp_path: Path) -> None:
    with ledger_of(tmp_path, create=True) as ledger:
        ledger.create_population("people", 8, 1e-5, simulated=True, adjacency="add_remove", actor="test")
    with pytest.raises(BadInput, check=coded("unsupported", "population")):
        tune(tmp_path)


CRASH = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from test_tuning import tune
tune(Path({home!r}), budget=4, score="loss=0,9")
"""


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(
            "strategy.privatised:kill:2", marks=pytest.mark.slow
        ),  # in the second trial's first group of rounds
        "ledger.run.finishing:kill:2",  # when the second trial is charged, and not ended
        pytest.param(
            "ledger.round.committed:kill:4", marks=pytest.mark.slow
        ),  # when the question is charged, and its answer not shown
    ],
)
def test_killed_half_way_it_goes_on_and_no_charge_is_lost_or_taken_twice(point: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    source = CRASH.format(path=[str(here), str(here.parents[1])], home=str(tmp_path))
    environment = {**os.environ, faults.VARIABLE: point, "FIELDFARE_LEASE_SECONDS": "1"}
    done = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    runs, spent, _ = charges(tmp_path)
    assert 1 <= runs <= 4
    tuned = tune(tmp_path, score="loss=0,9")
    assert len(tuned.trials) == 3
    after = charges(tmp_path)
    assert (after[0], after[2]) == (4, 3 * 2 + 1)
    assert spent <= after[1] <= Rectangle.of(4, 1e-5, 0.0).mu_squared


def test_the_command_writes_the_plan_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fieldfare = command_in(tmp_path, monkeypatch)
    Path("plan.toml").write_text(plan_text(plan()))
    assert (
        fieldfare(*["population", "create", "people", "--epsilon", "4", "--delta", "1e-5", "--simulated"]).exit_code
        == 0
    )
    over = ["tune", "--over", "server_optimizer.learning_rate=.1,1"]
    said = fieldfare(*over, "--dry-run")
    assert said.exit_code == 0, said.output
    assert "on a share of 0.4" in said.output
    assert "all users charged" in said.output
    assert not Path("tuned.toml").exists()
    said = fieldfare(*over, "--json")
    assert said.exit_code == 0, said.output
    best = json.loads(said.stdout)["trials"][0]["values"]
    tuned = Plan.from_toml(Path("tuned.toml").read_text())
    assert tuned.server_optimizer.model_dump()["learning_rate"] == best["server_optimizer.learning_rate"]
    assert tuned.tuning == plan().tuning
    assert fieldfare("tune", "--over", "server_optimizer.learning_rate").exit_code == 2
    twice = fieldfare("tune", "--json", *["--over", "client.learning_rate=.1,1", "--over", "client.learning_rate=2,3"])
    assert (twice.exit_code, json.loads(twice.stdout)["code"]) == (2, "conflict")
    said = fieldfare("simulate", "tuned.toml")
    assert said.exit_code == 0, said.output


def test_a_plan_survives_being_written() -> None:
    rich = plan(
        mechanism={"kind": "nu", "nu": 0.1},
        metrics={"show": {"loss": [0, 4]}, "weight": 0.2},
        parameters={},
        availability={"reachable": 0.5},
        tags=("a", "b"),
        name='with "quotes" and 🐦',
    )
    assert Plan.from_toml(plan_text(rich)) == rich
