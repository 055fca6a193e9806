"""Runs that are begun and killed in one process, and ended in one that computes as another processor does.

`python -m support.another_processor begin ROOT` starts each plan of PLANS in a home of its own below ROOT, commits two
rounds, and dies with the third one open; `... end ROOT` resumes each of them, takes it to its end and verifies it. Both
print what they saw as JSON: {name: facts}. Standard input is {name: keywords of `support.federation.plan`}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fieldfare.accounting import certification
from fieldfare.plan import Plan
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.evidence.residual_test import run_residual_test
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

OTHER = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA", "OPENBLAS_CORETYPE": "Nehalem"}
"""Environment under which the C library and BLAS compute as on a processor without these instructions."""


def few_samples() -> None:
    """Certify with so few samples that it takes no time."""
    certification.SAMPLES = (1 << 15, 1 << 15)  # type: ignore[misc]
    certification._PILOT = 1 << 13  # type: ignore[misc]
    certification._FINE = 1 << 14  # type: ignore[misc]


def begin(state: StateDirectory, a_plan: Plan) -> dict[str, Any]:
    """Start the run, commit two rounds, and leave the third one open."""
    session = Session.begin(state, a_plan, identity_is_stable=True)
    session.__enter__()
    strategy, grid = FieldfareStrategy(session), LyingGrid(2)
    for _ in range(2):
        strategy.run_round(grid)
    users = session.account.register_users(np.arange(3, dtype=np.uint64))
    session.account.open_round(users)
    return {"run": session.account.id, **facts(state, session)}


def end(state: StateDirectory) -> dict[str, Any]:
    """Take up the run of a home, end it, and verify it."""
    with Ledger.open(state.ledger) as ledger:
        (view,) = ledger.runs().items
    with Session.resume(state, view.id, identity_is_stable=True) as session:
        FieldfareStrategy(session).take_to_end(LyingGrid(2))
        seen = facts(state, session)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        report = verify(ledger, state.root, recompute=recharge, held=[ledger.head()])
        written = json.loads(certificate(ledger, view.id, state)) if view.noise_source != "seeded" else None
        told = plan_facts(view, state.root)
        tested = run_residual_test(ledger, view.id, actor="test", numbers=1 << 14, root=state.root).residual
        state_of = ledger.run(view.id).state
    return {
        **seen,
        "state": state_of,
        "fault": str(report.fault or report.missing or report.unpinned or ""),
        "certified multiplier": None if written is None else written["noise"]["multiplier"],
        "shown multiplier": None if told is None else told.noise_multiplier,
        "residual": tested.message if not tested.passed else "",
    }


def facts(state: StateDirectory, session: Session) -> dict[str, Any]:
    """What is charged, in full precision."""
    assert session.cost is not None
    with Ledger.open(state.ledger) as ledger:
        view = ledger.run(session.account.id)
    return {
        "multiplier": session.cost.noise_multiplier,
        "charge": session.cost.loss.to_json(),
        "planned": view.planned.to_json(),
        "spent": view.spent.to_json(),
    }


def _main(act: str, root: Path) -> None:
    few_samples()
    seen = {}
    for name, changes in json.load(sys.stdin).items():
        a_plan = plan(**changes)
        if act == "begin":
            seen[name] = begin(home(root / name, 100.0, adjacency=a_plan.privacy.adjacency), a_plan)
        else:
            folder = root / name / "home"
            seen[name] = end(StateDirectory(folder, f"sqlite:///{folder / 'ledger.sqlite3'}", lease_patience=5.0))
    print(json.dumps(seen), flush=True)
    os._exit(0)  # as a process that is killed: no lease is given back


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
