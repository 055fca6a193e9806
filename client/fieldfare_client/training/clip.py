"""The plan's clipping as a `Clip`, and a trainer by all that an instruction says."""

from __future__ import annotations

import torch

from fieldfare import clipping
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.forked import trains_apart
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.training.trainer import Clip, Trainer


def clip_with(spec: clipping.ClippingSpec, schema: Schema) -> Clip:
    """Clip by `spec`; report how many updates exceeded the norm where, and only where, `spec` asks for it."""
    layout = schema.slices()

    def clip(updates: torch.Tensor) -> tuple[float, ...] | None:
        over = (float(clipping.count_over(updates, spec)),) if spec.counts else None
        clipping.clip_(updates, spec, layout)
        return over

    return clip


def trainer_of(task: Task, settings: TrainingSettings, device: str = "cpu") -> Trainer:
    """Return the trainer of `task` that an instruction asks for. Raises `BadInput` as `Trainer` and `trains_apart`."""
    client, isolated = settings.client, settings.isolated
    trainer = Trainer(
        task,
        client,
        lambda updates: None,
        seed=settings.seed,
        device=device,
        isolated=isolated,
        metrics=settings.metrics,
        apart=trains_apart(task, client, isolated, device),
    )
    trainer.clip = clip_with(settings.clipping, trainer.schema)
    return trainer
