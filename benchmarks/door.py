"""Three of Flower's examples made private: CPU of a round beside Flower's own wrapper, seconds to a first model.

The apps are those of tests/examples/flower_shapes, in `ff.LocalGrid`, four nodes of which all train. Every measurement
is a fresh process of one thread with an empty home, which trains one round, one again, and eleven.

    .venv/bin/python benchmarks/door.py --out benchmarks/results/door.md
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHAPES = Path(__file__).parents[1] / "tests/examples/flower_shapes"
APPS = ("pytorch_quickstart", "tabular", "huggingface_quickstart")
NODES = 4
FLOWER = "from flwr.serverapp.strategy import FedAvg, DifferentialPrivacyServerSideFixedClipping as Wrapper"
WAYS = {
    "none": (FLOWER, "FedAvg(fraction_evaluate=0.0)"),
    "flower": (FLOWER, f"Wrapper(FedAvg(fraction_evaluate=0.0), 0.5, 1.0, {NODES})"),
    "ours": (
        "import fieldfare as ff",
        f"ff.PrivateStrategy(epsilon=8, delta=1e-5, cohort={NODES}, population='readers', budget=40)",
    ),
}
"""The two lines of the server's half: an import and a strategy."""
MORE = 10
"""Rounds that a long run has more than a short one."""


def rewritten(app: str, way: str, work: Path) -> None:
    """The app in `work`, with the two lines of `way`."""
    package = shutil.copytree(SHAPES / app, work / app, ignore=shutil.ignore_patterns("__pycache__"))
    wanted, lines = WAYS[way], []
    for line in (package / "server_app.py").read_text().splitlines():
        if line == "from flwr.serverapp.strategy import FedAvg":
            line = wanted[0]
        elif "= FedAvg(" in line:
            line = f"    strategy = {wanted[1]}"
        lines.append(line)
    (package / "server_app.py").write_text("\n".join(lines) + "\n")


def train_here(app: str, began: float) -> None:
    """Train the app in this process; print its seconds to a first model and the CPU seconds of a round."""
    import fieldfare as ff

    client, server = (importlib.import_module(f"{app}.{half}_app").app for half in ("client", "server"))
    config = {"fraction-evaluate": 0.0, "local-epochs": 1, "learning-rate": 0.1, "out": "model.pt"}

    def cpu(rounds: int) -> float:
        before = time.process_time()
        ff.LocalGrid(client, NODES, {**config, "num-server-rounds": rounds}).run_app(server)
        return time.process_time() - before

    cpu(1)
    assert Path("model.pt").exists()
    first, short = time.time() - began, cpu(1)
    print(json.dumps([(cpu(1 + MORE) - short) / MORE, first]))


def run(app: str, way: str) -> tuple[float, float]:
    """One measurement: CPU s of a round, and s of the clock from Python's start to the first model's file."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        rewritten(app, way, work)
        path = os.pathsep.join(filter(None, [str(work), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "HOME": folder, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        env.pop("FIELDFARE_HOME", None)
        command = [sys.executable, __file__, "--here", app, "--began", repr(time.time())]
        done = subprocess.run(command, cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        cpu, first = json.loads(done.stdout.decode().splitlines()[-1])
        return cpu, first


def measured(repeats: int) -> tuple[list[str], tuple[float, float]]:
    """Rows of the table, and the load before and after."""
    before, rows = os.getloadavg()[0], []
    for app in APPS:
        seen: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(repeats):
            for way in WAYS:
                seen[way].append(run(app, way))
        cpu = [f"{statistics.median(one for one, _ in seen[way]):.3f}" for way in WAYS]
        first = [f"{statistics.median(two for _, two in seen[way]):.1f}" for way in WAYS]
        rows.append(f"| {app} | {' | '.join(cpu + first)} |")
        print(rows[-1], flush=True)
    return rows, (before, os.getloadavg()[0])


def main() -> None:
    """Measure, and write the page; or run one app, for a measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--here", default="")
    parser.add_argument("--began", type=float, default=0.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.here:
        train_here(arguments.here, arguments.began)
        return
    import flwr
    import torch

    rows, (before, after) = measured(arguments.repeats)
    text = [
        "# The door: Flower's examples made private",
        "",
        f"- command: python benchmarks/door.py --repeats {arguments.repeats} --out benchmarks/results/door.md",
        f"- machine: {os.cpu_count()} cores, torch {torch.__version__}, flwr {flwr.__version__}",
        f"- load {before:.1f} at the begin, {after:.1f} at the end: other work on the same cores",
        f"- `ff.LocalGrid`, {NODES} nodes that all train; a fresh process of one thread and an empty home each time;",
        f"  medians of {arguments.repeats}, the three in turn; a round's CPU: {1 + MORE} rounds less one, by {MORE}",
        "- none: FedAvg; Flower: `DifferentialPrivacyServerSideFixedClipping` around it; ours: `ff.PrivateStrategy`",
        "- first model: from the start of Python, with all imports, to the saved model of one round",
        "",
        "| app | CPU s a round, none | Flower | ours | s to a first model, none | Flower | ours |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]
    if arguments.out:
        arguments.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
