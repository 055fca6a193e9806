"""Dropout whose mask is a pure function of (user, round, step, element), so that no result depends on chunking."""

from __future__ import annotations

import torch
from torch import nn

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64
_FIRST = -4658895280553007687  # 0xBF58476D1CE4E5B9
_SECOND = -7723592293110705685  # 0x94D049BB133111EB


def _mix(values: torch.Tensor) -> torch.Tensor:
    """SplitMix64's finaliser on int64, as `schedule.mix` on uint64."""
    z = values + _GOLDEN
    z = (z ^ ((z >> 30) & (2**34 - 1))) * _FIRST
    z = (z ^ ((z >> 27) & (2**37 - 1))) * _SECOND
    return z ^ ((z >> 31) & (2**33 - 1))


class KeyedDropout(nn.Module):
    """`nn.Dropout` for federated training: use it in a task's model instead of `nn.Dropout`.

    Zeroes each element with probability `p` while training, and scales the rest by 1 / (1 - p). The training engines
    set `key` (int64, 0-d) before every step. Raises ValueError unless 0 <= p < 1.
    """

    key: torch.Tensor | None

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"p = {p} must be in [0, 1)")
        self.p, self.key = p, None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return values
        if self.key is None:
            raise RuntimeError("KeyedDropout was not given a key: train it with fieldfare_client.training.Trainer")
        place = torch.arange(values.numel(), device=values.device).view(values.shape)
        chance = ((_mix(_mix(self.key) ^ place) >> 40) & (2**24 - 1)).to(torch.float32) / 2**24
        return values * (chance >= self.p) / (1 - self.p)


def set_keys(model: nn.Module, key: torch.Tensor) -> None:
    """Give every `KeyedDropout` of `model` its own key, derived from `key` (int64, 0-d)."""
    for place, module in enumerate(m for m in model.modules() if isinstance(m, KeyedDropout)):
        module.key = _mix(key + place)


def has_keyed(model: nn.Module) -> bool:
    """Whether `set_keys` would do anything."""
    return any(isinstance(module, KeyedDropout) for module in model.modules())


def unkeyed(model: nn.Module) -> str:
    """Say why `model` would draw from torch's global generator while training; empty where it would not."""
    for name, module in model.named_modules():
        rate = getattr(module, "p", 0.0) if isinstance(module, nn.modules.dropout._DropoutNd) else 0.0
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            rate = module.dropout
        if rate:
            return f"{name or 'the model'} ({type(module).__name__}) has dropout that is not keyed by user and round"
    return ""
