"""How much of a second moment v is the mechanism's noise: its mean, and its spread.

Where v averages squares of updates with weights w_t, noise of variance sigma_t^2 per coordinate adds sum w_t
sigma_t^2 in the mean, with a variance of 2 sum w_t^2 sigma_t^4 (Gaussian noise, independent over rounds).
Subtracting the mean (DP-AdamBC, Tang et al. 2024, there for a constant sigma) leaves the signal's second
moment plus that spread, which is negative half of the time where there is no signal. With a tiny constant as
floor, steps of pure noise would then be enormous. A floor of one standard deviation keeps them within a few
times the uncorrected ones.
"""

from __future__ import annotations

import math

from fieldfare.lazily import torch
from fieldfare_server.optimizers.base import State, Tensor


def no_noise() -> State:
    """Return the noise before any update: `noise` (the mean) and `chance` (the variance), float64 () each."""
    return {"noise": torch.zeros((), dtype=torch.float64), "chance": torch.zeros((), dtype=torch.float64)}


def follow_noise(state: State, std: float, keep: float, weight: float) -> State:
    """Return `noise` and `chance` after v <- keep v + weight u^2, where u carries noise of this std."""
    return {
        "noise": state["noise"] * keep + weight * std**2,
        "chance": state["chance"] * keep**2 + 2.0 * weight**2 * std**4,
    }


def subtract_noise(second: Tensor, state: State, debias: float = 1.0) -> Tensor:
    """Return max(v - noise, sqrt(chance)) / debias, a new tensor of v's shape."""
    floor = math.sqrt(float(state["chance"]))
    return (second - float(state["noise"])).clamp_(min=floor).div_(debias)
