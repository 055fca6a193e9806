"""What the ledger keeps of single users: pledged, charged, settled, replayed, and refused."""

from __future__ import annotations

import hashlib
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, text

from fieldfare.accounting import gaussian_epsilon, gaussian_mu
from fieldfare.accounting.filter import reserve
from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.individual import UNIT, Demand, units_up
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare_server.evidence.verify import Verifier, verify
from fieldfare_server.ledger import Ledger, Outcome, RunHandle
from fieldfare_server.ledger.history import history
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql import odometer_tables, rows
from fieldfare_server.ledger.sql.journal import read_head
from fieldfare_server.ledger.sql.memory import Account, Memory
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.admission import admit, count
from support.ledgers import demand, digest, gaussian, proven, start
from support.refusals import coded

DELTA = 1e-5
TENTH = int(units_up(np.array([0.09]))[0])
"""What one run of mu .3 costs."""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True)


def people(ledger: Ledger, epsilon: float, users: int = 0) -> None:
    ledger.create_population("people", epsilon, DELTA, actor="officer")
    if users:
        with start(ledger, 0.01, demand=demand(2)) as run:
            run.register_users(np.arange(users, dtype=np.uint64))
            run.finish("stopped")


def one_round(mu: float = 0.3, cohort: int = 10) -> dict[str, Any]:
    units = int(units_up(np.array([mu * mu]))[0])
    return {"rounds": 1, "mu": mu, "demand": Demand(units, (units,), 1, cohort, 1)}


def spend(run: RunHandle, users: list[int], units: int, mu: float = 0.3) -> None:
    charges = np.full(len(users), units, dtype=np.int64)
    run.commit_round(
        run.open_round(users), Outcome(users, gaussian(mu), charges=charges), digest(f"{run.id} {run.next_round}")
    )


def test_ten_runs_on_ten_disjoint_tenths_cost_1_13_and_not_4_12(ledger: Ledger) -> None:
    """The budget holds one run of mu .3. Ten fit, each on its own tenth of the users, and the eleventh does not."""
    people(ledger, gaussian_epsilon(0.3, DELTA) * (1 + 1e-9), users=100)
    for tenth in range(10):
        run = start(ledger, **one_round())
        left = run.allowance(np.arange(100))
        able = np.arange(100) if left is None else np.flatnonzero(left >= TENTH)
        assert able.tolist() == list(range(10 * tenth, 100))
        spend(run, able[:10].tolist(), TENTH)
        run.finish("done")
        view = ledger.population("people")
        assert view.spent_epsilon == pytest.approx(1.13177489664, rel=1e-8)
        assert not view.overdrawn
    assert gaussian_epsilon(math.sqrt(10 * 0.09), DELTA) == pytest.approx(4.11863534404)
    with pytest.raises(BudgetRefused, check=coded("users-spent", "a run of", "100")):
        start(ledger, **one_round())
    assert ledger.population("people").remaining_epsilon < 1e-4
    assert verify(ledger).ok


def test_a_worst_case_run_pays_for_the_user_who_has_least_left(ledger: Ledger) -> None:
    people(ledger, gaussian_epsilon(0.4, DELTA), users=20)
    run = start(ledger, **one_round())
    spend(run, list(range(10)), TENTH)
    run.finish("done")
    with pytest.raises(BudgetRefused):
        start(ledger, 0.3)  # .09 + .09 > .16 of users 0 to 9
    plain = start(ledger, 0.2)
    view = ledger.population("people")
    assert view.committed.mu_squared == pytest.approx(0.13)
    # The others have .16 - .04 left: one more run of mu .3 fits, for those alone.
    single = start(ledger, **one_round())
    left = single.allowance(np.arange(20))
    assert left is not None
    assert (left >= TENTH).tolist() == [False] * 10 + [True] * 10
    plain.finish("stopped")
    single.finish("stopped")
    assert verify(ledger).ok


def test_a_pledge_keeps_another_run_from_making_a_run_short(ledger: Ledger) -> None:
    people(ledger, gaussian_epsilon(0.4, DELTA), users=20)
    first = start(ledger, **one_round())
    with pytest.raises(BudgetRefused, check=coded("users-spent", "a run of", "20")):
        start(ledger, **one_round())
    second = start(ledger, **one_round(0.2))
    spend(second, list(range(20)), int(units_up(np.array([0.04]))[0]), 0.2)
    spend(first, list(range(20)), TENTH)
    first.finish("done")
    second.finish("done")
    assert ledger.population("people").spent.mu_squared == pytest.approx(0.13)
    assert verify(ledger).ok


def test_what_a_run_did_not_take_is_free_again_and_what_it_took_is_not(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    people(ledger, gaussian_epsilon(0.3, DELTA) * (1 + 1e-9), users=20)
    run = start(ledger, **one_round())
    void = run.open_round([0, 1])
    run.void_round(void, "too few")
    run.finish("stopped")
    run = start(ledger, **one_round())
    assert run.allowance(np.arange(20)) is None  # every user is pledged in full
    with monkeypatch.context() as patched:
        patched.setattr(run, "_caps", None)  # a round asks for all users there are: none is looked at
        assert run.pledged(np.arange(20)) is None
    spend(run, [0], TENTH)
    run.finish("stopped")
    run = start(ledger, **one_round())
    left = run.allowance(np.array([0, 1]))
    assert left is not None
    assert left.tolist()[1] == TENTH
    assert left.tolist()[0] < TENTH


def test_a_user_is_never_charged_more_than_is_left(ledger: Ledger) -> None:
    people(ledger, 1.0, users=4)
    run = start(ledger, demand=demand(1000))
    spend(run, [0, 1], 600)
    with pytest.raises(BudgetRefused, check=coded("users-spent", "round")):
        spend(run, [1, 2], 600)
    opened = run.open_round_pending()
    assert opened is not None
    for charges, code in ((None, "differs"), (np.array([1]), "differs"), (np.array([-1, 1]), "out-of-range")):
        with pytest.raises(BadInput, check=coded(code, "charges of round")):
            run.commit_round(opened, Outcome([1, 2], gaussian(0.3), charges=charges), digest("x"))
    plain = start(ledger, 0.1)
    with pytest.raises(BadInput, check=coded("differs", "the charges of round")):
        plain.commit_round(plain.open_round([0]), Outcome([0], gaussian(0.1), charges=np.array([1])), digest("y"))


def test_a_refusal_names_the_run_that_would_be_admitted(ledger: Ledger) -> None:
    people(ledger, gaussian_epsilon(0.4, DELTA), users=10)
    run = start(ledger, **one_round(0.3, cohort=4))
    spend(run, [0, 1, 2, 3], TENTH)
    run.finish("done")
    # Four users have .07 left and six .16: six can pay for a run of mu .35, and ten for one of mu .264.
    position, _ = ledger.position("people")

    def ask(mu: float, cohort: int) -> None:
        admit(position, gaussian(mu), reserve(gaussian(mu)), one_round(mu, cohort=cohort)["demand"])

    with pytest.raises(BudgetRefused) as refused:
        ask(0.35, 7)
    (named,) = re.findall(r"a run of epsilon ([\d.]+)", refused.value.nearest)
    assert float(named) == pytest.approx(gaussian_epsilon(math.sqrt(0.07), DELTA), rel=2e-3)
    fits = one_round(gaussian_mu(float(named), DELTA), cohort=7)
    ask(fits["mu"], 7)
    ask(0.35, 6)
    start(ledger, **fits)
    with pytest.raises(BudgetRefused, check=coded("users-spent", "a run of", "10")):
        start(ledger, **one_round(0.3, cohort=7))


def test_a_run_is_pledged_no_more_than_each_user_has_left(ledger: Ledger) -> None:
    people(ledger, gaussian_epsilon(0.4, DELTA), users=2)
    first = start(ledger, 0.3, demand=demand(TENTH))
    spend(first, [0], TENTH)
    first.finish("done")
    # User 0 has .16 - .09 left, less than all that the second run can cost one user.
    second = start(ledger, 0.3, demand=demand(TENTH, rounds=1))
    left = second.allowance(np.arange(2))
    assert left is not None
    assert TENTH // 2 < int(left[0]) < TENTH == int(left[1])
    opened = second.open_round([0, 1])
    with pytest.raises(BudgetRefused, check=coded("users-spent", "round")):
        second.commit_round(opened, Outcome([0, 1], gaussian(0.3), charges=np.full(2, TENTH)), digest("x"))


def test_a_resumed_run_knows_what_its_users_have_left(ledger: Ledger) -> None:
    people(ledger, 1.0, users=4)
    run = start(ledger, demand=demand(1000), key_commitment=digest("key"))
    spend(run, [3, 1], 400)
    run.hand_back()
    again = ledger.resume_run(run.id, key_commitment=digest("key"), holder="test")
    with pytest.raises(BudgetRefused):
        spend(again, [0, 1, 2, 3], 601)
    opened = again.open_round_pending()
    assert opened is not None
    again.void_round(opened, "x")
    spend(again, [0, 1, 2, 3], 600)
    again.finish("done")
    with ledger.read() as connection:
        row = rows.population_row(connection, "people")
        assert odometer_tables.settled(connection, row.id, 4).tolist() == [600, 1000, 600, 1000]
    assert verify(ledger).ok


def test_newcomers_join_the_runs_under_way_in_the_order_of_their_starts(ledger: Ledger) -> None:
    people(ledger, 1.0)
    terms = budget.Terms(1.0, DELTA, ledger.population("people").leak)
    limit = odometers.limit_units(terms)
    first = start(ledger, demand=demand(limit - 5))
    with pytest.raises(BudgetRefused):
        start(ledger, 0.05, demand=demand(10))
    second = start(ledger, 0.05, demand=demand(5))
    first.register_users(np.arange(3, dtype=np.uint64))
    second.register_users(np.arange(5, dtype=np.uint64))
    assert first.allowance(np.arange(3)) is None
    assert second.allowance(np.arange(5)) is None
    assert ledger.population("people").exhausted == 5
    with pytest.raises(BudgetRefused):
        start(ledger, 1e-3)
    assert verify(ledger).ok


def test_without_odometers_a_run_is_charged_to_all_alike(ledger: Ledger) -> None:
    ledger.create_population("people", 2.0, DELTA, adjacency="add_remove", simulated=True, actor="officer")
    run = start(ledger, 0.1, plan_json='{"privacy": {"adjacency": "add_remove"}}', demand=demand(1000))
    assert ledger.run(run.id).accounting == "worst-case"
    view = ledger.population("people")
    assert (view.accounting, view.left, view.exhausted) == ("worst-case", None, None)


def test_the_limit_is_the_largest_that_the_epsilon_allows() -> None:
    for epsilon in (0.1, 1.0, 8.0, 100.0):
        terms = budget.Terms(epsilon, DELTA, 0.0)
        limit = odometers.limit_units(terms)
        assert gaussian_epsilon(math.sqrt(limit * UNIT), DELTA) <= epsilon
        assert limit * UNIT == pytest.approx(gaussian_mu(epsilon, DELTA) ** 2, rel=1e-11)


def test_the_histogram_counts_users_by_tenths() -> None:
    room = np.array([0, 1, 10, 11, 55, 100, 100])
    assert odometers.histogram(room, 100) == (3, 1, 0, 0, 0, 1, 0, 0, 0, 2)
    assert odometers.histogram(np.array([], dtype=np.int64), 100) == (0,) * 10
    assert sum(odometers.histogram(np.array([2**61, 0]), 2**61)) == 2


def test_feasibility_counts_participations_and_users_at_once() -> None:
    two = Demand(most=30, costs=(10, 30), rounds=4, cohort=2, separation=2)
    assert count(np.array([30, 30, 30, 30]), two).fits
    assert not count(np.array([30, 30, 30, 29]), two).fits  # seven participations, eight are needed
    assert not count(np.array([30, 30, 30]), two).fits
    assert count(np.array([30, 30, 30]), replaced(two, newcomers=1), newcomer_room=30).fits
    assert not count(np.array([30, 30, 30]), replaced(two, newcomers=1), newcomer_room=9).fits


def edit_behind_the_guards(connection: Connection, statement: str) -> None:
    """What a person can do who owns the database: take the triggers away, edit, and put them back."""
    guards = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")).all()
    for name, _ in guards:
        connection.execute(text(f"DROP TRIGGER {name}"))
    connection.execute(text(statement))
    for _, sql in guards:
        connection.execute(text(sql))


def replaced(of: Demand, **changes: int) -> Demand:
    return Demand(**{**of.__dict__, **changes})


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("UPDATE odometers SET spent = (SELECT caps FROM pledges LIMIT 1)", "odometers"),
        ("DELETE FROM odometers", "odometers"),
        ("UPDATE pledges SET caps = (SELECT spent FROM odometers LIMIT 1)", "pledges"),
        ("UPDATE participations SET charges = NULL", "participations"),
        ("UPDATE runs SET accounting = 'worst-case'", "runs"),
        ("UPDATE runs SET most = most + 1", "runs"),
        ("UPDATE populations SET accounting = 'worst-case'", "populations"),
    ],
)
def test_verify_names_what_was_changed(ledger: Ledger, statement: str, table: str) -> None:
    people(ledger, 1.0, users=4)
    run = start(ledger, demand=demand(1000))
    spend(run, [0, 1], 400)
    run.finish("done")
    start(ledger, demand=demand(500))
    assert verify(ledger).ok
    with ledger.database.engine.connect() as connection:
        edit_behind_the_guards(connection, statement)
        fault = Verifier("edited").report(connection).fault
    assert fault is not None
    assert fault.table == table


def test_the_watch_reads_what_the_tables_say(ledger: Ledger) -> None:
    people(ledger, 2.0, users=30)
    memory, generator = Memory(), np.random.default_rng(3)
    runs: list[RunHandle] = []
    for step in range(25):
        if len(runs) < 2:
            runs.append(start(ledger, 0.1, rounds=20, demand=demand(10_000, rounds=20)))
        run = runs[int(generator.integers(len(runs)))]
        if generator.random() < 0.2 or run.next_round == 20:
            run.finish("stopped")
            runs.remove(run)
        else:
            spend(run, generator.choice(30, 4, replace=False).tolist(), int(generator.integers(1, 400)), 0.1)
        with ledger.read() as connection:
            row = rows.population_row(connection, "people")
            taken = memory.ask(connection, row, read_head(connection), Account.taken)
            right = odometer_tables.standing(connection, row)
            seen = memory.odometers.standing(connection, row, taken.individual, taken.history)
        assert (right.spent == seen.spent).all(), step
        assert (right.held == seen.held).all()
        assert (right.settled == seen.settled).all()


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_an_expired_reservation_returns_its_pledges(tmp_path: Path) -> None:
    clock = Clock()
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True, clock=clock) as ledger:
        budget_ = gaussian_epsilon(0.3, DELTA) * (1 + 1e-9)
        rules = Rules(reservation_seconds=3600.0)
        ledger.create_population("people", budget_, DELTA, rules=rules, actor="officer")
        run = start(ledger, 0.3, demand=demand(TENTH))
        run.register_users(np.arange(4, dtype=np.uint64))
        spend(run, [0], TENTH // 2)
        with pytest.raises(BudgetRefused):
            start(ledger, 0.3, demand=demand(TENTH))
        clock.now += 3601
        assert ledger.expire_reservations() == (run.id,)
        after = start(ledger, 0.3, demand=demand(TENTH))
        left = after.allowance(np.arange(4))
        # User 0 keeps paying for its round; the others have all of it again.
        assert left is not None
        assert left.tolist() == pytest.approx([TENTH - TENTH // 2, TENTH, TENTH, TENTH], abs=1e6)
        assert left[0] <= odometers.limit_units(budget.Terms(budget_, DELTA, 0.0)) - TENTH // 2
        assert verify(ledger).ok


def test_tightening_stops_at_the_user_who_has_least_left(ledger: Ledger) -> None:
    people(ledger, 4.0, users=3)
    run = start(ledger, 0.3, demand=demand(TENTH))
    spend(run, [1], TENTH // 2)
    run.finish("stopped")
    start(ledger, 0.3, demand=demand(TENTH))
    ledger.reserve_charge("people", "k", Foreign(mu=0.2), what="x", why="y", actor="z")
    # User 1 has spent half, holds all of the second run, and every user pays for the other trainer.
    mu_squared = 1.5 * 0.09 + 0.04
    least = gaussian_epsilon(math.sqrt(mu_squared), DELTA)
    assert ledger.population("people").committed_epsilon == pytest.approx(least, rel=1e-9)
    with pytest.raises(BudgetRefused, check=coded("budget-refused")):
        ledger.tighten_population("people", epsilon=least * (1 - 1e-6), reason="less", actor="officer")
    ledger.tighten_population("people", epsilon=least * (1 + 1e-6), reason="less", actor="officer")
    assert verify(ledger).ok
    assert ledger.proof.advance().ok


def test_the_history_never_shows_less_than_was_spent(ledger: Ledger) -> None:
    people(ledger, 4.0, users=4)
    seen = []
    for users in ([0, 1], [1, 2], [1]):
        run = start(ledger, 0.3, demand=demand(TENTH))
        for _ in range(2):
            spend(run, users, TENTH // 2)
            seen.append(ledger.population("people"))
            moments = history(ledger, "people").moments
            assert moments[-1].spent_epsilon == pytest.approx(seen[-1].spent_epsilon, rel=1e-12)
            assert moments[-1].committed_epsilon == pytest.approx(seen[-1].committed_epsilon, rel=1e-9)
        run.finish("done")
    ledger.reserve_charge("people", "k", Foreign(mu=0.2), what="x", why="y", actor="z")
    ledger.commit_charge("people", "k", actor="z")
    start(ledger, 0.1)
    moments = history(ledger, "people").moments
    spent = sorted({round(moment.spent_epsilon, 9) for moment in moments})
    now = ledger.population("people")
    right = sorted({0.0, *(round(view.spent_epsilon, 9) for view in seen), round(now.spent_epsilon, 9)})
    assert spent == right
    assert moments[-1].spent_epsilon == pytest.approx(now.spent_epsilon, rel=1e-12)
    assert moments[-1].committed_epsilon == pytest.approx(now.committed_epsilon, rel=1e-9)
    assert all(moment.committed_epsilon >= moment.spent_epsilon * (1 - 1e-12) for moment in moments)


def test_odometers_that_no_run_uses_take_no_memory(tmp_path: Path) -> None:
    """8 bytes, and not 16 a user, in every process that admits runs; a digest says the same of them."""
    with Ledger.open(str(tmp_path / "ledger.sqlite3"), create=True) as ledger:
        ledger.create_population("people", 8.0, 1e-6, actor="officer")
        start(ledger, 0.1).register_users(np.arange(5, dtype=np.uint64))
        standing = proven(ledger).populations["people"].standing
    assert standing is not None
    for zeros in (standing.settled, standing.held):
        assert (zeros.shape, zeros.base.nbytes) == ((5,), 8)
        assert odometers.digest(zeros) == odometers.digest(np.zeros(0, dtype=np.int64))
        assert not zeros.flags.writeable
    for values in ([0, 4, 0, 5, 0, 0], [7], [0, 0, 0, 2**62]):
        paid = np.array(values, dtype="<i8")
        assert odometers.digest(paid) == hashlib.sha256(np.trim_zeros(paid, "b").tobytes()).hexdigest()
