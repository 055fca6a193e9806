"""One coordinator a run, whatever clocks and networks do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Row

from fieldfare.errors import LedgerError
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, Outcome, RunHandle, holders, this_process
from fieldfare_server.ledger.sql import leases
from support.ledgers import commit, digest, gaussian, start
from support.refusals import coded


class Clock:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(ledger_url: str, clock: Clock) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, create=True, clock=clock) as opened:
        opened.create_population("people", 4.0, 1e-6, actor="officer")
        yield opened


KEY = digest("the key")


def test_a_second_coordinator_is_refused_while_the_first_is_alive(ledger: Ledger, clock: Clock) -> None:
    run = start(ledger, key_commitment=KEY)
    clock.now += leases.SECONDS - 1
    with pytest.raises(LedgerError, check=coded("run-held", "run")):
        ledger.resume_run(run.id, key_commitment=KEY, holder="other")
    commit(run, [], 0.1)  # which also renews the lease
    clock.now += leases.SECONDS - 1
    with pytest.raises(LedgerError, check=coded("run-held", "run")):
        ledger.resume_run(run.id, key_commitment=KEY, holder="other")


def test_of_two_that_take_a_run_over_at_once_only_one_does(
    ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(ledger, key_commitment=KEY)
    clock.now += leases.SECONDS
    read, quick = leases.read, list[RunHandle | None]()

    def slow(connection: Connection, seq: int) -> Row[Any]:
        """What is read, after which another coordinator is faster."""
        seen = read(connection, seq)
        if not quick:
            quick.append(None)
            quick[0] = ledger.resume_run(run.id, key_commitment=KEY, holder="quick")
        return seen

    monkeypatch.setattr(leases, "read", slow)
    with pytest.raises(LedgerError, check=coded("run-held", "run")):
        ledger.resume_run(run.id, key_commitment=KEY, holder="slow")
    assert quick[0] is not None
    quick[0].open_round([])


def test_a_silent_holder_is_replaced_and_can_write_nothing_more(ledger: Ledger, clock: Clock) -> None:
    run = start(ledger, key_commitment=KEY)
    opened = run.open_round([])
    clock.now += leases.SECONDS
    assert ledger.run(run.id).state == "interrupted"
    other = ledger.resume_run(run.id, key_commitment=KEY, holder="other")
    assert ledger.run(run.id).state == "running"
    for write in (
        lambda: run.commit_round(opened, Outcome([], gaussian(0.1)), digest("x")),
        lambda: run.void_round(opened, "late"),
        lambda: run.finish("failed"),
        lambda: run.hand_back(),
        lambda: run.register_users([1]),
    ):
        with pytest.raises(LedgerError, check=coded("run-held", "a write to run")):
            write()
    pending = other.open_round_pending()
    assert pending is not None
    assert (pending.index, pending.attempt, pending.noise_row) == (0, 0, 0)
    other.commit_round(pending, Outcome([], gaussian(0.1)), digest("y"))
    assert verify(ledger).ok


def test_a_clock_that_jumps_ahead_cannot_make_two_writers(ledger: Ledger, clock: Clock) -> None:
    run = start(ledger, key_commitment=KEY)
    clock.now += 1e6  # the first coordinator is well and alive
    other = ledger.resume_run(run.id, key_commitment=KEY, holder="other")
    commit(other, [], 0.1)
    with pytest.raises(LedgerError, check=coded("run-held", "a write to run")):
        commit(run, [], 0.1)


def test_a_clock_that_goes_backwards_neither_frees_nor_locks_for_ever(ledger_url: str, clock: Clock) -> None:
    with Ledger.open(ledger_url, create=True, clock=clock, lease_seconds=0.4) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, key_commitment=KEY)
        clock.now -= 1e6
        with pytest.raises(LedgerError, check=coded("run-held", "run")):
            ledger.resume_run(run.id, key_commitment=KEY, holder="other")
        # by its own monotonic clock the newcomer sees that nobody beats any more
        other = ledger.resume_run(run.id, key_commitment=KEY, holder="other", wait=5.0)
        commit(other, [], 0.1)
        with pytest.raises(LedgerError, check=coded("run-held", "a write to run")):
            commit(run, [], 0.1)


def test_a_beating_holder_is_not_replaced_however_long_one_waits(ledger_url: str, clock: Clock) -> None:
    with Ledger.open(ledger_url, create=True, clock=clock, lease_seconds=0.4) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger, key_commitment=KEY)
        beats = []

        class Beating(Clock):
            def __call__(self) -> float:
                run.heartbeat()
                beats.append(1)
                return 0.0  # long before the lease was renewed

        with Ledger.open(ledger_url, clock=Beating(), lease_seconds=0.4) as newcomer, pytest.raises(LedgerError):
            newcomer.resume_run(run.id, key_commitment=KEY, holder="other", wait=1.2)
        assert len(beats) > 3
        commit(run, [], 0.1)


def test_only_one_of_two_takes_a_free_lease(ledger: Ledger) -> None:
    run = start(ledger, key_commitment=KEY)
    run.hand_back("ctrl-c")
    ledger.resume_run(run.id, key_commitment=KEY, holder="one")
    with pytest.raises(LedgerError, check=coded("run-held", "run")):
        ledger.resume_run(run.id, key_commitment=KEY, holder="two")


def test_a_handle_gives_the_lease_back(ledger: Ledger) -> None:
    with start(ledger, key_commitment=KEY) as run:
        commit(run, [], 0.1)
    view = ledger.run(run.id)
    assert view.state == "interrupted"
    again = ledger.resume_run(run.id, key_commitment=KEY, holder="two")
    assert again.next_round == 1
    again.__exit__(RuntimeError, RuntimeError("cable pulled"), None)
    assert ledger.run(run.id).message == "RuntimeError: cable pulled"
    ledger.resume_run(run.id, key_commitment=KEY, holder="three").__exit__(SystemExit, SystemExit(0), None)
    assert "fieldfare abandon" in str(ledger.run(run.id).message)  # `flwr stop`: "SystemExit: 0" told nobody what to do


def test_what_ends_the_process_is_told_without_its_text(ledger: Ledger) -> None:
    """In a simulation that may be a task at a user's row: `sys.exit(f"no such code: {row}")`."""
    run = start(ledger, key_commitment=KEY)
    run.__exit__(SystemExit, SystemExit("no such code: HIV"), None)
    assert "HIV" not in str(ledger.run(run.id).message)
    again = ledger.resume_run(run.id, key_commitment=KEY, holder="two")
    again.__exit__(KeyboardInterrupt, KeyboardInterrupt("no such code: HIV"), None)
    assert ledger.run(run.id).message == "KeyboardInterrupt"


def test_another_key_cannot_resume(ledger: Ledger) -> None:
    with start(ledger, key_commitment=KEY) as run:
        pass
    with pytest.raises(LedgerError, check=coded("other-key", "resuming run")):
        ledger.resume_run(run.id, key_commitment=digest("another"), holder="two")


def test_an_ended_run_cannot_resume(ledger: Ledger) -> None:
    run = start(ledger, key_commitment=KEY)
    run.finish("done")
    with pytest.raises(LedgerError, check=coded("out-of-turn", "run ")):
        ledger.resume_run(run.id, key_commitment=KEY, holder="two")


def test_a_dead_process_of_this_machine_holds_nothing(ledger: Ledger) -> None:
    line = "from fieldfare_server.ledger import this_process; print(this_process())"
    dead = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True).stdout.strip()
    assert dead.count("/") == 4
    assert holders.process_is_gone(dead)
    assert not holders.process_is_gone(this_process())
    assert not holders.process_is_gone("another/machine")
    assert not holders.process_is_gone("/".join(["elsewhere", *dead.split("/")[1:]]))
    run = start(ledger, key_commitment=KEY, holder=dead)
    ledger.resume_run(run.id, key_commitment=KEY, holder=this_process())
    with pytest.raises(LedgerError, check=coded("run-held", "run")):
        ledger.resume_run(run.id, key_commitment=KEY, holder="two")


def test_abandoning_returns_the_reservation_and_voids_the_open_round(ledger: Ledger, clock: Clock) -> None:
    run = start(ledger, 0.8, key_commitment=KEY)
    commit(run, [], 0.1)
    run.open_round([])
    with pytest.raises(LedgerError, check=coded("run-held", "run")):
        ledger.abandon(run.id, reason="machine is gone", actor="officer")
    clock.now += leases.SECONDS
    view = ledger.abandon(run.id, reason="machine is gone", actor="officer")
    assert (view.state, view.message, view.next_round) == ("stopped", "machine is gone", 1)
    assert ledger.population("people").committed.mu == pytest.approx(0.1)
    assert [r.state for r in ledger.rounds(run.id).items] == ["committed", "void"]
    assert verify(ledger).ok


def test_requests_are_seen_by_the_coordinator(ledger: Ledger) -> None:
    run = start(ledger, key_commitment=KEY)
    assert run.request() is None
    assert ledger.request(run.id, "pause", "officer").state == "paused"
    assert run.request() == "pause"
    assert ledger.request(run.id, None, "officer").state == "running"
    assert ledger.request(run.id, "stop", "officer").state == "stopping"
    assert run.request() == "stop"
    run.finish("stopped")
    assert ledger.run(run.id).request is None
    assert verify(ledger).ok
