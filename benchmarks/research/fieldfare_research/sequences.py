"""What tasks share that predict the next symbol of a sequence."""

from __future__ import annotations

from fieldfare.lazily import torch

PADDING = 0
"""The symbol that fills short sequences up. It has no loss."""


def next_symbols(sequences: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(inputs, targets), each int64 (n, length), of `sequences`, integers (n, length + 1)."""
    symbols = sequences.to(torch.int64)
    return symbols[:, :-1], symbols[:, 1:]


def sequence_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over each example's symbols that are not padding, (n,); 0 where all are.

    outputs: (n, length, symbols); targets: (n, length).
    """
    each = torch.nn.functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none")
    real = (targets != PADDING).to(each.dtype)
    return (each * real).sum(1) / real.sum(1).clamp(min=1)
