"""Ctrl-C at any moment of a run: it ends in `Interrupted`, with the command that continues it, and in nothing else."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from fieldfare.errors import Interrupted
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.interrupts import Interrupts
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def pythons_handler() -> object:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# One that comes inside a callback of the garbage collector is dropped there, and found at the next look.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("pythons_handler")
def test_fifty_interrupts_at_random_moments_each_end_in_a_run_that_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run, interrupted and resumed again and again; alternately in groups of rounds and in single ones."""
    monkeypatch.setattr("fieldfare_server.run.round.commits.GROUP_SECONDS", 0.02)
    state, draw = home(tmp_path), random.Random(3)
    turns = {"scheme": "min-separation", "separation": 1}
    a_plan = plan(run__rounds=100_000, run__evaluate_every=100_000, participation=turns, privacy__noise_multiplier=2e3)
    session = Session.begin(state, a_plan, identity_is_stable=True, run_id="run")
    done = 0
    for turn in range(50):
        timer = threading.Timer(draw.uniform(0.0, 0.1), press_ctrl_c)

        def begin(report: RoundReport, timer: threading.Timer = timer) -> None:
            if timer.ident is None:
                timer.start()

        if turn % 2:
            session.account.begin_groups()
        with pytest.raises(Interrupted, check=coded("interrupted", "--resume")), session:
            FieldfareStrategy(session, begin).start(LyingGrid(2))
        timer.join()
        assert session.next_round > done
        done = session.next_round
        with Ledger.open(state.ledger) as ledger:
            run = ledger.run("run")
        assert (run.state, run.next_round) == ("interrupted", done)
        session = Session.resume(state, "run", identity_is_stable=True)
        assert session.next_round == done
    session.__exit__(None, None, None)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        assert verify(ledger, state.root, recompute=recharge).ok


@pytest.mark.usefixtures("pythons_handler")
def test_an_interrupt_that_somebody_drops_is_raised_at_the_next_look() -> None:
    """As in a finaliser: Python prints "Exception ignored" and goes on."""
    interrupts = Interrupts()
    with interrupts:
        try:
            with interrupts.allowed():
                press_ctrl_c()
                time.sleep(5)
        except KeyboardInterrupt:
            pass
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()  # once


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("pythons_handler")
def test_nothing_is_broken_in_two(number: signal.Signals) -> None:
    """Nor by the signals that the command line lets end a command as Ctrl-C does."""
    interrupts, steps, before = Interrupts(), list[str](), signal.signal(number, signal.default_int_handler)

    def commit() -> None:
        with interrupts:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            steps.append("a step")
            with interrupts.allowed():
                steps.append("never")

    with pytest.raises(KeyboardInterrupt):
        commit()
    assert steps == ["a step"]
    with pytest.raises(KeyboardInterrupt), interrupts:  # what follows the run is not begun
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.default_int_handler
    signal.signal(number, before)


def test_another_handler_is_left_alone() -> None:
    noted = []
    before = signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        with Interrupts() as _:
            press_ctrl_c()
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
    assert noted == [signal.SIGINT]
