"""Scores that several tasks share."""

from __future__ import annotations

import numpy as np

from fieldfare.lazily import torch


def auc(scores: torch.Tensor, positive: torch.Tensor) -> float:
    """Return the area under the ROC curve: P(score of a positive > score of a negative), ties counted half.

    `scores`, `positive` (0 or 1): shape (n,). nan where only one class occurs or a score is not a number.
    """
    values, labels = scores.double().cpu().numpy(), positive.cpu().numpy() > 0
    ones, zeros = int(labels.sum()), int((~labels).sum())
    if not ones or not zeros or np.isnan(values).any():
        return float("nan")
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    return float((middle[place][labels].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of rows whose largest output is the target class. `outputs`: (n, classes); `targets`: (n,)."""
    return float((outputs.argmax(-1) == targets).double().mean())
