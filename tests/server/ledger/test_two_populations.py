"""A second population of the same users is no second budget (I9): it is noticed, waits for a second person, adds up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare_server.api.answers import Answers
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules.populations import Rules
from support.federation import JOINED_ONCE, LyingGrid, home, plan
from support.ledgers import PLAN, commit, demand, digest, start
from support.refusals import coded

USERS = np.arange(1, 9)
MU = 0.4
STRICT = Rules(two_persons=True)


def delta_of(mu: float, epsilon: float) -> float:
    """The delta of mu-Gaussian DP at epsilon, from its definition (Dong, Roth and Su 2022, corollary 2.13)."""
    return float(norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2))


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon of mu-Gaussian DP at delta."""
    return float(brentq(lambda e: delta_of(mu, e) - delta, 0.0, 200, xtol=1e-13))


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """An empty ledger, on each database."""
    with Ledger.open(ledger_url, create=True) as opened:
        yield opened


# -- the same user, twice -------------------------------------------------------------------------------------------


def test_a_user_of_another_population_is_not_registered(ledger: Ledger) -> None:
    for name in ("patients", "patients-0"):
        ledger.create_population(name, 3.0, 1e-5, actor="officer")
    first = start(ledger, MU, population="patients")
    first.register_users(USERS)
    second = start(ledger, MU, population="patients-0")
    with pytest.raises(BudgetRefused, check=coded("user-in-two-populations")) as refused:
        second.register_users([7, 8, 9])
    assert refused.value.code == "user-in-two-populations"
    assert ledger.population("patients-0").users == 0
    # The other way round as well, and whoever is in one alone is welcome.
    second.register_users([9, 10])
    with pytest.raises(BudgetRefused, check=coded("user-in-two-populations")):
        first.register_users([10, 11])
    first.register_users(USERS)
    assert verify(ledger).ok


@pytest.mark.parametrize(("first", "second", "free"), [(True, True, True), (True, False, False), (False, True, False)])
def test_to_call_users_simulated_gives_no_second_budget(ledger: Ledger, first: bool, second: bool, free: bool) -> None:
    ledger.create_population("patients", 3.0, 1e-5, simulated=first, actor="officer")
    ledger.create_population("trial", 3.0, 1e-5, simulated=second, actor="officer")
    start(ledger, MU, population="patients").register_users(USERS)
    again = start(ledger, MU, population="trial")
    if free:
        again.register_users(USERS)
    else:
        with pytest.raises(BudgetRefused):
            again.register_users(USERS)


def test_admission_refuses_them_before_the_run_starts(ledger: Ledger) -> None:
    for name in ("patients", "patients-0"):
        ledger.create_population(name, 3.0, 1e-5, actor="officer")
    run = start(ledger, MU, population="patients")
    run.register_users(USERS)
    with pytest.raises(BudgetRefused) as refused:
        ledger.position("patients-0", USERS.astype(np.uint64))
    assert refused.value.code == "user-in-two-populations"


def test_where_presence_is_secret_the_answer_depends_on_no_user(ledger: Ledger) -> None:
    ledger.create_population("patients", 3.0, 1e-5, actor="officer")
    ledger.create_population("secret", 2.0, 1e-5, adjacency="add_remove", simulated=True, actor="officer")
    start(ledger, MU, population="patients").register_users(USERS)
    text = PLAN.replace("zero_out", "add_remove")
    start(ledger, MU, population="secret", plan_json=text, plan_digest=digest(text)).register_users(USERS)


@pytest.mark.parametrize("real", [True, False])
def test_one_person_cannot_train_the_same_nodes_again_through_a_second_population(tmp_path: Path, real: bool) -> None:
    """The attack of one person and another population, through nodes: 6.47 where each page says 2.9 of 3."""
    from fieldfare_server.run.round.strategy import FieldfareStrategy
    from fieldfare_server.run.session import Session

    state = home(tmp_path, epsilon=3.0, simulated=False)
    setting = {
        "privacy": {"population": "people", "epsilon": 2.9, "delta": 1e-5},
        **JOINED_ONCE,
        "run__cohort": 12,
        "run__min_reports": 12,
    }

    def train(population: str) -> None:
        with Session.begin(
            state,
            plan(**{**setting, "privacy": setting["privacy"] | {"population": population}}),
            identity_is_stable=True,
        ) as session:
            FieldfareStrategy(session).start(LyingGrid(3))

    train("people")
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        ledger.create_population("again", 3.0, 1e-5, simulated=not real, actor="the same person")
    with pytest.raises(BudgetRefused) as refused:
        train("again")
    assert refused.value.code == "user-in-two-populations"
    with Ledger.open(state.ledger) as ledger:
        view = ledger.population("again")
        assert (view.users, view.spent_epsilon, view.committed_epsilon) == (0, 0.0, 0.0)


# -- making one needs what raising one needs ------------------------------------------------------------------------


def test_a_new_population_waits_where_a_raise_needs_two_persons(ledger: Ledger) -> None:
    ledger.create_population("patients", 3.0, 1e-5, rules=STRICT, actor="officer")
    with pytest.raises(BadInput) as refused:
        ledger.create_population("patients-0", 3.0, 1e-5, actor="officer", person="aa")
    assert refused.value.code == "one-person-population"
    made = ledger.create_population("patients-0", 3.0, 1e-5, rules=STRICT, actor="token ann", person="aa")
    (proposal,) = made.proposals
    assert (made.state, proposal.epsilon) == ("proposed", 3.0)
    with pytest.raises(BadInput, check=coded("not-now", "a run on population")):
        start(ledger, MU, population="patients-0")
    for act in (ledger.reopen_population, ledger.close_population):
        with pytest.raises(BadInput, check=coded("not-now", "population")):
            act("patients-0", reason="alone", actor="officer")
    with pytest.raises(BadInput, check=coded("not-now", "population")):
        ledger.raise_population("patients-0", epsilon=4.0, reason="alone", actor="officer", person="aa")
    with pytest.raises(BadInput, check=coded("not-allowed", "approving proposal")):
        ledger.approve_raise(proposal.id, actor="token ann", person="aa")
    made = ledger.approve_raise(proposal.id, actor="token bob", person="bb")
    assert (made.state, made.epsilon, made.proposals) == ("open", 3.0, ())
    run = start(ledger, MU, population="patients-0")
    commit(run, run.register_users(USERS).tolist(), MU)
    assert verify(ledger).ok


def test_a_new_population_that_is_withdrawn_never_opens(ledger: Ledger) -> None:
    ledger.create_population("patients", 3.0, 1e-5, rules=STRICT, actor="officer")
    made = ledger.create_population("patients-0", 3.0, 1e-5, rules=STRICT, actor="token ann", person="aa")
    made = ledger.withdraw_raise(made.proposals[0].id, reason="no study", actor="token bob")
    assert (made.state, made.proposals) == ("withdrawn", ())
    with pytest.raises(BadInput, check=coded("not-now", "population")):
        ledger.reopen_population("patients-0", reason="alone", actor="officer")
    with pytest.raises(BadInput, check=coded("not-now", "population")):
        ledger.raise_population("patients-0", epsilon=4.0, reason="alone", actor="officer")
    assert verify(ledger).ok


# -- all of them together -------------------------------------------------------------------------------------------


def test_budgets_add_up_where_users_cannot_be_compared(ledger: Ledger) -> None:
    """Four populations of (3, 1e-5) without a leak: the Gaussian of twice the mu, from its definition."""
    ledger.create_population("patients", 3.0, 1e-5, actor="officer")
    assert ledger.together(ledger.population("patients")) is None
    for number in range(3):
        ledger.create_population(f"secret-{number}", 3.0, 1e-5, adjacency="add_remove", leak=0.0, actor="officer")
    ledger.create_population("made-up", 3.0, 1e-5, adjacency="add_remove", simulated=True, actor="officer")
    ledger.create_population("others", 3.0, 1e-5, actor="officer")
    mu = brentq(lambda m: epsilon_of(m, 1e-5) - 3.0, 0.1, 2.0, xtol=1e-14)
    # `patients` and `others` are compared with each other; with the three no one can say.
    for name, several in (("patients", 4), ("others", 4), ("secret-0", 5)):
        together = ledger.together(ledger.population(name))
        assert together is not None
        assert (together.populations, together.delta) == (several, 1e-5)
        assert together.epsilon == pytest.approx(epsilon_of(mu * math.sqrt(several), 1e-5), rel=1e-9)
    assert ledger.together(ledger.population("made-up")) is None
    answer = Answers(ledger).population("patients").together
    together = ledger.together(ledger.population("patients"))
    assert answer is not None
    assert together is not None
    assert answer.epsilon == together.epsilon
    run = start(ledger, MU, population="patients")
    text = privacy_statement(ledger, run.id).to_markdown()
    assert "all 4 populations of this ledger" in text


def test_what_is_added_up_is_the_largest_budget_and_every_leak(ledger: Ledger) -> None:
    ledger.create_population("a", 1.0, 1e-5, adjacency="add_remove", leak=4e-6, actor="officer")
    ledger.create_population("b", 1.0, 1e-5, adjacency="add_remove", leak=4e-6, actor="officer")
    before = ledger.together(ledger.population("a"))
    ledger.raise_population("b", epsilon=2.0, reason="more", actor="officer")
    ledger.tighten_population("b", epsilon=0.5, reason="less", actor="officer")
    after = ledger.together(ledger.population("a"))
    assert before is not None
    assert after is not None
    assert before.delta == after.delta == pytest.approx(2 * (1 - (1 - 4e-6) ** 2), rel=1e-9)
    assert before.epsilon > 1.0
    assert after.epsilon > max(2.0, before.epsilon)


def test_leaks_that_sum_above_a_half_break_no_list_of_budgets(ledger: Ledger) -> None:
    for number in range(3):
        ledger.create_population(f"p{number}", 1.0, 0.5, adjacency="add_remove", leak=0.4, actor="officer")
    together = ledger.together(ledger.population("p0"))
    assert together is not None
    leak = 1 - 0.6**3
    assert together.delta == pytest.approx((1 + leak) / 2, rel=1e-12)
    mu = brentq(lambda m: 0.4 + 0.6 * delta_of(m, 1.0) - 0.5, 0.1, 5.0, xtol=1e-14)
    assert leak + (1 - leak) * delta_of(mu * math.sqrt(3), together.epsilon) == pytest.approx(together.delta, rel=1e-9)
    assert len(Answers(ledger).populations(None, 50).items) == 3


def test_charges_beyond_what_odometers_count_leave_nobody_anything(ledger: Ledger) -> None:
    """What all users are charged alike may be more than 64 bits of its units hold, where the budget is as large."""
    ledger.create_population("open", 1e9, 1e-5, actor="officer")
    run = start(ledger, 0.5, population="open", demand=demand(2**42))
    run.register_users(USERS)
    for number in range(6):
        ledger.reserve_charge("open", f"{number}", Foreign.of({"mu": 500.0}), what="a", why="b", actor="bob")
    population = ledger.population("open")
    assert (population.state, population.exhausted) == ("open", USERS.size)
    with pytest.raises(BudgetRefused):
        start(ledger, 0.5, population="open", demand=demand(2**42))
    run.finish("done")
