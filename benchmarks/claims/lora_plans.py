"""The rows of `lora.py`, and the plans that each cell chooses from."""

from __future__ import annotations

from dataclasses import dataclass

import harness

ROWS: dict[str, harness.Table] = {
    "full": {"trained": "all"},
    **{f"rank {rank}, and bias": {"trained": "adapters", "rank": rank} for rank in (1, 2, 4, 8)},
    "last layer norm, and bias": {"trained": "last"},
    "rank 4, and bias, per layer": {"trained": "adapters", "rank": 4},
}
EPSILONS = (4.0, 8.0)
WHOLE = "full, no privacy"
CLIP = {"full": 0.7, "rank 1": 0.07, "rank 2": 0.09, "rank 4": 0.12, "rank 8": 0.16, "last layer norm": 0.08}
"""0.3 times the median norm of a tune poet's update at the base model; ranks 2 and 4 lie between 1 and 8. Its keys
are a row's words up to the first comma. In a row with `PER_LAYER`, adapters and bias have equal shares of the norm."""
PER_LAYER = ", per layer"
RATE = {"all": 0.003, "adapters": 0.03, "last": 0.03}
"""The middle rate."""
RATIO, RATES, SPARE = 2.5, 3, 3
"""The ratio of neighbours, how many are always tried, and how many more at each end."""


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    base: str
    rounds: int = 20
    cohort: int = 195
    users: int = 7806
    width: int = 64
    most: int = 4

    @property
    def separation(self) -> int:
        return self.users // self.cohort


def clip_of(name: str) -> float:
    return CLIP[name.partition(",")[0]]


def plan_table(name: str, epsilon: float, s: Size, scheme: str = "min-separation") -> harness.Table:
    """The plan of the row `name` without the learning rate."""
    poisson = scheme == "poisson"
    return {
        "privacy": {
            **{"population": "poems", "epsilon": epsilon, "delta": 1e-5},
            "adjacency": "add_remove" if poisson else "zero_out",
        },
        "run": {"task": "poems", "rounds": s.rounds, "cohort": s.cohort, "evaluate_every": s.rounds},
        "task": {**ROWS[name], "base": s.base, "width": s.width, "most": s.most},
        "participation": {"scheme": "poisson", "rate": s.cohort / s.users}
        if poisson
        else {"scheme": "min-separation", "separation": s.separation},
        "mechanism": {"kind": "independent"} if poisson else {"kind": "blt"},
        "clipping": {"kind": "per-layer" if name.endswith(PER_LAYER) else "flat", "norm": clip_of(name)},
        "client": {"epochs": 1, "batch_size": 16, "learning_rate": 1.0},
    }


def with_rate(table: harness.Table, rate: float) -> harness.Table:
    schedule = {"kind": "cool-down", "share": 0.25, "final": 0.05}
    return {**table, "server_optimizer": {"kind": "adamw", "learning_rate": rate, "schedule": schedule}}


def cell(label: str, table: harness.Table, noiseless: bool = False) -> harness.Cell:
    """Three rates around the middle one; further ones wait until their neighbour is the best."""
    count, tried = RATES + 2 * SPARE, grid(table["task"]["trained"])
    spare = [(place + 1, place) for place in reversed(range(SPARE))]
    spare += [(place - 1, place) for place in range(SPARE + RATES, count)]
    return harness.Cell(label, tuple(with_rate(table, rate) for rate in tried), noiseless, tuple(spare))


def grid(trained: str) -> list[float]:
    """All rates of a cell, in order."""
    count = RATES + 2 * SPARE
    return [RATE[trained] * RATIO ** (index - count // 2) for index in range(count)]


def scored(choice: harness.Table, part: harness.Part, seed: int) -> harness.Table:
    return {**choice, "task": {**choice["task"], "scored": part}}


def cells(s: Size) -> list[harness.Cell]:
    made = []
    for name in ROWS:
        made.append(cell(f"{name}, no privacy", plan_table(name, 8.0, s), noiseless=True))
        made += [cell(f"{name}, blt, epsilon {e:g}", plan_table(name, e, s)) for e in EPSILONS]
        made += [
            cell(f"{name}, Poisson (add_remove), epsilon {e:g}", plan_table(name, e, s, "poisson")) for e in EPSILONS
        ]
    return made


def row_of(label: str) -> str:
    return max((name for name in ROWS if label.startswith(f"{name}, ")), key=len)
