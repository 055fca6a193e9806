"""`poems` with updates that are scaled before they are clipped and noised, by the gradients of public verse.

Scale, then privatise (Li, Zaheer, Reddi, Smith 2022, AdaDPS, with public side information): a user's update is
multiplied, coordinate by coordinate, by 1 / (root mean square of gradients + damping), and then clipped; noise is added
to the scaled sum, and the server steps along it. The gradients are those of windows of Tang at the base model, which
are public, so the scales cost nothing. For rehearsals only: the product has no such scaling.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from one_pass_verse import TOGETHER, OnePassVerse
from pydantic import Field

from fieldfare import clipping
from fieldfare.plan_tables import ClientSpec
from fieldfare.registry import Table
from fieldfare_client.settings import TrainingSettings
from fieldfare_research.poems import PoemsParameters, PoemsTask

WINDOWS = 2048
"""Of Tang, evenly chosen, whose gradients give the scales."""


class ScaledParameters(PoemsParameters):
    """Classical Chinese verse, a poet a user, whose update is scaled."""

    damping: float = Field(default=1.0, gt=0, description="in root mean squares over all coordinates")


class ScaledPoems(PoemsTask):
    """`poems` with the damping of its scales."""

    Parameters: ClassVar[type[Table]] = ScaledParameters

    def __init__(self, damping: float = 1.0, **usual: Any) -> None:
        super().__init__(**usual)
        self.damping = damping


class ScaledPass(OnePassVerse):
    """`OnePassVerse`, and the same with scaled gradients for `ScaledPoems`."""

    def __init__(self, task: PoemsTask, settings: TrainingSettings) -> None:
        super().__init__(task, settings)
        self._scales = scales(task.width, task.base, task.damping) if isinstance(task, ScaledPoems) else {}

    def _gradients(
        self, inputs: torch.Tensor, targets: torch.Tensor, sizes: NDArray[np.int64]
    ) -> dict[str, torch.Tensor]:
        made = super()._gradients(inputs, targets, sizes)
        return {name: each * self._scales[name] if self._scales else each for name, each in made.items()}


@lru_cache(maxsize=4)
def scales(width: int, base: str, damping: float) -> dict[str, torch.Tensor]:
    """{name of a parameter: the scale of each coordinate, (numel,)}.

    All are multiplied by one number, so that the median length of a public window's gradient stays what it was.
    """
    task = PoemsTask(width=width, base=base, most=1)
    usual = TrainingSettings(ClientSpec(), clipping.parse({"kind": "flat", "norm": 1.0}), 0, isolated=False)
    one_pass = OnePassVerse(task, usual)
    inputs, targets = task.public()
    chosen = torch.arange(WINDOWS) * len(inputs) // WINDOWS
    parts = [one_pass._gradients(inputs[at], targets[at], np.ones(len(at), np.int64)) for at in chosen.split(TOGETHER)]
    found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    roots = {name: each.square().mean(0).sqrt() for name, each in found.items()}
    floor = damping * float(torch.cat(list(roots.values())).square().mean().sqrt())
    raw = {name: 1 / (root + floor) for name, root in roots.items()}
    before = torch.stack([each.norm(dim=1) for each in found.values()]).norm(dim=0).median()
    after = torch.stack([(each * raw[name]).norm(dim=1) for name, each in found.items()]).norm(dim=0).median()
    return {name: each * (before / after) for name, each in raw.items()}
