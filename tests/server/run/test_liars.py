"""One node of three lies, in each of the ways of `support.liars`: the run reaches its end, and its ledger is whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Error, Message

from fieldfare.participation import MinSeparation
from fieldfare_flower.messages import TRAIN
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence.standing import QUARANTINE_ATTEMPTS, QUARANTINED, Standing
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.clock import FakeClock
from support.federation import LyingGrid, home, plan
from support.liars import LIARS, Liar, federation

ROUNDS = 6
SCHEME = MinSeparation(2, 3)
PLAN: dict[str, Any] = {
    "run__rounds": ROUNDS,
    "run__cohort": 8,
    "run__min_reports": 6,
    "run__round_timeout": 30.0,
    "participation": {"scheme": "min-separation", "separation": 2, "max_participations": 3},
}
LIAR, HONEST = 2, (3, 4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock(1.7e9)
    clock.install(monkeypatch)
    return clock


@pytest.mark.parametrize(
    # A third of them in `make test-all`, all in `make test-long`.
    "liar",
    [pytest.param(liar, id=liar.name, marks=[pytest.mark.slow] if n % 3 else []) for n, liar in enumerate(LIARS)],
)
def test_one_lying_node_of_three_stops_no_run(liar: Liar, tmp_path: Path, clock: FakeClock) -> None:
    """R11: 20 void rounds in a row, and the run was over."""
    state_dir, grid = home(tmp_path), federation(clock, 3, {LIAR: liar})
    with Session.begin(state_dir, plan(**PLAN), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
    with Ledger.open(state_dir.ledger) as ledger:
        run = ledger.run(session.account.id)
        states = Counter(row.state for row in ledger.rounds(run.id).items)
        report = verify(ledger, state_dir.root, recompute=recharge, held=[ledger.head()])
    assert (run.state, states["committed"]) == ("done", ROUNDS)
    assert states["void"] <= 5, "five failures in a row are a quarantine"
    assert report.ok, str(report.fault)
    assert bool(torch.isfinite(session.params).all())
    # Whoever was asked instead: nobody takes part more often, or sooner again, than was promised and charged.
    patterns = session.account.patterns(np.arange(session.account.users))
    assert all(SCHEME.allows(pattern, ROUNDS) for pattern in patterns)


def test_a_lying_node_that_comes_before_all_others_ends_no_run(tmp_path: Path, clock: FakeClock) -> None:
    """Alone it is more than half of the nodes that are online, and nothing is committed yet."""
    (liar,) = (liar for liar in LIARS if liar.name == "an error for an answer")
    grid = federation(clock, 3, {LIAR: liar})
    grid._away = lambda node, at: node != LIAR and at < 8.0
    changed = {"run__round_timeout": 30.0, "run__cohort": 4, "run__min_reports": 3}
    with Session.begin(home(tmp_path), plan(**{**PLAN, **changed}), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
    assert session.next_round == ROUNDS


def test_there_are_thirty_behaviours_and_more() -> None:
    assert len({liar.name for liar in LIARS}) == len(LIARS) >= 30


def test_a_node_that_fails_is_asked_less_and_less_then_not_at_all_and_the_ledger_counts_it(
    tmp_path: Path, clock: FakeClock
) -> None:
    changes = {**PLAN, "run__rounds": 60, "participation": {"scheme": "min-separation", "separation": 1}}
    state_dir, grid = home(tmp_path, epsilon=500.0), federation(clock, 3, {LIAR: LIARS[0]})
    with Session.begin(state_dir, plan(**changes), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
    asked = [node for _, node, kind in grid.asked if kind == TRAIN]
    assert asked.count(LIAR) == 5
    with Ledger.open(state_dir.ledger) as ledger:
        rows = ledger.rounds(session.account.id, limit=200).items
    assert sum((Counter(row.rejects) for row in rows), Counter()) == {"error 2": 5, QUARANTINED: 1}
    assert len([row for row in rows if row.state == "void"]) <= 5


def test_thirty_liars_of_a_hundred_stop_no_run(clock: FakeClock) -> None:
    """Two users a node, each liar with another lie."""
    liars = {node + 2: LIARS[node % len(LIARS)] for node in range(30)}
    grid = federation(clock, 100, liars, "support.liars:ManyUsers")
    changes = {**PLAN, "run__task": "support.liars:ManyUsers", "run__cohort": 40, "run__min_reports": 30}
    session = Session.rehearse(plan(**changes), noise=False)
    FieldfareStrategy(session).take_to_end(grid)
    assert session.next_round == ROUNDS


def test_ten_nodes_that_invent_the_same_thousand_users_stop_no_run(clock: FakeClock) -> None:
    """The users went from one liar to the next, and filled twenty cohorts."""
    (liar,) = (liar for liar in LIARS if liar.name == "invents a thousand users, then errs")
    grid = federation(clock, 40, dict.fromkeys(range(2, 12), liar), "support.liars:ManyUsers")
    changes = {**PLAN, "run__task": "support.liars:ManyUsers", "run__cohort": 40, "run__min_reports": 30}
    session = Session.rehearse(plan(**changes), noise=False)
    FieldfareStrategy(session).take_to_end(grid)
    assert session.next_round == ROUNDS


# -- standing ----------------------------------------------------------------------------------------------------------


def attempts(standing: Standing, node: int, fails: Any, count: int) -> list[int]:
    """The attempts of `count` in which `node` is asked, where `fails(n)` says whether its n-th answer fails."""
    asked: list[int] = []
    for attempt in range(count):
        good, failed = [1], []
        if node not in standing.resting():
            (failed if fails(len(asked)) else good).append(node)
            asked.append(attempt)
        standing.note_attempt(good, failed)
    return asked


def test_rests_double_until_the_quarantine_and_one_failure_after_it_begins_the_next() -> None:
    standing = Standing(counts=True)
    asked = attempts(standing, 7, lambda n: True, 500)
    assert np.diff(asked).tolist() == [2, 4, 8, 16, *[QUARANTINE_ATTEMPTS + 1] * 3]
    assert standing.quarantined() == {7}


def test_who_fails_in_one_of_four_is_never_quarantined_and_who_fails_in_half_is() -> None:
    seldom, often = Standing(counts=True), Standing(counts=True)
    attempts(seldom, 7, lambda n: n % 4 == 0, 1000)
    assert not seldom.quarantined()
    assert max(np.diff(attempts(seldom, 7, lambda n: n % 4 == 0, 1000))) <= 4
    attempts(often, 7, lambda n: n % 2 == 0, 150)
    assert often.quarantined() == {7}


def test_a_good_answer_ends_a_rest() -> None:
    standing = Standing(counts=True)
    assert [standing.note_attempt([], [7]) for _ in range(5)] == [0, 0, 0, 0, 1]
    assert standing.quarantined() == standing.resting() == {7}
    standing.note_attempt([7], [])
    assert not standing.resting()
    assert not standing.quarantined()


# -- under add_remove, and for sampled users ---------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_where_users_are_sampled_no_answer_to_training_decides_whom_later_rounds_ask(
    adjacency: str, tmp_path: Path
) -> None:
    """A node may fail because of one user's data. If it then rested, its other users would be missing as well."""

    def fail(message: Message, reply: Message) -> Message:
        return Message(Error(2, "one user's data"), reply_to=message)

    def run(root: Path, lies: dict[int, Any]) -> tuple[list[tuple[int, Any]], int]:
        changes = {
            "privacy": {"population": "people", "noise_multiplier": 8.0, "delta": 1e-5, "adjacency": adjacency},
            "participation": {"scheme": "poisson", "rate": 0.5},
            "run__rounds": 12,
            "run__min_reports": None,
            "run__cohort": 12,
        }
        state_dir, grid = home(root, adjacency=adjacency), LyingGrid(3, lies)  # type: ignore[arg-type]
        with Session.begin(state_dir, plan(**changes), identity_is_stable=True) as session:
            FieldfareStrategy(session).start(grid)
        assert session.cohorts.roster.available().size == 24
        names = [sorted(message.content.array_records["cohort"]["users"].numpy().tolist()) for message in grid.seen]
        return [(m.metadata.dst_node_id, who) for m, who in zip(grid.seen, names, strict=True)], session.next_round

    honest, wrong = run(tmp_path / "honest", {}), run(tmp_path / "wrong", {LIAR: fail})
    assert honest == wrong, "the same nodes are asked for the same users in the same rounds"
    assert {node for node, _ in honest[0]} == {LIAR, *HONEST}


def test_standing_that_does_not_count_lets_no_node_rest() -> None:
    standing = Standing(counts=False)
    assert attempts(standing, 7, lambda n: True, 50) == list(range(50))
