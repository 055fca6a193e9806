"""An app that was not written for this project becomes private by two lines of its server's half, under `flwr run`."""

from __future__ import annotations

import difflib
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from fieldfare_server.deployment.simulation import superlink
from fieldfare_server.deployment.submit import environment, program, write_connection
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from support.flower import supernode

QUICKSTART = Path(__file__).parents[1] / "support" / "quickstart"
CHANGES = {
    "from flwr.serverapp.strategy import FedAvg": "from fieldfare_server.run.private.strategy import PrivateStrategy",
    "strategy = FedAvg(fraction_evaluate=0.0)": (
        "strategy = PrivateStrategy(epsilon=8, delta=1e-5, cohort=2, population='clinics', budget=20, "
        "run_config=context.run_config)"
    ),
}


def private_app(work: Path, **config: str) -> Path:
    """The quick start with two changed lines, as `flwr run` takes it; returns its directory."""
    app = work / "app"
    (app / "quickstart").mkdir(parents=True)
    for path in QUICKSTART.glob("*.py"):
        text = path.read_text()
        if path.name == "server_app.py":
            before = text.splitlines()
            for old, new in CHANGES.items():
                assert text.count(old) == 1
                text = text.replace(old, new)
            changed = [line for line in difflib.ndiff(before, text.splitlines()) if line.startswith("+ ")]
            assert len(changed) == 2
        (app / "quickstart" / path.name).write_text(text)
    toml = (QUICKSTART / "pyproject.toml").read_text()
    lines = "".join(f"{key} = {value}\n" for key, value in config.items())
    (app / "pyproject.toml").write_text(toml.replace('out = ""\n', f'out = "{work / "model.pt"}"\n{lines}'))
    return app


def flwr_run(work: Path, address: str, app: Path, env: dict[str, str], *more: str) -> str:
    write_connection(work / "flwr", address, None)
    command = [program("flwr"), "run", str(app), "federation", "--stream", *more]
    done = subprocess.run(command, env=environment(work / "flwr", env), capture_output=True, text=True, timeout=200)
    return done.stdout + done.stderr


def require_private(work: Path, output: str, simulated: bool) -> None:
    state = torch.load(work / "model.pt", weights_only=True) if (work / "model.pt").exists() else {}
    assert set(state) == {"layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias"}, output[-3000:]
    home = StateDirectory.of(work / "home")
    with Ledger.open(home.ledger) as ledger:
        (run,) = ledger.runs().items
        assert (run.state, run.next_round) == ("done", 2)
        assert ledger.population("clinics").simulated == simulated
        assert ledger.population("clinics").users == 2
        assert verify(ledger, home.root, recompute=recharge, held=[ledger.head()]).ok
    assert "Privacy spent: epsilon=" in output
    assert "Strategy execution finished" in output


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(300)
def test_under_flowers_simulation(tmp_path: Path) -> None:
    env = {"FIELDFARE_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    app = private_app(tmp_path)
    with superlink(tmp_path / "link", "--simulation", "--disable-runtime-dependency-installation", env=env) as address:
        federation = ("--federation-config", "num-supernodes=2 client-resources-num-cpus=1")
        output = flwr_run(tmp_path, address, app, env, *federation)
    require_private(tmp_path, output, simulated=True)


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(300)
def test_on_a_superlink_with_supernodes(tmp_path: Path) -> None:
    """Without node authentication, which the app's configuration accepts, and the ledger shows."""
    env = {"FIELDFARE_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    app = private_app(tmp_path, **{"dp.trust_node_ids": "true"})
    with (
        superlink(tmp_path / "link", "--disable-runtime-dependency-installation", env=env) as address,
        supernode(tmp_path, address, 0),
        supernode(tmp_path, address, 1),
    ):
        output = flwr_run(tmp_path, address, app, env)
    require_private(tmp_path, output, simulated=False)


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.timeout(900)
def test_supernodes_of_real_people_refuse_a_second_ledger(tmp_path: Path) -> None:
    """The hospitals' own example; nodes keep their first ledger beside Flower's own state, and nobody says so."""
    example = Path(__file__).parents[2] / "examples" / "hospitals"
    app = shutil.copytree(example, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__"))
    toml = (app / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(f'{toml}"dp.trust_node_ids" = true\n')
    said, spent = [], []
    for name in ("first", "second"):
        env = {"FIELDFARE_HOME": str(tmp_path / name), "OMP_NUM_THREADS": "1"}
        with (
            superlink(tmp_path / f"link-{name}", "--disable-runtime-dependency-installation", env=env) as address,
            supernode(tmp_path, address, 0),
            supernode(tmp_path, address, 1),
        ):
            said.append(flwr_run(tmp_path, address, app, env, "--run-config", "num-server-rounds=2"))
        with Ledger.open(StateDirectory.of(tmp_path / name).ledger) as ledger:
            assert not ledger.population("patients").simulated
            spent.append([(run.state, run.next_round, run.spent_epsilon > 0) for run in ledger.runs().items])
    assert spent == [[("done", 2, True)], [("failed", 0, False)]], said
    assert "another ledger is shown in its place" in said[1]
    assert "fieldfare.ledger" in (tmp_path / "node-0.log").read_text(), "its log names the file"
