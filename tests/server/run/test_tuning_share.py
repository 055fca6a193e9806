"""A tuning share: who is asked follows from names alone, and each user pays for the runs that asked that user."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.plan import Plan
from fieldfare.plan_tables import TuningSpec
from fieldfare_client.app import task_of as loaded
from fieldfare_client.app import user_names
from fieldfare_client.questions import QuestionTask
from fieldfare_flower.messages import TrainInstruction
from fieldfare_server.cli.ask import put
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.admission import admit
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.pricing import price_with_model
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

NAMES = np.random.default_rng(5).integers(0, 2**64, 200_000, dtype=np.uint64)


def test_two_parts_make_the_whole_and_a_larger_share_holds_a_smaller_one() -> None:
    tenth, rest = TuningSpec(share=0.1, users="share"), TuningSpec(share=0.1)
    tunes = tenth.takes("people", NAMES)
    np.testing.assert_array_equal(tunes, ~rest.takes("people", NAMES))
    fifth = TuningSpec(share=0.2, users="share").takes("people", NAMES)
    assert not (tunes & ~fifth).any()
    # 5 standard deviations: a false alarm in 1.7 million.
    assert abs(tunes.mean() - 0.1) < 5 * math.sqrt(0.09 / NAMES.size)
    assert tenth.size(1000) + rest.size(1000) == 1000


def test_the_key_is_the_populations_and_the_split_the_same_on_every_machine() -> None:
    here, there = (TuningSpec(share=0.5, users="share").takes(name, NAMES) for name in ("people", "others"))
    assert abs((here == there).mean() - 0.5) < 5 * math.sqrt(0.25 / NAMES.size)
    names = np.array([1, 2**63, 17, 5_000_000_007, 42], np.uint64)
    told = TuningSpec(share=0.5, users="share").takes("people", names)
    assert told.tolist() == [True, False, False, True, True]


def test_plans_without_a_share_keep_their_digests_and_a_share_is_stored() -> None:
    keywords = {"task": "digits", "epsilon": 4, "delta": 1e-5, "rounds": 8, "cohort": 20}
    assert "tuning" not in json.loads(Plan(**keywords).to_json())
    shared = Plan(**keywords, tuning=0.25)
    assert shared == Plan.stored(json.loads(shared.run_json(0.0))) == Plan(**keywords, tuning={"share": 0.25})


def test_a_share_is_refused_where_all_users_are_charged_alike() -> None:
    keywords = {"task": "digits", "epsilon": 4, "delta": 1e-5, "rounds": 8, "cohort": 20, "tuning": 0.25}
    for alike in (
        {"accounting": "worst-case"},
        {"adjacency": "add_remove", "participation": {"scheme": "poisson", "rate": 0.1}},
    ):
        with pytest.raises(BadInput) as refused:
            Plan(**keywords, **alike)
        assert refused.value.code == "share-saves-nothing"


@pytest.fixture
def trial_and_rest() -> list[Plan]:
    """A trial on the share, and a run for the others."""
    table = {"population": "people", "epsilon": 2.0, "delta": 1e-5}
    return [
        plan(
            privacy=table,
            run__rounds=2,
            run__cohort=cohort,
            run__min_reports=cohort,
            run__noise_seed=None,
            participation={"scheme": "min-separation", "separation": 1, "max_participations": 2},
            tuning={"share": 0.4, "users": users},
        )
        for users, cohort in (("share", 7), ("others", 12))
    ]


def train(state: StateDirectory, a_plan: Plan) -> set[int]:
    """Run it to its end; the pseudonyms of all users who were asked to train."""
    grid = LyingGrid(2)
    with Session.begin(state, a_plan, identity_is_stable=True) as session:
        FieldfareStrategy(session).take_to_end(grid)
        schema = session.schema
    return {int(user) for sent in grid.seen for user in TrainInstruction.read(sent.content, schema).users}


def test_each_part_trains_alone_and_pays_for_its_own_run(tmp_path: Path, trial_and_rest: list[Plan]) -> None:
    state, (trial, rest) = home(tmp_path, epsilon=2.0), trial_and_rest
    names = user_names(rest.task_reference)
    tuned, trained = train(state, trial), train(state, rest)
    assert tuned == set(names[trial.takes(names)].tolist())
    assert trained <= set(names[rest.takes(names)].tolist())
    assert len(trained) >= 12
    # Nobody has paid twice, and a run of the others again finds nobody who could.
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        view = ledger.population("people")
        assert view.spent_epsilon == pytest.approx(2.0, rel=1e-3)
        assert view.spent_epsilon <= 2.0
        assert view.users == 7 + 17
        with pytest.raises(BudgetRefused):
            admit(trial, price_with_model(trial), ledger, names)
        assert verify(ledger, state.root).ok


def test_admission_counts_the_users_of_the_part(tmp_path: Path, trial_and_rest: list[Plan]) -> None:
    trial, rest = trial_and_rest
    names = user_names(rest.task_reference)
    assert [admit(each, None, None, names).users for each in (trial, rest)] == [7, 17]
    assert [admit(each, None, None, 30).users for each in (trial, rest)] == [12, 18]
    many = rest.model_copy(update={"run": rest.run.model_copy(update={"cohort": 18, "min_reports": 18})})
    with pytest.raises(BadInput):
        admit(many, None, None, names)
    # A federation's population may know the share alone: others can still come.
    state = home(tmp_path, epsilon=2.0)
    train(state, trial)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        admit(rest, price_with_model(rest), ledger)


def test_a_question_asks_the_share_alone(tmp_path: Path, trial_and_rest: list[Plan]) -> None:
    state, (trial, rest) = home(tmp_path, epsilon=20.0), trial_and_rest
    table = {
        "question": {"kind": "mean", "measure": "rows", "low": 0, "high": 10},
        "run": {"task": rest.run.task},
        "privacy": {"population": "people", "epsilon": 2.0, "delta": 1e-5},
    }
    look = put(state, Asked.of({**table, "tuning": {"share": 0.4, "users": "share"}}))
    assert look.users == 7
    assert put(state, Asked.of({**table, "tuning": {"share": 0.4}})).users == 17
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        assert ledger.population("people").spent_epsilon == pytest.approx(2.0, rel=1e-3)
        assert "a trial, on the 0.4 of the users" in str(privacy_statement(ledger, look.run, state.root))
    clip = Asked.clip_of(trial, 0.5)
    assert clip.tuning == trial.tuning
    put(state, clip, accept_delta=True)
    asked = loaded(clip.plan(7).task_reference)
    assert isinstance(asked, QuestionTask)
    assert int(asked.users().columns["x"]._known.sum()) == 7  # type: ignore[attr-defined]  # nobody else trained
