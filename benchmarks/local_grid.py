"""One unmodified Flower app, in `ff.LocalGrid` and under Flower's own simulation (Ray): seconds of a whole run.

The app is that of Flower's PyTorch quick start: its network (62 006 parameters), its optimizer, ten nodes of which half
train and all evaluate, FedAvg. Its data are random images of CIFAR-10's shape: this machine cannot download CIFAR-10.

    .venv/bin/python benchmarks/local_grid.py --out benchmarks/results/local_grid.md
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path

NODES, ROUNDS, BATCH = 10, 3, 32
SIZES = (400, 4000)
"""Images of a node; the quick start has 4 000."""
WAYS = ("local", "ray")


def train_here(way: str, images: int) -> None:
    """Run the app once in this process; print its seconds as JSON. Import times count: they are part of a run."""
    began = time.perf_counter()
    import torch
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from torch import nn
    from torch.nn import functional

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
            self.pool = nn.MaxPool2d(2, 2)
            self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.pool(functional.relu(self.conv1(x)))
            x = self.pool(functional.relu(self.conv2(x))).view(-1, 400)
            return self.fc3(functional.relu(self.fc2(functional.relu(self.fc1(x)))))

    @lru_cache(maxsize=NODES)
    def data(partition: int) -> tuple[torch.Tensor, torch.Tensor]:
        draw = torch.Generator().manual_seed(partition)
        return torch.randn(images, 3, 32, 32, generator=draw), torch.randint(10, (images,), generator=draw)

    client = ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        net, (x, y) = Net(), data(int(context.node_config["partition-id"]))
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(net.parameters(), lr=float(message.content["config"]["lr"]), momentum=0.9)
        for rows in torch.randperm(images).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
        reply = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": images})}
        return Message(RecordDict(reply), reply_to=message)

    @client.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        net, (x, y) = Net(), data(int(context.node_config["partition-id"]))
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        with torch.no_grad():
            right = float((net(x[: images // 5]).argmax(1) == y[: images // 5]).float().mean())
        metrics = MetricRecord({"num-examples": images // 5, "accuracy": right})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    server, ends = ServerApp(), list[float]()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_train=0.5)
        config = ConfigRecord({"lr": 0.01})
        start = ArrayRecord(Net().state_dict())
        strategy.start(
            grid, start, ROUNDS, train_config=config, evaluate_fn=lambda r, _: ends.append(time.perf_counter())
        )

    if way == "local":
        import fieldfare as ff

        ff.LocalGrid(client, NODES).run_app(server)
    else:
        from flwr.simulation import run_simulation

        run_simulation(server, client, NODES, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
    took = time.perf_counter() - began
    print(json.dumps({"run": took, "round": (ends[-1] - ends[1]) / (ROUNDS - 1), "threads": torch.get_num_threads()}))


def measure(way: str, images: int) -> dict[str, float]:
    """One run in a fresh process."""
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | quiet
    command = [sys.executable, __file__, "--way", way, "--images", str(images)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--images", type=int, default=SIZES[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.way:
        train_here(options.way, options.images)
        return
    loads, rows = [os.getloadavg()[0]], []
    for images in SIZES:
        # In turn, so that a busy moment of the machine meets both.
        results = [{way: measure(way, images) for way in WAYS} for _ in range(options.repeats)]
        figures = {
            (way, name): statistics.median(result[way][name] for result in results)
            for way in WAYS
            for name in ("run", "round")
        }
        local, ray = ((figures[way, "run"], figures[way, "round"]) for way in WAYS)
        cells = (f"{local[0]:.1f}", f"{ray[0]:.1f}", f"{ray[0] / local[0]:.1f}")
        cells += (f"{local[1]:.2f}", f"{ray[1]:.2f}", f"{ray[1] / local[1]:.1f}")
        rows.append(f"| {images:,} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
        loads.append(os.getloadavg()[0])
    import flwr
    import torch

    text = "\n".join(
        [
            "# One unmodified Flower app: LocalGrid beside Ray",
            "",
            "- command: .venv/bin/python benchmarks/local_grid.py --out benchmarks/results/local_grid.md",
            f"- machine: {os.cpu_count()} cores, torch {torch.__version__}, flwr {flwr.__version__}; "
            f"load {min(loads):.1f} to {max(loads):.1f} (other work on the same cores)",
            f"- app: Flower's PyTorch quick start on random images; {NODES} nodes, 5 train and 10 evaluate a round, "
            f"{ROUNDS} rounds, batches of {BATCH}",
            "- LocalGrid: one process, PyTorch's own threads. Ray: an actor a core, one thread each, Flower's default.",
            f"- median of {options.repeats} runs in turn, each in a fresh process; a run includes imports and "
            "the start of Ray; a round is one after the first",
            "",
            "| images a node | run, LocalGrid, s | run, Ray, s | ratio | round, LocalGrid, s | round, Ray, s | ratio |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
