"""`[aggregation]`: what the server reads of a round: each node's update, or only the sum of many. One class a kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BadInput
from fieldfare.names import QUESTION, RESOLUTION
from fieldfare.plan_tables import PrivacySpec, RunSpec
from fieldfare.registry import Registry, Table


class AggregationSpec(Table):
    """The `[aggregation]` part of a plan. One final subclass a kind."""

    kind: str

    # Bits of the words that nodes may send, fewest first; () where they send floats.
    rings: ClassVar[tuple[int, ...]] = ()

    @property
    def fewest_nodes(self) -> int:
        """The fewest nodes of whose replies a round may be the sum; 0: any number."""
        return 0

    @property
    def party(self) -> str:
        """The public key of the blinder that is a party of its own; "" where there is none."""
        return ""

    @property
    def noise_ratio(self) -> float:
        """Standard deviation of the blinder's noise, in units of the server's; 0: it adds none."""
        return 0.0

    @property
    def widening(self) -> float:
        """Standard deviation of all noise in a release, in units of the server's."""
        return math.hypot(1.0, self.noise_ratio)

    def under_blinder(self, planned: PrivacyLoss, resolution: float) -> PrivacyLoss | None:
        """The loss, under the blinder's noise alone, of a whole run that costs everybody else `planned`; None where it
        adds none. `fieldfare.blinder_noise` has the proof.

        resolution: mu^2 in `planned` for the resolution of floats. The blinder's noise has no more of it: the grid is
            the same, and the noise no larger.
        """
        if not self.noise_ratio:
            return None
        # Of a Gaussian mechanism mu^2 falls with the square of the noise; what floats leave open does not.
        return PrivacyLoss((planned.mu_squared - resolution) / self.noise_ratio**2 + resolution)

    def against_server(self, planned: PrivacyLoss, resolution: float) -> PrivacyLoss | None:
        """What such a run shows the server; None where it reads sums as they are, or is the blinder, too."""
        return self.under_blinder(planned, resolution) if self.party else None

    def check(self, privacy: PrivacySpec, run: RunSpec, scheme: str, samples: bool) -> None:
        """Raise `BadInput` where the rest of the plan does not fit. By default everything fits.

        samples: whether users are included at random, by that scheme (`Plan.samples`).
        """


aggregations: Registry[AggregationSpec] = Registry("aggregation")
# The spec of a mapping such as {"kind": "masked"}. Raises `BadInput`.
parse = aggregations.parse


@aggregations.register
class Plain(AggregationSpec):
    """The server reads each node's update, checks its norm, and adds it to the sum."""

    kind: Literal["plain"] = "plain"


@aggregations.register
class Masked(AggregationSpec):
    """Nodes mask their updates, and a blinder tells the server the sum of a round's masks, once."""

    kind: Literal["masked"] = "masked"
    least_nodes: int = Field(
        default=8, ge=2, le=10_000, description="no sum of fewer nodes is opened", json_schema_extra={"unit": "nodes"}
    )
    blinder: str = Field(
        default="", description="public key of the blinder, `fieldfare blinder key`; without it, of a rehearsal's own"
    )
    blinder_noise: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="noise that the blinder adds before the server reads a sum, in units of the server's; 0: none",
    )

    rings: ClassVar[tuple[int, ...]] = (32, 64)

    @property
    def fewest_nodes(self) -> int:
        return self.least_nodes

    @property
    def party(self) -> str:
        return self.blinder

    @property
    def noise_ratio(self) -> float:
        return self.blinder_noise

    def check(self, privacy: PrivacySpec, run: RunSpec, scheme: str, samples: bool) -> None:
        if privacy.rounding == "none":
            why = "words of masked sums are whole cells of a grid."
            raise BadInput("privacy.rounding = 'none'", why, "rounding = 'grid'", code="masked-without-grid")
        if samples:
            why = "a cohort of any size needs a cut of long replies, and the server cannot cut what it cannot read."
            raise BadInput(f"participation.scheme = {scheme!r}", why, NO_MASKS, code="masked-without-cut")
        if self.blinder_noise and (privacy.rounding != "grid" or run.task == QUESTION):
            what, nearest = "aggregation.blinder_noise", "privacy.rounding = 'grid' and a task that trains, or 0"
            why = "what the server learns is known for Gaussian noise on a grid, and for training alone."
            raise BadInput(f"{what} = {self.blinder_noise:g}", why, nearest, code="blinder-noise")
        if self.blinder:
            from fieldfare.masking.boxes import read_key

            read_key(self.blinder)
        if self.least_nodes > run.cohort:
            what, why = "aggregation.least_nodes", f"{run.cohort} users a round live on no more nodes than that."
            nearest = str(run.cohort) if run.cohort > 1 else NO_MASKS
            raise BadInput(f"{what} = {self.least_nodes}", why, nearest, code="masked-too-few")


# What a plan that can have no masks does.
NO_MASKS = "leave [aggregation] out"
# Why a run waits to be resumed.
NO_ANSWER = "its blinder does not answer"
# What a plan without the table says.
PLAIN = Plain()


def shown_to_server(plan: Mapping[str, Any], planned: PrivacyLoss) -> PrivacyLoss | None:
    """`against_server` of a run's stored plan, of whatever version; None, too, where this version cannot read it."""
    try:
        return parse(plan.get("aggregation", PLAIN)).against_server(planned, float(plan.get(RESOLUTION, 0.0)))
    except (ValueError, TypeError):
        return None
