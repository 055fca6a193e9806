"""What page, statement, API and registry say of each kind of look: its mechanism, neighbours and promise."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import save_file

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import NotFound
from fieldfare.names import OWN_APP, QUESTION, mechanism_word, task_words
from fieldfare.participation import Adjacency
from fieldfare.questions import kinds
from fieldfare_server.api.run_answers import Run
from fieldfare_server.evidence import looks
from fieldfare_server.evidence.deployments_registry import registry_entry
from fieldfare_server.evidence.guarantee import _metrics_line, guarantee
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger, watch
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import JOINED_ONCE, USERS, LyingGrid, TinyTask, plan
from support.federation import home as new_home
from support.refusals import coded

LEAK = 1e-7
ROWS = {"measure": "rows", "low": 0, "high": 10}
LOOKS: dict[str, dict[str, Any]] = {
    "count": {"kind": "count", **ROWS},
    "mean": {"kind": "mean", **ROWS},
    "histogram": {"kind": "histogram", **ROWS, "bins": 4},
    "quantile": {"kind": "quantile", **ROWS, "bins": 4},
    "clip": {"kind": "quantile", "measure": "update-norm", "low": 0, "high": 10, "bins": 4},
    "sums": {"kind": "sums", "entries": {"a": 3, "b": 1}, "high": 50},
    "auc": {"kind": "auc", "model": "one"},
    "items": {"kind": "items", "measure": "y", "leak": LEAK},
    "choose": {"kind": "choose", "models": ["one", "two"], "high": 4},
    "best": {"kind": "choose", "models": ["one", "two"], "high": 4, "shows": "best"},
}


def begun(
    path: Path, look: dict[str, Any], adjacency: Adjacency, actor: str = "coordinator", fault: NotFound | None = None
) -> tuple[StateDirectory, str]:
    """A run that asks, of a population with a leak; nobody has answered. fault: by which it ended."""
    state = StateDirectory(path, f"sqlite:///{path / 'ledger.sqlite3'}")
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", 9.0, 1e-5, simulated=True, actor="test", leak=1e-6, adjacency=adjacency)
    for run in ("one", "two"):
        (path / run).mkdir()
        save_file(TinyTask().build_model().state_dict(), path / run / "model.safetensors")
    asked = Asked.of(
        {
            "question": look,
            "run": {"task": OWN_APP if look["kind"] == "sums" else "support.federation:TinyTask", "cohort": USERS},
            "privacy": {"population": "people", "noise_multiplier": 2.0, "delta": 1e-5, "adjacency": adjacency},
        }
    )
    with suppress(NotFound), Session.begin(state, asked.plan_for_nodes(), identity_is_stable=True, actor=actor) as one:
        if fault is not None:
            raise fault
    return state, one.account.id


def test_every_kind_is_looked_at() -> None:
    assert {look["kind"] for look in LOOKS.values()} == set(kinds())


@pytest.mark.parametrize(
    ("name", "adjacency"), [*((name, "zero_out") for name in LOOKS), ("mean", "replace_one"), ("best", "replace_one")]
)
def test_a_look_is_told_in_the_words_of_its_own_mechanism(name: str, adjacency: Adjacency, tmp_path: Path) -> None:
    state, run_id = begun(tmp_path, LOOKS[name], adjacency)
    with Ledger.open(state.ledger) as ledger, ledger.snapshot() as snapshot:
        run = snapshot.run(run_id)
        card = guarantee(run, snapshot.population("people"), plan_facts(run, state.root))
        statement = privacy_statement(snapshot, run_id, state.root)
        shown = Run.of(run, watch.latest_rounds(snapshot, [run_id]).get(run_id)).mechanism
        entry = registry_entry(snapshot, run_id, root=state.root)["deployment"]
    facts = {fact.name: fact.value for fact in card.facts}
    text, word = statement.to_markdown(), {"items": "threshold", "best": "exponential"}.get(name, "independent")
    assert shown == word == mechanism_word(run.plan)
    assert facts["Mechanism"].split(":")[0] == word.replace("independent", "Gaussian")
    twice = adjacency == "replace_one"
    assert facts["Adjacency"].startswith("replace one" if twice else "zero-out")
    # It neither trains nor clips an update, and releases no model.
    assert "Clip norm" not in facts
    assert "training" not in facts["Unit"]
    assert "last model" not in text
    assert "The answer, and everything computed from it" in text
    assert entry["model"]["release_type"] == "One release"  # type: ignore[index]
    everything = " ".join([*facts.values(), text, json.dumps(entry)])
    if name == "best":
        for wrong in ("adds the noise", "double-precision noise", "correlated release", "Noise multiplier |"):
            assert wrong not in everything, wrong
        assert facts["Charged as noise multiplier"] == "2"
        assert f"apart by {8 if twice else 4} at most" in facts["Sensitivity"]
        assert "the best one's name alone" in task_words(run.plan)
    else:
        assert facts["Noise multiplier"] == "2"
        assert "draw" not in facts["Mechanism"]
        assert facts["Sensitivity"].startswith("2:" if twice else "1:")
        assert facts["Trust"].endswith("adds the noise")
    if name == "items":
        assert "items of y, the smallest 1 of each user, task" in task_words(run.plan)
    assert ("with probability 1e-7 at most" in facts["Mechanism"].lower()) == (name == "items")
    assert (run.planned.leak > 0) == (name == "items")
    assert ("a leak" in facts["Accountant"]) == (name == "items")


def test_a_run_with_metrics_says_that_their_means_are_released(tmp_path: Path) -> None:
    state = new_home(tmp_path)
    shown = plan(**JOINED_ONCE, metrics={"show": {"loss": [0, 9], "correct": [0, 1]}})
    for each, also in ((shown, True), (plan(**JOINED_ONCE), False)):
        with Session.begin(state, each, identity_is_stable=True) as session:
            FieldfareStrategy(session).start(LyingGrid(2))
        with Ledger.open(state.ledger) as ledger:
            text = privacy_statement(ledger, session.account.id, state.root).to_markdown()
        assert ("the means of correct, loss over users, noised and charged" in text) is also
        assert "Nothing else: no other loss, norm or metric" in text


def test_where_users_take_part_again_metrics_are_said_to_be_of_a_model_that_saw_them() -> None:
    measured = {"metrics": {"show": {"loss": [0, 9]}}}
    again, once = (_metrics_line(each)[0].value for each in (plan(**measured), plan(**JOINED_ONCE, **measured)))
    assert again == f"{once}; who took part before is met by a model that saw them"


def test_a_question_whose_answers_are_secretly_many_has_no_look() -> None:
    """A plan by hand may ask under `add_remove`; the list of all runs ended in a division by 0."""
    asked = Asked.of(
        {
            "question": {"kind": "mean", "measure": "rows", "low": 0, "high": 9},
            "run": {"task": "digits", "cohort": 5},
            "privacy": {"population": "people", "noise_multiplier": 9.0, "delta": 1e-5},
        }
    )
    view: Any = SimpleNamespace(
        **dict.fromkeys(("id", "population"), "x"),
        plan=asked.plan_for_nodes().model_dump(mode="json"),
        spent_epsilon=1.0,
        delta=1e-5,
    )
    statistics = {"released": [0.1], "noise_std": 0.1}
    assert looks.look_of(view, watch.Latest(0.0, statistics, 0)) is None
    assert looks.look_of(view, watch.Latest(0.0, statistics, 5)) is not None


def test_sealed_trials_and_other_trainers_charges_are_named(tmp_path: Path) -> None:
    state = new_home(tmp_path)
    with Session.begin(state, plan(**JOINED_ONCE), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(2))
    with Ledger.open(state.ledger) as ledger:
        ledger.reserve_charge(
            "people", "search", Foreign(mu=0.1, trials=8), what="a search", why="tuning", actor="test"
        )
        ledger.reserve_charge("people", "given up", Foreign(mu=0.1), what="nothing", why="none", actor="test")
        ledger.release_charge("people", "given up", actor="test", anyones=True)
        statement = privacy_statement(ledger, session.account.id, state.root)
    text = statement.to_markdown()
    assert "beside runs, 1 times, oldest first: a search (the best of 8 sealed trials of mu 0.1" in text
    assert "trainer" not in text  # whoever reserved it: `fieldfare tune --sealed` does too
    assert [each["key"] for each in statement.to_json()["charges_of_others"]] == ["search"]  # type: ignore[attr-defined]


def test_a_look_names_its_task_as_a_run_does_without_parameters() -> None:
    """They filled the page's list, percent-encoded."""
    asked = {"kind": "mean", "measure": "rows", "low": 0, "high": 40}
    words = task_words(
        {"run": {"task": QUESTION}, "task": {"of": "csv_task:CsvTask?file=%22a.csv%22", "question": asked}}
    )
    assert words == "question: mean of rows from 0 to 40, task csv_task:CsvTask"


@pytest.mark.parametrize(
    ("actor", "near"),
    [("simulation", "fieldfare ask --resume {}"), ("coordinator", "fieldfare run --resume {} --superlink")],
)
def test_a_question_without_an_answer_names_the_command_that_goes_on_with_it(
    actor: str, near: str, tmp_path: Path
) -> None:
    """A federation's question named `ask --resume`, which refused and named `run --resume`."""
    state, run_id = begun(tmp_path, LOOKS["mean"], "zero_out", actor)
    with (
        Ledger.open(state.ledger) as ledger,
        pytest.raises(NotFound, check=coded("not-found", "run", near.format(run_id))),
    ):
        looks.look(ledger, run_id)


def test_a_question_that_failed_says_why(tmp_path: Path) -> None:
    fault = NotFound("the cohort", "none of its nodes is here.", "more nodes")
    state, run_id = begun(tmp_path, LOOKS["mean"], "zero_out", fault=fault)
    with Ledger.open(state.ledger) as ledger, pytest.raises(NotFound, check=coded("not-found", run_id, str(fault))):
        looks.look(ledger, run_id)
