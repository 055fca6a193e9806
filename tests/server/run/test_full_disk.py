"""A disk that is full ends a run within seconds, in one sentence with the command that goes on; it goes on then."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from fieldfare.errors import Interrupted, LedgerError
from fieldfare_server import faults
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import HeadFile, Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded

SECONDS = 40.0
"""Of a run that meets a full disk, on a busy machine: it waited for a minute, twice."""


class FullDisk:
    """The disk of a session's ledger: while it is full, SQLite refuses every write as it does then."""

    def __init__(self, session: Session) -> None:
        self.full = False
        assert session._ledger is not None
        event.listen(session._ledger.database.engine, "begin", self._refuse)

    def _refuse(self, connection: Connection) -> None:
        if self.full and connection.get_execution_options().get("fieldfare_write", False):
            cause = sqlite3.OperationalError("database or disk is full")
            cause.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise OperationalError("INSERT", None, cause) from cause


@pytest.mark.parametrize("committed", [0, 2])
def test_a_ledger_without_room_stops_its_run_within_seconds(
    tmp_path: Path, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = home(tmp_path)
    session = Session.begin(state, plan(), identity_is_stable=True, run_id="run")
    disk = FullDisk(session)
    disk.full = committed == 0

    def fill(report: RoundReport) -> None:
        disk.full = report.round + 1 == committed

    began = time.monotonic()
    with pytest.raises(Interrupted, check=coded("interrupted", "--resume")), session:
        FieldfareStrategy(session, fill).start(LyingGrid(2))
    assert time.monotonic() - began < SECONDS
    # The lease could not be given back: it is free as soon as the process has ended.
    monkeypatch.setattr("fieldfare_server.ledger.sql.leases.process_is_gone", lambda holder: True)
    goes_on(state, committed)


def test_a_head_without_room_leaves_a_started_run_that_goes_on(tmp_path: Path) -> None:
    """Its key was removed: the ledger named a run that nobody could resume, and that held its reservation."""
    state = home(tmp_path)
    write, full = HeadFile.write, [False]

    def refuse(file: HeadFile, head: Any, **how: bool) -> None:
        if full[0]:
            raise LedgerError("ledger head", "cannot be written (No space left on device).", "make room")
        write(file, head, **how)

    def reserve(ledger: Ledger, *arguments: Any, **named: Any) -> Any:
        full[0] = True
        return started(ledger, *arguments, **named)

    started = Ledger.start_run
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(HeadFile, "write", refuse)
        patched.setattr(Ledger, "start_run", reserve)
        with pytest.raises(Interrupted, check=coded("interrupted", "--resume run")):
            Session.begin(state, plan(), identity_is_stable=True, run_id="run")
        patched.setattr("fieldfare_server.ledger.sql.leases.process_is_gone", lambda holder: True)
        full[0] = False
        goes_on(state, 0)


@pytest.mark.parametrize("number", [1, 2])
def test_a_checkpoint_without_room_stops_its_run(tmp_path: Path, number: int) -> None:
    state = home(tmp_path)
    session = Session.begin(state, plan(), identity_is_stable=True, run_id="run")
    faults.load({faults.VARIABLE: f"checkpoint.half-written:enospc:{number}"})
    try:
        with pytest.raises(Interrupted, check=coded("interrupted", "--resume")) as stopped, session:
            FieldfareStrategy(session).start(LyingGrid(2))
    finally:
        faults.load({})
    assert stopped.value.__cause__ is not None
    goes_on(state, number - 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_file_that_cannot_be_written_at_the_end_loses_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    state = home(tmp_path)
    session = Session.begin(state, plan(), identity_is_stable=True, run_id="run")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number), "model.safetensors")

    with monkeypatch.context() as patched:
        patched.setattr("fieldfare_server.run.session.write_model", refuse)
        with pytest.raises(Interrupted, check=coded("interrupted", "--resume")), session:
            FieldfareStrategy(session).start(LyingGrid(2))
    goes_on(state, 6)


def test_an_interrupt_before_the_first_commit_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    """It ended, and whoever pressed Ctrl-C had to start another."""

    class Interrupting(LyingGrid):
        def push_messages(self, messages: Any) -> Any:
            raise KeyboardInterrupt

    state = home(tmp_path)
    session = Session.begin(state, plan(), identity_is_stable=True, run_id="run")
    with (
        pytest.raises(Interrupted, check=coded("interrupted", "--resume")),
        session,
    ):
        FieldfareStrategy(session).start(Interrupting(2))
    goes_on(state, 0)


def goes_on(state: Any, committed: int) -> None:
    """The run stands still after `committed` rounds; resumed, it ends with all of them, and its ledger is whole."""
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        run = ledger.run("run")
    assert (run.ended_at, run.next_round) == (None, committed)
    with Session.resume(state, "run", identity_is_stable=True) as session:
        assert session.next_round == committed
        FieldfareStrategy(session).start(LyingGrid(2))
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        assert (ledger.run("run").state, ledger.run("run").next_round) == ("done", 6)
        assert verify(ledger, state.root, recompute=recharge).ok
