"""Questions to users of nodes with a task of their own: through the grid, noise, journal and odometers of any run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from fieldfare.errors import BadInput, FieldfareError
from fieldfare_client import questions as node_questions
from fieldfare_flower.messages import write_question
from fieldfare_server.evidence.looks import look
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.plan_file import plan_of
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, TinyTask, home, plan
from support.refusals import coded

TINY = "support.federation:TinyTask"
MEAN = {"kind": "mean", "measure": "y", "low": -4, "high": 4}


def asked(question: dict[str, Any], of: str = TINY, **run: Any) -> Asked:
    table = {"task": of, "cohort": USERS, "min_reports": 4, "round_timeout": 5.0, **run}
    privacy = {"population": "people", "noise_multiplier": 2.0, "delta": 1e-5}
    return Asked.of({"question": question, "run": table, "privacy": privacy})


def own_means() -> np.ndarray:
    """Each user's mean of column y, whose rows are cut to [-4, 4], in the order of the table."""
    rows = np.asarray(TinyTask().users().columns["y"], np.float64).reshape(USERS, -1)
    return np.asarray(np.clip(rows, -4, 4).mean(axis=1))


def answer_without_noise(question: dict[str, Any], grid: LyingGrid) -> tuple[np.ndarray, int, dict[str, int]]:
    """The sum of the contributions, how many are in it, and what was refused."""
    a_plan, seen = asked(question).plan_for_nodes(), list[dict[str, int]]()
    with Session.rehearse(a_plan, noise=False) as session:
        commit, counted = session.rounds.commit_round, list[int]()

        def watched(opened: Any, total: Any, reported: Any, show: Any) -> None:
            counted.append(total.users)
            seen.append(dict(total.rejects))
            commit(opened, total, reported, show)

        session.rounds.commit_round = watched  # type: ignore[method-assign]
        FieldfareStrategy(session).start(grid)
        return session.params.double().numpy() * USERS, counted[-1], seen[-1]


@pytest.mark.parametrize("nodes", [1, 3])
def test_nodes_answer_by_their_own_task(nodes: int) -> None:
    total, users, rejects = answer_without_noise(MEAN, LyingGrid(nodes))
    assert users == USERS
    assert not rejects
    assert total == pytest.approx([own_means().sum() / 4], rel=1e-5)


def test_a_question_of_many_numbers_is_answered_as_here() -> None:
    table = {"kind": "quantile", "measure": "y", "low": -4, "high": 4, "bins": 8}
    total, _, _ = answer_without_noise(table, LyingGrid(2))
    task = node_questions.QuestionTask(TINY, table)
    assert total == pytest.approx(np.asarray(task.users().columns["x"], np.float64).sum(axis=0), abs=1e-4)


def test_a_run_that_asks_nodes_is_charged_journalled_and_verified(tmp_path: Path) -> None:
    state = home(tmp_path)
    with Session.begin(state, asked(MEAN).plan_for_nodes(), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
        run = session.account.id
    with Ledger.open(state.ledger) as ledger:
        found = look(ledger, run)
        assert found.users == USERS
        mean = found.answer[0]
        # Noise of 2 contributions, each worth 4 / 24: 6 standard deviations are 2.
        assert mean.value == pytest.approx(own_means().mean(), abs=2.0)
        assert ledger.run(run).spent.gdp == pytest.approx(0.5, rel=1e-3)
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok


def test_a_released_model_travels_with_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = home(tmp_path)
    with Session.begin(state, plan(run__noise_seed=None), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(2))
        run, params = session.account.id, session.params.clone()
    monkeypatch.setattr(node_questions, "_models", {})
    table = {"kind": "mean", "measure": "loss", "low": 0, "high": 1e6, "model": run}
    with Session.begin(state, asked(table).plan_for_nodes(), identity_is_stable=True) as session:
        sent, noised = list[np.ndarray](), session.rounds.running_noise.privatise

        def watched(total: torch.Tensor) -> torch.Tensor:
            sent.append(total.numpy().copy())
            return noised(total)

        object.__setattr__(session.rounds.running_noise, "privatise", watched)
        FieldfareStrategy(session).start(LyingGrid(2))
    model = TinyTask().build_model()
    torch.nn.utils.vector_to_parameters(params, model.parameters())
    columns = TinyTask().users().columns
    with torch.no_grad():
        outputs = model(torch.from_numpy(np.asarray(columns["x"])))
        losses = TinyTask().loss(outputs, torch.from_numpy(np.asarray(columns["y"]))).double().numpy()
    expected = (losses.reshape(USERS, -1).mean(axis=1) - 5e5) / 5e5
    assert sent[0] == pytest.approx([expected.sum()], rel=1e-4)


def test_a_question_about_a_model_that_is_not_here_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    state = home(tmp_path)
    table = {"kind": "mean", "measure": "loss", "low": 0, "high": 9, "model": "elsewhere"}
    with pytest.raises(BadInput, check=coded("not-found", "the model of run")):
        Session.begin(state, asked(table).plan_for_nodes(), identity_is_stable=True)
    with Ledger.open(state.ledger) as ledger:
        assert ledger.population("people").spent_epsilon == 0


def test_what_a_message_asks_is_data_and_the_task_is_the_nodes_own() -> None:
    content = RecordDict(dict(write_question({"of": TINY, "question": MEAN})))
    assert node_questions.asked_reference("digits?users=5", RecordDict()) == "digits?users=5"
    own = node_questions.asked_reference(TINY, content)
    assert own.startswith("fieldfare_client.questions:QuestionTask?")
    named = RecordDict(dict(write_question({"of": f"{TINY}?users=9", "question": MEAN})))
    assert node_questions.asked_reference(TINY, named) == own, "its parameters are the node's, too"
    with pytest.raises(BadInput, check=coded("differs", "a question of task")):
        node_questions.asked_reference("digits", content)
    for broken in ({"of": TINY}, {"of": TINY, "question": {"kind": "mean"}}, {"of": TINY, "question": MEAN, "x": 1}):
        with pytest.raises((BadInput, KeyError)):
            node_questions.asked_reference(TINY, RecordDict(dict(write_question(broken))))
    about = {"of": TINY, "question": {**MEAN, "measure": "loss", "model": "r"}}
    with pytest.raises(ValueError, match="no record"):
        node_questions.asked_reference(TINY, RecordDict(dict(write_question(about))))


def test_nodes_of_another_task_end_the_run_before_anything_is_charged(tmp_path: Path) -> None:
    state = home(tmp_path)
    with (
        pytest.raises(FieldfareError),
        Session.begin(state, asked(MEAN, of="digits").plan_for_nodes(), identity_is_stable=True) as session,
    ):
        FieldfareStrategy(session).start(LyingGrid(2))
    with Ledger.open(state.ledger) as ledger:
        assert ledger.population("people").spent_epsilon == 0


def test_the_plan_of_a_question_travels_as_text() -> None:
    a_plan = asked(MEAN).plan_for_nodes()
    assert plan_of(json.dumps(a_plan.model_dump(mode="json", exclude_none=True))).digest() == a_plan.digest()
    with pytest.raises(BadInput, check=coded("not-toml", "plan")):
        plan_of("{")
    with pytest.raises(BadInput, check=coded("out-of-range", "run.cohort")):
        asked(MEAN, cohort=None).plan_for_nodes()
