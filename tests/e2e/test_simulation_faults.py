"""What cannot succeed in Flower's simulation ends at once, unspent: its nodes' data are the caller's own."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

import fieldfare as ff
from fieldfare_server.deployment.submit import program
from support.stranger import data_home, stranger

EXAMPLES = Path(__file__).parents[2] / "examples"


def failed(work: Path, app: Path, nodes: int) -> str:
    """What `flwr run` says of a run that fails in less than three minutes; nothing of a budget may be spent."""
    command = [program("flwr"), "run", str(app), "--stream", "--federation-config", f"num-supernodes={nodes}"]
    with stranger(work / "account") as env:
        began = time.monotonic()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=400)
        assert time.monotonic() - began < 180
    with ff.Ledger.open(f"sqlite:///{data_home(work / 'account') / 'ledger.sqlite3'}") as ledger:
        (population,) = ledger.populations()
        (run,) = ledger.runs().items
    assert (population.spent_epsilon, run.state, run.next_round) == (0.0, "failed", 0)
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(500)
def test_a_typo_costs_no_epsilon_in_flowers_simulation(tmp_path: Path) -> None:
    """Actors of Ray train many users each, in processes of their own."""
    copied = shutil.copytree(EXAMPLES / "hospitals", tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    client = copied / "hospitals" / "client_app.py"
    head, found, body = client.read_text().partition("    optimizer = ")
    assert found
    client.write_text(f'{head}    {{}}["lab_value"]\n{found}{body}')
    output = failed(tmp_path, copied, 4)
    assert "the training of every user that was asked failed" in output
    assert "KeyError at client_app.py" in output
    assert '{}["lab_value"]' in output, "the traceback of the node's process"


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(500)
def test_a_cohort_that_simulated_nodes_cannot_fill_is_refused_at_once(tmp_path: Path) -> None:
    """Two nodes, as Flower has them unless it is told; the quick start's cohort is fifty."""
    output = failed(tmp_path, EXAMPLES / "quickstart", 2)
    assert "2" in output
