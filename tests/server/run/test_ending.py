"""Keys and noise state end with their run, however it ends (finding P10); the model stays."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from fieldfare.errors import BadInput, CheckpointError
from fieldfare_server import faults
from fieldfare_server.cli.application import application
from fieldfare_server.doctor.ledger import check_ledger
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.checkpoint import RunFiles, key_commitment
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.keys import key_format
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.states import EndState
from fieldfare_server.run.ending import FLAT, complete
from fieldfare_server.run.round.own_model import OwnModel
from fieldfare_server.run.round.roles import assign_roles
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, TinyTask, home, plan
from support.refusals import coded

RUN = "ending"
PRIVATE = plan(run__noise_seed=None, run__rounds=2, participation__max_participations=1)


def begin(state_dir: StateDirectory) -> Session:
    return Session.begin(state_dir, PRIVATE, identity_is_stable=True, run_id=RUN)


def test_a_flat_vector_is_told_from_a_parameter_of_its_name(tmp_path: Path) -> None:
    """Else a model with a parameter named as a checkpoint names its whole vector would be exported as that vector."""
    values = {"params": np.zeros((2, 2), np.float32), "bias": np.zeros(3, np.float32)}
    OwnModel(values, assign_roles(values, tied=[])).save(tmp_path)
    table = json.loads(PRIVATE.to_json())
    run: Any = SimpleNamespace(plan={**table, "run": {**table["run"], "task": ""}})
    whole = complete(run, RunFiles(tmp_path.parent, tmp_path.name), {FLAT: torch.arange(7.0)})
    assert {name: value.tolist() for name, value in whole.items()} == {
        "params": [[0.0, 1.0], [2.0, 3.0]],
        "bias": [4.0, 5.0, 6.0],
    }


@pytest.mark.parametrize("raises", ["import", "build_model"])
def test_a_task_that_is_broken_by_now_keeps_no_key_of_an_ended_run(
    raises: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module was found, and raised: `fieldfare abandon` was a traceback, and so was the start of any other run."""
    state_dir = home(tmp_path)
    with pytest.raises(KeyboardInterrupt), begin(state_dir):
        raise KeyboardInterrupt
    assert list(state_dir.root.glob(f"{RUN}/noise.key"))
    if raises == "import":
        monkeypatch.setattr("fieldfare_server.run.round.task_model.load_task", lambda _: {}["edited since"])
    else:
        monkeypatch.setattr(TinyTask, "build_model", lambda _: {}["edited since"])
    said = CliRunner().invoke(application, ["abandon", RUN, "--reason", "broken", "--home", str(state_dir.root)])
    assert said.exit_code == 0, said.output
    assert not list(state_dir.root.glob(f"{RUN}/noise.key"))


def require_ended(state_dir: StateDirectory, state: str, rounds: int, key: bytes) -> None:
    """Model there, secrets gone from the whole home, commitment kept, journal and doctor content."""
    directory = state_dir.root / RUN
    left = [path for path in directory.rglob("*") if path.is_file()]
    assert [path.name for path in left if path.suffix != ".strategy"] == ["model.safetensors"]  # a strategy is public
    assert {name: value.shape for name, value in load_file(directory / "model.safetensors").items()}.keys() == {
        "0.weight",
        "0.bias",
    }
    for path in state_dir.root.rglob("*"):
        assert not path.is_file() or key not in path.read_bytes()
    with Ledger.open(state_dir.ledger) as ledger:
        run = ledger.run(RUN)
        assert (run.state, run.next_round) == (state, rounds)
        report = verify(ledger, state_dir.root, recompute=recharge, held=[ledger.head()])
        assert report.ok, str(report.fault)
        with ledger.database.read() as connection:
            query = "SELECT action, body FROM audit WHERE action LIKE 'run.key%'"
            ((_, body),) = connection.exec_driver_sql(query).all()
    assert json.loads(body) == {"key_commitment": key_commitment(key)}
    assert not any("key of run" in finding.check for finding in check_ledger(state_dir))


@pytest.mark.parametrize("state", ["done", "stopped", "exhausted", "failed"])
def test_a_run_that_ends_leaves_its_model_only(state: EndState, tmp_path: Path) -> None:
    state_dir = home(tmp_path, simulated=False)
    with begin(state_dir) as session:
        key = session.files.key() if session.files else b""
        if state == "done":
            FieldfareStrategy(session).start(LyingGrid(3))
        else:
            FieldfareStrategy(session).run_round(LyingGrid(3))
            session.finish(state, "test")
    require_ended(state_dir, state, 2 if state == "done" else 1, key)


def interrupted(state_dir: StateDirectory) -> bytes:
    with begin(state_dir) as session:
        FieldfareStrategy(session).run_round(LyingGrid(3))
        assert session.files is not None
        return session.files.key()


def test_an_abandoned_run_leaves_its_model_only(tmp_path: Path) -> None:
    state_dir = home(tmp_path, simulated=False)
    key = interrupted(state_dir)
    result = CliRunner().invoke(application, ["abandon", RUN, "--reason", "test", "--home", str(state_dir.root)])
    assert result.exit_code == 0, result.output
    require_ended(state_dir, "stopped", 1, key)


@pytest.mark.parametrize("point", ["ledger.run.finished", "run.secret-destroyed"])
@pytest.mark.parametrize("opportunity", ["verify", "begin"])
def test_a_crash_between_end_and_destruction_is_completed(point: str, opportunity: str, tmp_path: Path) -> None:
    state_dir = home(tmp_path, simulated=False)
    with begin(state_dir) as session:
        FieldfareStrategy(session).run_round(LyingGrid(3))
        assert session.files is not None
        key = session.files.key()
        faults.load({faults.VARIABLE: f"{point}:raise"})
        try:
            with pytest.raises(faults.FaultInjected):
                session.finish("stopped", "test")
        finally:
            faults.load({})
    assert any(f"key of run {RUN}" in finding.check for finding in check_ledger(state_dir))
    if opportunity == "verify":
        result = CliRunner().invoke(application, ["verify", "--home", str(state_dir.root)])
        assert result.exit_code == 0, result.output
    else:
        with Session.begin(state_dir, PRIVATE, identity_is_stable=True, run_id="next") as other:
            assert other.next_round == 0
            assert RunFiles(state_dir.root, "next").secrets()
    require_ended(state_dir, "stopped", 1, key)


def test_what_cannot_be_destroyed_of_one_run_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One file that its disk refuses to overwrite kept every later run of the home from beginning."""
    state_dir = home(tmp_path, simulated=False)
    destroy = RunFiles.destroy

    def refuse(files: RunFiles) -> None:
        if files.directory.name == RUN:
            raise CheckpointError("key", "the disk refuses.")
        destroy(files)

    monkeypatch.setattr(RunFiles, "destroy", refuse)
    with begin(state_dir) as session, pytest.raises(CheckpointError, check=coded("checkpoint-error", "key")):
        session.finish("stopped", "test")
    with Session.begin(state_dir, PRIVATE, identity_is_stable=True, run_id="next") as other:
        FieldfareStrategy(other).start(LyingGrid(3))
    assert not RunFiles(state_dir.root, "next").secrets()
    assert f"run {RUN} has ended, and its key or checkpoints are still here" in caplog.text
    assert any(f"key of run {RUN}" in finding.check for finding in check_ledger(state_dir))
    result = CliRunner().invoke(application, ["verify", "--home", str(state_dir.root)])
    assert result.exit_code != 0
    assert "the disk refuses" in result.output


def test_the_files_of_a_run_under_way_or_unknown_are_never_destroyed(tmp_path: Path) -> None:
    state_dir = home(tmp_path, simulated=False)
    interrupted(state_dir)
    RunFiles(state_dir.root, "unknown").create(bytes(range(32)))
    before = [RunFiles(state_dir.root, name).secrets() for name in (RUN, "unknown")]
    assert CliRunner().invoke(application, ["verify", "--home", str(state_dir.root)]).exit_code == 0
    assert [RunFiles(state_dir.root, name).secrets() for name in (RUN, "unknown")] == before
    with Ledger.open(state_dir.ledger) as ledger, pytest.raises(BadInput, check=coded("not-now", "the key of run")):
        ledger.record_key_destroyed(RUN, actor="test")


FLIP = "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(bytes(b ^ 90 for b in d))"
SPOIL = "import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(bytes(32))"
FAIL = "import sys; sys.exit(3)"


def commands(monkeypatch: pytest.MonkeyPatch, wrap: str, unwrap: str) -> None:
    for name, script in (("WRAP", wrap), ("UNWRAP", unwrap)):
        monkeypatch.setenv(f"FIELDFARE_KEY_{name}", json.dumps([sys.executable, "-c", script]))


def test_a_wrapped_key_is_not_on_disk_and_a_failing_command_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir = home(tmp_path, simulated=False)
    commands(monkeypatch, FLIP, FLIP)
    key = interrupted(state_dir)
    content = (state_dir.root / RUN / "noise.key").read_bytes()
    assert key not in content
    own = psutil.Process()
    held = len(own.open_files())
    for unwrap, why in ((FAIL, "status 3"), (SPOIL, "not the one it was started with")):
        commands(monkeypatch, FLIP, unwrap)
        with pytest.raises(Exception, match=why):
            Session.resume(state_dir, RUN, identity_is_stable=True)
        assert (state_dir.root / RUN / "noise.key").read_bytes() == content
        assert len(own.open_files()) == held
    monkeypatch.delenv("FIELDFARE_KEY_WRAP")
    monkeypatch.delenv("FIELDFARE_KEY_UNWRAP")
    with pytest.raises(CheckpointError, check=coded("key-wrapped", "the noise key")):
        Session.resume(state_dir, RUN, identity_is_stable=True)
    commands(monkeypatch, FLIP, FLIP)
    with Session.resume(state_dir, RUN, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(3))
    require_ended(state_dir, "done", 2, key)


@pytest.mark.parametrize(("wrap", "unwrap"), [(FAIL, FLIP), (FLIP, FAIL), (FLIP, SPOIL)])
def test_a_key_that_cannot_be_wrapped_and_unwrapped_starts_no_run(
    wrap: str, unwrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir = home(tmp_path, simulated=False)
    commands(monkeypatch, wrap, unwrap)
    with pytest.raises(CheckpointError, match="noise key"):
        begin(state_dir)
    assert not (state_dir.root / RUN).exists()
    with Ledger.open(state_dir.ledger) as ledger:
        assert ledger.runs().items == ()


def test_half_a_setting_or_no_list_is_refused() -> None:
    for code, setting in (
        ("conflict", {"FIELDFARE_KEY_WRAP": "[]"}),
        ("wrong-form", {"FIELDFARE_KEY_WRAP": "age", "FIELDFARE_KEY_UNWRAP": '["age"]'}),
    ):
        with pytest.raises(BadInput, check=coded(code, "FIELDFARE_KEY")):
            key_format(setting)
    assert key_format({}).wrap(bytes(32)) == bytes(32)
    assert np.frombuffer(key_format({}).unwrap(bytes(32)), np.uint8).size == 32
