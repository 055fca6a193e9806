"""A submitted run is followed in the ledger to its end, whatever becomes of its coordinator."""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path

import pytest

from fieldfare.errors import BudgetRefused, Interrupted, LedgerError, Refused
from fieldfare_flower.logs import JsonFormatter
from fieldfare_server.deployment import submit as submit_module
from fieldfare_server.deployment.submit import FlowerError, follow, submit_and_follow
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded


def begin_and_die(where: StateDirectory, rounds: int = 2) -> str:
    """A run whose coordinator is gone without a word after `rounds` rounds; returns its id."""
    session = Session.begin(where, plan(), identity_is_stable=True)
    strategy, grid = FieldfareStrategy(session), LyingGrid(2)
    while session.next_round < rounds:
        strategy.run_round(grid)
    assert session._lease_keeper is not None
    session._lease_keeper.stop()
    session.account.hand_back()  # as it looks when the lease of a dead coordinator has run out
    assert session._ledger is not None
    session._ledger.close()
    return session.account.id


def test_a_run_that_another_coordinator_finishes_is_followed_to_its_end(tmp_path: Path) -> None:
    """R15."""
    where = home(tmp_path)
    run = begin_and_die(where)
    lines: list[str] = []

    def finish() -> None:
        with Session.resume(where, run, identity_is_stable=True) as session:
            FieldfareStrategy(session).start(LyingGrid(2))

    supervisor = threading.Timer(0.5, finish)
    supervisor.start()
    follow(where, run, "Flower's stream ended", lines.append, pause=0.05)
    supervisor.join()
    with Ledger.open(where.ledger) as ledger:
        assert ledger.run(run).state == "done"
    assert any("its coordinator is gone; waiting for the supervisor" in line for line in lines)
    assert lines[-1].startswith(f"run {run}: done, ")


def test_a_run_that_stays_alone_is_resumable(tmp_path: Path) -> None:
    where = home(tmp_path)
    run = begin_and_die(where)
    with pytest.raises(Interrupted, match=f"after 2 rounds.*--resume {run}.*the stream's end"):
        follow(where, run, "the stream's end", lambda line: None, patience=0.2, pause=0.05)


def test_a_run_that_was_handed_back_is_given_up_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit_module, "HANDED_BACK", 0.1)
    where = home(tmp_path)
    session = Session.begin(where, plan(), identity_is_stable=True)
    FieldfareStrategy(session).run_round(LyingGrid(2))
    error = RuntimeError("the disk is full")
    session.__exit__(RuntimeError, error, None)
    with pytest.raises(Interrupted, check=coded("interrupted")):
        follow(where, session.account.id, "", lambda line: None, pause=0.05)


def test_a_run_that_never_began_says_what_flower_said(tmp_path: Path) -> None:
    with pytest.raises(FlowerError, check=coded("flower-error")):
        follow(home(tmp_path), "0" * 12, "no such app", lambda line: None)


REFUSED = """
Traceback (most recent call last):
  File "runs.py", line 125, in start
fieldfare.errors.NotFound: run 'r': there is none.

During handling of the above exception, another exception occurred:
{}
ERROR :     Exit Code: 201
"""


@pytest.mark.parametrize(
    ("last", "kind", "code", "nearest"),
    [
        ("BudgetRefused: a run of 8: too much. Nearest allowed: 7.5.", BudgetRefused, "budget-refused", "7.5"),
        ("RunHeld: run 'r': by another coordinator.", LedgerError, "run-held", ""),
    ],
)
def test_what_a_coordinator_refuses_is_the_submitters_refusal(
    last: str, kind: type[Refused], code: str, nearest: str, tmp_path: Path
) -> None:
    """Of two runs that were admitted at once the second is refused by its coordinator: it ended with a traceback."""
    with pytest.raises(kind, check=coded(code)) as refused:
        follow(home(tmp_path), "0" * 12, REFUSED.format(f"fieldfare.errors.{last}"), lambda line: None)
    assert (str(refused.value), refused.value.nearest) == (last.partition(": ")[2], nearest)


def test_a_coordinator_that_logs_as_json_refuses_as_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its traceback stands in one line then: `fieldfare run` quoted the line, and ended as of a broken program."""
    try:
        raise BudgetRefused("a run of 8", 'of "all" 40 users.', "7.5")
    except BudgetRefused:
        record = logging.LogRecord("flwr", logging.ERROR, "", 0, "raised", None, sys.exc_info())
    flwr = tmp_path / "flwr"
    flwr.write_text(f"#!{sys.executable}\nprint({JsonFormatter().format(record)!r})\n")
    flwr.chmod(0o700)
    monkeypatch.setattr(submit_module, "program", lambda name: str(flwr))
    with pytest.raises(BudgetRefused, check=coded("budget-refused", '"all" 40 users', "7.5")):
        submit_and_follow(home(tmp_path), "127.0.0.1:1", lambda line: None, run_id="0" * 12, detach=False)


@pytest.mark.parametrize(
    "last", ["FieldfareError: a: b", "NoSuchKind: a: b", "annotations: a: b", "RunHeld: of no parts"]
)
def test_what_is_no_refusal_is_flowers_own_end(last: str, tmp_path: Path) -> None:
    with pytest.raises(FlowerError, check=coded("flower-error", last)):
        follow(home(tmp_path), "0" * 12, f"fieldfare.errors.{last}", lambda line: None)


def test_a_budget_that_is_exhausted_on_the_way_is_a_refusal(tmp_path: Path) -> None:
    """As of a run in one process; `fieldfare run` ended with code 0 where all its users had another budget."""
    where = home(tmp_path)
    session = Session.begin(where, plan(), identity_is_stable=True)
    with session:
        session.finish("exhausted", "all 40 users: nothing is left.")
    with pytest.raises(BudgetRefused, check=coded("budget-refused", session.account.id, "all 40 users")):
        follow(where, session.account.id, "", lambda line: None)


def test_a_run_that_failed_says_why(tmp_path: Path) -> None:
    where = home(tmp_path)
    session = Session.begin(where, plan(), identity_is_stable=True)
    with session:
        session.finish("failed", "the model was not finite")
    with pytest.raises(FlowerError, check=coded("flower-error")):
        follow(where, session.account.id, "", lambda line: None)
