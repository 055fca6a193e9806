"""The leanest private round there is: `python simulation_lean.py MODEL COHORT`, a part of `simulation.py`.

One user after another with `torch.autograd.grad` and fused list operations, clipping, Gaussian noise, a step. Nothing
is checked, charged or stored; no noise is correlated. As many users as the other systems have take their turns. On
the device that FIELDFARE_DEVICE names, else on a CPU.
"""

from __future__ import annotations

import os
import sys

import torch

from simulation_models import BATCH, CLIP, NOISE, POPULATION, RATE, ROWS, columns, example_loss, largest, make
from simulation_turns import Turnstile


def main(name: str, cohort: int) -> None:
    torch.set_num_threads(1)
    device = os.environ.get("FIELDFARE_DEVICE", "cpu")
    model = make(name).to(device)
    rows = {key: torch.from_numpy(values).to(device) for key, values in columns(name, POPULATION * cohort).items()}
    weights = list(model.parameters())
    start = [p.detach().clone() for p in weights]
    turnstile, first = Turnstile(), 0
    while turnstile.enter():
        total = [torch.zeros_like(p) for p in start]
        for user in range(first, first + cohort):
            with torch.no_grad():
                torch._foreach_copy_(weights, start)
            for batch in torch.randperm(ROWS, device=device).add_(user * ROWS).split(BATCH):
                gradient = torch.autograd.grad(example_loss(model(rows["x"][batch]), rows["y"][batch]).mean(), weights)
                with torch.no_grad():
                    torch._foreach_add_(weights, gradient, alpha=-RATE)
            with torch.no_grad():
                update = torch._foreach_sub(weights, start)
                norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(update)))
                torch._foreach_mul_(update, (CLIP / norm).clamp_(max=1))
                torch._foreach_add_(total, update)
        with torch.no_grad():
            torch._foreach_add_(total, [torch.randn_like(t) for t in total], alpha=NOISE * CLIP)
            torch._foreach_add_(start, total, alpha=1.0 / cohort)
        first = (first + cohort) % (POPULATION * cohort)
    print(largest(start))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
