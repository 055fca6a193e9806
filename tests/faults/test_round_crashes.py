"""kill -9 at every named point of the real round; afterwards `resume` goes on as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fieldfare.plan import Plan
from fieldfare_server import faults
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

RUN = "crashing"
NEVER = {"ledger.round.voiding", "ledger.round.voided", "checkpoint.pruned"}
NEVER |= {"round.closing.written", "ledger.round.closing", "ledger.round.closed", "strategy.asked"}
"""Not passed in a run of three rounds without voids and masks (tests/server/run/test_masked_runs.py)."""
POINTS = tuple(point for point in faults.POINTS if point not in NEVER)


SHORT = plan(run__rounds=3, participation__separation=2)
THREE_QUERIES = plan(
    run__rounds=7,
    run__cohort=8,
    participation={"scheme": "fixed-order", "period": 3},
    mechanism={"kind": "momentum-tree", "momentum": 0.9},
    server_optimizer={"kind": "three-query", "period": 3},
)


def live(state_dir: StateDirectory, fault: str, a_plan: Plan = SHORT) -> int:
    """One life of a coordinator in a child process; its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(100)
            torch.set_num_threads(1)
            faults.load({faults.VARIABLE: fault})
            with Ledger.open(state_dir.ledger) as ledger:
                known = any(run.id == RUN for run in ledger.runs().items)
                over = known and ledger.run(RUN).state == "done"
            if not over:
                session = (
                    Session.resume(state_dir, RUN, identity_is_stable=True)
                    if known
                    else Session.begin(state_dir, a_plan, identity_is_stable=True, run_id=RUN)
                )
                with session:
                    # Places of a fixed order go by index, and with two nodes that is who registered first.
                    FieldfareStrategy(session).start(LyingGrid(1 if a_plan is THREE_QUERIES else 2))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def released(state_dir: StateDirectory) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in load_file(state_dir.root / RUN / "model.safetensors").values()])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    state_dir = home(tmp_path_factory.mktemp("whole"))
    assert live(state_dir, "") == 0
    return released(state_dir)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("ledger_url", "nth"),
    [("sqlite", 1), ("sqlite", 2), pytest.param("postgresql", 1, marks=pytest.mark.postgres)],
    indirect=["ledger_url"],
)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, nth: int, ledger_url: str, uninterrupted: torch.Tensor, tmp_path: Path) -> None:
    state_dir = home(tmp_path, url=ledger_url)
    status = live(state_dir, f"{point}:kill:{nth}")
    if status == 0:
        assert nth > 1  # passed only once in a run
    else:
        assert status == -signal.SIGKILL
        leftover = state_dir.root / RUN
        if leftover.exists() and not any(run.id == RUN for run in _runs(state_dir)):
            # Killed between making the key and reserving: nothing was charged, the next start uses a new directory.
            shutil.rmtree(leftover)
        assert live(state_dir, "") == 0
    torch.testing.assert_close(released(state_dir), uninterrupted, rtol=0, atol=0)
    with Ledger.open(state_dir.ledger, head_file=state_dir.head_file) as ledger:
        row = ledger.run(RUN)
        rows = [r.noise_row for r in ledger.rounds(RUN).items if r.state == "committed"]
        report = verify(ledger, state_dir.root, recompute=recharge)
    assert (row.state, row.next_round, rows) == ("done", 3, [0, 1, 2])
    assert report.ok, str(report.fault)


@pytest.mark.timeout(200)
def test_killed_in_every_epoch_of_three_queries(tmp_path: Path) -> None:
    """Models of two epochs ago, the memory of every round and the base's state all come back bit for bit."""
    whole, broken = home(tmp_path / "whole"), home(tmp_path / "broken")
    assert live(whole, "", THREE_QUERIES) == 0
    for point, nth in (("strategy.privatised", 2), ("checkpoint.pending", 3), ("strategy.released", 1)):
        assert live(broken, f"{point}:kill:{nth}", THREE_QUERIES) == -signal.SIGKILL
    assert live(broken, "", THREE_QUERIES) == 0
    torch.testing.assert_close(released(broken), released(whole), rtol=0, atol=0)
    with Ledger.open(broken.ledger, head_file=broken.head_file) as ledger:
        assert [r.noise_row for r in ledger.rounds(RUN).items if r.state == "committed"] == list(range(7))
        report = verify(ledger, broken.root, recompute=recharge)
    assert report.ok, str(report.fault)


def _runs(state_dir: StateDirectory) -> tuple[object, ...]:
    with Ledger.open(state_dir.ledger) as ledger:
        return ledger.runs().items
