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
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fieldfare as ff
from fieldfare_server.deployment.certificates import make_node, make_server
from fieldfare_server.evidence.certificate import certificate
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from support.shapes import copy_shape, importable  # noqa: F401  (a fixture)
from support.stranger import (
    become_stranger,
    connect,
    data_home,
    flwr,
    flwr_run,
    free_port,
    start,
    stranger,
    wait_for_port,
)

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
STRATEGY = "ff.PrivateStrategy(epsilon=8, delta=1e-5, cohort=2, population='readers', budget=16{more})"
CONFIG = """\
num-server-rounds = 2
fraction-evaluate = 0.0
local-epochs = 1
learning-rate = 0.1
penalty = 1.0
out = "{out}"
"""


def made_private(name: str, work: Path, more: str = "") -> Path:
    """The example with its two changed lines and a pyproject.toml, in a directory of its own.

    more: a further keyword of the strategy.
    """
    package = copy_shape(name, work, CONFIG.format(out=out_of(name, work)))
    server = package / "server_app.py"
    lines = server.read_text().splitlines()
    changed = [number for number, line in enumerate(lines) if line == IMPORT or "= FedAvg(" in line]
    assert len(changed) == 2
    lines[changed[0]] = "import fieldfare as ff"
    lines[changed[1]] = "    strategy = " + STRATEGY.format(more=f", {more}" if more else "")
    server.write_text("\n".join(lines) + "\n")
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


def require(name: str) -> None:
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.usefixtures("importable")
def test_a_flower_example_in_process(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(name)
    home = become_stranger(tmp_path / "account", monkeypatch)
    made_private(name, tmp_path)
    client, server = (importlib.import_module(f"{name}.{half}_app").app for half in ("client", "server"))
    config = {"num-server-rounds": 2, "fraction-evaluate": 0.0, "local-epochs": 1, "learning-rate": 0.1, "penalty": 1.0}
    ff.LocalGrid(client, NODES, {**config, "out": str(out_of(name, tmp_path))}).run_app(server)
    require_model(name, tmp_path, home)


EVALUATED = (
    'fraction_evaluate=context.run_config["fraction-evaluate"], '
    'metrics={"show": {"eval_acc": [0, 1], "eval_loss": [0, 4]}, "weight": 0.3}'
)
"""What keeps the example's own evaluation in its place."""


def require_evaluated(home: Path) -> None:
    """Each charged round shows the users' accuracy, with its interval, for everybody who reads the ledger."""
    state = StateDirectory.of(home)
    with ff.Ledger.open(state.ledger) as ledger:
        (run,) = ledger.runs().items
        rounds = [row.statistics for row in ledger.rounds(run.id, 0).items if row.state == "committed"]
        assert verify(ledger, home, recompute=recharge, held=[ledger.head()]).ok
        with ledger.snapshot() as snapshot:
            (home / "certificate.json").write_bytes(certificate(snapshot, run.id, state))
    for checker in ([sys.executable, "docs/check_certificate.py"], ["node", "docs/check_certificate.mjs"]):
        if shutil.which(checker[0]) is None:
            continue  # the browser's needs node
        command = [*checker, home / "certificate.json"]
        checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
        assert checked.stdout.startswith("yes"), checked
    assert len(rounds) == 2
    for row in rounds:
        # Not "<": noise may put the whole interval beyond the bounds, at which it is cut.
        assert 0 <= row["metric.eval_acc.low"] <= row["metric.eval_acc.high"] <= 1
        assert 0 <= row["metric.eval_loss.low"] <= row["metric.eval_loss.high"] <= 4


@pytest.mark.usefixtures("importable")
def test_flowers_quickstart_keeps_its_own_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "home"))
    name = "pytorch_quickstart"
    require(name)
    made_private(name, tmp_path, EVALUATED)
    client, server = (importlib.import_module(f"{name}.{half}_app").app for half in ("client", "server"))
    config = {"num-server-rounds": 2, "fraction-evaluate": 0.5, "local-epochs": 1, "learning-rate": 0.1}
    ff.LocalGrid(client, NODES, {**config, "out": str(out_of(name, tmp_path))}).run_app(server)
    require_model(name, tmp_path, tmp_path / "home")
    require_evaluated(tmp_path / "home")


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("importable")
def test_flowers_quickstart_keeps_its_own_evaluation_under_flwr_run(tmp_path: Path) -> None:
    require("pytorch_quickstart")
    app = made_private("pytorch_quickstart", tmp_path, EVALUATED)
    with stranger(tmp_path / "account") as env:
        flwr_run(env, str(app), "--run-config", "fraction-evaluate=0.5")
    require_model("pytorch_quickstart", tmp_path, data_home(tmp_path / "account"))
    require_evaluated(data_home(tmp_path / "account"))


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.usefixtures("importable")
def test_a_flower_example_under_flwr_run(name: str, tmp_path: Path) -> None:
    """`flwr run` with Flower's own defaults, in an empty account and with no variable: its background SuperLink, two
    simulated nodes, and dependencies that are installed when the app is run."""
    require(name)
    app = made_private(name, tmp_path)
    with stranger(tmp_path / "account") as env:
        flwr_run(env, str(app))
    require_model(name, tmp_path, data_home(tmp_path / "account"))


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("importable")
def test_flowers_example_of_authentication(tmp_path: Path) -> None:
    """TLS, two SuperNodes whose keys are registered, and nothing that says so: the run tries the SuperLink itself.
    Its own evaluation stays, charged with its training.

    Certificates and keys are as that example's `generate_creds.py` makes them.
    """
    home = tmp_path / "budgets"
    app = made_private("pytorch_quickstart", tmp_path, f"{EVALUATED}, home={str(home)!r}")
    make_server(tmp_path / "made", tmp_path, ["localhost", "127.0.0.1"])
    made = tmp_path / "made" / "superlink"
    with stranger(tmp_path / "account") as env:
        port, files = free_port(), ("ca-certfile=ca.crt", "certfile=server.crt", "keyfile=server.key")
        tls = [f"--ssl-{option}={made / file}" for option, file in (pair.split("=") for pair in files)]
        start(env, tmp_path / "link", "flower-superlink", *tls, "--enable-supernode-auth", "--port", str(port))
        wait_for_port(port)
        connect(tmp_path / "account", f"localhost:{port}", tmp_path / "ca.crt")
        for index in range(2):
            make_node(tmp_path / f"node-{index}", tmp_path, f"node-{index}", ["localhost"])
            flwr(env, "supernode", "register", str(tmp_path / f"node-{index}.pub"), "federation")
            start(
                env,
                tmp_path / f"log-{index}",
                "flower-supernode",
                *("--root-certificates", str(tmp_path / "ca.crt"), "--superlink", f"localhost:{port}"),
                *("--auth-supernode-private-key", str(tmp_path / f"node-{index}" / "node")),
                *("--port", str(free_port()), "--node-config", f"partition-id={index} num-partitions=2"),
            )
        output = flwr_run(env, str(app), "federation", "--run-config", "fraction-evaluate=0.5", seconds=200)
    require_model("pytorch_quickstart", tmp_path, home)
    require_evaluated(home)
    assert "Dialect: plain, nodes SuperNodes" in output
    with ff.Ledger.open(f"sqlite:///{home}/ledger.sqlite3") as ledger:
        (run,) = ledger.runs().items
        assert not run.trust_node_ids
        assert not ledger.population("readers").simulated
