"""What an instruction says about local training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fieldfare import clipping
from fieldfare.plan_tables import ClientSpec


@dataclass(frozen=True)
class TrainingSettings:
    """As `Session.settings` writes it."""

    client: ClientSpec
    clipping: clipping.ClippingSpec
    seed: int
    isolated: bool
    """Whether every user trains alone: where it is secret who else does."""

    @classmethod
    def parse(cls, settings: dict[str, Any]) -> TrainingSettings:
        """Read the JSON of an instruction. An instruction of an older server has no key `isolated`."""
        client, spec = ClientSpec.model_validate(settings["client"]), clipping.parse(settings["clipping"])
        return cls(client, spec, int(settings["seed"]), bool(settings.get("isolated", False)))
