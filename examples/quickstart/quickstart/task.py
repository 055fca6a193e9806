"""The network, one writer's digits, training and evaluation: as in any Flower app."""

from functools import lru_cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HELD_OUT = 297
"""The last digits of the set: the server's, never a node's."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.fc = nn.Linear(96, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1))


@lru_cache(maxsize=1)
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)


def load_data(partition_id: int, num_partitions: int) -> DataLoader:
    x, y = digits()
    mine = slice(partition_id, len(y) - HELD_OUT, num_partitions)
    return DataLoader(TensorDataset(x[mine], y[mine]), batch_size=8, shuffle=True)


def train(net: nn.Module, loader: DataLoader, epochs: int, lr: float) -> float:
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def accuracy(net: nn.Module) -> float:
    x, y = digits()
    with torch.no_grad():
        return float((net(x[-HELD_OUT:]).argmax(1) == y[-HELD_OUT:]).float().mean())
