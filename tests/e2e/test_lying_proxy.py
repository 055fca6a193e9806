"""A liar in the place of the gate, or of the SuperLink, between real processes with TLS and node keys.

It costs rounds and restarts, never privacy: when it has had enough, the run is resumed and ends; every charge is the
one of what was executed, and no round is released twice.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fieldfare_server.deployment.submit import submit
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.deployed import TASK, new_home, plan_text, require_sound, round_time
from support.lying_proxy import LIES, LyingProxy

ROUNDS = 8
PLAN = plan_text(ROUNDS, 10.0, 4)


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("place", ["nodes", "coordinator"], ids=["gate", "superlink"])
def test_a_liar_between_the_processes_costs_rounds_and_no_privacy(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]))
    home, work = new_home(tmp_path, 50.0), tmp_path / "work"
    proxies: dict[str, LyingProxy] = {}

    def reach(party: str, address: str) -> str:
        if party != place:
            return address
        if party not in proxies:
            proxies[party] = LyingProxy(address, work / "server" / "superlink", lies=60, share=0.2, seed=18)
        return proxies[party].address

    try:
        with round_time().federation(work, home, 3, TASK, ours=True, reach=reach, restart=True) as (_, address, ca):
            name = follow(home, work / "run", address, ca)
    finally:  # after the processes, which go on asking
        for proxy in proxies.values():
            proxy.close()
    told = proxies[place].told
    assert set(told) == set(LIES), told
    views = require_sound(home, name, ROUNDS)
    assert all(view.state in ("committed", "void") for view in views)


def follow(home: StateDirectory, work: Path, address: str, ca: Path) -> str:
    """Submit a run, and resume it as a supervisor does, until it has ended; its name.

    A run ends whose first cohorts never answer. It has released nothing, and a person submits the plan again.
    """
    deadline, began = time.monotonic() + 900.0, {"plan": PLAN, "run_id": "lied-to-0"}
    while True:
        submit(work, address, task=TASK, root_certificates=ca, timeout=900.0, **began)
        with Ledger.open(home.ledger) as ledger:
            runs = ledger.runs().items
        if runs and runs[0].state in ("running", "interrupted"):
            began = {"resume": runs[0].id}
        elif runs and runs[0].next_round:
            return runs[0].id
        else:
            assert all(run.spent_epsilon == 0.0 for run in runs)
            began = {"plan": PLAN, "run_id": f"lied-to-{len(runs)}"}
        assert time.monotonic() < deadline, runs
        time.sleep(2.0)
