"""No private run evaluates outside of its rounds."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy


class WithoutNodeEvaluation(Strategy):
    """A Flower strategy without a step of evaluation: metrics ride in its rounds, or would leave un-noised."""

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no instruction at all."""
        return ()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing, whatever is handed in."""
        return None
