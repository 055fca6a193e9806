"""What cannot succeed ends at once, unspent: too few nodes, a loop that fails for everybody, a model that diverged."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.grid.inmemory_grid import InMemoryGrid
from test_plain_dialect import run as run_plainly
from test_private_strategy import app_of, records
from torch import nn

from fieldfare.errors import BadInput, Interrupted, Refused
from fieldfare_client import private
from fieldfare_client.simulation import LocalGrid
from fieldfare_flower import own_data
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RunView
from fieldfare_server.run.presence.availability import is_simulated
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.clock import FakeClock
from support.federation import USERS, TinyTask, home, plan
from support.refusals import coded
from support.timed_grid import TimedGrid

IDS = [f"user-{index:02d}" for index in range(USERS)]
Fails = Callable[[str, int], bool]
"""(user, server round) -> whether its training fails."""


def grid_of(fails: Fails, nodes: int, at_once: int = 1) -> LocalGrid:
    """Nodes with a loop of their own that has a typo where `fails` says so."""
    app = ClientApp()

    def hosted(context: Context) -> list[str]:
        return IDS[int(context.node_config["partition-id"]) :: nodes]

    def shift(model: nn.Module, user: str, context: Context, config: dict[str, Any]) -> None:
        if fails(user, int(config["server-round"])):
            {}["lab_value"]
        with torch.no_grad():
            for value in model.parameters():
                value += 0.01

    app.query("users")(private.users(hosted))
    app.train()(private.train(TinyTask().build_model)(shift))
    return LocalGrid(app, nodes, {}, at_once=at_once)


def start(state: StateDirectory, grid: LocalGrid, **changes: Any) -> RunView:
    """Run to the end, whatever it is; what the ledger says of the run."""
    with Session.begin(state, plan(**changes), identity_is_stable=True, run_id="run") as session:
        FieldfareStrategy(session).start(grid)
    return view(state)


def view(state: StateDirectory) -> RunView:
    with Ledger.open(state.ledger) as ledger:
        return ledger.run("run")


def states(state: StateDirectory, run_id: str = "run") -> Counter[str]:
    with Ledger.open(state.ledger) as ledger:
        return Counter(row.state for row in ledger.rounds(run_id, limit=500).items)


@pytest.mark.parametrize(("nodes", "at_once"), [(1, 1), (3, 1), (3, 2)])
def test_a_typo_costs_no_epsilon_where_the_data_are_the_callers_own(nodes: int, at_once: int, tmp_path: Path) -> None:
    state = home(tmp_path)
    with pytest.raises(Refused, check=coded("nothing-committed", "run", "KeyError", "test_cannot_succeed")) as ended:
        start(state, grid_of(lambda user, round: True, nodes, at_once))
    shown = "".join(traceback.format_exception(ended.value))
    assert "in shift" in shown
    assert "KeyError: 'lab_value'" in shown
    run = view(state)
    assert (run.state, run.next_round, run.spent_epsilon) == ("failed", 0, 0.0)
    assert "lab_value" not in run.message  # others read the ledger, and an error may quote a user's data
    assert states(state) == {"void": 1}
    with Ledger.open(state.ledger) as ledger:
        assert ledger.population("people").spent_epsilon == 0.0


def test_users_who_fail_hide_among_those_who_do_not(tmp_path: Path) -> None:
    """All users of a node, and all but one of a round: the run goes on."""
    last = IDS[-1]
    assert (
        start(
            home(tmp_path),
            grid_of(lambda user, round: user != last, 4),
            run__cohort=24,
            participation={},
            run__rounds=1,
        ).state
        == "done"
    )


def test_a_later_round_in_which_all_fail_can_be_continued(tmp_path: Path) -> None:
    state, broken = home(tmp_path), [True]
    grid = grid_of(lambda user, round: broken[0] and round > 2, 2)
    with pytest.raises(Interrupted, check=coded("interrupted", "--resume", "resume='")):
        start(state, grid)
    assert (view(state).state, view(state).next_round) == ("interrupted", 2)
    broken[0] = False
    with Session.resume(state, "run", identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
    assert (view(state).state, view(state).next_round) == ("done", 6)


def test_one_user_alone_may_fail_once(tmp_path: Path) -> None:
    alone = {"run__cohort": 1, "run__min_reports": 1, "participation": {}}
    assert start(home(tmp_path / "once"), grid_of(lambda user, round: round == 1, 1), **alone).state == "done"
    with pytest.raises(Interrupted, check=coded("interrupted")):
        start(home(tmp_path / "twice"), grid_of(lambda user, round: True, 1), **alone)


class Real(LocalGrid):
    """Nodes of real users: what happens there is theirs."""

    simulated = False


def test_on_real_nodes_a_failing_user_is_that_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever fails, the server sends, receives and writes the same, but for the sums that noise hides."""
    seen = []
    for name, fails in (
        ("nobody", lambda user: False),
        ("one", lambda user: user == IDS[0]),
        ("all", lambda user: True),
    ):
        state = home(tmp_path / name, simulated=False)
        monkeypatch.setenv("FLWR_HOME", str(tmp_path / name / "flower"))  # nodes that know no other ledger
        grid = grid_of(fails, 3)
        grid.__class__ = Real
        run = start(state, grid, run__noise_seed=None, run__trust_node_ids=True)
        with Ledger.open(state.ledger) as ledger:
            rows = [
                (row.index, row.state, row.cohort_size, row.participants, row.reports, row.rejects, row.epsilon)
                for row in ledger.rounds("run").items
            ]
        seen.append((run.state, run.next_round, run.spent_epsilon, run.message, [row[1:] for row in rows]))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][:2] == ("done", 6)


def test_code_that_fails_before_it_reads_a_user_ends_a_run_on_real_nodes(tmp_path: Path) -> None:
    """It depends on no user's data: a model that cannot be built is an error reply, and the run ends unspent."""
    app = ClientApp()

    def build() -> nn.Module:
        raise ImportError("no module named timm")

    app.query("users")(private.users(lambda context: IDS))
    app.train()(private.train(build)(lambda model, user, context, config: None))
    grid = LocalGrid(app, 2, {})
    grid.__class__ = Real
    state = home(tmp_path, simulated=False)
    with pytest.raises(BadInput, check=coded("nodes-fail", "the nodes' ClientApp", "ImportError")):
        start(state, grid, run__noise_seed=None, run__trust_node_ids=True, run__round_timeout=1.0)
    assert (view(state).state, view(state).spent_epsilon) == ("failed", 0.0)


def test_real_nodes_that_are_too_few_are_named_at_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Then they are waited for, once, as long as a round lasts."""
    clock = FakeClock(1.7e9)
    clock.install(monkeypatch)
    state = home(tmp_path, simulated=False)
    grid = TimedGrid(2, clock)  # 24 users
    with (
        caplog.at_level("WARNING", "fieldfare.strategy"),
        pytest.raises(Refused, check=coded("nothing-committed", "run", "30", "24")),
    ):
        start(state, grid, run__cohort=40, run__min_reports=30, run__noise_seed=None, run__round_timeout=600.0)
    (said,) = [r for r in caplog.records if "needed" in r.getMessage()]
    assert said.getMessage().startswith("30 users needed, 24 here: waiting for at most 59")
    assert 600 <= grid.now < 630
    assert states(state) == {}
    assert view(state).state == "failed"


def test_a_model_that_diverged_ends_in_one_round(tmp_path: Path) -> None:
    """After one release every reply is NaN. Where the data are the caller's own that is a fault of the code."""
    trained = []

    def reply(message: Message, arrays: dict[str, np.ndarray]) -> Any:
        trained.append(message)
        value = np.nan if len(trained) > 4 else 0.1
        return records(w=arrays["w"] + np.float32(value), b=arrays["b"], n=arrays["n"] + 1)

    with pytest.raises(Interrupted, match="every user that was asked failed: update that is not finite"):
        run_plainly(tmp_path, app_of(reply), rounds=5)
    assert len(trained) == 8
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        (ended,) = ledger.runs().items
        assert ended.next_round == 1


@pytest.mark.parametrize("simulated", [False, True])
def test_people_whose_presence_is_secret_and_who_all_fail_end_no_run(
    simulated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether all fail tells who is there: it would be a look that nothing charges."""
    sampled = {"privacy__adjacency": "add_remove", "participation": {"scheme": "poisson", "rate": 0.25}}
    schedule = {} if simulated else {"run__round_seconds": 60.0, "run__round_timeout": 10.0}
    with monkeypatch.context() as patch:
        FakeClock(1.7e9).install(patch)
        state = home(tmp_path, simulated=simulated, adjacency="add_remove")
        grid = grid_of(lambda user, round: True, 1)
        # Seeded: one user alone may fail once, and coins ask one alone first in 1 of 125 runs.
        seed = 11 if simulated else None
        changes: dict[str, Any] = {**sampled, **schedule, "run__min_reports": None, "run__noise_seed": seed}
        if simulated:  # nobody is anywhere
            with pytest.raises(Refused, check=coded("nothing-committed", "run")):
                start(state, grid, **changes)
            return
        assert start(state, grid, **changes).state == "done"
    assert states(state) == {"committed": 6}


class OfFlower(LocalGrid):
    """Flower's simulation as the server sees it: what nodes of other processes say is in their replies alone."""

    @property
    def fault(self) -> Any:
        raise AttributeError


@pytest.mark.parametrize("failing", [USERS, USERS - 1])
def test_actors_of_flowers_simulation_say_in_their_replies_that_all_users_failed(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On real Ray: tests/e2e/test_simulation_faults.py."""
    monkeypatch.setattr(own_data, "in_flowers_simulation", lambda: True)
    state, grid = home(tmp_path), grid_of(lambda user, round: user in IDS[:failing], 3)
    grid.__class__ = OfFlower
    monkeypatch.setattr(grid._tally, "counting", nullcontext)
    everybody = {"run__cohort": USERS, "participation": {}, "run__rounds": 1}
    if failing < USERS:
        assert start(state, grid, **everybody).state == "done"
        return
    with pytest.raises(Refused, match="every user that was asked failed: KeyError") as ended:
        start(state, grid, **everybody)
    assert "KeyError: 'lab_value'" in "".join(traceback.format_exception(ended.value))
    assert (view(state).state, view(state).spent_epsilon) == ("failed", 0.0)
    assert "lab_value" not in view(state).message


def test_a_superlinks_word_makes_no_node_an_actor(tmp_path: Path) -> None:
    """A node that is no actor of Ray says nothing, whatever it is sent; and the server reads it of no real grid."""
    assert not own_data.in_flowers_simulation()
    reply = RecordDict()
    own_data.note(3, Counter({"KeyError": 3}), reply)
    assert not reply
    assert own_data.is_flowers_simulation(object.__new__(InMemoryGrid))
    assert not own_data.is_flowers_simulation(grid_of(lambda user, round: True, 1))
    assert not is_simulated(HttpGrid("127.0.0.1:1", True, token="a run's"))
    told = own_data.Tally()
    for odd in ({"asked": "3"}, {"asked": 3, "kinds": "KeyError", "counts": [3]}, {}):
        content = RecordDict({own_data.RECORD: ConfigRecord(odd)})
        told.read(Message(content, 2, "train"))
    assert told.take() is None
