"""Runs for the federation in containers: their plan, the same in one process, and what must hold of them afterwards."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fieldfare.plan import Plan
from fieldfare_server.cli.progress import local_grid, run_here
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.session import Session
from support.containers import ROOT, Federation

TASK = "fieldfare_e2e:Digits400"

# Seeded noise, so that two engines must release the same model. Private for nobody: its population is marked simulated.
PLAN = """
[privacy]
population = "{name}"
epsilon = 8.0
delta = 1e-5

[run]
task = "fieldfare_e2e:Digits400"
rounds = {rounds}
cohort = 24
min_reports = {min_reports}
min_available = {min_available}
round_timeout = {timeout}
noise_seed = 7
accept_noise = true

[participation]
scheme = "min-separation"
separation = 3
max_participations = 2

[mechanism]
kind = "nu"
nu = "auto"

[client]
epochs = 1
batch_size = 8
learning_rate = 0.3
"""


def plan(name: str, rounds: int, *, min_reports: int = 24, min_available: int = 400, timeout: float = 60.0) -> str:
    """A plan of the tests. `name`: of its population, which nobody else charges."""
    return PLAN.format(name=name, rounds=rounds, min_reports=min_reports, min_available=min_available, timeout=timeout)


def run_alone(text: str, directory: Path) -> list[tuple[float, float]]:
    """(score, epsilon) of each round of a plan, on two nodes of this process."""
    image = str(ROOT / "tests/e2e/image")
    if image not in sys.path:
        sys.path.append(image)
    home = StateDirectory(directory, f"sqlite:///{directory / 'ledger.sqlite3'}")
    home.prepare()
    parsed = Plan.from_toml(text)
    with Ledger.open(home.ledger, create=True) as ledger:
        ledger.create_population(parsed.privacy.population, 8.0, 1e-5, simulated=True, actor="test")
    session = Session.begin(home, parsed, identity_is_stable=True)
    trace = run_here(session, local_grid(parsed, 2), "", quiet=True)
    return [(float(report.score or 0.0), report.epsilon) for report in trace.reports]


CRASHED = "the coordinator stopped during this round"
"""Why a round was void that is then drawn again as it was; after any other void attempt another cohort is drawn."""


def check_ledger(federation: Federation) -> None:
    """Every charge recomputed, the chain, the head that the coordinator holds, the checkpoints' digests."""
    assert json.loads(federation.exec("coordinator", "fieldfare", "verify", "--json"))["ok"] is True


def check_run(federation: Federation, run: str, alone: list[tuple[float, float]]) -> int:
    """Each round was released once, with its own noise row and charge, and is the round of a run in one process.

    alone: (score, epsilon) of each round in one process. Rounds after one that was drawn anew have other cohorts, so
    there only the bounds of the charge are compared. Returns how many rounds were compared in full.
    """
    attempts = federation.rounds(run)
    committed = [r for r in attempts if r["state"] == "committed"]
    assert [r["index"] for r in committed] == list(range(len(alone)))
    rows = federation.sql(
        "SELECT noise_row FROM rounds WHERE state = 'committed' AND run_seq = "
        f"(SELECT seq FROM runs WHERE id = '{run}') ORDER BY noise_row"
    )
    assert [row for (row,) in rows] == list(range(len(alone)))
    redrawn = [r["index"] for r in attempts if r["state"] == "void" and r["reason"] != CRASHED]
    same_until = min(redrawn, default=len(alone))
    spent = 0.0
    for attempt, (score, epsilon) in zip(committed, alone, strict=True):
        assert spent <= attempt["epsilon"] <= 8.0 * (1 + 1e-9)
        spent = attempt["epsilon"]
        if attempt["index"] < same_until:
            assert attempt["statistics"]["score"] == pytest.approx(score, abs=1e-3)
            assert attempt["epsilon"] == pytest.approx(epsilon, rel=1e-9)
    check_ledger(federation)
    return same_until
