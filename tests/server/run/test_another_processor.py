"""A run is priced once: whatever processor it goes on with, it is charged, verified and shown by the stored price."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fieldfare.accounting import PrivacyLoss
from support.another_processor import OTHER
from support.kinds import SPECS

SECRET: dict[str, Any] = {"run__noise_seed": None, "run__min_reports": None, "run__cohort": 8}
SAMPLERS: dict[str, dict[str, Any]] = {
    "poisson": {"scheme": "poisson", "rate": 0.1},
    "cyclic-poisson": {"scheme": "cyclic-poisson", "groups": 2, "rate": 0.3},
    "truncated-poisson": {"scheme": "truncated-poisson", "rate": 0.1, "cap": 20, "enrolled": 24},
    "random-allocation": {"scheme": "random-allocation", "bins": 3},
    "balls-in-bins": {"scheme": "balls-in-bins", "bins": 3},
    "b-min-sep": {"scheme": "b-min-sep", "separation": 3, "rate": 0.5},
}


def aimed(adjacency: str, epsilon: float, **more: Any) -> dict[str, Any]:
    """A plan whose noise has to be searched for."""
    table = {"population": "people", "epsilon": epsilon, "delta": 1e-5, "adjacency": adjacency, **more}
    return {"privacy": table, "run__noise_seed": None}


def sampled(scheme: str, kind: dict[str, Any]) -> dict[str, Any]:
    return {**aimed("add_remove", 2.0), **SECRET, "participation": SAMPLERS[scheme], "mechanism": kind}


SPECTRAL = {"kind": "spectral", "eigenvalues": [1.0, 0.1], "learning_rate": 0.2, "engine": "replay"}
FEW = {
    "poisson": sampled("poisson", {"kind": "independent"}),
    "balls-in-bins": sampled("balls-in-bins", {"kind": "nu", "nu": 0.1}),
    "blt": {**aimed("zero_out", 2.0), "mechanism": {"kind": "blt"}},
    "discrete": {**aimed("zero_out", 2.0, rounding="discrete"), "mechanism": {"kind": "independent"}},
}
ALL = {
    **{f"{scheme}-independent": sampled(scheme, {"kind": "independent"}) for scheme in SAMPLERS},
    "cyclic-poisson-banded": sampled("cyclic-poisson", {"kind": "banded", "bands": 2}),
    "random-allocation-banded": sampled("random-allocation", {"kind": "banded", "bands": 2}),
    "b-min-sep-banded": sampled("b-min-sep", {"kind": "banded", "bands": 2}),
    "balls-in-bins-auto": sampled("balls-in-bins", {"kind": "nu"}),
    "poisson-tree": sampled("poisson", {"kind": "tree"}),
    "replace-one": {**aimed("replace_one", 2.0), "mechanism": {"kind": "nu", "nu": 0.1}},
    "worst-case": {**aimed("zero_out", 2.0, accounting="worst-case"), "mechanism": {"kind": "nu", "nu": 0.1}},
    "spectral-replay": {**aimed("zero_out", 2.0), "mechanism": SPECTRAL},
    **{f"kind-{n}": {**aimed("zero_out", 2.0), "mechanism": spec} for n, spec in enumerate(SPECS)},
}

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
    reason="another processor is imitated by an option of glibc on x86-64",
)


def lived(act: str, root: Path, plans: dict[str, Any], other: bool) -> dict[str, dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name not in OTHER} | (OTHER if other else {})
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "support.another_processor", act, str(root)]
    done = subprocess.run(command, env=environment, input=json.dumps(plans), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize("other_first", [False, True], ids=["begun-here", "begun-there"])
@pytest.mark.parametrize("plans", [pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.slow)])
def test_a_run_keeps_its_price_on_another_processor(plans: dict[str, Any], other_first: bool, tmp_path: Path) -> None:
    before = lived("begin", tmp_path, plans, other_first)
    after = lived("end", tmp_path, plans, not other_first)
    assert before.keys() == after.keys() == plans.keys()
    for name, ended in after.items():
        begun = before[name]
        assert (ended["state"], ended["fault"], ended["residual"]) == ("done", "", ""), name
        for what in ("multiplier", "charge", "planned"):
            assert ended[what] == begun[what], name
        assert ended["charge"] == ended["planned"]
        assert ended["certified multiplier"] == ended["shown multiplier"] == begun["multiplier"]
        spent, planned = (PrivacyLoss.from_json(ended[what]) for what in ("spent", "planned"))
        assert spent == planned or spent.mu_squared <= planned.mu_squared, name
        assert PrivacyLoss.from_json(begun["spent"]).mu_squared <= spent.mu_squared
