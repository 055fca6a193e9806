"""A Flower app as its users write them: it knows nothing of Fieldfare. Torch, Adam, a DataLoader, the whole state dict.

The server's half is what every test changes; the ClientApp stays as it is.
"""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.utils.data import DataLoader, TensorDataset

app = ClientApp()


def masked_plan(blinder: str, *, cohort: int, least: int, round_timeout: int, noise: float = 0.0) -> str:
    """A plan of two masked rounds for the app's nodes, of each at least `least`, and `blinder` among them."""
    return f"""
[privacy]
population = "clinics"
epsilon = 8.0
delta = 1e-5
[run]
rounds = 2
cohort = {cohort}
min_reports = {least}
round_timeout = {round_timeout}
trust_node_ids = true
[mechanism]
kind = "independent"
[participation]
scheme = "min-separation"
separation = 1
[aggregation]
kind = "masked"
least_nodes = {least}
blinder = "{blinder}"
blinder_noise = {noise}
"""


class Net(torch.nn.Module):
    """Two layers and a normalisation with statistics that training changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.second = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.norm(self.first(x))))


def load_data(partition: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(partition)
    x = torch.randn(24, 4, generator=generator)
    y = (x[:, 0] + x[:, 1] > 0).long()
    return DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)


@app.train()
def train(message: Message, context: Context) -> Message:
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = load_data(int(context.node_config["partition-id"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=message.content["config"]["lr"])
    losses = []
    model.train()
    for _ in range(int(context.run_config.get("local-epochs", 1))):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    metrics = {"train_loss": sum(losses) / len(losses), "num-examples": len(loader.dataset)}
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=message)


def accuracy(state: dict[str, torch.Tensor]) -> float:
    """Of the state dict, strictly loaded, on made-up rows of no user."""
    model = Net()
    model.load_state_dict(state, strict=True)
    model.eval()
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        return float((model(x).argmax(1) == (x[:, 0] + x[:, 1] > 0)).float().mean())


def initial() -> ArrayRecord:
    torch.manual_seed(3)
    return ArrayRecord(Net().state_dict())


# -- the smallest app whose results are known in closed form (spec/door.md 6.6) -----------------------------------

vector_app = ClientApp()


def vector_arrays(step: float = 0.0) -> ArrayRecord:
    """`w`, `b`, and an integer `n`, moved by `step` times a fixed direction."""
    w = np.array([[1, 2], [3, 4]], np.float32) + np.float32(step) * np.array([[0.1, -0.2], [0.3, 0.7]], np.float32)
    b = np.array([0.5, -0.5], np.float32) + np.float32(step)
    return ArrayRecord({"w": Array(w), "b": Array(b), "n": Array(np.asarray(5 + int(step)))})


@vector_app.train()
def step(message: Message, context: Context) -> Message:
    index = int(context.node_config["partition-id"])
    arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
    factor = np.float32(index + 1)
    moved = {
        "w": arrays["w"] + factor * np.array([[0.1, -0.2], [0.3, 0.7]], np.float32),
        "b": arrays["b"] + factor,
        "n": arrays["n"] + index + 1,
    }
    metrics = MetricRecord({"train_loss": index + 0.5, "num-examples": (2, 2, 2)[index]})
    record = ArrayRecord({name: Array(np.asarray(value)) for name, value in moved.items()})
    return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)
