"""What the figures of a price that was asked for are."""

from __future__ import annotations

from typing import Literal

Bound = Literal["as charged", "certified with fewer samples", "without amplification"]
"""A run's own charge; or, where a Monte Carlo certifies it, more than that: see `what_if`."""
