"""What was priced under one adjacency is never charged to a budget of another, whichever way it comes in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import BadInput
from fieldfare.participation import ADJACENCIES, Adjacency
from fieldfare.plan import Plan
from fieldfare_server.accountant import LedgerAccountant
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.admission import admit
from fieldfare_server.planning.questions import Asked
from fieldfare_server.planning.what_if import what_if
from fieldfare_server.run.session import Session
from support.federation import USERS, home, plan
from support.ledgers import digest, start
from support.refusals import coded

WORDS = {"what": "x", "why": "y", "actor": "trainer"}


def plan_of(adjacency: Adjacency) -> Plan:
    """A plan of one round that this adjacency allows."""
    hidden = adjacency == "add_remove"
    return plan(
        privacy={"population": "people", "noise_multiplier": 9.0, "delta": 1e-5, "adjacency": adjacency},
        run__noise_seed=None,
        run__accept_noise=True,
        participation={"scheme": "poisson", "rate": 0.5} if hidden else {"scheme": "single"},
        mechanism={"kind": "independent"},
        run__rounds=1,
        **({"run__cohort": USERS // 2, "run__min_reports": None} if hidden else {}),
    )


def by_trainer(ledger: Ledger, state: StateDirectory, adjacency: Adjacency) -> None:
    ledger.reserve_charge("people", "k", Foreign.of({"mu": 0.1, "adjacency": adjacency}), **WORDS)


def by_flower(ledger: Ledger, state: StateDirectory, adjacency: Adjacency) -> None:
    """mu of a `replace_one` budget was charged at half where the accountant was told `zero_out`."""
    replaced = adjacency == "replace_one"
    relation = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    sampling = SamplingMethod.WITHOUT_REPLACEMENT if replaced else SamplingMethod.POISSON
    config = PrivacyConfig(1e-5, 100, relation, sampling, max_epsilon=8.0)
    LedgerAccountant(ledger, "people", "t", config=config, adjacency=adjacency).compose(
        GaussianPrivacyEvent(9.0, 20, 100)
    )


def by_row(ledger: Ledger, state: StateDirectory, adjacency: Adjacency) -> None:
    text = f'{{"privacy": {{"adjacency": "{adjacency}"}}, "run": {{"round_seconds": 9}}}}'
    start(ledger, 0.1, plan_json=text, plan_digest=digest(text))


def by_session(ledger: Ledger, state: StateDirectory, adjacency: Adjacency) -> None:
    with Session.begin(state, plan_of(adjacency), identity_is_stable=True):
        pass


def by_admission(ledger: Ledger, state: StateDirectory, adjacency: Adjacency) -> None:
    admit(plan_of(adjacency), None, ledger, USERS)


def by_question(ledger: Ledger, state: StateDirectory, adjacency: Adjacency) -> None:
    """`ask`, its dry run and the question of `tune` are admitted as plans are."""
    asked = Asked.of(
        {
            "question": {"kind": "count", "measure": "rows", "low": 1, "high": 9},
            "run": {"task": "digits", "cohort": USERS},
            "privacy": {"population": "people", "noise_multiplier": 9.0, "delta": 1e-5, "adjacency": adjacency},
        }
    )
    admit(asked.plan_for_nodes(), None, ledger, USERS)


ENTRIES: list[Callable[[Ledger, StateDirectory, Adjacency], None]] = [
    by_trainer,
    by_flower,
    by_row,
    by_session,
    by_admission,
    by_question,
]


ASKED = [(enter, made) for enter in ENTRIES for made in ADJACENCIES if (enter, made) != (by_question, "add_remove")]


@pytest.mark.parametrize("own", ADJACENCIES)
@pytest.mark.parametrize(("enter", "made"), ASKED, ids=lambda each: getattr(each, "__name__", each))
def test_another_adjacency_is_refused_by_name_and_writes_nothing(
    tmp_path: Path, own: Adjacency, enter: Callable[..., None], made: Adjacency
) -> None:
    state = home(tmp_path, adjacency=own)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        before = ledger.head()
        if made == own:
            enter(ledger, state, made)
            return
        with pytest.raises(BadInput, check=coded("differs", repr(own))):
            enter(ledger, state, made)
        assert ledger.head() == before
        assert not any(state.root.glob("*/noise.key"))


def test_a_plan_that_names_none_is_read_as_zero_out_and_charged_so(tmp_path: Path) -> None:
    """`Plan.stored` reads it so, and a run that is resumed computes its charge by that."""
    state = home(tmp_path, adjacency="replace_one")
    with Ledger.open(state.ledger) as ledger, pytest.raises(BadInput, check=coded("differs", "'replace_one'")):
        start(ledger, 0.1, plan_json="{}", plan_digest=digest("{}"))


def test_a_key_that_was_charged_does_not_answer_for_another_adjacency(tmp_path: Path) -> None:
    state = home(tmp_path)
    with Ledger.open(state.ledger) as ledger:
        by_trainer(ledger, state, "zero_out")
        with pytest.raises(BadInput, check=coded("differs", "'zero_out'")):
            by_trainer(ledger, state, "replace_one")
        assert ledger.charge("people", "k").loss == {"mu": 0.1}


def test_the_page_says_that_it_would_be_refused(tmp_path: Path) -> None:
    state = home(tmp_path, adjacency="replace_one")
    stored = plan_of("zero_out").model_dump(mode="json", exclude_none=True)
    with Ledger.open(state.ledger) as ledger:
        found = what_if(stored, {}, ledger)
    assert (found.fits, found.nearest) == (False, "'replace_one'")
