"""A home that commit c0dd382 wrote: its unfinished runs are resumed to the models that c0dd382 itself ended with.

`home` is a copy taken while two runs trained and one committed; `finished` and `expected.json` are the same home after
c0dd382 resumed the three. The seeds are fixed, so the same models must come out. The checkpoints of two finished runs
were left out of the copy; `verify` therefore checks the ledger, and the files of the resumed run are checked here.
"""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from fieldfare_server.cli.progress import local_grid, run_here
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.checkpoint import RunFiles
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.record import RoundRecord
from fieldfare_server.run.session import Session

OLD = Path(__file__).parents[2] / "data" / "home-c0dd382"
EXPECTED = json.loads((OLD / "expected.json").read_text())

UNFINISHED = {
    "907f26132330": "round 4 was complete when the run stopped: committed",  # dense; killed during a commit
    "fd91d04abcff": "round 5 was open when the run stopped: void",  # banded, adaptive clip norm, fedadam
    "b3e831f93bb2": "round 5 was open when the run stopped: void",  # Poisson sampling under add_remove
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    """A copy with the modes and empty directories that git does not keep. By its clock, all leases ran out long ago."""
    shutil.copytree(OLD / "home", tmp_path / "home")
    for key in (tmp_path / "home").glob("*/noise.key"):
        key.chmod(0o600)
        (key.parent / "pending").mkdir(exist_ok=True)
    Ledger.migrate(f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}", tmp_path / "home" / "ledger.head")
    monkeypatch.setattr(Ledger, "open", functools.partial(Ledger.open, clock=lambda: 4e9))
    return StateDirectory.of(tmp_path / "home", f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}")


@pytest.mark.parametrize("run_id", UNFINISHED)
def test_an_unfinished_run_is_resumed_to_the_same_model_and_charge(
    home: StateDirectory, run_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="fieldfare.session"):
        session = Session.resume(home, run_id, identity_is_stable=True)
    assert [record.getMessage() for record in caplog.records] == [UNFINISHED[run_id]]
    run_here(session, local_grid(session.plan, 4), run_id, quiet=True)

    model, expected = (load_file(path) for path in (home.root / run_id / "model.safetensors", finished(run_id)))
    assert model.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(model[name], value, rtol=1e-5, atol=1e-5)
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        run = ledger.run(run_id)
        report = verify(ledger, recompute=recharge, held=[ledger.head()], store_root=home.root)
    assert run.state == EXPECTED[run_id]["state"] == "done"
    assert run.spent_epsilon == pytest.approx(EXPECTED[run_id]["spent_epsilon"], rel=1e-9)
    assert report.ok, str(report.fault)
    assert RunFiles(home.root, run_id).secrets() == []


def test_its_finished_runs_are_shown_as_they_ended(home: StateDirectory) -> None:
    with Ledger.open(home.ledger, head_file=home.head_file) as ledger:
        runs = {run.id: run for run in ledger.runs().items}
        report = verify(ledger, recompute=recharge, held=[ledger.head()], store_root=home.root)
        sampled = ledger.population("old-sampled")
    assert (report.missing, report.unpinned) == ({}, {})
    assert report.ok, str(report.fault)
    # Two sampled runs, each priced by its planned rounds, though one has not reached its end.
    assert sampled.spent == sampled.committed
    assert sampled.spent.leak == pytest.approx(1e-6 * 7 / 16)
    assert sampled.spent_epsilon == pytest.approx(3.21883, abs=1e-5)
    assert not sampled.overdrawn
    assert runs.keys() == EXPECTED.keys()
    for run_id in EXPECTED.keys() - UNFINISHED.keys():
        assert runs[run_id].state == EXPECTED[run_id]["state"] == "done"
        assert runs[run_id].next_round == runs[run_id].rounds == 8
        assert runs[run_id].spent_epsilon == pytest.approx(EXPECTED[run_id]["spent_epsilon"], rel=1e-9)


def test_its_round_records_are_read_and_written_without_a_change() -> None:
    paths = sorted(path for path in (OLD / "home").glob("*/*/*.safetensors"))
    assert len(paths) == 9
    for path in paths:
        with safe_open(path, framework="pt") as file:
            note = json.loads(file.metadata()["fieldfare"])
        assert RoundRecord.from_json(note["meta"]).to_json() == note["meta"]


def finished(run_id: str) -> Path:
    return OLD / "finished" / f"{run_id}.safetensors"
