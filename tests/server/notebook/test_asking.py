"""`ff.ask`: a look is charged before it is shown, through the same budget, journal, odometers and certificate."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import fieldfare as ff
from fieldfare.accounting.filter import Rectangle
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.names import QUESTION, task_reference
from fieldfare.nonces import NONCE_BYTES
from fieldfare.questions import kinds
from fieldfare_client import questions as client
from fieldfare_client.app import _hosted
from fieldfare_server import faults
from fieldfare_server.api import Settings, create_app
from fieldfare_server.cli.application import application
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.looks import Look, Offer, look, question_of
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.questions import Asked
from oracles import questions as oracle
from support.commands import command_in
from support.refusals import Coded, coded

USERS = 120
ROWS: dict[str, Any] = {"kind": "mean", "measure": "rows", "low": 0, "high": 8}
NORMS: dict[str, Any] = {"kind": "mean", "measure": "update-norm", "low": 0, "high": 1, "some": True}


class Heights(ff.Task):
    """Two classes on a line, users with 0 to 6 rows."""

    name = "heights"
    score_name = "accuracy"
    held_out = "drawn here"
    broken: ClassVar[set[int]] = set()
    """Users of whom `prepare` fails, by their number of rows."""

    def build_model(self) -> torch.nn.Module:
        model = torch.nn.Linear(1, 1)
        torch.nn.init.ones_(model.weight)
        torch.nn.init.zeros_(model.bias)
        return model

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(
            outputs[:, 0], targets.to(outputs.dtype), reduction="none"
        )

    def users(self) -> ff.UserTable:
        draw = np.random.default_rng(1)
        sizes = draw.integers(0, 7, USERS)
        x = draw.normal(size=(int(sizes.sum()), 1)).astype(np.float32)
        y = (x[:, 0] + draw.normal(size=len(x)) > 0).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return ff.UserTable([f"u{i}" for i in range(USERS)], offsets, {"x": x, "y": y, "height": x[:, 0]})

    def prepare(self, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        if len(columns["y"]) in self.broken:
            raise ValueError("these rows say something of their user")
        return columns["x"], columns["y"]

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {"accuracy": 0.5}


@pytest.fixture(autouse=True)
def one_task() -> Any:
    yield
    ff_app_forget()
    Heights.broken.clear()
    faults.load({})


def ff_app_forget() -> None:
    from fieldfare_client.app import forget_users

    forget_users()


def ask(question: Any, home: Path, **keywords: Any) -> Look:
    given = {"task": f"{__name__}:Heights", "population": "people", "epsilon": 1.0, "delta": 1e-6, "ledger": home}
    found = ff.ask(question, **{**given, **keywords})
    assert isinstance(found, Look)
    return found


def truth() -> tuple[np.ndarray, list[list[float]]]:
    table = Heights().users()
    return table.sizes, [table.columns["height"][a:b].tolist() for a, b in itertools.pairwise(table.offsets)]


def test_an_answer_is_near_the_truth_and_its_charge_is_in_the_ledger(tmp_path: Path) -> None:
    sizes, heights = truth()
    found = ask(ROWS, tmp_path, budget=20)
    mean, users = found.answer
    assert 0 <= users.low <= users.high == found.users
    noise = 4 / USERS / 0.21  # half the range over users and mu(1, 1e-6) of .24
    assert mean.value == pytest.approx(sizes.mean(), abs=7 * noise)
    assert mean.low is not None
    assert mean.value - mean.low == pytest.approx(1.96 * 4 / USERS / 0.2367, rel=1e-2)
    assert found.users == USERS
    assert found.epsilon == pytest.approx(1, abs=2e-3)
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as ledger:
        population = ledger.population("people")
        assert population.spent_epsilon == pytest.approx(1, abs=2e-3)
        assert population.spent_epsilon >= found.epsilon
        actions = [event.action for event in ledger.events()]
        assert actions.index("run.start") < actions.index("round.open") < actions.index("round.commit")
        assert len(bytes.fromhex(ledger.events()[actions.index("round.commit")].body["nonce"])) == NONCE_BYTES
        assert verify(ledger, tmp_path, recompute=recharge).ok
    (count,) = ask({"kind": "count", "measure": "height", "low": 0, "high": 9}, tmp_path, epsilon=5.0).answer
    assert count.value == pytest.approx(oracle.count(heights, 0, 9), abs=7 * 0.5)


def test_values_that_nobody_can_list_are_asked_here(tmp_path: Path) -> None:
    """No code of the task computes them, so there is nothing to try on made-up rows."""
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", create=True) as ledger:
        ledger.create_population("people", 4, 1e-5, leak=1e-6, simulated=True, actor="test")
    found = ask({"kind": "items", "measure": "y", "most": 2, "leak": 1e-7}, tmp_path, delta=1e-5)
    assert {"0", "1"} <= {value.name for value in found.answer}


def test_every_kind_is_asked_by_the_command_for_its_price_alone_and_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file, as the page of questions has it: no kind may end in anything but its answer or a refusal."""
    fieldfare = command_in(tmp_path, monkeypatch)
    with Ledger.open(f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}", create=True) as ledger:
        ledger.create_population("people", 1000, 1e-5, leak=1e-6, simulated=True, actor="test")
    task = f"{__name__}:Heights"
    plan = ff.Plan(task=task, population="people", epsilon=8, delta=1e-6, rounds=1, cohort=60, mechanism="nu")
    one, two = (ff.simulate(plan, ledger=tmp_path / "home", progress=False)[0].id for _ in range(2))
    rows, of_one = {"measure": "rows", "low": 0, "high": 8}, {"low": 0, "high": 1, "model": one}
    asked: list[dict[str, Any]] = [
        {"kind": "count", **rows},
        {"kind": "mean", **rows},
        {"kind": "mean", "measure": "loss", "some": True, **of_one},
        {"kind": "mean", "measure": "correct", **of_one},
        {"kind": "histogram", "measure": "height", "low": -3, "high": 3, "bins": 4},
        {"kind": "quantile", **rows, "bins": 8, "at": [0.2, 0.5]},
        {
            "kind": "quantile",
            "measure": "update-norm",
            "low": 1e-3,
            "high": 10,
            "spacing": "log",
            "bins": 8,
            "at": [0.5],
        },
        {"kind": "auc", "model": one, "bins": 8},
        {"kind": "items", "measure": "y", "most": 2, "leak": 1e-7},
        {"kind": "choose", "models": [one, two]},
        {"kind": "choose", "models": [one, two], "shows": "best", "measure": "loss", "high": 4},
    ]
    assert {each["kind"] for each in asked} == {*kinds()} - {"sums"}
    file, head = tmp_path / "question.toml", f'[run]\ntask = "{task}"\n[privacy]\npopulation = "people"\n'
    for question in [*asked, {"kind": "sums", "entries": {"height": 1}, "high": 9}]:
        entries = "".join(f"{key} = {json.dumps(value).replace(': ', ' = ')}\n" for key, value in question.items())
        file.write_text(f"{head}epsilon = 9.0\ndelta = 1e-5\n[question]\n{entries}")
        done = [fieldfare("ask", file, *words) for words in (("--dry-run",), (), ("--json",))]
        if question["kind"] == "sums":  # of a Flower app's own lists
            assert [each.exit_code for each in done] == [2, 2, 2]
            assert json.loads(done[2].stdout)["code"] == "unsupported"
            assert "grid=grid" in done[2].output
            continue
        assert [each.exit_code for each in done] == [0, 0, 0], (question, [each.output for each in done])
        assert "Nothing was asked or charged." in done[0].stdout
        assert "charged to population people by run" in done[1].stdout
        assert json.loads(done[2].stdout)["answer"]
    with Ledger.open(f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}") as ledger:
        assert len([run for run in ledger.runs(limit=100).items if question_of(run.plan)]) == 2 * len(asked)


def test_an_option_that_a_question_would_not_heed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever says `--epsilon 0.01` beside a file of epsilon 1 would else be charged 1."""
    fieldfare = command_in(tmp_path, monkeypatch)
    for words in (
        ("question.toml", "--epsilon", "0.01"),
        ("--resume", "run", "--epsilon", "0.01"),
        ("--resume", "run", "--superlink", "127.0.0.1:1"),
        ("--clip-of", "plan.toml", "--superlink", "127.0.0.1:1"),
        ("question.toml", "--insecure"),
        ("--clip-of", "plan.toml", "--root-certificates", "ca.crt"),
    ):
        refused = fieldfare("ask", *words, "--json")
        assert (refused.exit_code, json.loads(refused.stdout)["code"]) == (2, "conflict"), refused.output


def test_an_old_answer_takes_no_other_terms_and_a_run_that_trains_has_none(tmp_path: Path) -> None:
    found = ask(ROWS, tmp_path, budget=20)
    assert ff.ask(resume=found.run, ledger=tmp_path) == found
    terms: dict[str, Any] = {"epsilon": 0.1, "population": "people", "task": "digits", "cohort": 9, "budget": 2}
    for name, value in terms.items():
        with pytest.raises(BadInput, check=coded("not-given", "ask")):
            ff.ask(resume=found.run, ledger=tmp_path, **{name: value})
    plan = ff.Plan(
        task=f"{__name__}:Heights", population="people", epsilon=1, delta=1e-6, rounds=1, cohort=20, mechanism="nu"
    )
    run = ff.simulate(plan, ledger=tmp_path, progress=False)[0].id
    with pytest.raises(BadInput, check=coded("not-found", f"run {run}", "QUESTION.toml")) as refused:
        ff.ask(resume=run, ledger=tmp_path)
    assert f"--resume {run}" not in str(refused.value)


def test_a_model_that_a_question_is_not_made_for_is_refused_by_the_dry_run_too(tmp_path: Path) -> None:
    plan = ff.Plan(task="digits", population="people", epsilon=8, delta=1e-5, rounds=1, cohort=60, mechanism="nu")
    run = ff.simulate(plan, ledger=tmp_path, budget=1000, progress=False)[0]
    for dry in (True, False):
        with pytest.raises(BadInput, check=coded("unsupported", "question.kind", "more than two classes")):
            ask({"kind": "auc", "model": run.id}, tmp_path, task="digits", delta=1e-5, dry_run=dry)


def test_questions_and_runs_share_the_odometers(tmp_path: Path) -> None:
    ask(ROWS, tmp_path, budget=2, epsilon=1.5)
    # All of them could be asked once, and nobody has as much left again.
    with pytest.raises(BudgetRefused, check=coded("users-spent", "a run of")):
        ask(ROWS, tmp_path, epsilon=1.5)
    plan = ff.Plan(
        task=f"{__name__}:Heights", population="people", epsilon=1.5, delta=1e-6, rounds=1, cohort=20, mechanism="nu"
    )
    with pytest.raises(BudgetRefused):
        ff.simulate(plan, ledger=tmp_path, progress=False)


def test_users_who_have_too_little_left_are_not_asked(tmp_path: Path, capsys: Any) -> None:
    plan = ff.Plan(
        task=f"{__name__}:Heights", population="people", epsilon=1.5, delta=1e-6, rounds=1, cohort=30, mechanism="nu"
    )
    ff.simulate(plan, ledger=tmp_path, budget=2, progress=False)
    found = ask(ROWS, tmp_path, epsilon=1.5)
    assert found.users == USERS - 30
    assert "90 of 120 users are asked" in capsys.readouterr().err
    assert "90 users answered" in str(found)


def test_the_same_question_again_has_other_noise_and_another_charge(tmp_path: Path) -> None:
    first, second = (ask(ROWS, tmp_path, **more) for more in ({"budget": 20}, {}))
    assert first.answer[0].value != second.answer[0].value
    # Its answer lies where models do, and is none.
    with pytest.raises(BadInput, check=coded("not-found", f"the model of run {first.run}")):
        ask({"kind": "choose", "models": [first.run, second.run]}, tmp_path)
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as ledger:
        nonces = [event.body["nonce"] for event in ledger.events() if event.action == "round.commit"]
        mu_squared = [ledger.run(each.run).spent.mu_squared for each in (first, second)]
        spent = ledger.population("people").spent.mu_squared
    assert len(set(nonces)) == 2
    assert spent == pytest.approx(sum(mu_squared), rel=1e-9)
    assert spent >= sum(mu_squared) * (1 - 1e-15)


def test_under_replace_one_a_question_costs_twice_the_mu() -> None:
    for adjacency, factor in (("zero_out", 1), ("replace_one", 2)):
        offer = ff.ask(
            ROWS,
            task=f"{__name__}:Heights",
            population="people",
            adjacency=adjacency,
            noise_multiplier=5.0,
            delta=1e-6,
            dry_run=True,
        )
        assert isinstance(offer, Offer)
        assert offer.mu == pytest.approx(factor / 5, rel=1e-6)
        assert offer.mu >= factor / 5


def test_a_run_that_steps_otherwise_has_no_answer() -> None:
    asked = Asked.of(
        {"question": ROWS, "run": {"task": "x"}, "privacy": {"population": "p", "epsilon": 1, "delta": 0.1}}
    )
    table = json.loads(asked.plan(9).to_json())
    assert question_of(table) == asked.question
    for key, value in (
        ("server_optimizer", {"kind": "sgd", "learning_rate": 0.5}),
        ("clipping", {"kind": "flat", "norm": 2.0}),
        ("client", {**table["client"], "learning_rate": 0.1}),
        ("run", {**table["run"], "rounds": 2}),
        ("run", {**table["run"], "task": "digits"}),
    ):
        assert question_of({**table, key: value}) is None


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    offer = ff.ask(ROWS, task=f"{__name__}:Heights", population="people", epsilon=1.0, delta=1e-6, dry_run=True)
    assert isinstance(offer, Offer)
    assert offer.mu == pytest.approx(0.2367, abs=1e-3)
    ((what, sd, half),) = offer.widths
    assert what == "mean"
    assert (sd, half) == pytest.approx((4 / USERS / 0.2367, 1.96 * 4 / USERS / 0.2367), rel=1e-2)
    assert not home.exists()
    ask(ROWS, tmp_path, budget=20)
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as ledger:
        before = ledger.head()
    again = ff.ask(
        ROWS, task=f"{__name__}:Heights", population="people", epsilon=1.0, delta=1e-6, ledger=tmp_path, dry_run=True
    )
    assert again == offer
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as ledger:
        assert ledger.head() == before


@pytest.mark.parametrize(
    ("question", "more", "word"),
    [
        ({"kind": "mean", "measure": "rows"}, {}, coded("key-required", "question.low", "question.low")),
        ({**ROWS, "measure": "weight"}, {}, coded("not-found", "question.measure")),
        ({**ROWS, "measure": "x"}, {}, coded("wrong-form", "question.measure")),
        ({**ROWS, "measure": "loss", "model": "nobody"}, {}, coded("not-found", "run")),
        (ROWS, {"adjacency": "add_remove"}, coded("unsupported", "privacy.adjacency")),
        (ROWS, {"population": ""}, coded("value-wrong", "privacy.population")),
        (None, {}, coded("not-given", "ask")),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_charged(
    question: Any, more: dict[str, Any], word: Coded, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, check=word):
        ask(question, tmp_path, **{"budget": 20, **more})
    if (tmp_path / "ledger.sqlite3").exists():
        with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as ledger:
            assert not ledger.runs().items


CRASH = """
import sys
from dataclasses import asdict
from pathlib import Path
sys.path[:0] = {path!r}
from test_asking import Heights, ask
Heights.broken.update({broken!r})
ask({question!r}, Path({home!r}), budget=20)
"""


def crash(point: str, home: Path, question: Any = ROWS) -> None:
    """Ask in another process, which is killed at `point`."""
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    source = CRASH.format(path=path, home=str(home), question=question, broken=sorted(Heights.broken))
    environment = {**os.environ, faults.VARIABLE: f"{point}:kill", "FIELDFARE_LEASE_SECONDS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def commits(home: Path) -> tuple[str, float, list[Any]]:
    """(the run, what its population has spent, its commits in the log)."""
    with Ledger.open(f"sqlite:///{home / 'ledger.sqlite3'}") as ledger:
        (run,) = ledger.runs().items
        events = [event for event in ledger.events() if event.action == "round.commit"]
        return run.id, ledger.population("people").spent.mu_squared, events


@pytest.mark.parametrize("point", ["ledger.round.committed", "strategy.released", "ledger.run.finishing"])
def test_killed_between_charge_and_answer_it_is_charged_and_the_answer_is_still_there(
    point: str, tmp_path: Path
) -> None:
    crash(point, tmp_path)
    run, spent, committed = commits(tmp_path)
    assert spent > 0
    assert len(committed) == 1
    first = ff.ask(resume=run, ledger=tmp_path)
    assert isinstance(first, Look)
    assert first == ff.ask(resume=run, ledger=tmp_path)
    assert commits(tmp_path) == (run, spent, committed)


def test_killed_before_the_charge_nothing_was_charged_or_shown(tmp_path: Path) -> None:
    crash("strategy.privatised", tmp_path)
    run, spent, committed = commits(tmp_path)
    assert (spent, committed) == (0, [])
    with (
        Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as ledger,
        pytest.raises(BadInput, check=coded("not-found", "run")),
    ):
        look(ledger, run)
    # A dry run of it would go on, and charge.
    with pytest.raises(BadInput, check=coded("conflict", "dry run")):
        ff.ask(resume=run, ledger=tmp_path, dry_run=True)
    assert (
        CliRunner().invoke(application, ["ask", "--resume", run, "--dry-run", "--home", str(tmp_path)]).exit_code == 2
    )
    assert commits(tmp_path) == (run, 0, [])
    assert isinstance(ff.ask(resume=run, ledger=tmp_path), Look)
    _, spent, committed = commits(tmp_path)
    assert spent > 0
    assert len(committed) == 1


TWO = """
import sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from fieldfare.errors import BudgetRefused
from fieldfare_server.cli import ask
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.planning.questions import Asked
from test_asking import ROWS

def wait(plan):  # both are admitted before either starts
    (home / sys.argv[1]).touch()
    while not all((home / name).exists() for name in "ab"):
        time.sleep(0.01)

home, ask._try_measure = Path({home!r}), wait
run = {{"task": "test_asking:Heights"}}
privacy = {{"population": "people", "epsilon": 1.0, "delta": 1e-6}}
try:
    print(ask.put(StateDirectory(home, {url!r}), Asked.of({{"question": ROWS, "run": run, "privacy": privacy}})).run)
except BudgetRefused:
    print("refused")
"""


def test_of_two_processes_that_ask_at_once_the_budget_of_one_answers_one(tmp_path: Path, ledger_url: str) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 1.3, 1e-6, simulated=True, actor="officer")
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    source = TWO.format(path=path, home=str(tmp_path), url=ledger_url)
    asking = [
        subprocess.Popen([sys.executable, "-c", source, name], stdout=subprocess.PIPE, text=True) for name in "ab"
    ]
    said = [process.communicate(timeout=240)[0].strip() for process in asking]
    with Ledger.open(ledger_url) as ledger:
        (run,) = ledger.runs().items
        assert sorted(said) == sorted([run.id, "refused"])
        assert [event.action for event in ledger.events()].count("round.commit") == 1
        assert ledger.population("people").spent_epsilon == pytest.approx(1, abs=2e-3)
        assert look(ledger, run.id).users == USERS
        assert verify(ledger, tmp_path, recompute=recharge).ok


def test_a_released_model_is_evaluated_on_each_users_own_rows(tmp_path: Path) -> None:
    plan = ff.Plan(
        task=f"{__name__}:Heights", population="people", epsilon=8, delta=1e-6, rounds=1, cohort=60, mechanism="nu"
    )
    run = ff.simulate(plan, ledger=tmp_path, budget=1000, progress=False)[0]
    model, table, task = run.model().eval(), Heights().users(), Heights()
    own: list[float] = []
    with torch.no_grad():
        for user in np.flatnonzero(table.sizes):
            inputs, targets = task.prepare(table.rows(np.array([user])).columns)
            own.append(float(task.loss(model(inputs), targets).clamp(0, 2).mean()))
    question = {"kind": "mean", "measure": "loss", "model": run.id, "low": 0, "high": 2, "some": True}
    mean, counted = ask(question, tmp_path, epsilon=300.0).answer
    assert mean.value == pytest.approx(float(np.mean(own)), abs=0.03)
    assert counted.value == pytest.approx(len(own), abs=2)
    area = ask({"kind": "auc", "model": run.id}, tmp_path, epsilon=300.0).answer[0]
    assert 0.6 < (area.value or 0) < 1


def test_a_user_for_whom_a_measure_fails_has_no_value_and_counts(tmp_path: Path, caplog: Any) -> None:
    """By the question itself: the trainer, which would say how many, sees nobody fail."""
    plan = ff.Plan(
        task=f"{__name__}:Heights", population="people", epsilon=8, delta=1e-6, rounds=1, cohort=60, mechanism="nu"
    )
    run = ff.simulate(plan, ledger=tmp_path, budget=1000, progress=False)[0]
    Heights.broken |= {3}
    left = int(((truth()[0] > 0) & (truth()[0] != 3)).sum())
    question = {"kind": "mean", "measure": "correct", "model": run.id, "low": 0, "high": 1, "some": True}
    found = ask(question, tmp_path, epsilon=300.0)
    assert found.users == USERS
    assert found.answer[1].value == pytest.approx(left, abs=2)
    Heights.broken |= set(range(8))
    nobody = ask(question, tmp_path, epsilon=300.0)
    assert nobody.users == USERS
    assert nobody.answer[1].value == pytest.approx(0, abs=2)
    assert "contribute zero" not in caplog.text


def test_a_measure_that_fails_on_made_up_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And whether it fails for all real users is said by the answer alone, with its noise."""

    def fails(*_: Any) -> torch.Tensor:
        raise ZeroDivisionError("a mistake in the task")

    plan = ff.Plan(
        task=f"{__name__}:Heights", population="people", epsilon=8, delta=1e-6, rounds=1, cohort=60, mechanism="nu"
    )
    run = ff.simulate(plan, ledger=tmp_path, budget=1000, progress=False)[0]
    monkeypatch.setattr(Heights, "measure", fails)
    question = {"kind": "mean", "measure": "correct", "model": run.id, "low": 0, "high": 1}
    with pytest.raises(BadInput, check=coded("measure-fails", "question.measure", "ZeroDivisionError")):
        ask(question, tmp_path, epsilon=300.0)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        assert [each.id for each in ledger.runs().items] == [run.id]


@pytest.mark.parametrize("measure", ["correct", "update-norm"])
def test_a_measure_that_carries_one_users_data_to_the_next_is_refused(
    measure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user's rows would move the contributions of all who follow, where the charge is for one."""
    kept: list[torch.Tensor] = []

    def carrying(task: Heights, columns: Any) -> tuple[torch.Tensor, torch.Tensor]:
        kept.append(columns["x"].mean())
        return columns["x"] + sum(kept), columns["y"]

    plan = ff.Plan(
        task=f"{__name__}:Heights", population="people", epsilon=8, delta=1e-6, rounds=1, cohort=60, mechanism="nu"
    )
    run = ff.simulate(plan, ledger=tmp_path, budget=1000, progress=False)[0]
    monkeypatch.setattr(Heights, "prepare", carrying)
    question = {"kind": "mean", "measure": measure, "low": 0, "high": 1}
    question |= {"model": run.id} if measure == "correct" else {}
    for dry in (True, False):
        with pytest.raises(BadInput, check=coded("measure-carries", "question.measure", measure)):
            ask(question, tmp_path, epsilon=300.0, dry_run=dry)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        assert [each.id for each in ledger.runs().items] == [run.id]


def test_how_many_users_have_no_value_is_told_by_nothing_but_the_answer(
    tmp_path: Path, caplog: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A price is told without measuring anybody; a measure fails uncounted, where one person reads all that is said."""
    measured: list[int] = []
    everywhere = tmp_path / "measured"  # in children too
    prepare = Heights.prepare

    def noted(task: Heights, columns: Any) -> Any:
        if not (columns["x"] == 1).all():  # a made-up row has nothing but ones
            measured.append(1)
            with everywhere.open("a") as file:
                file.write("1 ")
        return prepare(task, columns)

    monkeypatch.setattr(Heights, "prepare", noted)
    Heights.broken |= {3}
    dry: dict[str, Any] = {"task": f"{__name__}:Heights", "population": "people", "delta": 1e-6, "dry_run": True}
    ff.ask(NORMS, **dry, epsilon=2.0)
    ask(ROWS, tmp_path, epsilon=2.0, budget=2.4)
    ff.ask(NORMS, **dry, epsilon=0.5, ledger=tmp_path)
    with pytest.raises(BudgetRefused):
        ask(NORMS, tmp_path, epsilon=2.0)
    assert not measured, "nor before the budget holds it"
    everywhere.write_text("")
    with caplog.at_level("DEBUG"):
        ask(NORMS, tmp_path, epsilon=0.5)
    assert measured
    assert len(everywhere.read_text().split()) < 1.5 * len(Heights().users()), (
        "once each, and a few who are tried apart"
    )
    assert "ValueError" not in caplog.text + "".join(capsys.readouterr())


def test_a_question_that_goes_on_tells_no_more(tmp_path: Path, caplog: Any) -> None:
    Heights.broken |= {3}
    crash("strategy.privatised", tmp_path, NORMS)
    with caplog.at_level("DEBUG"):
        assert isinstance(ff.ask(resume=commits(tmp_path)[0], ledger=tmp_path), Look)
    assert "ValueError" not in caplog.text


@pytest.mark.parametrize(
    ("question", "keywords", "word"),
    [
        ({"measure": "nothing"}, {}, coded("not-found", "question.measure = 'nothing'")),
        ({"measure": "loss", "model": "no-run"}, {}, coded("not-found", "the model of run 'no-run'")),
        ({"low": -1.7e308, "high": 1.7e308}, {}, coded("out-of-range", "question.low")),
        ({"low": 0, "high": 5e-324}, {}, coded("out-of-range", "question.low")),
        ({}, {"cohort": 0}, coded("value-wrong", "run.cohort = 0")),
        ({}, {"dialect": "cohort"}, coded("conflict", "ask", "grid=grid")),
        ({}, {"query": "ages"}, coded("conflict", "ask", "grid=grid")),
        (None, {"clip_of": True, "epsilon": 0.0}, coded("value-wrong", "privacy.epsilon = 0")),
        (None, {"clip_of": True, "noise_multiplier": 0.0, "epsilon": None}, coded("conflict", "ask")),
    ],
)
def test_a_price_is_refused_as_the_question_would_be_and_nothing_given_is_dropped(
    question: dict[str, Any] | None, keywords: dict[str, Any], word: Coded
) -> None:
    given: dict[str, Any] = {"task": f"{__name__}:Heights", "population": "people", "epsilon": 1.0, "delta": 1e-6}
    if "clip_of" in keywords:
        whole = {"population": "people", "epsilon": 8, "delta": 1e-6, "rounds": 1, "cohort": 60, "mechanism": "nu"}
        keywords = {**keywords, "clip_of": ff.Plan(task=f"{__name__}:Heights", **whole)}
        del given["task"]
    with pytest.raises(BadInput, check=word):
        ff.ask(None if question is None else {**ROWS, **question}, dry_run=True, **{**given, **keywords})


def test_a_part_of_the_users_is_asked_where_the_question_says_how_many(tmp_path: Path, capsys: Any) -> None:
    assert ask(ROWS, tmp_path, budget=20, cohort=40).users == 40
    assert "too little left" not in capsys.readouterr().err


def test_page_api_statement_and_certificate_show_the_look(tmp_path: Path) -> None:
    found = ask({"kind": "histogram", "measure": "height", "low": -2, "high": 2, "bins": 3}, tmp_path, budget=20)
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    with TestClient(create_app(url, Settings()), base_url="http://localhost", client=("127.0.0.1", 1)) as service:
        (run,) = service.get("/v1/runs?asks=true").json()["items"]
        assert service.get("/v1/runs?asks=false").json()["items"] == []
        assert run["task"] == f"question: histogram of height from -2.0 to 2.0, task {__name__}:Heights"
        assert [each["name"] for each in run["look"]["answer"]] == [each.name for each in found.answer]
        assert run["look"]["answer"][1]["low"] == pytest.approx(found.answer[1].low)
        assert run["look"]["users"] == USERS
        assert "histogram" in service.get("/v1/runs?format=csv").text
        report = service.get(f"/v1/runs/{found.run}/report?format=markdown")
        assert report.status_code == 200
    shown = CliRunner().invoke(application, ["ask", "--resume", found.run, "--home", str(tmp_path), "--json"])
    assert json.loads(shown.stdout) == json.loads(json.dumps(asdict(found)))
    written = tmp_path / "certificate.json"
    with Ledger.open(url) as ledger, ledger.snapshot() as snapshot:
        written.write_bytes(certificate(snapshot, found.run, StateDirectory(tmp_path, url)))
        assert "What is released" in (text := privacy_statement(snapshot, found.run).to_markdown())
        assert "The answer, and everything computed from it." in text
        assert "0 other runs" not in text
        assert "No other run was charged" in text
    again = ask({**ROWS, "high": 7}, tmp_path)
    with Ledger.open(url) as ledger, ledger.snapshot() as snapshot:
        text = privacy_statement(snapshot, again.run).to_markdown()
    assert "1 asked users a question, newest first: question: histogram of height" in text
    checker = Path(__file__).parents[3] / "docs" / "check_certificate.py"
    checked = subprocess.run([sys.executable, checker, written], capture_output=True, text=True, check=False)
    assert checked.stdout.startswith("yes: (20.0, 1e-6)"), checked
    for words in (("nowhere.json",), (str(written), "any", "no-model")):
        missing = subprocess.run([sys.executable, checker, *words], capture_output=True, text=True, check=False)
        assert missing.returncode == 1
        assert missing.stderr.startswith("no: ")
        assert words[-1] in missing.stderr


def test_an_adversary_who_asks_what_earlier_answers_suggest_stays_below_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinds and sizes follow from earlier answers, until everything is refused; then the exact delta of the user whom
    the answers, as they were really noised, tell most about."""
    contributions: list[np.ndarray] = []
    original = client.QuestionTask.users

    def remembered(self: client.QuestionTask) -> Any:
        table = original(self)
        contributions.append(np.asarray(table.columns["x"], np.float64))
        return table

    monkeypatch.setattr(client.QuestionTask, "users", remembered)
    draw, budget, delta = np.random.default_rng(8), 2.0, 1e-6
    moved = np.zeros(USERS)
    refused = asked = 0
    while refused < 3:
        suggested = float(draw.random() if not asked else abs(math.sin(1e4 * (found.answer[0].value or 0.0))))  # noqa: F821
        kind = [
            {**ROWS},
            {"kind": "quantile", "measure": "height", "low": -2, "high": 2, "bins": 8},
            {"kind": "histogram", "measure": "height", "low": -2, "high": 2, "bins": 4},
            {"kind": "count", "measure": "rows", "low": 3, "high": 9},
        ][int(4 * suggested)]
        epsilon = round(0.15 + 1.2 * suggested * 0.5 ** (refused + asked / 3), 3)
        contributions.clear()
        ff_app_forget()
        try:
            found = ask(kind, tmp_path, epsilon=epsilon, budget=None if asked else budget)
        except BudgetRefused:
            refused += 1
            continue
        asked += 1
        with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}") as ledger:
            (committed,) = ledger.rounds(found.run).items
            assert committed.cohort_size == USERS
            deviation = committed.statistics["noise_std"] * USERS
        moved += (np.linalg.norm(contributions[0], axis=1) / deviation) ** 2
    assert asked >= 4
    mu = math.sqrt(float(moved.max()))
    assert oracle.delta(mu, budget) <= delta
    assert mu <= math.sqrt(Rectangle.of(budget, delta, 0.0).mu_squared)
    # The claim is not idle: a third of the allowed charge was really used.
    assert mu**2 > Rectangle.of(budget, delta, 0.0).mu_squared / 3


def test_a_question_is_put_to_the_tasks_users_under_their_names() -> None:
    """So their odometers go on."""
    asked = {"of": f"{__name__}:Heights", "question": {"kind": "count", "low": 0, "high": 1}}
    hosted = _hosted(task_reference(QUESTION, asked), 0, 1)
    np.testing.assert_array_equal(hosted.table.pseudonyms, Heights().users().pseudonyms)


@pytest.mark.parametrize("cohort", [200, 10**12])
@pytest.mark.parametrize("kept", [False, True])
def test_a_cohort_above_the_users_is_said_as_such(tmp_path: Path, cohort: int, kept: bool) -> None:
    """The grid of the noise was blamed for a million million users, and a dry run without a ledger asked them."""
    home = {"ledger": tmp_path} if kept else {}
    with pytest.raises(BadInput, check=coded("too-few", f"there are {USERS} users to ask", f"cohort = {USERS}")):
        ff.ask(
            ROWS, task=Heights(), population="p", budget=5, epsilon=1, delta=1e-4, cohort=cohort, dry_run=True, **home
        )
