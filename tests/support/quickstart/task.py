"""The model, its data and its training."""

import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def load_data(partition: int, rows: int = 60) -> DataLoader:
    generator = torch.Generator().manual_seed(partition)
    x = torch.randn(rows, 4, generator=generator)
    return DataLoader(TensorDataset(x, (x[:, 0] > x[:, 1]).long()), batch_size=16, shuffle=True)


def train(model: torch.nn.Module, loader: DataLoader, epochs: int, lr: float) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    criterion = torch.nn.CrossEntropyLoss()
    total = 0.0
    model.train()
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(model: torch.nn.Module, loader: DataLoader) -> float:
    model.eval()
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in loader)
    return right / len(loader.dataset)
