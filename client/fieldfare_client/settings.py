"""What an instruction says about local training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fieldfare import clipping
from fieldfare.metrics import MetricsSpec, Riders
from fieldfare.plan_tables import ClientSpec


@dataclass(frozen=True)
class TrainingSettings:
    """As `Session.settings` writes it."""

    client: ClientSpec
    clipping: clipping.ClippingSpec
    seed: int
    isolated: bool  # whether every user trains alone: where it is secret who else does
    # What is measured of each user, on the first model that is sent, before training.
    metrics: MetricsSpec | None = None

    @classmethod
    def parse(cls, settings: dict[str, Any]) -> TrainingSettings:
        """Read the JSON of an instruction. A key may be missing in an instruction of an older server."""
        client, spec = ClientSpec.model_validate(settings["client"]), clipping.parse(settings["clipping"])
        metrics = MetricsSpec.model_validate(settings["metrics"]) if "metrics" in settings else None
        return cls(client, spec, int(settings["seed"]), bool(settings.get("isolated", False)), metrics)

    @property
    def riders(self) -> Riders:
        """What rides beside each user's update."""
        return Riders.of(self.clipping, self.metrics)
