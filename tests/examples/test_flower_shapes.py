"""Eight Flower examples become private by the documented change, and end with a model that loads.

They are rebuilt from their documented shape (`flower_shapes`); what stands for data and published weights is small and
local. The change is that of docs/flower-app.md: the import, and the strategy.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fieldfare as ff
from fieldfare_server.deployment.simulation import superlink
from fieldfare_server.deployment.submit import environment, program, write_connection

SHAPES = Path(__file__).parent / "flower_shapes"
NEEDS = {
    "pytorch_quickstart": "torch",
    "sklearn_logreg": "sklearn",
    "tabular": "sklearn",
    "numpy_quickstart": "numpy",
    "huggingface_quickstart": "transformers",
    "vit_finetune": "transformers",
    "lightning_quickstart": "lightning",
    "jax_quickstart": "jax",
}
"""Each example, and the package without which it is skipped."""
NODES = 4
IMPORT = "from flwr.serverapp.strategy import FedAvg"
STRATEGY = "ff.PrivateStrategy(epsilon=8, delta=1e-5, cohort=2, population='readers', budget=16)"
PROJECT = """
[project]
name = "{title}"
version = "1.0.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "someone"

[tool.flwr.app.components]
serverapp = "{name}.server_app:app"
clientapp = "{name}.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 2
fraction-evaluate = 0.0
local-epochs = 1
learning-rate = 0.1
penalty = 1.0
out = "{out}"
"""


def made_private(name: str, work: Path) -> Path:
    """The example with its two changed lines and a pyproject.toml, in a directory of its own."""
    package = shutil.copytree(SHAPES / name, work / "app" / name, ignore=shutil.ignore_patterns("__pycache__"))
    server = package / "server_app.py"
    lines = server.read_text().splitlines()
    changed = [number for number, line in enumerate(lines) if line == IMPORT or "= FedAvg(" in line]
    assert len(changed) == 2
    lines[changed[0]] = "import fieldfare as ff"
    lines[changed[1]] = f"    strategy = {STRATEGY}"
    server.write_text("\n".join(lines) + "\n")
    importlib.invalidate_caches()
    (package.parent / "pyproject.toml").write_text(
        PROJECT.format(name=name, title=name.replace("_", "-"), out=out_of(name, work))
    )
    return package.parent


def out_of(name: str, work: Path) -> Path:
    return work / ("model.npz" if name.startswith(("numpy", "sklearn", "jax")) else "model.pt")


def require_model(name: str, work: Path, home: Path) -> None:
    """The example's own file loads into the example's own model, moved, and the run was charged."""
    task: Any = importlib.import_module(f"{name}.task")
    out = out_of(name, work)
    if out.suffix == ".npz":
        arrays = list(np.load(out).values())
        before = {
            "numpy_quickstart": lambda: [task.get_dummy_model()],
            "sklearn_logreg": lambda: task.get_model_parameters(task.create_log_reg_and_instantiate_parameters(1.0)),
            "jax_quickstart": lambda: [np.array(value) for value in task.get_params(task.load_model((3,)))],
        }[name]()
        assert [(a.shape, a.dtype) for a in arrays] == [(np.shape(b), b.dtype) for b in before]
        assert all(np.isfinite(a).all() and (a != b).any() for a, b in zip(arrays, before, strict=True))
    else:
        made = {"tabular": "IncomeClassifier", "lightning_quickstart": "LitAutoEncoder", "pytorch_quickstart": "Net"}
        model = getattr(task, made.get(name, "get_model"))()
        part = model.classifier if name == "vit_finetune" else model
        state = torch.load(out, weights_only=True)
        before = {key: value.clone() for key, value in part.state_dict().items()}
        part.load_state_dict(state, strict=True)
        assert any(not torch.equal(state[key], value) for key, value in before.items())
        assert all(bool(torch.isfinite(value).all()) for value in state.values())
    with ff.Ledger.open(f"sqlite:///{home}/ledger.sqlite3") as ledger:
        (run,) = ledger.runs().items
    assert (run.state, run.next_round) == ("done", 2)
    assert 0 < run.spent_epsilon <= 8 * (1 + 1e-9)


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    yield
    for module in [module for module in sys.modules if module.split(".")[0] in NEEDS]:
        del sys.modules[module]


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.usefixtures("importable")
def test_a_flower_example_in_process(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "home"))
    made_private(name, tmp_path)
    client, server = (importlib.import_module(f"{name}.{half}_app").app for half in ("client", "server"))
    config = {"num-server-rounds": 2, "fraction-evaluate": 0.0, "local-epochs": 1, "learning-rate": 0.1, "penalty": 1.0}
    ff.LocalGrid(client, NODES, {**config, "out": str(out_of(name, tmp_path))}).run_app(server)
    require_model(name, tmp_path, tmp_path / "home")


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["sklearn_logreg", "tabular", "huggingface_quickstart", "vit_finetune"])
@pytest.mark.usefixtures("importable")
def test_a_flower_example_under_flwr_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's own defaults, an empty account, and no variable."""
    for variable in ("FIELDFARE_HOME", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "account"))
    app = made_private(name, tmp_path)
    with superlink(tmp_path / "link", "--simulation", env={"OMP_NUM_THREADS": "1"}) as address:
        write_connection(tmp_path / "flwr", "federation", address, None)
        command = [program("flwr"), "run", str(app), "federation", "--stream"]
        nodes = f"num-supernodes={NODES} client-resources-num-cpus=1"
        done = subprocess.run(
            [*command, "--federation-config", nodes],
            env=environment(tmp_path / "flwr"),
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    require_model(name, tmp_path, tmp_path / "account" / ".local" / "share" / "fieldfare")
