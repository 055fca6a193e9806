"""One answer for every asker: whether a run may start, can end, and for how many users; and it does end."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context
from flwr.clientapp import ClientApp
from typer.testing import CliRunner

import fieldfare as ff
from fieldfare.accounting.individual import Demand
from fieldfare.cost import Cost
from fieldfare.costing import cost_of, cost_with_resolution
from fieldfare.errors import BadInput, BudgetRefused, FieldfareError, Refused
from fieldfare.participation import MinSeparation
from fieldfare.plan import RESOLUTION, RUN_KEYS, Plan
from fieldfare_client.app import user_names
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.population_schemas import WhatIf
from fieldfare_server.cli.application import assemble
from fieldfare_server.cli.progress import check_known_users, priced_here
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import plan_text
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.state.admission import count
from fieldfare_server.notebook.simulation import _prepare
from fieldfare_server.planning.admission import admit
from fieldfare_server.planning.what_if import UNJUDGED, changed, what_if
from fieldfare_server.run.presence.selection import Selector
from fieldfare_server.run.pricing import price_with_model
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from fieldfare_server.run.signal import require_signal
from support.federation import USERS, LyingGrid, TinyTask, home, plan
from support.refusals import coded

LIMIT = 6.0


def drawn_plan(random: np.random.Generator, largest: float) -> Plan:
    """Any plan of these users, possible or not."""
    rounds, separation = int(random.integers(1, 13)), int(random.integers(1, 5))
    most = int(random.integers(1, 1 + min(3, -(-rounds // separation))))
    cohort = int(random.integers(3, 13))
    accounting = {"accounting": "worst-case"} if random.random() < 0.25 else {}
    return plan(
        privacy={
            "population": "people",
            "epsilon": float(np.round(largest * random.uniform(0.05, 1.3), 3)),
            "delta": 1e-5,
            **accounting,
        },
        run__rounds=rounds,
        run__cohort=cohort,
        run__min_reports=cohort,
        run__noise_seed=None,
        run__accept_noise=True,
        participation={"scheme": "min-separation", "separation": separation, "max_participations": most},
        mechanism=[{"kind": "independent"}, {"kind": "nu", "nu": 0.1}][int(random.integers(2))],
    )


def run_to_end(state: StateDirectory, a_plan: Plan, rounds: int | None = None) -> tuple[str, int]:
    """(state, rounds) of a run of its first `rounds` rounds."""
    with Session.begin(state, a_plan, identity_is_stable=True) as session:
        strategy, grid = FieldfareStrategy(session), LyingGrid(2)
        if rounds is None:
            strategy.take_to_end(grid)
        else:
            for _ in range(rounds):
                strategy.run_round(grid)
            session.finish("stopped", "enough")
    with Ledger.open(state.ledger) as ledger:
        run = ledger.run(session.account.id)
    return run.state, run.next_round


def answer(ask: Callable[..., Any], *arguments: Any) -> str:
    try:
        ask(*arguments)
    except BudgetRefused:
        return "too little is left"
    except BadInput:
        return "too few users"
    return "yes"


def net() -> torch.nn.Module:
    return TinyTask().build_model()


def own_app() -> ClientApp:
    """The users of `TinyTask` behind a training loop of one's own."""
    made, ids = ClientApp(), [f"user-{index:02d}" for index in range(USERS)]

    @made.query("users")
    @ff.private.users
    def users(context: Context) -> list[str]:
        return ids

    @made.train()
    @ff.private.train(net)
    def train(model: Any, user: str, context: Context, config: dict[str, Any]) -> None:
        with torch.no_grad():
            model[0].weight += 0.1

    return made


def private_strategy(state: StateDirectory, a_plan: Plan) -> None:
    """The same plan by `ff.PrivateStrategy`: raises unless the run reaches its end."""
    table = json.loads(a_plan.to_json())
    del table["run"]["task"], table["client"]
    strategy = ff.PrivateStrategy(plan=Plan.parse(table), dialect="cohort", model=net, home=state.root)
    strategy.start(ff.LocalGrid(own_app(), 2, {}), ArrayRecord(net().state_dict()))


def submitted(state: StateDirectory, a_plan: Plan) -> None:
    """As `fieldfare run` asks: too few users are a warning, because further ones may join."""
    with warnings_of_run() as told:
        check_known_users(state, a_plan, True)
    if any("cannot reach its end" in text for text in told):
        raise BadInput("a run", told[0])


@contextmanager
def warnings_of_run() -> Iterator[list[str]]:
    told: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fieldfare_server.cli.progress.print_warnings", told.extend)
        yield told


def asked_what_if(ledger: Ledger, a_plan: Plan) -> None:
    found = what_if(json.loads(a_plan.run_json(price_with_model(a_plan).resolution)), {}, ledger)
    if not found.fits:
        raise refusal_of(found.refusal)


def refusal_of(why: str) -> Refused:
    return (BudgetRefused if "epsilon" in why else BadInput)("a run", why)


def asked_page(ledger: Ledger, asked: WhatIf) -> None:
    """As the page and `GET /v1/populations/people/what-if` ask, of the newest run with changes."""
    found = Answers(ledger).what_if("people", asked)
    if not found.fits:
        raise refusal_of(str(found.why))


def admitted_with_signal(a_plan: Plan, cost: Cost, ledger: Ledger, names: Any, more: int) -> None:
    """As a run is admitted whose model's size is known; the page takes its size from a charge, as up to one more."""
    admit(a_plan, cost, ledger, names)
    require_signal(cost, sum(value.numel() for value in net().parameters()) + more, accepted=not a_plan.run.task)


def changed_plan(ledger: Ledger, asked: WhatIf) -> tuple[Plan, Cost]:
    """The plan that `asked_page` asks about, and its cost."""
    stored = ledger.runs().items[0].plan
    table = changed(stored, asked.model_dump(exclude={"run"}))
    made = Plan.parse({key: value for key, value in table.items() if key not in RUN_KEYS})
    return made, cost_of(made, resolution=float(stored[RESOLUTION]))


def asked_plan(a_plan: Plan, folder: Path) -> None:
    """As `fieldfare plan --users task` asks, which knows of no budget."""
    file = folder / "plan.toml"
    file.write_text(plan_text(a_plan))
    said = CliRunner().invoke(assemble("plan"), ["plan", str(file), "--users", "task", "--json"])
    if said.exit_code:
        raise BadInput("a plan", said.stdout)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 60))])
def test_all_askers_agree_and_what_is_admitted_reaches_its_end(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng((28, seed))
    state = home(tmp_path, LIMIT)
    assert run_to_end(state, plan(privacy__noise_multiplier=20.0, run__noise_seed=None), 1) == ("stopped", 1)
    names = user_names(plan().task_reference)
    for _ in range(4):
        a_plan = drawn_plan(random, LIMIT)
        with Ledger.open(state.ledger) as ledger:
            answers = {
                "admit": answer(admit, a_plan, price_with_model(a_plan), ledger, names),
                "what if": answer(asked_what_if, ledger, a_plan),
            }
            asked = WhatIf(epsilon=a_plan.privacy.epsilon, cohort=a_plan.run.cohort)
            of_page = changed_plan(ledger, asked)
            expected = {answer(admitted_with_signal, *of_page, ledger, names, more) for more in (0, 1)}
            assert answer(asked_page, ledger, asked) in expected, (seed, of_page)
        answers["simulate"] = answer(priced_here, state, a_plan)
        answers["ff.simulate"] = answer(_prepare, state, (a_plan,), None)
        answers["run"] = answer(submitted, state, a_plan)
        assert len(set(answers.values())) == 1, (seed, a_plan, answers)
        (said,) = set(answers.values())
        few = "too few users"
        assert answer(asked_plan, a_plan, tmp_path) == (few if said == few else "yes"), (seed, a_plan)
        if said == "yes" and random.random() < 0.5:
            private_strategy(state, a_plan)
            with Ledger.open(state.ledger) as ledger:
                newest = ledger.runs().items[0]
            assert (newest.state, newest.next_round) == ("done", a_plan.run.rounds), (seed, a_plan)
        elif said == "yes":
            assert run_to_end(state, a_plan) == ("done", a_plan.run.rounds), (seed, a_plan)
        else:
            before = spent(state)
            with pytest.raises(BudgetRefused if said == "too little is left" else FieldfareError):
                private_strategy(state, a_plan)
            assert spent(state) == before, (seed, a_plan, said)
            if said == "too little is left":
                with pytest.raises(BudgetRefused):
                    Session.begin(state, a_plan, identity_is_stable=True)


def spent(state: StateDirectory) -> tuple[float, float, int]:
    with Ledger.open(state.ledger) as ledger:
        view = ledger.population("people")
    return view.spent_epsilon, view.reserved_epsilon, view.runs_active


def test_the_largest_run_that_needs_every_user_reaches_its_end_with_the_one_who_has_least_left(tmp_path: Path) -> None:
    state = home(tmp_path, LIMIT)
    first = {"population": "people", "epsilon": 5.0, "delta": 1e-5}
    run_to_end(state, plan(privacy=first, run__cohort=4, run__noise_seed=None), 1)

    def of(epsilon: float) -> Plan:
        """Two rounds of half of the users, each of whom takes part once."""
        return plan(
            privacy={"population": "people", "epsilon": epsilon, "delta": 1e-5},
            run={"task": "support.federation:TinyTask", "rounds": 2, "cohort": 12, "min_reports": 12},
            participation={"scheme": "min-separation", "separation": 2, "max_participations": 1},
        )

    low, high = 0.1, LIMIT
    while high - low > 1e-3:
        middle = (low + high) / 2
        fits = answer(_prepare, state, (of(middle),), None) == "yes"
        low, high = (middle, high) if fits else (low, middle)
    assert LIMIT / 3 < low < 0.99 * LIMIT, "those of the first run have less left than a newcomer"
    (run,) = ff.simulate(of(low), ledger=state.root, progress=False)
    assert (run.view.state, run.view.committed_rounds) == ("done", 2)
    with pytest.raises(BudgetRefused):
        ff.simulate(of(high), ledger=state.root, progress=False)


@pytest.mark.parametrize("spent", [8.0, 23.9])
def test_a_run_above_the_limit_never_starts_once_users_have_spent_something(tmp_path: Path, spent: float) -> None:
    state = home(tmp_path, 24.0)
    modest, large = (plan(privacy={"population": "people", "epsilon": e, "delta": 1e-5}) for e in (spent, 50.0))
    assert run_to_end(state, modest)[0] == "done"
    names = user_names(large.task_reference)
    with Ledger.open(state.ledger) as ledger:
        for users in (None, names):
            with pytest.raises(BudgetRefused, check=coded("budget-refused", "24")) as refused:
                admit(large, cost_of(large), ledger, users)
            # The nearest that is named is allowed: it was the limit, of which nobody had so much left.
            near = nearest_to(large, refused.value)
            assert admit(near, cost_of(near), ledger, users).margin >= 1
    with pytest.raises(BudgetRefused, check=coded("budget-refused", "24")):
        Session.begin(state, large, identity_is_stable=True)


def nearest_to(refused_plan: Plan, refused: BudgetRefused) -> Plan:
    """The plan with the epsilon that a refusal names as nearest, in two decimals."""
    epsilon = math.floor(float(refused.nearest.rpartition("of epsilon ")[2].split()[0]) * 100) / 100
    return plan(privacy={"population": refused_plan.privacy.population, "epsilon": epsilon, "delta": 1e-5})


@pytest.mark.parametrize("spent", [False, True])
def test_a_run_above_limit_and_window_is_told_what_both_hold(tmp_path: Path, spent: bool) -> None:
    """The refusal named the nearest run below the limit, which the window refused too."""
    state = home(tmp_path, 24.0)
    large = plan(privacy={"population": "people", "epsilon": 50.0, "delta": 1e-5})
    if spent:
        modest = plan(privacy={"population": "people", "epsilon": 2.0, "delta": 1e-5})
        assert run_to_end(state, modest)[0] == "done"
    with Ledger.open(state.ledger) as ledger:
        ledger.set_window("people", epsilon=4.0, every="week", reason="agreed", actor="officer")
        with pytest.raises(BudgetRefused, check=coded("window-full", "week")) as refused:
            admit(large, cost_of(large), ledger)
        near = nearest_to(large, refused.value)
        assert 1.0 < (near.privacy.epsilon or 0) <= 4.0
        assert admit(near, cost_of(near), ledger, user_names(near.task_reference)).margin >= 1


def test_what_if_refuses_noise_above_the_signal_as_simulate_does(tmp_path: Path) -> None:
    """The page said "It fits" of a plan that `plan` and `simulate` refuse."""
    state = home(tmp_path)
    run_to_end(state, plan(run__noise_seed=None, run__accept_noise=None), 1)
    with Ledger.open(state.ledger) as ledger:
        (run,) = ledger.runs().items
        drowned = what_if(run.plan, {"epsilon": 0.001}, ledger)
        accepted = {**run.plan, "run": {**run.plan["run"], "accept_noise": True}}
        assert what_if(run.plan, {}, ledger).fits
        assert what_if(accepted, {"epsilon": 0.001}, ledger).fits
    assert not drowned.fits
    assert "as long as all updates together" in drowned.refusal
    assert "run.accept_noise = true" in drowned.nearest


@pytest.mark.parametrize("rounding", ["grid", "none", "discrete"])
def test_what_if_says_that_it_does_not_know_the_size_of_a_model(rounding: str, tmp_path: Path) -> None:
    """It said "It fits" of a plan that `plan` and `simulate` refuse: only what a grid costs tells the model's size."""
    state, tree = home(tmp_path), {"kind": "tree", "estimator": "plain"}
    a_plan = plan(run__noise_seed=None, run__accept_noise=None, privacy__rounding=rounding, mechanism=tree)
    run_to_end(state, a_plan, 1)
    with Ledger.open(state.ledger) as ledger:
        (run,) = ledger.runs().items
        found = what_if(run.plan, {"epsilon": 0.3}, ledger)
        with pytest.raises(BadInput, check=coded("signal-below-noise", "signal")):
            require_signal(price_with_model(found.cost.plan))
        assert found.fits is (rounding != "grid")
        assert found.fits is (found.refusal == UNJUDGED)
        assert found.cost.plan.privacy.rounding == rounding, "a stored plan leaves out the one that was there before"
        assert what_if(run.plan, {}, ledger).refusal == ""
        accepted = {**run.plan, "run": {**run.plan["run"], "accept_noise": True}}
        assert what_if(accepted, {"epsilon": 0.3}, ledger).refusal == ""


def test_what_if_refuses_rounds_and_cohorts_that_the_users_cannot_fill(tmp_path: Path) -> None:
    state = home(tmp_path)
    a_plan = plan(run__noise_seed=None)
    run_to_end(state, a_plan, 1)
    with Ledger.open(state.ledger) as ledger:
        (run,) = ledger.runs().items
        for changes, why in (({"rounds": 4000}, f"{USERS} users give"), ({"cohort": 500}, f"has {USERS}")):
            found = what_if(run.plan, changes, ledger)
            assert not found.fits
            assert why in found.refusal or str(USERS) in found.refusal
            assert "= " in found.nearest
        again = what_if(run.plan, {}, ledger)
    assert again.admission is not None
    assert again.admission.users == again.admission.whole == USERS


@pytest.mark.parametrize("changes", [{"rounds": 2000}, {"mechanism": "nu", "rounds": 300}, {"epsilon": 0.5}])
def test_what_if_charges_what_floats_leave_open_in_the_changed_run(tmp_path: Path, changes: dict[str, Any]) -> None:
    """It charged what the stored run leaves open, which is too little for a run of many more rounds."""
    state, numel = home(tmp_path), 10**7
    a_plan = plan(run__rounds=16, run__noise_seed=None, mechanism={"kind": "independent"})

    def priced(of: Plan) -> Cost:
        return cost_with_resolution(of, {}, of.riders.joint_bound, numel, of.most_users)

    stored = json.loads(a_plan.run_json(priced(a_plan).resolution))
    table = changed(stored, changes)
    right = priced(Plan.parse({key: value for key, value in table.items() if key not in RUN_KEYS}))
    with Ledger.open(state.ledger) as ledger:
        found = what_if(stored, changes, ledger).cost
        assert what_if(stored, {}, ledger).cost.resolution == stored[RESOLUTION]
    assert right.resolution > 1.02 * stored[RESOLUTION]
    assert right.resolution <= found.resolution <= 1.05 * right.resolution
    assert found.epsilon >= right.epsilon * (1 - 1e-12)


def test_the_largest_next_run_says_for_how_many_users(tmp_path: Path) -> None:
    state = home(tmp_path, 8.0)
    run_to_end(state, plan(run__cohort=4, run__noise_seed=None), 1)
    with Ledger.open(state.ledger) as ledger:
        view = ledger.population("people")
    assert view.users == USERS
    assert view.remaining_users == USERS - 4
    assert view.remaining_epsilon_of_all < view.remaining_epsilon <= 8.0


def test_a_timetable_is_asked_for_and_not_only_enough_participations() -> None:
    """Three of one user cannot be had in two rounds of two."""
    demand = Demand(most=30, costs=(10, 20, 30), rounds=2, cohort=2, separation=1)
    assert not count(np.array([30, 10]), demand).fits
    assert count(np.array([20, 20]), demand).fits
    assert count(np.array([20, 10, 10]), demand).fits


def test_a_closed_population_admits_nothing(tmp_path: Path) -> None:
    state = home(tmp_path)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        ledger.close_population("people", reason="enough", actor="test")
        with pytest.raises(Refused, check=coded("not-now", "a run on population")):
            admit(plan(), cost_of(plan()), ledger)


@pytest.mark.parametrize("key", range(20))
def test_rounds_provide_for_what_users_have_left(key: int) -> None:
    """One of three users can pay for two rounds: two rounds of two users need that one in both."""
    pays = np.array([2, 1, 1])
    taken = np.zeros(3, np.int32)
    selector = Selector(
        MinSeparation(1),
        2,
        2,
        fewest=2,
        affords=lambda round, users: taken[users] < pays[users],
        payable=lambda users: pays[users],
    )
    for round in range(2):
        chosen = selector.select(
            round,
            np.arange(3),
            lambda users: (np.minimum(taken[users], 1) - 1, taken[users]),
            np.random.default_rng((key, round)),
            lambda count: np.zeros(count),
        )
        assert 0 in chosen
        taken[chosen] += 1


def test_runs_that_come_first_are_counted(tmp_path: Path) -> None:
    state = home(tmp_path, 3.0)
    run_to_end(state, plan(privacy={"population": "people", "epsilon": 0.5, "delta": 1e-5}, run__noise_seed=None))
    two = plan(privacy={"population": "people", "epsilon": 2.7, "delta": 1e-5}, run__noise_seed=None)
    cost = cost_of(two)
    with Ledger.open(state.ledger) as ledger:
        assert admit(two, cost, ledger).margin >= 1
        with pytest.raises(BudgetRefused):
            admit(two, cost, ledger, first=[(two, cost)])
