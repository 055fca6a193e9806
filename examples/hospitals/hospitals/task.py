"""Breast cancer Wisconsin (scikit-learn): 569 patients, 30 measurements each. Each hospital has some of them."""

from functools import lru_cache

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

TYPICAL = [
    *(14, 19, 92, 650, 0.1, 0.1, 0.09, 0.05, 0.18, 0.06),
    *(0.4, 1.2, 2.9, 40, 0.007, 0.025, 0.03, 0.012, 0.02, 0.004),
    *(16, 26, 107, 880, 0.13, 0.25, 0.27, 0.11, 0.29, 0.08),
]
"""Typical measurements: public knowledge. Means of these patients would be a release that no budget pays for."""
HELD_OUT = 114
"""The last patients: the server's, who take part in no training."""


class Net(nn.Module):
    """Logistic regression on logarithms of a patient's measurements, each against its typical value."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(30, 1)
        nn.init.zeros_(self.score.weight)
        nn.init.zeros_(self.score.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.score(torch.log(x / torch.tensor(TYPICAL) + 0.1).clamp(-2, 2)).squeeze(-1)


@lru_cache(maxsize=1)
def records() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = load_breast_cancer(return_X_y=True)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def patients_of(hospital: int, hospitals: int) -> list[str]:
    return [str(number) for number in range(hospital, len(records()[1]) - HELD_OUT, hospitals)]


def record_of(patient: str) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = records()
    return x[int(patient)].unsqueeze(0), y[int(patient)].unsqueeze(0)


def accuracy(net: nn.Module) -> float:
    x, y = records()
    with torch.no_grad():
        return float(((net(x[-HELD_OUT:]) > 0) == (y[-HELD_OUT:] > 0.5)).float().mean())
