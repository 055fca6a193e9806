"""Rounds of simulated users, committed in groups: the same rounds and rows, and nothing seen before its charge."""

from __future__ import annotations

import os
import signal
import sqlite3
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BudgetRefused, Interrupted, NotFound
from fieldfare_server import faults
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.run.round import commits
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded

RUN = "grouped"


@pytest.fixture
def long_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that only the run's end, a void or a stop ends."""
    monkeypatch.setattr(commits, "GROUP_SECONDS", 1e9)
    monkeypatch.setattr(commits, "GROUP_WORK", 1e9)


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for every writing transaction."""
    seen: list[str] = []
    write = Database.write

    def counted(database: Database, work: Any) -> Any:
        seen.append("write")
        return write(database, work)

    monkeypatch.setattr(Database, "write", counted)
    return seen


def take(state: StateDirectory, session: Session, *, groups: bool = True, **strategy: Any) -> None:
    if groups:
        session.account.begin_groups()
    with session:
        FieldfareStrategy(session, **strategy).start(LyingGrid(2))


def begin(state: StateDirectory, **changes: Any) -> Session:
    return Session.begin(state, plan(**changes), identity_is_stable=True, run_id=RUN)


def model(state: StateDirectory) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in load_file(state.root / RUN / "model.safetensors").values()])


def facts(state: StateDirectory) -> list[tuple[Any, ...]]:
    """What the ledger says of each attempt, but for times and checkpoints."""
    with Ledger.open(state.ledger) as ledger:
        return [
            (
                *(r.index, r.attempt, r.state, r.noise_row, r.cohort_size, r.participants, r.reports, r.spent),
                *(r.epsilon, tuple(sorted(r.statistics.items(), key=str)), tuple(r.rejects.items())),
            )
            for r in sorted(ledger.rounds(RUN).items, key=lambda r: (r.index, r.attempt))
        ]


def require_whole(state: StateDirectory) -> None:
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        report = verify(ledger, state.root, recompute=recharge)
    assert report.ok, str(report.fault)


def test_a_group_writes_what_single_rounds_write(tmp_path: Path, long_groups: None, transactions: list[str]) -> None:
    """The same model to the last bit, the same rows, the same journal; a fraction of the transactions."""
    one, many = home(tmp_path / "one"), home(tmp_path / "many")
    take(one, begin(one), groups=False)
    singly = len(transactions)
    transactions.clear()
    take(many, begin(many))
    assert len(transactions) <= singly - 11  # six rounds took two transactions each, and now one together
    torch.testing.assert_close(model(many), model(one), rtol=0, atol=0)
    assert facts(many) == facts(one)
    actions = []
    for state in (one, many):
        with Ledger.open(state.ledger) as ledger:
            actions.append([(row.action, row.round) for row in ledger.journal_rows(run=RUN).items])
    assert actions[0] == actions[1]
    require_whole(many)


def test_where_presence_is_secret_a_group_registers_once(tmp_path: Path, long_groups: None) -> None:
    """Each call writes a row, whoever is there: one a round, durably, was a third of a sampled round."""
    registered = []
    for groups in (False, True):
        state = home(tmp_path / str(groups), adjacency="add_remove")
        privacy = {"population": "people", "noise_multiplier": 4.0, "delta": 1e-5, "adjacency": "add_remove"}
        sampled = {"participation": {"scheme": "poisson", "rate": 0.5}, "mechanism": {"kind": "independent"}}
        left_out = {"run__noise_seed": None, "run__min_reports": None}
        take(state, begin(state, privacy=privacy, **sampled, **left_out), groups=groups)
        with Ledger.open(state.ledger) as ledger:
            actions = [row.action for row in ledger.journal_rows(run=RUN).items]
        registered.append((actions.count("users.register"), actions.count("round.commit")))
        require_whole(state)
    assert registered == [(6, 6), (1, 6)]


def test_nothing_of_a_group_is_shown_before_its_charge_is_durable(tmp_path: Path, long_groups: None) -> None:
    state = home(tmp_path)
    session = begin(state)
    durable: list[int] = []

    def look(report: RoundReport) -> None:
        # A reader with a connection of its own, as the page has.
        with sqlite3.connect(state.root / "ledger.sqlite3") as other:
            (committed,) = other.execute("SELECT next_round FROM runs").fetchone()
        durable.append(committed)
        assert report.round < committed
        assert session.next_round == report.round + 1

    seen: list[tuple[int, int, float]] = []
    initial = session.params.clone()

    def note(messages: int, online: int) -> None:
        seen.append((session.coming_round, session.next_round, session.epsilon()))
        assert torch.equal(session.params, initial)

    take(state, session, on_round=look, on_sent=note)
    assert durable == [6] * 6
    assert seen == [(round, 0, 0.0) for round in range(6)]


def test_people_are_never_grouped(tmp_path: Path, long_groups: None) -> None:
    state = home(tmp_path, simulated=False)
    session = begin(state, run__noise_seed=None)
    session.account.begin_groups()
    assert not session.account.grouped
    committed = []
    take(state, session, on_sent=lambda messages, online: committed.append(session.next_round))
    assert committed == list(range(6))


@pytest.mark.parametrize("bound", ["GROUP_WORK", "GROUP_SECONDS"])
def test_a_group_lasts_as_long_as_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long_groups: None, bound: str
) -> None:
    monkeypatch.setattr(commits, bound, 0.0)
    state = home(tmp_path)
    session = begin(state)
    committed = []
    take(state, session, on_sent=lambda messages, online: committed.append(session.next_round))
    assert committed == list(range(6))


def test_ctrl_c_keeps_the_rounds_of_the_group(tmp_path: Path, long_groups: None) -> None:
    whole, state = home(tmp_path / "whole"), home(tmp_path / "broken")
    take(whole, begin(whole))

    def stop(messages: int, online: int) -> None:
        if session.coming_round == 3:
            raise KeyboardInterrupt

    session = begin(state)
    with pytest.raises(Interrupted, check=coded("interrupted")):
        take(state, session, on_sent=stop)
    take(state, Session.resume(state, RUN, identity_is_stable=True))
    torch.testing.assert_close(model(state), model(whole), rtol=0, atol=0)
    require_whole(state)


def test_ctrl_c_within_the_private_step_keeps_the_rounds_before(
    tmp_path: Path, long_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the noise has moved on already; the checkpoint has its state after the last whole round."""
    whole, state = home(tmp_path / "whole"), home(tmp_path / "broken")
    take(whole, begin(whole))
    session = begin(state)
    score = session.rounds._score

    def interrupted(index: int, params: torch.Tensor) -> dict[str, float]:
        if index == 3:
            raise KeyboardInterrupt
        return score(index, params)

    monkeypatch.setattr(session.rounds, "_score", interrupted)
    with pytest.raises(Interrupted, check=coded("interrupted")):
        take(state, session)
    take(state, Session.resume(state, RUN, identity_is_stable=True))
    torch.testing.assert_close(model(state), model(whole), rtol=0, atol=0)
    require_whole(state)


def test_a_void_round_ends_its_group(tmp_path: Path, long_groups: None) -> None:
    state = home(tmp_path)
    session = begin(state, run__min_reports=6)
    session.account.begin_groups()

    class Silent(LyingGrid):
        tries = 0

        def answer(self, message: Any) -> Any:
            reply = super().answer(message)
            if message.metadata.message_type == "train" and session.coming_round == 2:
                self.tries += 1
                if self.tries <= 2:
                    raise_error = message.content  # an answer that is not one: the instruction itself
                    return type(reply)(raise_error, reply_to=message)
            return reply

    with session:
        FieldfareStrategy(session).start(Silent(1))
    states = [(index, attempt, state_) for index, attempt, state_, *_ in facts(state)]
    assert states[2:5] == [(2, 0, "void"), (2, 1, "void"), (2, 2, "committed")]
    assert [row[0] for row in states if row[2] == "committed"] == list(range(6))
    require_whole(state)


def test_a_group_of_a_run_that_the_ledger_lost_is_refused(tmp_path: Path, long_groups: None) -> None:
    """An older copy was put back while it ran: seed 1027 of the simulator ended in a KeyError."""
    state = home(tmp_path)
    with closing(sqlite3.connect(":memory:")) as older, closing(sqlite3.connect(state.root / "ledger.sqlite3")) as here:
        here.backup(older)
        session = begin(state)
        session.account.begin_groups()
        older.backup(here)
    with pytest.raises(NotFound, check=coded("not-found", "run 'grouped'")), session:
        session.account.open_round([])


def test_a_charge_out_of_bounds_is_refused_at_its_round(
    tmp_path: Path, long_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = home(tmp_path)
    session = begin(state)
    charge = session.rounds._charge_round
    monkeypatch.setattr(
        session.rounds,
        "_charge_round",
        lambda index, users: PrivacyLoss(1e6) if index == 2 else charge(index, users),
    )
    with pytest.raises(BudgetRefused, check=coded("charge-above-reserved", "the charge of round 2 of run grouped")):
        take(state, session)
    assert [row[0] for row in facts(state) if row[2] == "committed"] == [0, 1]
    require_whole(state)


@pytest.mark.parametrize(
    "point",
    [
        *("strategy.privatised", "checkpoint.pending", "ledger.round.committing", "ledger.transaction.committed"),
        *("ledger.round.committed", "checkpoint.promoting", "strategy.released"),
    ],
)
@pytest.mark.timeout(200)
def test_killed_in_a_group(point: str, tmp_path: Path, long_groups: None) -> None:
    """The group is in the ledger as a whole or not at all, and the resumed run ends as if nothing had happened."""
    whole, state = home(tmp_path / "whole"), home(tmp_path / "broken")
    take(whole, begin(whole))
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            session = begin(state)
            nth = 2 if point == "ledger.transaction.committed" else 1  # the first one registers users
            faults.load({faults.VARIABLE: f"{point}:kill:{nth}"})
            take(state, session)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    committed = [row[0] for row in facts(state)]
    durable = point in ("ledger.transaction.committed", "ledger.round.committed", "checkpoint.promoting")
    assert committed == (list(range(6)) if durable or point == "strategy.released" else [])
    take(state, Session.resume(state, RUN, identity_is_stable=True))
    torch.testing.assert_close(model(state), model(whole), rtol=0, atol=0)
    require_whole(state)
