"""The Flower app of `deployment.py`: one layer of as many parameters as are asked for, trained one step on ten rows.

`client` is a ClientApp as Flower's quick starts have it. `half` gets float16 and answers with changes in it. `cohort`
is the same training under `ff.private`, one user a node. `server` runs Flower's wrapper for fixed clipping, or
`ff.PrivateStrategy`.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from torch import nn

import fieldfare as ff

WIDTH, CLIP = 100, 1.0

# Flower looks for assignments of one name.
client = ClientApp()
half = ClientApp()
cohort = ClientApp()
server = ServerApp()


class Net(nn.Module):
    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, parameters // WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


def step(net: nn.Module, rate: float) -> float:
    """Train one step; returns the loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    loss = net(torch.randn(10, WIDTH)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@client.train()
def train(message: Message, context: Context) -> Message:
    net = Net(int(context.run_config["parameters"]))
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    metrics = MetricRecord({"train_loss": step(net, float(message.content["config"]["lr"])), "num-examples": 10})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@half.train()
def train_half(message: Message, context: Context) -> Message:
    net, sent = Net(int(context.run_config["parameters"])), message.content["arrays"].to_torch_state_dict()
    net.load_state_dict(sent)
    metrics = MetricRecord({"train_loss": step(net, float(message.content["config"]["lr"])), "num-examples": 10})
    changes = {name: (after - sent[name]).half() for name, after in net.state_dict().items()}
    return Message(RecordDict({"arrays": ArrayRecord(changes), "metrics": metrics}), reply_to=message)


@cohort.query("users")
@ff.private.users
def users(context: Context) -> list[str]:
    return [f"user {context.node_config['partition-id']}"]


@cohort.train()
@ff.private.train(lambda: Net(int(os.environ["DEPLOYMENT_PARAMETERS"])))
def train_user(model: nn.Module, user: str, context: Context, config: ConfigRecord) -> None:
    step(model, float(config["lr"]))


@server.main()
def main(grid: Grid, context: Context) -> None:
    asked = context.run_config
    net = Net(int(asked["parameters"]))
    nodes, rounds, marks = int(asked["nodes"]), int(asked["rounds"]), Path(str(asked["marks"]))

    def mark(_: int, arrays: ArrayRecord) -> MetricRecord:
        with marks.open("a") as file:
            file.write(".")
        return MetricRecord()

    if asked["strategy"] == "flower":
        fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
        strategy = DifferentialPrivacyServerSideFixedClipping(fedavg, 1.0, CLIP, nodes)
    else:
        halved = asked["strategy"] == "half"
        net = net.half() if halved else net
        strategy = ff.PrivateStrategy(
            noise_multiplier=1.0, delta=1e-5, cohort=nodes, clip=CLIP, mechanism="independent", population="sized",
            dialect="cohort" if asked["strategy"] == "cohort" else "plain", reply="deltas" if halved else "model",
            run_config=asked, rounds=rounds,
            participation={"scheme": "min-separation", "separation": 1, "max_participations": rounds},
        )  # fmt: skip
    arrays, config = ArrayRecord(net.state_dict()), ConfigRecord({"lr": 0.1})
    strategy.start(grid, arrays, rounds, train_config=config, evaluate_fn=mark)
