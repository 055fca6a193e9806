"""Looks over two real SuperNodes: questions of values that nobody listed and of the best of two models; trials on a
share; and where the noise has the same seed, the numbers and intervals of the simulated world."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from fieldfare.errors import NotFound
from fieldfare.plan import Plan
from fieldfare_client.app import user_names
from fieldfare_server.cli.application import application
from fieldfare_server.cli.progress import local_grid, run_here
from fieldfare_server.deployment.simulation import superlink
from fieldfare_server.deployment.submit import FlowerError, submit
from fieldfare_server.evidence.looks import look
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.questions import Asked
from fieldfare_server.planning.tuning import Tuning
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from server.run.test_ridden_metrics import everybody
from support.federation import JOINED_ONCE, USERS, LyingGrid, plan
from support.flower import supernode
from support.refusals import coded

TASK = "server.run.test_items:Codes"
QUESTION = """
[question]
{question}
[run]
task = "{task}"
cohort = {users}
min_reports = 4
round_timeout = 60
trust_node_ids = true
[privacy]
population = "people"
noise_multiplier = 0.5
delta = 1e-5
"""


SHARED = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}


def home_of_people(directory: Path, epsilon: float, leak: float | None = None) -> StateDirectory:
    """A home whose ledger has a population, "people"."""
    home = StateDirectory(directory / "home", f"sqlite:///{directory / 'home' / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("people", epsilon, 1e-5, simulated=True, actor="test", leak=leak)
    return home


def environment_of(home: StateDirectory) -> dict[str, str]:
    return {**SHARED, "FIELDFARE_HOME": str(home.root), "FIELDFARE_LEDGER": home.ledger}


@contextmanager
def two_supernodes(work: Path, home: StateDirectory, task: str, **more: str) -> Iterator[str]:
    """A SuperLink that runs with this home, with two nodes of this task: its address. more: ServerApps' environment."""
    with ExitStack() as stack:
        env = {**environment_of(home), **more}
        address = stack.enter_context(superlink(work, "--disable-runtime-dependency-installation", env=env))
        for index in range(2):
            stack.enter_context(supernode(work, address, index, task, **SHARED))
        yield address


def ask(work: Path, address: str, home: StateDirectory, question: str) -> dict[str, Any]:
    file = work / "question.toml"
    file.write_text(QUESTION.format(question=question, task=TASK, users=USERS))
    said = CliRunner().invoke(
        application, ["ask", str(file), "--superlink", address, "--insecure", "--home", str(home.root), "--json"]
    )
    assert said.exit_code == 0, said.output
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_supernodes_answer_questions_of_items_and_of_the_best_model(tmp_path: Path) -> None:
    home = home_of_people(tmp_path, 80.0, leak=1e-6)
    runs = list[str]()
    for _ in range(2):
        with Session.begin(home, plan(**JOINED_ONCE, run__task=TASK), identity_is_stable=True) as session:
            FieldfareStrategy(session).start(LyingGrid(2, task=TASK))
            runs.append(session.account.id)
    worse = home.root / runs[1] / "model.safetensors"
    save_file({name: value + 5.0 for name, value in load_file(worse).items()}, worse)
    work = tmp_path / "work"
    with two_supernodes(work, home, TASK) as address:
        items = ask(work, address, home, 'kind = "items"\nmeasure = "code"\nmost = 2\nleak = 1e-7')
        models = f'kind = "choose"\nmeasure = "loss"\nhigh = 50\nmodels = {json.dumps(runs)}\n'
        best = ask(work, address, home, f'{models}shows = "best"')
        scores = ask(work, address, home, models)
    assert [found["users"] for found in (items, best, scores)] == [USERS] * 3
    # Noise of .71 users a count: six deviations are 4.3. One user's value is shown with probability 1e-7.
    assert [each["name"] for each in items["answer"]] == ["7", str(2**40 + 1), "shown from, in users"]
    assert items["answer"][0]["value"] == pytest.approx(24, abs=4.3)
    assert items["answer"][1]["value"] == pytest.approx(16, abs=4.3)
    assert best["answer"][0]["name"] == f"{runs[0]}, below the best mean by"
    assert [each["name"] for each in scores["answer"]] == [*runs, "users with a value"]
    with Ledger.open(home.ledger) as ledger:
        assert ledger.run(items["run"]).spent.leak == 1e-7
        assert verify(ledger, home.root, recompute=recharge, held=[ledger.head()]).ok


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("point", "charged"), [("strategy.privatised", False), ("ledger.round.committed", True)])
def test_a_question_whose_coordinator_is_killed_is_charged_and_answered_once(
    point: str, charged: bool, tmp_path: Path
) -> None:
    """On real nodes, before and after the charge: the resumed run ends with the answer that was charged."""
    home, run = home_of_people(tmp_path, 80.0), "asked"
    text = QUESTION.format(question='kind = "mean"\nmeasure = "y"\nlow = -9\nhigh = 9', task=TASK, users=USERS)
    plan_of = json.dumps(Asked.from_toml(text).plan_for_nodes().model_dump(mode="json", exclude_none=True))
    (work := tmp_path / "work").mkdir()
    with (
        two_supernodes(work / "first", home, TASK, FIELDFARE_FAULT=f"{point}:kill") as address,
        suppress(FlowerError),  # whose exit code says little of how a run ended
    ):
        submit(work / "submitted", address, plan=plan_of, task=TASK, run_id=run, env=environment_of(home))
    with Ledger.open(home.ledger) as ledger:
        spent = ledger.population("people").spent.mu_squared
        assert (spent > 0) == charged
        before = look(ledger, run) if charged else None
        if not charged:
            with pytest.raises(NotFound, check=coded("not-found", "run", f"fieldfare run --resume {run}")):
                look(ledger, run)
    with two_supernodes(work / "second", home, TASK) as address:
        again = ["run", "--resume", run, "--superlink", address, "--insecure", "--home", str(home.root)]
        said = CliRunner().invoke(application, again)
        assert said.exit_code == 0, said.output
    with Ledger.open(home.ledger) as ledger:
        found = look(ledger, run)
        assert before in (None, found)
        assert ledger.population("people").spent.mu_squared == pytest.approx(4.0, rel=1e-3)  # of one answer
        assert [event.action for event in ledger.events()].count("round.commit") == 1
        assert verify(ledger, home.root, recompute=recharge, held=[ledger.head()]).ok


SHARES = "server.run.test_ridden_metrics:Shares"
SEEDED = {"run__noise_seed": 3, "run__trust_node_ids": True, "run__round_timeout": 300.0, "run__min_available": USERS}


def looks() -> dict[str, Plan]:
    """A run with a metric over windows of two rounds, a mean, and a quantile, whose noise is correlated over bins."""
    kinds = {"mean": {"kind": "mean"}, "quantile": {"kind": "quantile", "bins": 16, "at": [0.2, 0.5, 0.8]}}
    privacy = {"population": "people", "noise_multiplier": 0.5, "delta": 1e-5}
    run = {"task": SHARES, "cohort": USERS, "min_reports": USERS, "round_timeout": 300.0, "trust_node_ids": True}
    found = {"metric": everybody(3, 2, **{**SEEDED, "privacy__noise_multiplier": 8.0, "run__task": SHARES})}
    for name, kind in kinds.items():
        question = {"measure": "y", "low": 0, "high": 1, **kind}
        a_plan = Asked.of({"question": question, "run": run, "privacy": privacy}).plan_for_nodes()
        found[name] = a_plan.model_copy(update={"run": a_plan.run.model_copy(update={"noise_seed": 3})})
    return found


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_supernodes_release_the_numbers_and_intervals_of_the_simulated_world(tmp_path: Path) -> None:
    """Equal to the last bit: how often intervals hold the number without noise, which is tested there, is the same."""
    home = home_of_people(tmp_path, 500.0)
    plans = looks()
    for name, a_plan in plans.items():
        with Session.begin(home, a_plan, identity_is_stable=True, run_id=f"{name}-here") as session:
            run_here(session, local_grid(a_plan, 2), "", quiet=True)
    work = tmp_path / "work"
    with two_supernodes(work, home, SHARES) as address:
        for name, a_plan in plans.items():
            text = json.dumps(a_plan.model_dump(mode="json", exclude_none=True))
            submit(work / name, address, plan=text, task=SHARES, run_id=f"{name}-there", env=environment_of(home))
    with Ledger.open(home.ledger) as ledger:
        here, there = ([row.statistics for row in ledger.rounds(f"metric-{at}", 0).items] for at in ("here", "there"))
        told = [[row[f"metric.share{end}"] for end in ("", ".low", ".high")] for row in here]
        assert told == [[row[f"metric.share{end}"] for end in ("", ".low", ".high")] for row in there]
        assert len(told) == 3
        assert all(low < value < high for value, low, high in told)
        for name in ("mean", "quantile"):
            answers = [look(ledger, f"{name}-{at}").answer for at in ("here", "there")]
            assert answers[0] == answers[1]
            assert all(each.low is not None and each.high is not None for each in answers[0])
        assert verify(ledger, home.root, recompute=recharge, held=[ledger.head()]).ok


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_trials_on_two_supernodes_are_paid_by_the_share_alone_and_the_winner_trains_the_others(tmp_path: Path) -> None:
    """The plans and the question of `fieldfare tune`, submitted as docs/tuning.md says. The budget is one run's."""
    keys = {"cohort": 17, "min_reports": 17, "rounds": 1, "round_timeout": 60.0, "trust_node_ids": True}
    whole = plan(
        **{**JOINED_ONCE, **{f"run__{name}": value for name, value in keys.items()}},
        privacy={"population": "people", "epsilon": 2.0, "delta": 1e-5},
        tuning={"share": 0.4},
    )
    tuning = Tuning.of(whole, {"server_optimizer.learning_rate": [0.1, 1.0]}, score="loss=0,50")
    names = user_names(whole.task_reference)
    home = home_of_people(tmp_path, 2.0)
    runs = ["slow", "fast", "compared", "final"]
    with two_supernodes(tmp_path / "work", home, whole.run.task) as address:

        def train(run: str, a_plan: Plan) -> None:
            text = json.dumps(a_plan.model_dump(mode="json", exclude_none=True))
            work, task = tmp_path / "submitted" / run, whole.run.task
            submit(work, address, plan=text, task=task, run_id=run, env=environment_of(home))

        for index, run in enumerate(runs[:2]):
            train(run, tuning.trial(index))
        asked = tuning.question(runs[:2], tuning.size(names))
        assert asked is not None
        run_of_it = asked.run.model_copy(update={"trust_node_ids": True, "min_reports": tuning.size(names)})
        train("compared", asked.model_copy(update={"run": run_of_it}).plan_for_nodes())
        others = whole.takes(names)
        with Ledger.open(home.ledger) as ledger:
            unknown = [ledger.position("people", part)[1] for part in (names[~others], names[others])]
            assert unknown == [0, 17]  # nobody but the share has been asked, and all of it
            best = look(ledger, "compared").answer[0].name
        train("final", tuning.finals[runs.index(best)])
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        assert [ledger.run(run).state for run in runs] == ["done"] * 4
        assert ledger.position("people", names)[1] == 0
        times = ledger.population_participation("people")
        assert times is not None
        assert sum(times.values()) == len(names)
        assert sum(each * users for each, users in times.items()) == 6 + 6 + 7 + 17
        view = ledger.population("people")
        assert view.spent_epsilon == pytest.approx(2.0, rel=1e-3)
        assert view.spent_epsilon <= 2.0
        assert verify(ledger, home.root, recompute=recharge, held=[ledger.head()]).ok
