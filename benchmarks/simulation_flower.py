"""The same round in Flower's own simulation: Ray, 1 000 nodes of which 50 train, FedAvg, no clipping."""

from __future__ import annotations

import os
import time
from functools import lru_cache

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from simulation_models import BATCH, COHORT, RATE, ROWS, columns, example_loss, make

NODES = 1000


def client_app(model: str) -> ClientApp:
    """Trains on the node's user; plain PyTorch, as Flower's examples do."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        rows = _rows(model)
        network = make(model)
        network.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(network.parameters(), lr=RATE)
        first = int(context.node_config["partition-id"]) % COHORT * ROWS
        for batch in torch.randperm(ROWS).add(first).split(BATCH):
            optimizer.zero_grad()
            example_loss(network(rows["x"][batch]), rows["y"][batch]).mean().backward()
            optimizer.step()
        reply = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": ROWS})}
        return Message(RecordDict(reply), reply_to=message)

    return app


@lru_cache(maxsize=1)
def _rows(model: str) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(values) for name, values in columns(model, COHORT).items()}


def flower_tasks_per_second(model: str, rounds: int) -> float:
    """Client-tasks a second by wall clock, without the first round, in which Ray and its actors start."""
    ends: list[float] = []

    class Timed(FedAvg):
        def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
            result = super().aggregate_train(server_round, list(replies))
            ends.append(time.perf_counter())
            return result

    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        strategy = Timed(fraction_train=COHORT / NODES, fraction_evaluate=0.0, min_train_nodes=COHORT)
        start = ArrayRecord(make(model).state_dict())
        strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds + 1)

    config = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client_app(model), NODES, backend_config=config)  # type: ignore[arg-type]
    return COHORT * (len(ends) - 1) / (ends[-1] - ends[0])
