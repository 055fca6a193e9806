"""By default a node of real people belongs to the first ledger that it was shown: another one is refused (I9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from flwr.app import Context
from flwr.clientapp import ClientApp

from fieldfare.errors import JournalRefused
from fieldfare.signed_head import SignedHead
from fieldfare_client import private, witness
from fieldfare_client.simulation import LocalGrid
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import HeadFile, Ledger
from fieldfare_server.ledger.views import RunView
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import USERS, LyingGrid, TinyTask, home, plan

IDS = [f"user-{index:02d}" for index in range(USERS)]


class OnTheirNodes(LocalGrid):
    """Nodes of real people."""

    simulated = False


def tasks() -> LocalGrid:
    """Two nodes with a task."""
    grid = LyingGrid(2)
    grid.simulated = False  # type: ignore[attr-defined]
    return grid


def loops() -> LocalGrid:
    """Two nodes with a loop of their own."""
    app = ClientApp()

    def hosted(context: Context) -> list[str]:
        return IDS[int(context.node_config["partition-id"]) :: 2]

    app.query("users")(private.users(hosted))
    app.train()(private.train(TinyTask().build_model)(lambda model, user, context, config: None))
    return OnTheirNodes(app, 2, {})


def run(state: StateDirectory, grid: LocalGrid) -> RunView:
    changes = {"run__noise_seed": None, "run__rounds": 2, "run__round_timeout": 2.0, "participation": {}}
    with Session.begin(state, plan(**changes), identity_is_stable=True) as session:
        try:
            FieldfareStrategy(session).start(grid)
        except JournalRefused as error:
            print(error)
    with Ledger.open(state.ledger) as ledger:
        return ledger.run(session.account.id)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that nodes of this account keep."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flower"))
    return tmp_path / "flower" / witness.FIRST


@pytest.mark.parametrize("nodes", [tasks, loops])
def test_another_ledger_of_the_same_people_is_refused_unspent(nodes: type, tmp_path: Path, kept: Path) -> None:
    first, second = (home(tmp_path / name, simulated=False) for name in ("first", "second"))
    assert run(first, nodes()).state == "done"
    assert SignedHead.parse(kept.read_text()).ledger == HeadFile(first.head_file).read().ledger  # type: ignore[union-attr]
    before = kept.read_bytes()
    refused = run(second, nodes())
    assert (refused.state, refused.next_round, refused.spent_epsilon) == ("failed", 0, 0.0)
    assert "another ledger is shown in its place" in refused.message
    assert run(first, nodes()).state == "done"
    assert kept.read_bytes() == before
    kept.unlink()  # the remedy that the node's log names
    assert run(second, nodes()).state == "done"


def test_made_up_users_belong_to_no_ledger(tmp_path: Path, kept: Path) -> None:
    assert run(home(tmp_path / "made-up"), tasks()).state == "done"
    grid = LyingGrid(2)
    assert grid.simulated, "the nodes are in this process"
    assert run(home(tmp_path / "people", simulated=False), grid).state == "done"
    assert not kept.exists()
    assert run(home(tmp_path / "first", simulated=False), tasks()).state == "done"
    assert run(home(tmp_path / "again"), tasks()).state == "done"


def test_who_names_a_file_or_a_budget_has_said_which_ledgers(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [home(tmp_path / name, simulated=False) for name in ("first", "second")]
    for state in states:
        monkeypatch.setenv(witness.VARIABLE, str(tmp_path / f"witness of {state.root.parent.name}"))
        assert run(state, tasks()).state == "done"
    assert not kept.exists()


def test_a_torn_file_is_no_new_beginning(tmp_path: Path, kept: Path) -> None:
    kept.parent.mkdir()
    kept.write_text("fieldfare-head-v1 ab")
    refused = run(home(tmp_path / "first", simulated=False), tasks())
    assert refused.spent_epsilon == 0
    assert "the file in which the newest head was kept cannot be read" in refused.message


def test_an_account_that_can_keep_nothing_says_so_and_trains(
    tmp_path: Path, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept.parent.write_text("a file where the directory would be")
    assert run(home(tmp_path / "first", simulated=False), tasks()).state == "done"
    assert witness.VARIABLE in caplog.text
