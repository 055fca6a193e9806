"""Other trainers charge a population: priced, reserved, committed, released, raced for, and refused by name."""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import fieldfare as ff
from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare_server.accountant import LedgerAccountant
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.admission import admit_charge
from support.commands import command_in
from support.ledgers import start
from support.pages import ROOT, blocks_of
from support.refusals import coded

WORDS = {"what": "ranker", "why": "weekly training", "actor": "trainer"}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    opened = Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True)
    opened.create_population("people", 2.0, 1e-5, actor="officer")
    return opened


# spec/budgets.md 1.7: mu / sqrt(2 rho), and mu of (epsilon, 0).
@pytest.mark.parametrize(
    ("rho", "factor"),
    [(0.005, 1.3636), (0.02, 1.3641), (0.1, 1.3666), (0.5, 1.3799), (1, 1.3980), (2, 1.4394), (5, 1.5872)],
)
def test_zcdp_costs_what_the_specification_says(rho: float, factor: float) -> None:
    mu = Foreign(rho=rho).price("zero_out", 0.0).mu
    assert mu / math.sqrt(2 * rho) == pytest.approx(factor, abs=1.1e-4)


def test_a_small_rho_is_never_free() -> None:
    """Round-off priced 1e-20 at nothing, and 1e-12 at mu 3.3."""
    prices = [Foreign(rho=10.0**power).price("zero_out", 0.0).mu for power in (-300, -20, -17, -12, -9, -7, -5, -3)]
    assert prices == sorted(prices)
    # sqrt(pi / 2) sqrt(2 rho) is what no valid price is below (spec/budgets.md 1.7).
    assert all(mu > 1.2533 * math.sqrt(2e-7) for mu in prices)
    assert prices[0] == pytest.approx(1.3636 * math.sqrt(2e-7), rel=1e-3)
    assert Foreign(rho=0.0).price("zero_out", 0.0).mu == 0.0


@pytest.mark.parametrize(("epsilon", "mu"), [(1.0, 1.232035385), (0.5, 0.623892592), (0.1, 0.125309012)])
def test_pure_dp_costs_what_the_specification_says(epsilon: float, mu: float) -> None:
    assert Foreign(epsilon=epsilon).price("zero_out", 0.0).mu == pytest.approx(mu, abs=1e-9)
    assert Foreign(epsilon=epsilon, delta=1e-7).price("zero_out", 0.0).leak == 1e-7


@given(st.floats(1e-300, 1e-3))
def test_a_small_epsilon_costs_no_less_than_its_limit(epsilon: float) -> None:
    """exp(epsilon) rounds to 1 below 1e-16, which was charged nothing, and to too little far above it."""
    mu = Foreign(epsilon=epsilon).price("zero_out", 0.0).mu
    # -2 Phi^-1(1 / (1 + e^x)) = sqrt(pi / 2) x (1 - c x^2 ...), c below 0.05.
    limit = math.sqrt(math.pi / 2) * epsilon
    assert limit * (1 - epsilon * epsilon) <= mu <= limit + 2e-14


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("table", [{"mu": 0.1}, {"mu": 0.1, "trials": 3}, {"rho": 0.1}, {"epsilon": 0.1}], ids=str)
def test_a_loss_that_names_no_adjacency_is_charged_to_a_zero_out_population_alone(
    table: dict[str, Any], adjacency: Any, ledger: Ledger
) -> None:
    """mu of a trainer that adds or removes a user is half of what replacing one costs, and was taken at its word."""
    ledger.create_population("other", 4.0, 1e-5, leak=1e-6, adjacency=adjacency, actor="officer")
    before = ledger.head()
    with pytest.raises(BadInput, check=coded("not-given", "adjacency of the loss")):
        ledger.reserve_charge("other", "a", Foreign.of(table), **WORDS)
    with pytest.raises(BadInput, check=coded("not-given", "adjacency of the loss")):
        admit_charge("other", Foreign.of(table), ledger)
    assert ledger.head() == before
    named = ledger.reserve_charge("other", "a", Foreign.of({**table, "adjacency": adjacency}), **WORDS)
    ledger.create_population("plain", 4.0, 1e-5, leak=1e-6, actor="officer")
    assert ledger.reserve_charge("plain", "a", Foreign.of(table), **WORDS).price == named.price


def test_the_command_names_an_adjacency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fieldfare = command_in(tmp_path, monkeypatch)
    assert (
        fieldfare(
            *["population", "create", "p", "--epsilon", "4", "--delta", "1e-5", "--adjacency", "replace_one"]
        ).exit_code
        == 0
    )
    said = ["charge", "p", "--key", "k", "--mu", "0.1", "--what", "x", "--why", "y"]
    assert fieldfare(*said).exit_code == 2
    assert fieldfare(*said, "--adjacency", "zero_out").exit_code == 2
    assert fieldfare(*said, "--adjacency", "replace_one").exit_code == 0
    assert fieldfare("charge", "p", "--key", "k", "--action", "commit", "--adjacency", "replace_one").exit_code == 2
    assert fieldfare("charge", "p", "--key", "k", "--action", "commit").exit_code == 0


def test_sampling_is_amplified_under_add_remove_only() -> None:
    sampled = Foreign(rate=0.01, noise_multiplier=1.0, steps=1000)
    assert sampled.price("add_remove", 4e-6).mu == pytest.approx(0.46084, abs=1e-4)
    assert sampled.price("zero_out", 4e-6).mu_squared == pytest.approx(1000)
    assert sampled.price("replace_one", 4e-6).mu_squared == pytest.approx(4000)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"mu": -0.1},
        {"mu": math.inf},
        {"mu": math.nan},
        {"rho": -1.0},
        {"rho": 9.0},
        {"mu": 0.1, "rho": 0.1},
        {"epsilon": math.inf, "delta": 0.0},
        {"delta": 1e-5},
        {"epsilon": 1.0, "delta": 1.0},
        {"rate": 0.1, "steps": 10},
        {"rate": 1.5, "noise_multiplier": 1.0, "steps": 10},
        {"mu": True},
    ],
)
def test_an_impossible_loss_is_refused(table: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        Foreign.of(table)


def test_a_charge_is_everyones_and_counts_from_its_reservation_on(ledger: Ledger) -> None:
    before = ledger.population("people").remaining_mu
    made = ledger.reserve_charge("people", "a", Foreign(mu=0.3), **WORDS)
    assert (made.state, made.who, made.what, made.why) == ("reserved", "trainer", "ranker", "weekly training")
    view = ledger.population("people")
    assert (view.spent.mu_squared, view.committed.mu_squared) == (0.0, pytest.approx(0.09))
    assert view.remaining_mu == pytest.approx(math.sqrt(before**2 - 0.09))
    ledger.commit_charge("people", "a", actor="trainer")
    assert ledger.population("people").spent.mu_squared == pytest.approx(0.09)
    with pytest.raises(BudgetRefused):
        start(ledger, before * 0.9)
    ledger.reserve_charge("people", "b", Foreign(mu=0.2), **WORDS)
    ledger.release_charge("people", "b", actor="trainer")
    assert ledger.population("people").committed.mu_squared == pytest.approx(0.09)
    assert [charge.state for charge in ledger.charges("people")] == ["committed", "released"]
    assert verify(ledger).ok


def test_a_repeated_request_changes_nothing_and_another_loss_is_refused(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.reserve_charge("people", "a", Foreign(mu=0.3), **WORDS)
    rows = ledger.head().count
    with pytest.raises(BadInput, check=coded("differs", "charge")):
        ledger.reserve_charge("people", "a", Foreign(mu=0.2), **WORDS)
    for _ in range(2):
        ledger.commit_charge("people", "a", actor="trainer")
    with pytest.raises(BadInput, check=coded("not-now")):
        ledger.release_charge("people", "a", actor="trainer")
    with pytest.raises(BadInput, check=coded("not-found", "charge")):
        ledger.commit_charge("people", "b", actor="trainer")
    with pytest.raises(BadInput, check=coded("not-given", "why of charge 'c'")):
        ledger.reserve_charge("people", "c", Foreign(mu=0.2), what="x", why=" ", actor="trainer")
    with pytest.raises(BadInput, check=coded("not-now", "charge")):
        ledger.reserve_charge("people", "a", Foreign(mu=0.3), **WORDS)
    ledger.reserve_charge("people", "d", Foreign(mu=0.1), **WORDS)
    ledger.release_charge("people", "d", actor="trainer")
    with pytest.raises(BadInput, check=coded("not-now", "charge")):
        ledger.reserve_charge("people", "d", Foreign(mu=0.1), **WORDS)
    assert ledger.head().count == rows + 3


def test_a_key_of_another_trainer_or_training_pays_for_nothing(ledger: Ledger) -> None:
    """Two trainers that took the same key for the same loss shared one charge, and both trained."""
    ledger.reserve_charge("people", "a", Foreign(mu=0.3), **WORDS)
    rows = ledger.head().count
    for change, name in (
        ({"actor": "other"}, "'trainer'"),
        ({"what": "scorer"}, "'ranker'"),
        ({"why": "a test"}, "'weekly training'"),
    ):
        with pytest.raises(BadInput, check=coded("differs", name)):
            ledger.reserve_charge("people", "a", Foreign(mu=0.3), **{**WORDS, **change})
    assert ledger.head().count == rows


def test_a_trainer_closes_its_own_charges_only(ledger: Ledger) -> None:
    """Any trainer could release what another had reserved and was spending."""
    ledger.reserve_charge("people", "a", Foreign(mu=0.3), **WORDS)
    for close in (ledger.release_charge, ledger.commit_charge):
        with pytest.raises(BadInput, check=coded("not-allowed")):
            close("people", "a", actor="other")
    assert ledger.charge("people", "a").state == "reserved"
    assert ledger.release_charge("people", "a", actor="officer", anyones=True).state == "released"
    with pytest.raises(BadInput, check=coded("not-allowed", "to release charge 'a'")):
        ledger.release_charge("people", "a", actor="other")
    assert verify(ledger).ok


def test_a_delta_needs_a_population_with_a_leak(ledger: Ledger) -> None:
    with pytest.raises(BudgetRefused, check=coded("leak-spent", "a charge of mu")):
        ledger.reserve_charge("people", "a", Foreign(epsilon=0.1, delta=1e-7), **WORDS)
    ledger.create_population("wide", 2.0, 1e-5, leak=1e-6, actor="officer")
    assert ledger.reserve_charge("wide", "a", Foreign(epsilon=0.1, delta=1e-7), **WORDS).price.leak == 1e-7


def test_trainers_that_race_never_overspend(ledger: Ledger) -> None:
    admitted: list[str] = []

    def train(name: str) -> None:
        with Ledger.open(ledger.url) as opened:
            for number in range(4):
                try:
                    opened.reserve_charge("people", f"{name}-{number}", Foreign(mu=0.2), **WORDS)
                    admitted.append(name)
                except BudgetRefused:
                    return

    threads = [threading.Thread(target=train, args=(name,)) for name in ("one", "two", "three")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    view = ledger.population("people")
    assert len(admitted) == int(0.2515541 / 0.04)
    assert view.committed_epsilon <= 2.0
    assert verify(ledger).ok


def _reserve_and_die(url: str) -> None:
    with Ledger.open(url) as opened:
        opened.reserve_charge("people", "a", Foreign(mu=0.3), **WORDS)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_trainer_that_dies_before_it_commits_stays_charged(ledger: Ledger) -> None:
    child = multiprocessing.get_context("fork").Process(target=_reserve_and_die, args=(ledger.url,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert ledger.population("people").committed.mu_squared == pytest.approx(0.09)
    assert ledger.reserve_charge("people", "a", Foreign(mu=0.3), **WORDS).state == "reserved"
    assert verify(ledger).ok


def accountant(
    charger: object, epsilon: float | None, population: str = "flower", rounds: int | None = None
) -> LedgerAccountant:
    config = PrivacyConfig(
        1e-5, 100, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION, max_epsilon=epsilon
    )
    return LedgerAccountant(charger, population, "training", config=config, adjacency="zero_out", rounds=rounds)


def test_flowers_training_is_charged_and_stopped_by_the_ledger(ledger: Ledger) -> None:
    """z = 3 at epsilon 5: 11 rounds (spec/door.md section 5), whichever limit stops it."""
    event = GaussianPrivacyEvent(noise_multiplier=3.0, sample_size=10, population_size=100)
    for number, (epsilon, budget) in enumerate(((5.0, 50.0), (50.0, 5.0))):
        name = f"flower-{number}"
        ledger.create_population(name, budget, 1e-5, actor="officer")
        of = accountant(ledger, epsilon, name)
        while not of.would_exceed(event):
            assert not of.would_exceed(event)  # asking twice reserves once
            of.compose(event)
        assert of.num_releases == 11
        assert of.get_epsilon(1e-5) == pytest.approx(4.9184066, abs=1e-6)
        assert of.get_privacy_spent().num_releases == 11
        assert ledger.population(name).committed.mu_squared == pytest.approx(11 / 9)
        again = accountant(ledger, epsilon, name)
        again.load_state_dict(of.state_dict())
        assert again.would_exceed(event)


def test_the_page_shows_nothing_of_clients_that_is_not_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower averages metrics without noise, tells no accountant, and FedAvg's default evaluates at every client."""
    monkeypatch.chdir(tmp_path)
    (block,) = (each for each in blocks_of(ROOT / "docs/charges.md") if "LedgerAccountant" in each.text)
    (tmp_path / "page.py").write_text(block.text)
    names, grid = runpy.run_path(str(tmp_path / "page.py")), ff.LocalGrid(ClientApp(), 20)
    with names["ledger"]:
        assert list(names["strategy"].configure_evaluate(1, ArrayRecord(), ConfigRecord(), grid)) == []


def test_a_training_that_is_started_again_pays_again(ledger: Ledger) -> None:
    """Under the same name, from its beginning or from its state: what it releases again is charged again."""
    event = GaussianPrivacyEvent(noise_multiplier=3.0, sample_size=10, population_size=100)
    ledger.create_population("flower", 50.0, 1e-5, actor="officer")
    first = accountant(ledger, 10.0)
    first.compose(event, 2)
    state = first.state_dict()
    first.compose(event)
    anew, restored = accountant(ledger, 10.0), accountant(ledger, 10.0)
    restored.load_state_dict(state)
    for each in (anew, restored):
        assert not each.would_exceed(event)
        each.compose(event)
    assert ledger.population("flower").spent.mu_squared == pytest.approx(5 / 9)


def test_a_training_that_forks_pays_in_each_process(ledger: Ledger) -> None:
    """One charge, for all rounds, paid for the rounds of every process that went on with them, and of every copy."""
    event = GaussianPrivacyEvent(noise_multiplier=3.0, sample_size=10, population_size=100)
    ledger.create_population("flower", 50.0, 1e-5, actor="officer")
    first = accountant(ledger, 50.0, rounds=4)
    assert not first.would_exceed(event)
    first.compose(event)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=first.compose, args=(event, 3)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    first.compose(event, 3)
    assert ledger.population("flower").spent.mu_squared == pytest.approx(3 * 4 / 9)
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="another"):
            copied(first)


def test_two_threads_of_one_training_pay_twice() -> None:
    """Both committed the one charge of the next release."""

    class Charger:
        committed: ClassVar[list[str]] = []

        def reserve_charge(self, *charge: object, **words: str) -> None:
            time.sleep(0.05)

        def commit_charge(self, population: str, key: str, *, actor: str) -> None:
            self.committed.append(key)

    of = accountant(Charger(), 50.0)
    threads = [threading.Thread(target=of.compose, args=(GaussianPrivacyEvent(3.0, 10, 100),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(Charger.committed)) == len(Charger.committed) == of.num_releases == 2


def test_an_accountant_that_could_not_stop_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BadInput, check=coded("not-given", "max_epsilon")):
        accountant(ledger, None)
    config = PrivacyConfig(
        1e-5, 9, NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT, max_epsilon=1.0
    )
    with pytest.raises(BadInput, check=coded("differs", "neighboring_relation")):
        LedgerAccountant(ledger, "people", "t", config=config, adjacency="zero_out")


def test_a_sample_of_a_fixed_size_is_charged_to_no_budget_that_hides_who_is_there(ledger: Ledger) -> None:
    """Flower puts another user in a missing one's place: mu is 2 / sigma then, and it was charged as 1 / sigma."""
    ledger.create_population("flower", 50.0, 1e-5, adjacency="add_remove", actor="officer")
    config = PrivacyConfig(
        1e-5, 100, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION, max_epsilon=9.0
    )
    with pytest.raises(BadInput, check=coded("unsupported", "zero_out")):
        LedgerAccountant(ledger, "flower", "training", config=config, adjacency="add_remove")


@st.composite
def trainings(draw: st.DrawFn) -> dict[str, Any]:
    relation, sampling, adjacency = draw(
        st.sampled_from(
            [
                (NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION, "zero_out"),
                (NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON, "zero_out"),
                (NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON, "add_remove"),
                (NeighboringRelation.REPLACE_ONE, SamplingMethod.WITHOUT_REPLACEMENT, "replace_one"),
            ]
        )
    )
    return {
        "config": PrivacyConfig(1e-5, 100, relation, sampling, max_epsilon=1e4),
        "adjacency": adjacency,
        "rounds": draw(st.one_of(st.none(), st.integers(1, 5))),
        "event": GaussianPrivacyEvent(draw(st.floats(2.0, 8.0)), 10, 100),
        "counts": draw(st.lists(st.integers(1, 2), min_size=1, max_size=4)),
        "asks": draw(st.lists(st.booleans(), min_size=4, max_size=4)),
        "stops": draw(st.integers(1, 4)),
    }


@settings(max_examples=40, deadline=None)
@given(training=trainings())
def test_an_accountant_pays_for_every_release_and_trains_to_its_end(training: dict[str, Any]) -> None:
    """With every option, asked or not, several at a time, and started again from its state after some composes."""
    event, rounds, adjacency = training["event"], training["rounds"], training["adjacency"]
    with tempfile.TemporaryDirectory() as folder, Ledger.open(f"sqlite:///{folder}/l.sqlite3", create=True) as ledger:
        ledger.create_population("flower", 1e6, 1e-5, adjacency=adjacency, actor="officer")
        words = {"config": training["config"], "adjacency": adjacency, "rounds": rounds}
        of = LedgerAccountant(ledger, "flower", "training", **words)
        trained, anew = 0, 1
        for step, (count, asks) in enumerate(zip(training["counts"], training["asks"], strict=False)):
            if step == training["stops"]:
                state, of = of.state_dict(), LedgerAccountant(ledger, "flower", "training", **words)
                of.load_state_dict(state)
                anew = 2
            if rounds is not None and trained + count > rounds:
                assert of.would_exceed(event, count=count)
                with pytest.raises(BudgetRefused):
                    of.compose(event, count)
                continue
            if asks:
                assert not of.would_exceed(event, count=count)
                assert not of.would_exceed(event, count=count)
            of.compose(event, count)
            trained += count
            factor = 2.0 if adjacency == "replace_one" else 1.0
            spent = ledger.population("flower").spent
            if training["config"].sampling_method is not SamplingMethod.POISSON or adjacency != "add_remove":
                single = (factor / event.noise_multiplier) ** 2
                assert spent.mu_squared >= trained * single * (1 - 1e-12)
                assert spent.mu_squared <= (anew * rounds if rounds else trained) * single * (1 + 1e-9)
            if rounds is not None and trained < rounds:
                other = GaussianPrivacyEvent(event.noise_multiplier / 2, 10, 100)
                with pytest.raises(BadInput, check=coded("differs", "release")):
                    of.compose(other)
        assert of.num_releases == trained
        assert verify(ledger).ok
        assert ledger.population("flower").committed_epsilon >= ledger.population("flower").spent_epsilon * (1 - 1e-9)


def test_going_back_to_an_earlier_state_pays_again(ledger: Ledger) -> None:
    """One object that trains, goes back, and trains again: eight releases of one charge for four were made."""
    ledger.create_population("flower", 50.0, 1e-5, adjacency="add_remove", actor="officer")
    config = PrivacyConfig(1e-5, 100, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON, max_epsilon=100.0)
    of = LedgerAccountant(ledger, "flower", "training", config=config, adjacency="add_remove", rounds=4)
    event, start, spent = GaussianPrivacyEvent(3.0, 10, 100), of.state_dict(), []
    for _ in range(3):
        for _ in range(4):
            of.compose(event)
        spent.append(ledger.population("flower").spent.mu_squared)
        of.load_state_dict(start)
    assert spent == pytest.approx([spent[0], 2 * spent[0], 3 * spent[0]], rel=0.05)
    assert spent[0] < spent[1] < spent[2]


TRAINER = """
import sys
from flwr.serverapp import (
    GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, SamplingMethod
)
from fieldfare_server.accountant import LedgerAccountant
from fieldfare_server.ledger import Ledger
url, released, rounds = sys.argv[1], open(sys.argv[2], "a"), int(sys.argv[3])
config = PrivacyConfig(1e-5, 100, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION,
    max_epsilon=1e3)
with Ledger.open(url) as ledger:
    of = LedgerAccountant(ledger, "flower", "t", config=config, adjacency="zero_out", rounds=rounds or None)
    event = GaussianPrivacyEvent(4.0, 10, 100)
    for _ in range(rounds or 3):
        if of.would_exceed(event):
            break
        of.compose(event)
        print("released", file=released, flush=True)
"""
POINTS = ("ledger.transaction.begun", "ledger.transaction.worked", "ledger.transaction.committed")


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [0, 4])
@pytest.mark.parametrize("point", POINTS)
def test_trainers_that_die_at_any_write_never_release_what_is_not_charged(
    ledger: Ledger, point: str, rounds: int, tmp_path: Path
) -> None:
    """Two processes at a time, one killed at its n-th write (reserve or commit), n from 1 on, and started again."""
    ledger.create_population("flower", 1e6, 1e-5, actor="officer")
    url, out = ledger.url, tmp_path / "released"
    command = [sys.executable, "-c", TRAINER, url, str(out), str(rounds)]
    for nth in (1, 2, 3):
        dying = subprocess.Popen(command, env={**os.environ, "FIELDFARE_FAULT": f"{point}:kill:{nth}"})
        living = subprocess.Popen(command)
        assert living.wait(120) == 0
        assert dying.wait(120) == -9
        released = len(out.read_text().splitlines())
        population = ledger.population("flower")
        assert population.committed.mu_squared >= released / 16 * (1 - 1e-12)
        assert population.spent.mu_squared <= population.committed.mu_squared
    assert verify(ledger).ok
