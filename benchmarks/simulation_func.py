"""The lean private round of today: `python simulation_func.py MODEL COHORT`, a part of `simulation.py`.

All users at once with `torch.func`: `vmap` of `grad` over the cohort, clipping, Gaussian noise, a step. Nothing is
checked, charged or stored; no noise is correlated. As many users as the other systems have take their turns. On the
device that FIELDFARE_DEVICE names, else on a CPU.
"""

from __future__ import annotations

import os
import sys

import torch
from torch.func import functional_call, grad, vmap

from simulation_models import BATCH, CLIP, NOISE, POPULATION, RATE, ROWS, columns, example_loss, largest, make
from simulation_turns import Turnstile


def main(name: str, cohort: int) -> None:
    torch.set_num_threads(1)
    device = os.environ.get("FIELDFARE_DEVICE", "cpu")
    model = make(name).to(device)
    rows = {key: torch.from_numpy(values).to(device) for key, values in columns(name, POPULATION * cohort).items()}
    start = {key: value.detach().clone() for key, value in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return example_loss(functional_call(model, weights, (inputs,)), targets).mean()

    gradients = vmap(grad(loss))
    turnstile, first = Turnstile(), 0
    while turnstile.enter():
        users = torch.arange(first, first + cohort, device=device)[:, None] * ROWS
        order = users + torch.rand(cohort, ROWS, device=device).argsort(1)
        weights = {key: value.expand(cohort, *value.shape).clone() for key, value in start.items()}
        for batch in order.split(BATCH, 1):
            step = gradients(weights, rows["x"][batch], rows["y"][batch])
            torch._foreach_add_(list(weights.values()), list(step.values()), alpha=-RATE)
        update = torch.cat([(weights[key] - value).flatten(1) for key, value in start.items()], 1)
        update *= (CLIP / update.norm(dim=1, keepdim=True)).clamp_(max=1)
        total = update.sum(0)
        total += NOISE * CLIP * torch.randn_like(total)
        for value, part in zip(start.values(), total.split([v.numel() for v in start.values()]), strict=True):
            value.add_(part.view_as(value), alpha=1.0 / cohort)
        first = (first + cohort) % (POPULATION * cohort)
    print(largest(start.values()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
