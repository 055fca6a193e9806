"""Dropout whose mask is a pure function of (user, round, step, element), so that no result depends on chunking."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB


def _mix(values: torch.Tensor) -> torch.Tensor:
    """Mix int64 by SplitMix64's finaliser, as `schedule.mix` does uint64."""
    z = values + _GOLDEN
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _FIRST
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _SECOND
    return z ^ ((z >> 31) & (2**33 - 1))


class KeyedDropout(nn.Module):
    """Dropout for federated training: the engines swap it in for `nn.Dropout` and its channel-wise kinds.

    Zeroes each element (or each channel) with probability `p` while training, and scales the rest by 1 / (1 - p).
    The engines set `key` (int64, 0-d) before every step; each use of the module within a step has its own mask.
    Activation checkpointing around it is an error: such a mask cannot be drawn again in the backward pass.

    Args:
        p: the probability, 0 <= p < 1, else ValueError.
        channels: the number of trailing dimensions of a channel, which is kept or zeroed whole: 0 for
            `nn.Dropout`.
    """

    key: torch.Tensor | None

    def __init__(self, p: float = 0.5, channels: int = 0) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p = {p} must be in [0, 1)")
        self.p, self.channels, self.key, self.uses = p, channels, None, 0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return values
        if self.key is None:
            raise RuntimeError("KeyedDropout was not given a key: train it with fieldfare_client.training.Trainer")
        if _in_backward():
            raise RuntimeError("KeyedDropout inside of activation checkpointing: its mask cannot be drawn again")
        shape = _mask_shape(values, self.channels)
        place = torch.arange(math.prod(shape), device=values.device).view(shape)
        key = self.key if self.uses == 0 else _mix(self.key + self.uses)
        self.uses += 1
        chance = ((_mix(_mix(key) ^ place) >> 40) & (2**24 - 1)).to(torch.float32) / 2**24
        return values * (chance >= self.p) / (1 - self.p)


def _mask_shape(values: torch.Tensor, channels: int) -> tuple[int, ...]:
    """Return one mask element a value; with `channels`, one a channel: (rows, channels, 1, ...), (channels, 1, ...)."""
    if not channels:
        return tuple(values.shape)
    # As torch: dropout over 2-d channels reads three dimensions as (rows, channels, length).
    kept = 1 if values.dim() == channels + 1 and channels != 2 else 2
    return (*values.shape[:kept], *(1,) * (values.dim() - kept))


def _in_backward() -> bool:
    task: Callable[[], int] | None = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


_KINDS: dict[type[nn.Module], int] = {nn.Dropout: 0, nn.Dropout1d: 1, nn.Dropout2d: 2, nn.Dropout3d: 3}
"""What `key_dropout` swaps, with the dimensions of a channel."""


def key_dropout(model: nn.Module) -> None:
    """Replace the dropout modules of `model` by keyed ones of the same probability, in place.

    Left alone: probability 1 and the alpha kinds, and dropout that is no module (inside `nn.LSTM`, in a
    function).
    """
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if type(child) in _KINDS and isinstance(child, nn.modules.dropout._DropoutNd) and child.p < 1:
                keyed = KeyedDropout(child.p, _KINDS[type(child)]).train(child.training)
                setattr(parent, name, keyed)


def set_keys(model: nn.Module, key: torch.Tensor) -> None:
    """Give every `KeyedDropout` of `model` its own key, derived from `key` (int64, 0-d)."""
    for place, module in enumerate(m for m in model.modules() if isinstance(m, KeyedDropout)):
        module.key, module.uses = _mix(key + place), 0


def has_keyed(model: nn.Module) -> bool:
    """Return whether `set_keys` would do anything."""
    return any(isinstance(module, KeyedDropout) for module in model.modules())


def unkeyed(model: nn.Module) -> str:
    """Name the first module of `model` known to draw from torch's global generator; empty where there is none."""
    for name, module in model.named_modules():
        rate = getattr(module, "p", 0.0) if isinstance(module, nn.modules.dropout._DropoutNd) else 0.0
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            rate = module.dropout
        if rate and module.training:
            return f"{name or 'the model'} ({type(module).__name__})"
    return ""
