"""Train the public base model of `poems` on Tang, and write it to FIELDFARE_DATA. `python benchmarks/claims/base.py`

Tang is public, so this costs no privacy. Prints the file's SHA-256, which a plan names as `[task] base`. About 200 CPU
seconds for the default of 2 600 steps at width 64. The same settings and versions give the same bytes on the same
machine, and are meant to on others (`kernels.py`); a plan names the file by its hash, in case one rounds otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import sys

import kernels  # noqa: F401  (before PyTorch)
import torch
from safetensors.torch import save

from fieldfare.task import seeded
from fieldfare_client.sources import data_folder
from fieldfare_research.poems import PoemsTask, base_name

BATCH, WARM_UP = 64, 50


def train(task: PoemsTask, steps: int, peak: float) -> dict[str, torch.Tensor]:
    """Weights after `steps` of Adam on Tang: batches of 64 windows, warm-up over 50 steps, then linearly to 0."""
    inputs, targets = task.public()
    model = task.build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=peak)
    with seeded(task.seed):
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = peak * min(1.0, (step + 1) / WARM_UP) * (1 - step / steps)
            chosen = torch.randint(len(inputs), (BATCH,))
            loss = task.loss(model(inputs[chosen]), targets[chosen]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (step + 1) % max(1, steps // 20) == 0:
                print(f"step {step + 1}/{steps}: loss {float(loss.detach()):.3f}", file=sys.stderr, flush=True)
    return {name: value.detach().contiguous() for name, value in model.state_dict().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2600)
    parser.add_argument("--peak", type=float, default=6e-3, help="largest learning rate")
    arguments = parser.parse_args()
    folder = data_folder()
    if folder is None:
        sys.exit("FIELDFARE_DATA names no folder; first: fieldfare data fetch poems")
    content = save(train(PoemsTask(width=arguments.width), arguments.steps, arguments.peak))
    digest = hashlib.sha256(content).hexdigest()
    (folder / base_name(digest)).write_bytes(content)
    print(digest)


if __name__ == "__main__":
    main()
