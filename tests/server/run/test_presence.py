"""Under `add_remove` one user more or less moves the sum by at most one clip norm, and no count and no time shows it.

Neighbouring populations (n users and n - 1) stand on both sides of every number that a plan can name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message
from safetensors import safe_open

from fieldfare.errors import BadInput
from fieldfare.participation import Adjacency
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare_client.app import app as client_app
from fieldfare_client.simulation import LocalGrid
from fieldfare_flower.messages import QUERY_USERS, REPORT, Occasion, TrainReply, read_users, write_users
from fieldfare_server.evidence.guarantee import Guarantee, guarantee
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.schedule import Schedule
from fieldfare_server.ledger.views import PopulationView, RunView
from fieldfare_server.run.presence import presence
from fieldfare_server.run.private.strategy import PrivateStrategy
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import Roles
from fieldfare_server.run.round.rounds import Rounds
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.clock import FakeClock
from support.federation import USERS, LyingGrid, home, plan
from support.refusals import coded

ROUNDS = 3
CLIP = 0.05
"""So small that every user's update is clipped to it."""
START, PERIOD = 1.7e9 + 0.123, 60.0


class Present(LocalGrid):
    """The first `present` users of the task, on one node or on a device each; training one of them takes `a_user`."""

    def __init__(self, present: int, devices: bool, clock: FakeClock | None = None, a_user: float = 0.0) -> None:
        super().__init__(client_app, USERS if devices else 1, {"task": "support.federation:TinyTask"})
        for context in self._contexts.values():
            # Every node could train all users; `answer` says which users each of them hosts.
            context.node_config.update({"partition-id": 0, "num-partitions": 1})
        self._present, self._devices, self._clock, self._a_user = present, devices, clock, a_user
        self.trained = 0
        """Users trained so far."""

    def get_node_ids(self) -> Iterable[int]:
        nodes = list(super().get_node_ids())
        return nodes[: self._present] if self._devices else nodes

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        if message.metadata.message_type == QUERY_USERS:
            schema = Schema.of(torch.nn.Sequential(torch.nn.Linear(3, 1)))
            users = read_users(reply.content, schema, USERS)[: self._present]
            position = list(self._contexts).index(message.metadata.dst_node_id)
            hosted = users[position : position + 1] if self._devices else users
            return Message(write_users(hosted, schema), reply_to=message)
        count = reply.content.metric_records[REPORT]["users"]
        assert isinstance(count, int)
        self.trained += count
        if self._clock is not None:
            self._clock.pass_seconds(self._a_user * count)
        return reply


def population(root: Path, simulated: bool = True) -> StateDirectory:
    state = StateDirectory(root, f"sqlite:///{root / 'ledger.sqlite3'}", lease_patience=5.0)
    state.prepare()
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", 50.0, 1e-5, adjacency="add_remove", simulated=simulated, actor="test")
    return state


def sampled(rate: float = 1.0, **changes: Any) -> Plan:
    given = {
        "privacy": {"population": "people", "noise_multiplier": 8.0, "delta": 1e-5, "adjacency": "add_remove"},
        "participation": {"scheme": "poisson", "rate": rate},
        "clipping": {"kind": "flat", "norm": CLIP},
        "run__rounds": ROUNDS,
        "run__min_reports": None,
        "run__round_timeout": 0.3,
    }
    return plan(**{**given, **changes})


def sums(
    root: Path, a_plan: Plan, grid: LocalGrid, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[torch.Tensor], list[int], list[tuple[str, int | None]]]:
    """Each round's raw sum, how many users are in it, and (action, round) of every journal row."""
    raw: list[torch.Tensor] = []
    users: list[int] = []
    commit = Rounds.commit_round

    def record(self: Rounds, opened: Any, total: Aggregate, reported: Any, show: Any) -> None:
        raw.append(total.sum().clone())
        users.append(total.users)
        # The next round starts from the same model in both worlds: only this round's difference is compared.
        total.total[:] = 0.0
        commit(self, opened, total, reported, show)

    home = population(root)
    with monkeypatch.context() as patch:
        patch.setattr(Rounds, "commit_round", record)
        with Session.begin(home, a_plan, identity_is_stable=True, run_id="run") as session:
            FieldfareStrategy(session).start(grid)
    with Ledger.open(home.ledger) as ledger:
        rows = [(row.action, row.round) for row in ledger.events(0, 1000)]
    return raw, users, rows


@pytest.mark.parametrize("devices", [True, False], ids=["a user a node", "all on one node"])
@pytest.mark.parametrize("cohort", [1, 2, 6])
@pytest.mark.parametrize("times", [0, 1, 4], ids=["no user", "a cohort", "four cohorts"])
def test_one_user_moves_the_sum_by_one_clip_norm_around_every_threshold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: bool, cohort: int, times: int
) -> None:
    """n - 1 is the threshold, so n is the first number of users above it."""
    few = times * cohort if times * cohort < USERS else USERS - 1
    a_plan = sampled(run__cohort=cohort)
    less, counts, rows = sums(tmp_path / "less", a_plan, Present(few, devices), monkeypatch)
    more, counts_more, rows_more = sums(tmp_path / "more", a_plan, Present(few + 1, devices), monkeypatch)
    assert (counts, counts_more) == ([few] * ROUNDS, [few + 1] * ROUNDS)
    moved = [float(torch.linalg.vector_norm(a - b)) for a, b in zip(less, more, strict=True)]
    # `charged_clip`, less what snapping adds: rounding to float32 on the way, and to the grid.
    assert max(moved) <= CLIP * (1 + 1e-4)
    assert max(moved) > 0
    assert rows == rows_more


def test_a_longer_sum_of_a_sampled_cohort_is_cut_by_a_projection() -> None:
    """Across the cut, at every number of users, one user of norm `clip` moves the cut sum by at most `clip`."""
    schema = Schema.of(torch.nn.Linear(3, 1))
    occasion = Occasion("run", 0, 0)
    generator = np.random.default_rng(7)
    direction = generator.normal(size=schema.numel)

    def cut(total: np.ndarray[Any, Any], users: int) -> torch.Tensor:
        aggregate = Aggregate(schema, occasion, clip=1.0, most_users=4)
        parts = np.split(total.astype(np.float32), np.cumsum([3]))
        update = {
            name: part.reshape(shape) for name, part, shape in zip(schema.names, parts, schema.shapes, strict=True)
        }
        assert aggregate.add(TrainReply(occasion, update, users).write(), sent=users)
        return aggregate.sum().clone()

    for users in range(1, 12):
        for aligned in (0.0, 0.5, 0.9, 1.0):
            vectors = aligned * direction + (1 - aligned) * generator.normal(size=(users + 1, schema.numel))
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            less, more = (cut(vectors[:count].sum(0), count) for count in (users, users + 1))
            assert float(torch.linalg.vector_norm(more - less)) <= 1.0 + 1e-5


# -- what a plan may not name -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"run__min_available": 100}, "min-available-shows-presence"),
        ({"run__min_reports": 1}, "no-redraw"),
        ({"run__over_selection": 1.5}, "no-over-selection"),
    ],
    ids=str,
)
def test_a_plan_names_no_number_of_users_that_a_round_needs(named: dict[str, Any], code: str) -> None:
    """P1: of 100 and 99 users, with 100 needed, 50 clip norms were charged as one."""
    with pytest.raises(BadInput, check=coded(code)) as refusal:
        sampled(**named)
    assert refusal.value.nearest in ("leave it out", "1.0")
    assert sampled().report_goal == 0


def card(run: RunView, people: PopulationView) -> Guarantee:
    return guarantee(run, people, plan_facts(run))


def test_plans_that_named_one_stay_readable_and_their_guarantee_says_so(tmp_path: Path) -> None:
    table = {**sampled().model_dump(mode="json")}
    table["run"] = {**table["run"], "min_available": 12, "round_seconds": None}
    stored = Plan.stored(table)
    assert stored.run.min_available == 12
    assert '"round_seconds"' not in stored.to_json()
    home = population(tmp_path / "home")
    with Session.begin(home, sampled(), identity_is_stable=True, run_id="run"), Ledger.open(home.ledger) as ledger:
        run, people = ledger.run("run"), ledger.population("people")
    text = " ".join(card(run.model_copy(update={"plan": table}), people).not_covered)
    assert "decided whether a round had users at all" in text
    text = " ".join(card(run, people).not_covered)
    assert "decided whether" not in text


def test_the_schedule_is_for_add_remove_and_leaves_time_for_the_answers() -> None:
    with pytest.raises(BadInput, check=coded("times-public", "run.round_seconds", "'add_remove'")):
        plan(run__round_seconds=60.0)
    with pytest.raises(BadInput, check=coded("schedule-too-fast", "run.round_seconds")) as refusal:
        sampled(run__round_timeout=30.0, run__round_seconds=60.0)
    assert refusal.value.nearest.startswith("90")
    assert sampled(run__round_timeout=29.0, run__round_seconds=60.0).run.round_seconds == 60.0


def test_real_people_need_a_schedule_and_simulated_ones_do_not(tmp_path: Path) -> None:
    real = population(tmp_path / "real", simulated=False)
    without = sampled(run__noise_seed=None)
    with pytest.raises(BadInput, check=coded("not-given", "run.round_seconds")) as refusal:
        Session.begin(real, without, identity_is_stable=True)
    nearest = refusal.value.nearest
    assert nearest == "round_seconds = 0.9"
    with Ledger.open(real.ledger) as ledger:
        assert ledger.population("people").runs_total == 0
    with_it = sampled(run__noise_seed=None, run__round_seconds=float(nearest.split(" = ")[1]))
    with Session.begin(real, with_it, identity_is_stable=True) as session:
        assert session.account.schedule is not None
    simulated = population(tmp_path / "simulated")
    with Session.begin(simulated, without, identity_is_stable=True, run_id="run") as session:
        assert session.account.schedule is None
    with Ledger.open(simulated.ledger) as ledger:
        text = " ".join(card(ledger.run("run"), ledger.population("people")).not_covered)
    assert "How long rounds took" in text


# -- times ------------------------------------------------------------------------------------------------------------


def test_scheduled_times_are_exact() -> None:
    schedule = Schedule(1_700_000_000.1, 0.1)
    for number in range(2000):
        time = schedule.start + number * schedule.seconds
        assert schedule.latest(time) == time
        assert schedule.latest(np.nextafter(schedule.following(time), 0)) == time
        assert schedule.following(time) == schedule.start + (number + 1) * schedule.seconds
    assert schedule.latest(5.0) == schedule.start


@pytest.mark.parametrize("back", [30.0, 3600.0, 2e8])
def test_a_clock_that_is_set_back_costs_one_interval_and_not_what_it_lost(
    back: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to before the run's admission. Times are then counted back from the start."""
    schedule, clock, ticks = Schedule(1_700_000_000.0, 60.0), FakeClock(1_700_000_125.0, look=0.0), list[float]()
    monkeypatch.setattr(presence, "time", clock)

    def tick() -> None:
        ticks.append(clock.now)
        if len(ticks) == 3:
            clock.now -= back

    presence.await_scheduled(schedule, clock, tick)
    assert (clock.now - schedule.start) % 60.0 == pytest.approx(0.0, abs=1e-6)
    assert len(ticks) <= 3 + 60 + 1
    assert schedule.latest(clock.now) == max(clock.now, schedule.start)


def timed_run(root: Path, monkeypatch: pytest.MonkeyPatch, a_user: float) -> tuple[StateDirectory, list[int]]:
    """A scheduled run whose node takes `a_user` seconds a user; how many users each round had."""
    home, counts = population(root), []
    clock = FakeClock(START)
    grid = Present(USERS, devices=False, clock=clock, a_user=a_user)
    with monkeypatch.context() as patch:
        clock.install(patch)
        session = Session.begin(
            home, sampled(0.3, run__rounds=24, run__round_seconds=PERIOD), identity_is_stable=True, run_id="run"
        )
        with session:
            FieldfareStrategy(session, lambda _: counts.append(grid.trained)).start(grid)
    return home, np.diff([0, *counts]).tolist()


def public_times(home: StateDirectory) -> tuple[list[tuple[float, float | None]], list[float]]:
    """((opened, closed) of every round; every time of the run's journal rows but its start, which is a person's."""
    with Ledger.open(home.ledger) as ledger:
        run = ledger.run("run")
        rounds = [(view.opened_at, view.closed_at) for view in ledger.rounds("run").items]
        journal = [row.at for row in ledger.events(0, 1000) if row.run == "run"]
        series = [(point.opened_at, point.closed_at) for point in ledger.round_series("run", 1000)]
    assert series == rounds
    return rounds, [*journal[1:], run.ended_at or 0.0]


def test_no_time_depends_on_how_many_users_a_round_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P4: at 121 ms a user the durations told the counts, with a rank correlation of .80."""
    home, counts = timed_run(tmp_path / "slow", monkeypatch, a_user=0.121)
    assert len(set(counts)) > 4
    rounds, journal = public_times(home)
    with Ledger.open(home.ledger) as ledger:
        start = ledger.run("run").started_at
    # Functions of the schedule alone; so every duration is the same number and correlates with nothing.
    assert rounds == [(start + (t + 1) * PERIOD, start + (t + 2) * PERIOD) for t in range(24)]
    assert {(at - start) % PERIOD for at in journal} == {0.0}
    durations = np.array([closed - opened for opened, closed in rounds if closed is not None])
    deviations = np.array(counts) - np.mean(counts)
    assert np.ptp(durations) == 0.0
    assert float(deviations @ (durations - durations[0])) == 0.0
    # A world whose users take ten times as long shows the same times.
    other, _ = timed_run(tmp_path / "slower", monkeypatch, a_user=1.21)
    assert public_times(other) == (rounds, journal)


def test_a_late_round_waits_for_the_next_scheduled_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, counts = timed_run(tmp_path / "late", monkeypatch, a_user=10.0)
    rounds, journal = public_times(home)
    with Ledger.open(home.ledger) as ledger:
        start = ledger.run("run").started_at
    took = [int((closed - opened) // PERIOD) for opened, closed in rounds if closed is not None]
    assert took == [int(10.0 * count // PERIOD) + 1 for count in counts]
    assert {(at - start) % PERIOD for at in journal} == {0.0}


def test_a_crash_before_the_scheduled_time_voids_the_round_however_soon_its_replies_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise whether a resumed round is committed or void would tell whether all had answered by the crash."""
    clock = FakeClock(START)
    clock.install(monkeypatch)
    home = population(tmp_path / "home")
    a_plan = sampled(0.3, run__round_seconds=PERIOD)

    def crash_in_the_second_wait(seconds: float) -> None:
        clock.pass_seconds(seconds)
        if clock.now > START + 1.5 * PERIOD:
            raise RuntimeError("the power fails; 17 users are lost")

    monkeypatch.setattr(clock, "sleep", crash_in_the_second_wait)
    with (
        pytest.raises(RuntimeError, match="17 users"),
        Session.begin(home, a_plan, identity_is_stable=True, run_id="run") as session,
    ):
        FieldfareStrategy(session).start(Present(USERS, devices=False))
    with Ledger.open(home.ledger) as ledger:
        assert ledger.run("run").message == "RuntimeError"
    monkeypatch.setattr(clock, "sleep", clock.pass_seconds)
    with Session.resume(home, "run", identity_is_stable=True) as session:
        assert session.next_round == 0
        FieldfareStrategy(session).start(Present(USERS, devices=False))
    rounds, journal = public_times_of(home)
    with Ledger.open(home.ledger) as ledger:
        start = ledger.run("run").started_at
        states = [view.state for view in ledger.rounds("run").items]
    assert states == ["void", *["committed"] * ROUNDS]
    assert {(at - start) % PERIOD for at in journal} == {0.0}
    assert {(at - start) % PERIOD for pair in rounds for at in pair} == {0.0}


def public_times_of(home: StateDirectory) -> tuple[list[tuple[float, float]], list[float]]:
    with Ledger.open(home.ledger) as ledger:
        rounds = [(view.opened_at, view.closed_at or 0.0) for view in ledger.rounds("run").items]
        journal = [row.at for row in ledger.events(0, 1000) if row.run == "run"]
    return rounds, journal[1:]


# -- what nodes are told ----------------------------------------------------------------------------------------------


def test_nodes_train_one_user_at_a_time_under_add_remove_only(tmp_path: Path) -> None:
    """P11: batched training moves one user's update by round-off when another user is absent."""
    with Session.begin(population(tmp_path), sampled(), identity_is_stable=True) as session:
        assert session.rounds.settings()["isolated"] is True
    assert Session.rehearse(plan(), noise=False).rounds.settings()["isolated"] is False


def test_checkpoint_digests_are_blinded(tmp_path: Path) -> None:
    """A checkpoint names its round's participants, and its digest is public: without the key nobody can try cohorts."""
    with Session.begin(population(tmp_path), sampled(), identity_is_stable=True) as session:
        FieldfareStrategy(session).run_round(LyingGrid(2))
        assert session.files is not None
        files = sorted((session.files.directory / "checkpoints").glob("*.safetensors"))
        assert files
        for file in files:
            with safe_open(file, "pt") as opened:
                text = json.dumps(opened.metadata())
            assert re.search(r"blind[\\\": ]+[0-9a-f]{32}", text)


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
@pytest.mark.parametrize("way", ["keywords", "plan", "resume"])
def test_a_start_waits_for_somebody_only_where_presence_is_public(
    way: str, adjacency: Adjacency, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A strategy with `plan=`, or one that goes on, waited for its first node whatever its plan hides."""
    keywords: dict[str, Any] = {"noise_multiplier": 4.0, "delta": 1e-5, "population": "people", "cohort": 4}
    keywords |= {"adjacency": adjacency, "mechanism": "independent", "rounds": 2}
    keywords |= {"participation": {"scheme": "poisson", "rate": 0.2}}
    state = home(tmp_path, adjacency=adjacency)
    made = Plan(**keywords)
    given: dict[str, dict[str, Any]] = {"keywords": keywords, "plan": {"plan": made}, "resume": {"resume": "one"}}
    model = OwnModel({"w": np.zeros(3, np.float32)}, Roles({"w": "trained"}, {}))
    with pytest.raises(KeyboardInterrupt), Session.begin(state, made, True, run_id="one", model=model):
        raise KeyboardInterrupt
    waited: list[float] = []
    monkeypatch.setattr("fieldfare_server.run.private.strategy.NODE_POLL", 0.01)
    monkeypatch.setattr("fieldfare_server.run.private.strategy.time.sleep", waited.append)
    nobody = LocalGrid(client_app, 1)
    monkeypatch.setattr(nobody, "get_nodes", list, raising=False)
    strategy = PrivateStrategy(**given[way], home=state.root)
    assert strategy._look(nobody, 0.05).nodes == []
    assert bool(waited) == (adjacency == "zero_out")
