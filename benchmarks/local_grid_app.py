"""Flower's PyTorch quick start on random images of CIFAR-10's shape, for `local_grid.py`; Ray imports it by name."""

from __future__ import annotations

import os
import time
from functools import lru_cache

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn import functional

NODES, ROUNDS, BATCH = 10, 3, 32

client, server = ClientApp(), ServerApp()
ends: list[float] = []
"""When each round ended, the initial evaluation first."""
replies_of: list[int] = []
"""Good replies to each round's train messages."""


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
    images = int(os.environ["LOCAL_GRID_IMAGES"])
    draw = torch.Generator().manual_seed(partition)
    return torch.randn(images, 3, 32, 32, generator=draw), torch.randint(10, (images,), generator=draw)


@client.train()
def train(message: Message, context: Context) -> Message:
    net, (x, y) = Net(), data(int(context.node_config["partition-id"]))
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=float(message.content["config"]["lr"]), momentum=0.9)
    for rows in torch.randperm(len(y)).split(BATCH):
        optimizer.zero_grad()
        functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    reply = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(RecordDict(reply), reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    net, (x, y) = Net(), data(int(context.node_config["partition-id"]))
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    held = len(y) // 5
    with torch.no_grad():
        right = float((net(x[:held]).argmax(1) == y[:held]).float().mean())
    return Message(RecordDict({"metrics": MetricRecord({"num-examples": held, "accuracy": right})}), reply_to=message)


class Counted(FedAvg):
    """FedAvg that counts good replies: a run whose nodes fail is fast, and measures nothing."""

    def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
        replies = list(replies)
        replies_of.append(sum(not reply.has_error() for reply in replies))
        return super().aggregate_train(server_round, replies)


@server.main()
def main(grid: Grid, context: Context) -> None:
    Counted(fraction_train=0.5).start(
        grid,
        ArrayRecord(Net().state_dict()),
        ROUNDS,
        train_config=ConfigRecord({"lr": 0.01}),
        evaluate_fn=lambda server_round, arrays: ends.append(time.perf_counter()),
    )
