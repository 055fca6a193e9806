"""`fieldfare model`: what a run released, in files that plain PyTorch loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner, Result

from fieldfare.task import seeded
from fieldfare_server.cli.application import application
from fieldfare_server.files.home import SHAREABLE
from fieldfare_server.ledger import Ledger
from fieldfare_server.run import export_model
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, TinyTask, home, plan


class PartlyFrozen(TinyTask):
    """One trained layer, one frozen one, and a constant buffer."""

    def build_model(self) -> nn.Module:
        with seeded(self.seed):
            model = nn.Sequential(nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 1))
            model.register_buffer("scale", torch.full((2,), 7.0))
            return model


TASK = f"{__name__}:PartlyFrozen"


class Grid(LyingGrid):
    def __init__(self) -> None:
        super().__init__(2)
        for context in self._contexts.values():
            context.run_config = {"task": TASK}


def model(*arguments: Any) -> Result:
    return CliRunner().invoke(application, ["model", *map(str, arguments)])


def test_the_whole_state_dict_loads_strictly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    with Session.begin(where, plan(run__task=TASK), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(Grid())
    released = session.schema.arrays(session.params)
    path = tmp_path / "m.safetensors"
    result = model(session.account.id, "--out", path, "--home", where.root, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rounds"] == 6
    module = PartlyFrozen().build_model()
    initial = {name: value.clone() for name, value in module.state_dict().items()}
    module.load_state_dict(load_file(path), strict=True)
    state = module.state_dict()
    assert set(state) == {"0.weight", "0.bias", "1.weight", "1.bias", "scale"}
    for name, value in state.items():
        if name in released:
            assert torch.equal(value, torch.from_numpy(released[name]))
            assert not torch.equal(value, initial[name])
        else:
            assert torch.equal(value, initial[name])
    with safe_open(path, "pt") as file:
        assert file.metadata()["fieldfare.run"] == session.account.id
        assert file.metadata()["fieldfare.delta"] == "1e-5"
        assert float(file.metadata()["fieldfare.epsilon-of-run"]) == session.released.spent.epsilon(1e-5)

    taken = model(session.account.id, "--out", path, "--home", where.root)
    assert taken.exit_code == 2
    assert "there is a file already" in taken.output
    earlier = model(session.account.id, "--round", 3, "--out", tmp_path / "e", "--home", where.root)
    assert earlier.exit_code == 2
    assert "Nearest allowed: 0, 6" in earlier.output
    monkeypatch.chdir(tmp_path)
    assert model(session.account.id, "--home", where.root).exit_code == 0
    assert (tmp_path / "model.safetensors").read_bytes() == path.read_bytes()  # its hash names a model
    first = model(session.account.id, "--round", 0, "--out", tmp_path / "0", "--home", where.root)
    assert SHAREABLE in first.output
    for name, value in load_file(tmp_path / "0").items():
        assert torch.equal(value, initial[name])


def test_a_run_under_way_gives_its_newest_two_models(tmp_path: Path) -> None:
    where = home(tmp_path)
    session = Session.begin(where, plan(run__task=TASK), identity_is_stable=True)
    with session:
        strategy, grid, after = FieldfareStrategy(session), Grid(), {}
        for rounds in (1, 2, 3):
            strategy.run_round(grid)
            after[rounds] = session.schema.arrays(session.params)["1.weight"].copy()
        for rounds in (2, 3):
            path = tmp_path / f"{rounds}.safetensors"
            assert model(session.account.id, "--round", rounds, "--out", path, "--home", where.root).exit_code == 0
            assert torch.equal(load_file(path)["1.weight"], torch.from_numpy(after[rounds]))
        gone = model(session.account.id, "--round", 1, "--out", tmp_path / "1", "--home", where.root)
        assert "Nearest allowed: 0, 2, 3" in gone.output


def test_a_file_of_an_older_version_is_completed(tmp_path: Path) -> None:
    """It held the trained parameters alone, or one flat vector where the task could not be loaded."""
    where = home(tmp_path)
    with Session.begin(where, plan(run__task=TASK), identity_is_stable=True) as session:
        FieldfareStrategy(session).run_round(Grid())
        session.finish("stopped", "test")
    file = where.root / session.account.id / "model.safetensors"
    whole = load_file(file)
    for older in ({"1.weight": whole["1.weight"], "1.bias": whole["1.bias"]}, {"params": session.params}):
        save_file(older, file)
        with Ledger.open(where.ledger) as ledger:
            view = ledger.run(session.account.id)
        completed = export_model.released_model(where, view).tensors
        assert set(completed) == set(whole)
        assert all(torch.equal(value, whole[name]) for name, value in completed.items())


def test_an_abandoned_run_without_a_round_leaves_the_initial_model(tmp_path: Path) -> None:
    """F4: every end leaves a model."""
    where = home(tmp_path)
    with Session.begin(where, plan(run__task=TASK), identity_is_stable=True) as session:
        pass
    arguments = ["abandon", session.account.id, "--reason", "test", "--home", str(where.root)]
    result = CliRunner().invoke(application, arguments)
    assert result.exit_code == 0, result.output
    left = load_file(where.root / session.account.id / "model.safetensors")
    assert all(torch.equal(value, left[name]) for name, value in PartlyFrozen().build_model().state_dict().items())


def test_onnx_names_the_package_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = home(tmp_path)
    with Session.begin(where, plan(), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(2))
    find = export_model.importlib.util.find_spec
    monkeypatch.setattr(
        export_model.importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find("json")
    )
    result = model(session.account.id, "--format", "onnx", "--out", tmp_path / "m.onnx", "--home", where.root)
    assert result.exit_code == 2
    assert "needs the package onnxscript. Nearest allowed: pip install 'fieldfare[onnx]'" in result.output
    assert not (tmp_path / "m.onnx").exists()


def test_onnx_computes_what_the_model_computes(tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    where = home(tmp_path)
    with Session.begin(where, plan(), identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(2))
    path = tmp_path / "m.onnx"
    result = model(session.account.id, "--format", "onnx", "--out", path, "--home", where.root)
    assert result.exit_code == 0, result.output
    module = TinyTask().build_model()
    module.load_state_dict(load_file(where.root / session.account.id / "model.safetensors"))
    evaluator = reference.ReferenceEvaluator(str(path))
    for rows in (1, 5):  # the number of rows is free
        inputs = torch.randn(rows, 3)
        (outputs,) = evaluator.run(None, {evaluator.input_names[0]: inputs.numpy()})
        torch.testing.assert_close(torch.from_numpy(outputs), module(inputs).detach())
