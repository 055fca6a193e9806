"""Nodes that are silent, slow or away: no round waits for one that never answered, and a run outlasts an hour alone."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.app import Error, Message

from fieldfare.errors import Interrupted, Refused
from fieldfare_flower.messages import QUERY_USERS
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RoundView
from fieldfare_server.run.presence import patience
from fieldfare_server.run.presence.patience import LONGEST_ABSENCE, LONGEST_PAUSE, MOST_VOIDS, Patience
from fieldfare_server.run.presence.presence import SETTLING
from fieldfare_server.run.presence.roster import LONGEST_BACK_OFF
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.clock import FakeClock
from support.federation import home, plan
from support.timed_grid import TimedGrid

START = 1.7e9
HOUR = 3600.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock(START)
    clock.install(monkeypatch)
    return clock


def fail(message: Message, reply: Message) -> Message:
    return Message(Error(2, "<class 'ValueError'>:<'no'>"), reply_to=message)


class Run:
    """A run on a grid: when each round was committed, and what the ledger says at the end."""

    def __init__(self, root: Path, grid: TimedGrid, **changes: Any) -> None:
        self.committed_at: list[float] = []

        def note(report: RoundReport) -> None:
            self.committed_at.append(grid.now)

        self.home = home(root)
        self.session = Session.begin(self.home, plan(**changes), identity_is_stable=True)
        self.error: Exception | None = None
        with self.session:
            try:
                FieldfareStrategy(self.session, note).start(grid)
            except (Interrupted, Refused) as error:
                self.error = error

    def rounds(self) -> tuple[RoundView, ...]:
        with Ledger.open(self.home.ledger) as ledger:
            return ledger.rounds(self.session.account.id, limit=500).items


def questions(grid: TimedGrid, node: int) -> list[float]:
    """When `node` was asked for its users."""
    return [at for at, asked, kind in grid.asked if (asked, kind) == (node, QUERY_USERS)]


def test_a_node_that_never_says_whom_it_hosts_costs_no_round_anything(tmp_path: Path, clock: FakeClock) -> None:
    """R6: each round waited for its whole timeout."""
    silent = 2
    grid = TimedGrid(4, clock, takes=lambda node, kind: math.inf if (node, kind) == (silent, QUERY_USERS) else 0.5)
    run = Run(tmp_path, grid, run__round_timeout=600.0)
    assert run.session.next_round == 6
    assert run.committed_at[0] < SETTLING + 5
    assert run.committed_at[-1] < SETTLING + 6 * 3


def test_a_round_asks_in_the_background_while_it_waits_for_updates(tmp_path: Path, clock: FakeClock) -> None:
    """The users of a node that comes in mid-round are there for the next one."""
    late = 5
    grid = TimedGrid(
        4, clock, away=lambda node, at: node == late and at < 30, takes=lambda node, kind: 50 if kind == "train" else 2
    )
    run = Run(tmp_path, grid, run__round_timeout=600.0)
    assert run.session.next_round == 6
    (asked_at,) = questions(grid, late)
    assert 30 <= asked_at < run.committed_at[0]
    assert any(node == late and kind == "train" and at < run.committed_at[1] for at, node, kind in grid.asked)


def test_a_node_that_errs_is_asked_less_and_less_and_is_heard_when_it_is_well(tmp_path: Path, clock: FakeClock) -> None:
    ill = 4

    def until_half_past(message: Message, reply: Message) -> Message:
        return fail(message, reply) if grid.now < 1800 else reply

    grid = TimedGrid(
        4, clock, query_lies={ill: until_half_past}, takes=lambda node, kind: 500 if kind == "train" else 0.5
    )
    run = Run(tmp_path, grid, run__round_timeout=600.0)
    assert run.session.next_round == 6
    pauses = [b - a for a, b in itertools.pairwise(questions(grid, ill))]
    assert len(pauses) >= 8
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(pauses[:8]))
    assert max(pauses) < LONGEST_BACK_OFF + 30
    assert any(node == ill and kind == "train" for _, node, kind in grid.asked)


def test_a_run_outlasts_an_hour_without_nodes_and_no_person_is_needed(tmp_path: Path, clock: FakeClock) -> None:
    gone = (15.0, 15.0 + HOUR)
    grid = TimedGrid(
        3, clock, away=lambda node, at: gone[0] <= at < gone[1], takes=lambda node, kind: 6.0 if kind == "train" else 1
    )
    run = Run(tmp_path, grid, run__round_timeout=60.0)
    assert run.error is None
    states = Counter(row.state for row in run.rounds())
    assert states["committed"] == 6
    assert states["void"] <= 30, "void rounds back off"
    after = next(at for at in run.committed_at if at > gone[1])
    assert after < gone[1] + 2 * 60.0, "it goes on as soon as nodes are back"


def test_all_nodes_failing_for_an_hour_is_outlasted_too(tmp_path: Path, clock: FakeClock) -> None:
    def ill(message: Message, reply: Message) -> Message:
        return fail(message, reply) if 5 < grid.now < HOUR else reply

    grid = TimedGrid(3, clock, lies=dict.fromkeys((2, 3, 4), ill))
    run = Run(tmp_path, grid, run__round_timeout=60.0)
    assert run.error is None
    assert run.session.next_round == 6
    assert Counter(row.state for row in run.rounds())["void"] <= 30
    assert run.committed_at[-1] < HOUR + LONGEST_PAUSE + 300


def test_a_run_stops_after_a_day_alone_and_can_be_resumed(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LONGEST_ABSENCE == 24 * HOUR
    monkeypatch.setattr(patience, "LONGEST_ABSENCE", 2 * HOUR)  # a day of looks takes a minute
    grid = TimedGrid(3, clock, away=lambda node, at: at > 4)
    run = Run(tmp_path, grid, run__round_timeout=600.0, run__rounds=24, participation__max_participations=8)
    assert isinstance(run.error, Interrupted)
    assert "--resume" in str(run.error)
    assert 2 * HOUR < grid.now < 2 * HOUR + 2000
    with Ledger.open(run.home.ledger) as ledger:
        assert ledger.run(run.session.account.id).state == "interrupted"
    grid._away = lambda node, at: False
    with Session.resume(run.home, run.session.account.id, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
    assert session.next_round == 24


def test_a_short_absence_is_waited_for_within_the_round(tmp_path: Path, clock: FakeClock) -> None:
    """R7, also where all are away: no round is void for it."""
    grid = TimedGrid(3, clock, away=lambda node, at: 4 < at < 12)
    run = Run(tmp_path, grid, run__round_timeout=30.0, run__rounds=12, participation__max_participations=4)
    assert [row.state for row in run.rounds()].count("committed") == 12
    assert sum(row.state == "void" for row in run.rounds()) <= 1  # the one whose instructions were under way


def test_users_who_stay_away_are_waited_for_once(tmp_path: Path, clock: FakeClock) -> None:
    """16 of 24 users leave for good: one round waits for the cohort until its time is over, the others do not."""
    grid = TimedGrid(3, clock, away=lambda node, at: node != 2 and at > 4)
    changes = {"run__cohort": 10, "run__min_reports": 6, "participation": {"scheme": "min-separation", "separation": 1}}
    run = Run(tmp_path, grid, run__round_timeout=100.0, run__rounds=20, **changes)
    assert run.session.next_round == 20
    assert grid.now < 11 + 3 * 100.0


def test_a_wrong_node_that_answers_first_does_not_end_the_run(tmp_path: Path, clock: FakeClock) -> None:
    """The first contact is judged by most of the nodes."""
    liar = 2
    takes = {True: 0.1, False: 8.0}
    grid = TimedGrid(3, clock, query_lies={liar: fail}, takes=lambda node, kind: takes[node == liar])
    assert Run(tmp_path, grid, run__round_timeout=60.0).session.next_round == 6


class LockedNowAndThen(TimedGrid):
    """A SuperLink whose database is locked at two of five requests, of whatever kind."""

    def _ask(self) -> None:
        self.requests = getattr(self, "requests", 0) + 1
        if self.requests % 5 < 2:
            request = httpx.Request("POST", "https://superlink/v1/runtime")
            httpx.Response(500, request=request).raise_for_status()

    def get_node_ids(self) -> Iterable[int]:
        self._ask()
        return super().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self._ask()
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        self._ask()
        return super().pull_messages(message_ids)


def test_a_superlink_that_is_locked_now_and_then_ends_no_run(tmp_path: Path, clock: FakeClock) -> None:
    """One node that uploads a gigabyte locks it; the first 500 ended the run."""
    run = Run(tmp_path, LockedNowAndThen(3, clock), run__round_timeout=60.0)
    assert run.error is None
    assert run.session.next_round == 6
    assert {row.state for row in run.rounds()} == {"committed"}


def test_a_stop_is_obeyed_in_a_pause(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = TimedGrid(3, clock, away=lambda node, at: at > 4)

    def clocked_stop(self: TimedGrid) -> Iterator[int]:
        if self.now > HOUR / 4 and not asked:
            asked.append(self.now)
            with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
                ledger.request(session.account.id, "stop", actor="officer")
        return iter([node for node in self._contexts if not self._away(node, self.now)])

    asked: list[float] = []
    state = home(tmp_path)
    monkeypatch.setattr(TimedGrid, "get_node_ids", clocked_stop)
    changes = {"run__round_timeout": 60.0, "run__rounds": 24, "participation__max_participations": 8}
    with Session.begin(state, plan(**changes), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
    with Ledger.open(state.ledger) as ledger:
        assert ledger.run(session.account.id).state == "stopped"
    assert grid.now - asked[0] < 60.0 + LONGEST_PAUSE


def test_pauses_double_to_a_bound_and_none_are_made_where_no_time_helps() -> None:
    grid, here = Patience(waits=True), Patience(waits=False)
    pauses = []
    for _ in range(MOST_VOIDS):
        grid.note_void()
        here.note_void()
        pauses.append(grid.pause)
    assert pauses[:6] == [0, 1, 2, 4, 8, 16]
    assert pauses[-1] == LONGEST_PAUSE
    assert here.pause == 0
    assert here.is_over(committed=True)
    assert grid.is_over(committed=False)
    assert not grid.is_over(committed=True)
    grid.note_commit()
    assert grid.pause == 0
