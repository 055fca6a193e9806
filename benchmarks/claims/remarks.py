"""What the pages of `training.py` say besides scores and verdicts."""

from __future__ import annotations

import statistics
import textwrap

import harness
import numpy as np
from one_pass import OnePass

from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare_client.settings import TrainingSettings
from fieldfare_research.fashion import FashionTask
from fieldfare_research.tables import table

TWO_POINT = ", two-point"


def gains_of(stored: harness.Table) -> list[str]:
    """How far the means of DiSK's gains lie apart, where several were run."""
    means = {label: statistics.mean(one["scores"]) for label, one in stored["cells"].items() if TWO_POINT in label}
    lines = []
    for name in dict.fromkeys(label.partition(TWO_POINT)[0] for label in means):
        gains = {
            label.rpartition("kappa ")[2] if "kappa" in label else "0.7": mean
            for label, mean in means.items()
            if label.startswith(name + TWO_POINT)
        }
        if len(gains) > 1:
            shown = ", ".join(f"{kappa} {gains[kappa]:.4f}" for kappa in sorted(gains))
            span = max(gains.values()) - min(gains.values())
            lines.append(f"two points by gain ({name}): {shown}; the means span {span:.4f}")
    return lines


def norms_of(stored: harness.Table) -> list[str]:
    """Where the clip norms lie against the gradients."""
    norms, rounds = stored["norms"], stored["size"]["rounds"]
    return [
        f"the median length of a tune user's gradient is {norms['start']:.2f} at the start, and {norms['end']:.2f} "
        f"after {rounds} rounds without noise"
    ]


def median_norms(plan: Plan, users: int = 1000) -> dict[str, float]:
    """Median length of tune users' gradients at the first model ("start"), and at the last of a run of the plan
    without noise ("end"). plan: of the task `fashion` with the small model."""
    task = FashionTask(model="cnn-small")
    settings = TrainingSettings(plan.client, plan.clipping, harness.TUNING_SEED, isolated=False)
    inputs, targets = task.prepare(table("fashion", "tune", ("x", "y"), None).rows(np.arange(users)).columns)
    model = task.build_model()
    start = Schema.of(model).flatten(dict(model.named_parameters()))
    points = {"start": start, "end": harness.trained(plan, harness.TUNING_SEED)}
    lengths = {name: OnePass(task, settings).norms(point, inputs, targets) for name, point in points.items()}
    return {name: float(values.median()) for name, values in lengths.items()}


def wrapped(text: str, indent: str = "") -> str:
    """The text in lines of at most 120 characters; indent: of all lines but the first."""
    joined = " ".join(text.split())
    return textwrap.fill(joined, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
