"""The charge of noise as it is executed, by floats or on a grid; and the noise that a charge implies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fieldfare.accounting import discretised
from fieldfare.accounting.loss import PrivacyLoss


@dataclass(frozen=True)
class Execution:
    """How a run's real-valued Gaussian noise is made.

    Args:
        resolution: mu^2 that floats' resolution costs beyond the noise; of sampled events r^2, r as in
            `in_full`.
        discrete: whether the noise is discrete.
        events: whether the rounds are sampled events, each charged by itself.
    """

    resolution: float = 0.0
    discrete: bool = False
    events: bool = False

    def in_full(self, loss: PrivacyLoss) -> PrivacyLoss:
        """Return the charge for `loss`, that of exact noise: discrete noise costs a little more, and floats
        their resolution.

        An event of noise multiplier sigma costs 1 / (1 / sigma + r). A certified charge has its resolution
        already.
        """
        if loss.certified:
            return loss
        if self.events:
            r = math.sqrt(self.resolution)
            events = (e.at(noise_multiplier=1 / (1 / e.noise_multiplier + r)) for e in loss.sampled)
            return PrivacyLoss(loss.mu_squared, tuple(events))
        if not self.discrete:
            return loss + PrivacyLoss(self.resolution)
        return discretised.as_gaussian(loss)

    def implied_noise(self, charged: PrivacyLoss, column: float, sensitivity: float) -> float:
        """Return the noise multiplier of a run whose whole charge is `charged`: the inverse of `in_full`, up
        to last digits.

        nan where no one multiplier is: of certified charges, and of losses that are no run's.

        Args:
            column: the norm of C's longest column.
            sensitivity: of C under the run's participation, with the factor of its adjacency.
        """
        if charged.sampled:
            (multiplier, *others) = {event.noise_multiplier for event in charged.sampled}
            return math.nan if others else column / (1 / multiplier - math.sqrt(self.resolution))
        share = discretised.SHARE if self.discrete else 1.0
        of_noise = (2 * charged.rho - self.resolution) / share
        return sensitivity / math.sqrt(of_noise) if of_noise > 0 else math.nan
