"""The rows and settings of the headline figure, and the plans that each cell chooses from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import harness
import numpy as np

from fieldfare.plan import Plan

EPSILONS = (1.0, 2.0, 4.0, 8.0)
DENSE_ROUNDS = 512
RATIO = 2.5

Sampling = str
POISSON, CYCLIC = "DP-SGD, Poisson (add_remove)", "banded, cyclic Poisson (add_remove)"
ALLOCATED = "independent, random allocation (add_remove)"
NU_BINS, BANDED_BINS = "nu, balls in bins (add_remove)", "banded, balls in bins (add_remove)"
ROWS: dict[str, tuple[harness.Table, Sampling]] = {
    POISSON: ({"kind": "independent"}, "poisson"),
    "independent": ({"kind": "independent"}, "apart"),
    "tree, online": ({"kind": "tree", "estimator": "online"}, "apart"),
    "optimal-cc": ({"kind": "optimal-cc"}, "apart"),
    "nu": ({"kind": "nu", "nu": "auto"}, "apart"),
    "blt": ({"kind": "blt"}, "apart"),
    "banded": ({"kind": "banded"}, "apart"),
    CYCLIC: ({"kind": "banded"}, "cyclic-poisson"),
    ALLOCATED: ({"kind": "independent"}, "random-allocation"),
    NU_BINS: ({"kind": "nu", "nu": "auto"}, "balls-in-bins"),
    BANDED_BINS: ({"kind": "banded"}, "balls-in-bins"),
    "dense": ({"kind": "dense"}, "apart"),
}
CYCLIC_BANDS = 4
"""Groups, and bands, of the row with cyclic Poisson sampling."""
NO_PRIVACY = "no privacy (clipped)"


BASES = {"small": "--width 32 --steps 100", "reduced": "--width 32", "full": "--width 64"}
"""Options of benchmarks/claims/base.py that make the base model of `poems`, by size."""


@dataclass(frozen=True)
class Setting:
    """One column of the table of the headline."""

    task: harness.Table
    users: int
    rounds: int
    cohort: int
    separation: int
    delta: float
    clip: float
    momentum: float
    client: harness.Table
    centre: float
    """Learning rate x noise in the mean of a prefix, per coordinate, around which rates are tried."""
    largest: float
    """Effective rate (rate / (1 - momentum)) above which nothing is tried."""
    score: str
    higher: bool = True
    both: bool = False
    """Independent rows try each rate with momentum and without. False: once with momentum, at the middle rate."""

    @property
    def times(self) -> int:
        return -(-self.rounds // self.separation)

    @property
    def bins(self) -> int:
        """Rounds of a block in which each user takes part once."""
        return round(self.users / self.cohort)


GRADIENT = {"steps": 1, "batch_size": 1, "learning_rate": 1.0}
EPOCH = {"epochs": 1, "batch_size": 16, "learning_rate": 1.0}
SETTINGS: dict[tuple[str, str], Setting] = {
    ("fashion", "small"): Setting(
        {"model": "cnn-small", "users": 10_000},
        *(10_000, 200, 250, 40, 1e-5, 1.0, 0.9, GRADIENT, 0.12, 15.0, "accuracy"),
    ),
    ("fashion", "reduced"): Setting(
        {"model": "cnn-small"}, 50_000, 500, 500, 100, 1e-5, 1.0, 0.9, GRADIENT, 0.015, 5.0, "accuracy"
    ),
    ("fashion", "full"): Setting(
        {"model": "cnn-small"}, 50_000, 2000, 500, 100, 1e-5, 1.0, 0.9, GRADIENT, 0.015, 5.0, "accuracy"
    ),
    ("poems", "small"): Setting(
        {"width": 32, "most": 1, "users": 3_900},
        *(3_900, 40, 195, 20, 1e-5, 0.3, 0.9, EPOCH, 0.05, 30.0, "nats", False, True),
    ),
    ("poems", "reduced"): Setting(
        {"width": 32, "most": 4}, 7_806, 60, 195, 40, 1e-5, 0.3, 0.9, EPOCH, 0.01, 30.0, "nats", False
    ),
    ("poems", "full"): Setting(
        {"width": 64, "most": 16}, 7_806, 400, 390, 20, 1e-5, 0.3, 0.95, EPOCH, 0.01, 10.0, "nats", False
    ),
    ("chess", "small"): Setting(
        {"users": 5_000}, 5_000, 100, 250, 20, 1e-5, 0.3, 0.9, GRADIENT, 0.2, 30.0, "auc", both=True
    ),
    ("chess", "people"): Setting(
        {"users": 50_000}, 50_000, 250, 1000, 50, 1e-6, 0.3, 0.9, GRADIENT, 0.2, 30.0, "auc", both=True
    ),
    ("chess", "reduced"): Setting(
        {}, 189_864, 100, 400, 100, 1e-6, 0.3, 0.95, {**EPOCH, "batch_size": 1}, 0.05, 10.0, "auc"
    ),
    ("chess", "full"): Setting(
        {}, 189_864, 1000, 1000, 189, 1e-6, 0.3, 0.95, {**EPOCH, "batch_size": 1}, 0.05, 10.0, "auc"
    ),
}
SPLITS = ((100, 500), (400, 125), (1000, 50))
"""(rounds, cohort) at which DP-SGD visits as many users as at the small size of fashion."""
SETTINGS |= {
    ("fashion", f"small-{rounds}x{cohort}"): dataclasses.replace(
        SETTINGS["fashion", "small"], rounds=rounds, cohort=cohort
    )
    for rounds, cohort in SPLITS
}


def table_of(name: str, s: Setting, row: str, epsilon: float) -> harness.Table:
    """The plan of a cell without its server optimizer."""
    mechanism, sampling = ROWS[row]
    if mechanism["kind"] == "banded":
        bands = CYCLIC_BANDS if sampling == "cyclic-poisson" else s.separation
        mechanism = {**mechanism, "bands": min(bands, s.rounds)}
    participation = {
        "poisson": {"scheme": "poisson", "rate": s.cohort / s.users},
        "cyclic-poisson": {
            **{"scheme": "cyclic-poisson", "groups": CYCLIC_BANDS},
            "rate": min(1.0, s.cohort * CYCLIC_BANDS / s.users),
        },
        "balls-in-bins": {"scheme": "balls-in-bins", "bins": s.bins},
        "random-allocation": {"scheme": "random-allocation", "bins": s.bins},
        "apart": {"scheme": "min-separation", "separation": s.separation, "max_participations": s.times},
    }[sampling]
    return {
        "privacy": {
            **{"population": name, "epsilon": epsilon, "delta": s.delta},
            "adjacency": "zero_out" if sampling == "apart" else "add_remove",
        },
        "run": {"task": name, "rounds": s.rounds, "cohort": s.cohort, "evaluate_every": s.rounds},
        "task": s.task,
        "participation": participation,
        "mechanism": mechanism,
        "clipping": {"kind": "flat", "norm": s.clip},
        "client": s.client,
    }


def with_rate(table: harness.Table, effective: float, momentum: float) -> harness.Table:
    optimizer = {"kind": "sgd", "learning_rate": effective * (1 - momentum), "momentum": momentum}
    schedule = {"kind": "cool-down", "share": 0.25, "final": 0.05}
    return {**table, "server_optimizer": {**optimizer, "schedule": schedule}}


def prefix_noise(table: harness.Table) -> float:
    """Root-mean-square noise of a prefix sum, per coordinate, clip norm 1; the charge is checked."""
    cost = harness.charged_cost(Plan.parse(table))
    return float(cost.noise_multiplier * np.sqrt(np.mean(np.square(cost.mechanism.prefix_row_norms()))))


def rates(s: Setting, noise: float, count: int) -> list[float]:
    """Effective rates, RATIO apart, centred by the noise alone: no score enters. One more at each end is spare."""
    centre = min(s.largest / RATIO ** (count // 2), s.centre * s.cohort / (noise * s.clip))
    return [centre * RATIO ** (index - count // 2) for index in range(-1, count + 1)]


def spares(count: int) -> harness.Spares:
    """The first and the last of `rates` wait until their neighbours are the best."""
    return (1, 0), (count, count + 1)


def cells_of(name: str, s: Setting, rows: list[str], epsilons: list[float], count: int) -> list[harness.Cell]:
    cells = [
        cell_of(name, s, row, epsilon, count, prefix_noise(table_of(name, s, row, epsilon)))
        for row in rows
        for epsilon in epsilons
    ]
    return [*cells, free_cell(name, s, count)]


def cell_of(name: str, s: Setting, row: str, epsilon: float, count: int, noise: float) -> harness.Cell:
    """The choices of a cell, given its `prefix_noise`."""
    table = table_of(name, s, row, epsilon)
    tried = rates(s, noise, count)
    # DP-SGD runs without momentum, as in the paper, and then with it.
    independent = ROWS[row][0]["kind"] == "independent"
    choices = [with_rate(table, rate, 0.0 if independent else s.momentum) for rate in tried]
    spare = spares(count)
    if independent:
        again = tried if s.both else [tried[len(tried) // 2]]
        choices += [with_rate(table, rate, s.momentum) for rate in again]
        spare += tuple((a + len(tried), b + len(tried)) for a, b in spares(count) if s.both)
    return harness.Cell(f"{row}, epsilon {epsilon:g}", tuple(choices), spare=spare, grid=len(tried))


def free_cell(name: str, s: Setting, count: int) -> harness.Cell:
    """The choices without privacy."""
    free = table_of(name, s, "nu", 8.0) | {"mechanism": {"kind": "independent"}}
    tried = [s.largest / RATIO**index for index in range(count, -2, -1)]
    choices = tuple(with_rate(free, rate, s.momentum) for rate in tried)
    return harness.Cell(NO_PRIVACY, choices, noiseless=True, spare=spares(count))


def scored(choice: harness.Table, part: harness.Part, seed: int) -> harness.Table:
    return {**choice, "task": {**choice["task"], "scored": part}}
