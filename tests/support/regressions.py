"""Simulated users of a linear regression, by name: fresh data and a fresh target for every seed.

`risks` runs a plan on them through the real server: Flower's messages, the selector, clipping on the nodes, the
mechanism's stream and the optimizer. Only the account is a rehearsal's: there is nobody to charge.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fieldfare.accounting import PrivacyLoss
from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.mechanisms.independent import Independent
from fieldfare.noise import SecureNoise
from fieldfare.plan import Plan
from fieldfare.streams.base import Stream
from fieldfare.streams.chunked import Rule
from fieldfare.streams.independent import IndependentStream
from fieldfare_client.app import app
from fieldfare_client.simulation import LocalGrid
from fieldfare_client.tasks.regression import RegressionTask, power_law
from fieldfare_server.run.rehearsal import Rehearsal
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session, seeded_key

Floats = NDArray[np.float64]

FOUR = (1.0, 0.5, 0.2, 0.1)
"""The spectrum of the table in section 5.1 of the notes on correlated noise."""


def spectrum(shape: str, size: int) -> Floats:
    """`flat`: ones. `twofold`: a power law whose largest eigenvalue is twice its smallest, with mean 1."""
    if shape == "flat":
        return np.ones(size)
    return power_law(size, math.log(2.0) / math.log(size)) if shape == "twofold" else np.array(FOUR)


def __getattr__(name: str) -> RegressionTask:
    """`SHAPE_D_USERS_SEED`: one example a user; label noise 0.3, and 0.5 for `four`."""
    shape, *numbers = name.split("_")
    if shape not in ("flat", "twofold", "four") or len(numbers) != 3:
        raise AttributeError(name)
    size, users, seed = map(int, numbers)
    seeded: type[RegressionTask] = type("Seeded", (RegressionTask,), {"seed": seed})
    return seeded(spectrum(shape, size), users, noise=0.5 if shape == "four" else 0.3)


def one_pass(
    task: str,
    *,
    rounds: int,
    cohort: int,
    clip: float,
    rate: float,
    power: float,
    mechanism: dict[str, Any],
    noise: float,
) -> Plan:
    """Every user once, one step each: the mean update is minus the clipped gradient, the step rate (1 - t/T)^power."""
    schedule = {"kind": "polynomial", "power": power} if power else {"kind": "constant"}
    return Plan.parse(
        {
            "privacy": {
                "population": "simulated",
                "noise_multiplier": noise,
                "delta": 1e-5,
                "adjacency": "replace_one",
            },
            "run": {"task": f"support.regressions:{task}", "rounds": rounds, "cohort": cohort, "min_reports": cohort},
            "mechanism": mechanism,
            "clipping": {"kind": "flat", "norm": clip},
            "server_optimizer": {"kind": "sgd", "learning_rate": rate, "schedule": schedule},
            "client": {"epochs": 1, "batch_size": 1, "learning_rate": 1.0},
        }
    )


def risks(plan: Plan, seed: int, cost: Cost | None = None) -> Floats:
    """The exact excess risk after every round, shape (rounds,). Deterministic: the noise key comes from `seed`."""
    seen: list[float] = []

    def note(report: RoundReport) -> None:
        seen.append(math.inf if report.score is None else report.score)

    with Session(plan, cost or cost_of(plan), Rehearsal(), None, seeded_key(seed)) as session:
        FieldfareStrategy(session, note).start(LocalGrid(app, 1, {"task": plan.run.task}))
    assert len(seen) == plan.run.rounds
    return np.array(seen)


class _Weighted(IndependentStream):
    weights: Floats

    def _rule(self, t: int, age: int) -> Rule:
        weight = float(self.weights[t])

        def apply(lo: int, z: Any, out: Any, kept: Any) -> None:
            out *= weight

        return apply


class Weighted(Independent):
    """Independent noise of another size every round, weights[t]: the schedules of Bombari et al. (4.2).

    A test double: that accounting protects the last model alone, and Fieldfare releases all of them (I6).
    """

    def __init__(self, weights: Floats) -> None:
        super().__init__(weights.size)
        self.weights = weights

    def row_norms(self, n: int | None = None) -> Floats:
        return self.weights[:n]

    def stream(
        self,
        numel: int,
        noise: SecureNoise,
        *,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> Any:
        stream: Stream = _Weighted(numel, noise, self.rounds, dtype=dtype, device=device)
        stream.__dict__["weights"] = self.weights
        return stream


def weighted(plan: Plan, weights: Floats) -> Cost:
    """A cost whose noise has std weights[t] x clip in round t, and whose charge means nothing."""
    return Cost(plan, Weighted(weights), plan.participation.build(), 1.0, PrivacyLoss())


def within(values: Floats, expected: float, errors: float = 4.0, limit: float = 0.0) -> None:
    """The mean of independent `values` is `expected` within so many of its standard errors.

    limit: a share of `expected` that may come on top, because it holds in a limit that the runs only come near.
    """
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))
    allowed = errors * error + limit * expected
    assert abs(mean - expected) <= allowed, f"{mean:.5g} +- {error:.2g}, expected {expected:.5g}"
