"""Membership inference on fashion: shadow models, each trained on half of the candidates (LiRA, Carlini et al. 2022).

A candidate is an image, and a coin decides for each model whether it is a user. The plan is the headline's DP-SGD with
Poisson sampling (add_remove), so what epsilon promises is exactly what the attack tries: whether a user took part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import headline_plans as plans
import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare_research.fashion import FashionTask

EPSILONS = ("none", "1", "4", "8")
"""`none`: clipped, with next to no noise, and not sampled, at the largest rate that the headline tries."""
FIRST_SEED = 5000
PLACE = 2
"""The middle of the grid of rates, which the headline's tuning chose at every epsilon."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One size of the attack. candidates: of whom about half take part. seen: how many of them are attacked."""

    name: str
    candidates: int
    seen: int
    base: plans.Setting

    @property
    def plan(self) -> plans.Setting:
        """The headline's setting, for about as many users as take part."""
        return dataclasses.replace(self.base, users=self.candidates // 2, task={"model": "cnn-small"})

    def tiny(self) -> Setting:
        base = dataclasses.replace(self.base, rounds=8, cohort=100)
        return dataclasses.replace(self, candidates=800, seen=400, base=base)


SMALL = plans.SETTINGS["fashion", "small"]
SETTINGS = (Setting("usual", 20_000, 8_000, SMALL), Setting("often", 4_000, 4_000, SMALL))
"""An image takes part 5 times, as in the headline, or 25 times."""


_CHOICES: dict[tuple[int, str], harness.Table] = {}


def _choice(setting: Setting, label: str) -> harness.Table:
    """The plan of a cell of the headline, for all users; priced once."""
    if (setting.candidates, label) not in _CHOICES:
        _CHOICES[setting.candidates, label] = _chosen(setting.plan, label)
    return _CHOICES[setting.candidates, label]


def _chosen(s: plans.Setting, label: str) -> harness.Table:
    if label == "none":
        # Without noise a sampled plan has no price. Coins may leave too few users for turns as far apart as can be.
        apart = dataclasses.replace(s, separation=s.bins * 9 // 10)
        return plans.with_rate(plans.free_cell("fashion", apart, 3).choices[0], s.largest, s.momentum)
    epsilon = float(label)
    noise = plans.prefix_noise(plans.table_of("fashion", s, plans.POISSON, epsilon))
    return plans.cell_of("fashion", s, plans.POISSON, epsilon, 3, noise).choices[PLACE]


def shadow(setting: Setting, label: str, number: int, seed: int) -> tuple[harness.Table, NDArray[np.float16]]:
    """Train a model on the candidates whose coin fell so: (record, confidence in each candidate's label).

    Confidence is log(p / (1 - p)), the first `seen` candidates'.
    """
    choice = _choice(setting, label)
    task = {**choice["task"], "users": setting.candidates, "coin": number, "scored": "test"}
    record, params = harness.run(Plan.parse({**choice, "task": task}), seed, noiseless=label == "none")
    return record, confidences(params, setting)


def confidences(params: torch.Tensor, setting: Setting) -> NDArray[np.float16]:
    task = FashionTask(users=setting.seen, model="cnn-small")
    model = task.build_model()
    model.load_state_dict(Schema.of(model).split(params.float().cpu()))
    candidates = task.candidates()
    inputs, targets = task.prepare(candidates.rows(np.arange(len(candidates))).columns)
    with torch.no_grad():
        logs = torch.cat([torch.log_softmax(model(part).double(), 1) for part in torch.split(inputs, 1000)])
    right = logs.gather(1, targets[:, None])
    others = logs.scatter(1, targets[:, None], -torch.inf).logsumexp(1)
    return (right[:, 0] - others).clamp(-60, 60).numpy().astype(np.float16)


def taken(setting: Setting, number: int) -> NDArray[np.bool_]:
    """Which of the `seen` candidates a model was trained on."""
    return FashionTask(users=setting.candidates, coin=number).taken()[: setting.seen]


def save(folder: Path, seen: dict[str, dict[Any, NDArray[np.float16]]]) -> None:
    """Write attack.npz: an array for each model, by study, epsilon, seed and number."""
    arrays = {
        f"{study}/{job.label}/{job.seed}/{job.place}": values
        for study, jobs in seen.items()
        for job, values in jobs.items()
    }
    fresh = folder / "attack.part.npz"
    np.savez_compressed(fresh, **arrays)  # type: ignore[arg-type]
    fresh.replace(folder / "attack.npz")


def load(folder: Path, study: str, job: Callable[..., Any]) -> dict[Any, NDArray[np.float16]]:
    """What `save` wrote of one study."""
    path = folder / "attack.npz"
    if not path.is_file():
        return {}
    found = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            of, label, seed, place = name.split("/")
            if of == study:
                found[job(study, label, "test", int(seed), int(place))] = arrays[name]
    return found
