"""A mirror step that cannot move the model, or did not, is worth a warning."""

from __future__ import annotations

from typing import Any

import pytest

from fieldfare.plan import Plan
from fieldfare_server.cli.progress import Trace, geometry_warnings, local_grid, run_here, stuck_warnings
from fieldfare_server.run.session import Session


def plan(**optimizer: Any) -> Plan:
    return Plan.parse(
        {
            "privacy": {"population": "p", "epsilon": 8.0, "delta": 1e-5},
            "run": {"task": "regression", "rounds": 4, "cohort": 10},
            "task": {"users": 40, "dimensions": 2000},
            "mechanism": {"kind": "independent"},
            "server_optimizer": {"kind": "ftrl", **optimizer},
        }
    )


def test_a_ball_that_the_steps_cannot_cross_is_named_before_training() -> None:
    slow = {"p": 1.05, "radius": 1.0, "steps": "anytime", "learning_rate": 0.05}
    (warning,) = geometry_warnings(Session.rehearse(plan(**slow), noise=True))
    assert "p = 1.05" in warning
    assert "2,000 parameters" in warning
    for fine in ({**slow, "learning_rate": 1e3}, {**slow, "p": 2.0}, {"p": 1.05}):
        assert geometry_warnings(Session.rehearse(plan(**fine), noise=True)) == []
    assert geometry_warnings(Session.rehearse(plan(**slow), noise=False)) == []


def test_a_score_that_stays_is_named_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    spec = plan(p=1.05, radius=1e-6)
    trace = run_here(Session.rehearse(spec, noise=True), local_grid(spec, 1), "x", quiet=True, private=False)
    (warning,) = stuck_warnings(trace, spec.server_optimizer)
    assert "stayed within 0.002" in warning
    assert "stayed within 0.002" in capsys.readouterr().err
    assert stuck_warnings(trace, plan(p=2.0).server_optimizer) == []
    assert stuck_warnings(Trace("x"), spec.server_optimizer) == []
    moving = plan(p=1.5, learning_rate=50.0)
    moved = run_here(Session.rehearse(moving, noise=True), local_grid(moving, 1), "x", quiet=True, private=False)
    assert stuck_warnings(moved, moving.server_optimizer) == []
