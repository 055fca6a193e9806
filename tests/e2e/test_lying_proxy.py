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
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.deployed import round_time
from support.lying_proxy import LIES, LyingProxy

ROUNDS = 8
TASK = "support.federation:TinyTask"
PLAN = f"""
[privacy]
population = "people"
noise_multiplier = 5.0
delta = 1e-5
[run]
task = "{TASK}"
rounds = {ROUNDS}
cohort = 8
min_reports = 4
round_timeout = 10.0
[participation]
scheme = "min-separation"
separation = 2
max_participations = 4
[mechanism]
kind = "nu"
nu = "auto"
[client]
epochs = 1
batch_size = 3
learning_rate = 0.1
"""


@pytest.mark.flower
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("place", ["nodes", "coordinator"], ids=["gate", "superlink"])
def test_a_liar_between_the_processes_costs_rounds_and_no_privacy(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")]))
    home, work = StateDirectory(tmp_path / "home", f"sqlite:///{tmp_path / 'home/ledger.sqlite3'}"), tmp_path / "work"
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("people", 50.0, 1e-5, actor="test")
    proxies: dict[str, LyingProxy] = {}

    def reach(party: str, address: str) -> str:
        if party != place:
            return address
        if party not in proxies:
            proxies[party] = LyingProxy(address, work / "server" / "superlink", lies=60, share=0.2, seed=18)
        return proxies[party].address

    try:
        with round_time().federation(work, home, 3, TASK, ours=True, reach=reach, restart=True) as (_, address, ca):
            follow(home, work / "run", address, ca)
    finally:  # after the processes, which go on asking
        for proxy in proxies.values():
            proxy.close()
    told = proxies[place].told
    assert set(told) == set(LIES), told
    with Ledger.open(home.ledger) as ledger:
        run = ledger.run("lied-to")
        views = ledger.rounds("lied-to", limit=500).items
        report = verify(ledger, home.root, recompute=recharge, held=ledger.head())
    assert report.ok, str(report.fault)
    assert run.state == "done"
    assert sorted(view.index for view in views if view.state == "committed") == list(range(ROUNDS))
    assert all(view.state in ("committed", "void") for view in views)
    assert 0.0 < run.spent_epsilon <= run.planned_epsilon * (1 + 1e-9)


def follow(home: StateDirectory, work: Path, address: str, ca: Path) -> None:
    """Submit the run, and resume it as a supervisor does, until it has ended."""
    deadline, resume = time.monotonic() + 900.0, ""
    while True:
        began = {"resume": resume} if resume else {"plan": PLAN, "run_id": "lied-to"}
        submit(work, address, task=TASK, root_certificates=ca, timeout=900.0, **began)
        with Ledger.open(home.ledger) as ledger:
            runs = ledger.runs().items
        if runs and runs[0].state not in ("running", "interrupted"):
            return
        assert time.monotonic() < deadline, runs
        resume = "lied-to" if runs else ""
        time.sleep(2.0)
