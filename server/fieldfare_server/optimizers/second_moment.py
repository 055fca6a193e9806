"""How much of a second moment v is the mechanism's noise: its mean, and how far chance takes it from that.

Where v averages squares of updates with weights w_t, noise of variance sigma_t^2 per coordinate adds
sum w_t sigma_t^2 in the mean, with a variance of 2 sum w_t^2 sigma_t^4 (Gaussian noise, independent over rounds).
Subtracting the mean (DP-AdamBC, Tang et al. 2024, there for a constant sigma) leaves the signal's second moment plus
that chance, which is negative half of the time where there is no signal; a tiny constant as floor then makes steps of
pure noise enormous. One standard deviation of chance as floor keeps them within a few times the uncorrected ones.
"""

from __future__ import annotations

import math

import torch

from fieldfare_server.optimizers.base import State


def fresh() -> State:
    """Nothing averaged yet: `noise` and `chance` float64 ()."""
    return {"noise": torch.zeros((), dtype=torch.float64), "chance": torch.zeros((), dtype=torch.float64)}


def averaged(state: State, std: float, keep: float, weight: float) -> State:
    """After v <- keep v + weight u^2, u with noise of this std."""
    return {
        "noise": state["noise"] * keep + weight * std**2,
        "chance": state["chance"] * keep**2 + 2.0 * weight**2 * std**4,
    }


def corrected(second: torch.Tensor, state: State, debias: float = 1.0) -> torch.Tensor:
    """max(v - noise, one std of chance, 0) / debias, a new tensor of v's shape."""
    floor = math.sqrt(float(state["chance"]))
    return (second - float(state["noise"])).clamp_(min=floor).div_(debias)
