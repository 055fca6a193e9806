"""LoRA under user-level privacy: full fine-tuning, adapters, last layer.

    python benchmarks/claims/lora.py --base SHA256

The base model is trained on Tang (benchmarks/claims/base.py), which is public; the users are poets of Song. Every row
of adapters trains the output bias too. Gain: nats of the base model less those of the row, on test poets. The goal: at
epsilon 8 some adapter keeps half of the gain of full fine-tuning without privacy, and its updates are 5 % as large.
"""

from __future__ import annotations

import argparse
import statistics

import harness

from fieldfare.schema import Schema
from fieldfare.task import load_task

ROWS: dict[str, harness.Table] = {
    "full": {"trained": "all"},
    **{f"rank {rank}, and bias": {"trained": "adapters", "rank": rank} for rank in (1, 2, 4, 8)},
    "last layer norm, and bias": {"trained": "last"},
}
EPSILONS = (4.0, 8.0)
CENTRE = {"all": 0.1, "adapters": 1.0, "last": 1.0}
"""Server rates around which is tried: adapters need ten times those of full fine-tuning."""


def choices(
    row: harness.Table, epsilon: float, given: argparse.Namespace, scheme: str = "min-separation"
) -> tuple[harness.Table, ...]:
    poisson = scheme == "poisson"
    separation = given.users // given.cohort
    return tuple(
        {
            "privacy": {
                **{"population": "poems", "epsilon": epsilon, "delta": 1e-5},
                "adjacency": "add_remove" if poisson else "zero_out",
            },
            "run": {"task": "poems", "rounds": given.rounds, "cohort": given.cohort, "evaluate_every": given.rounds},
            "task": {**row, "base": given.base, "width": given.width, "most": given.most},
            "participation": {"scheme": "poisson", "rate": given.cohort / given.users}
            if poisson
            else {"scheme": "min-separation", "separation": separation},
            "mechanism": {"kind": "independent"} if poisson else {"kind": "blt"},
            "clipping": {"kind": "flat", "norm": clip},
            "server_optimizer": {
                **{"kind": "sgd", "momentum": 0.9, "learning_rate": rate},
                "schedule": {"kind": "cool-down", "share": 0.25, "final": 0.05},
            },
            "client": {"epochs": 1, "batch_size": 16, "learning_rate": 1.0},
        }
        for clip in (0.1, 0.3)
        for rate in (CENTRE[row["trained"]] * factor for factor in (0.4, 1.0, 2.5))
    )


def scored(choice: harness.Table, part: harness.Part, seed: int) -> harness.Table:
    return {**choice, "task": {**choice["task"], "scored": part}}


STUDY = harness.Study("lora", scored, "nats", higher=False, data="poems")


def cells(given: argparse.Namespace) -> list[harness.Cell]:
    made = [harness.Cell("full, no privacy", choices(ROWS["full"], 8.0, given), noiseless=True)]
    for name, row in ROWS.items():
        for epsilon in EPSILONS:
            made.append(harness.Cell(f"{name}, blt, epsilon {epsilon:g}", choices(row, epsilon, given)))
            sampled = choices(row, epsilon, given, "poisson")
            made.append(harness.Cell(f"{name}, Poisson (add_remove), epsilon {epsilon:g}", sampled))
    return made


def trained_parameters(row: harness.Table, given: argparse.Namespace) -> int:
    """Numbers that travel up and down for each user."""
    kind = type(load_task("poems"))
    task = kind.configured(kind.Parameters(**row, width=given.width))
    return Schema.of(task.build_model()).numel


def base_scores(given: argparse.Namespace) -> dict[str, float]:
    """Scores of the base model on test poets, once every choice is stored."""
    kind = type(load_task("poems"))
    task = kind.configured(kind.Parameters(base=given.base, width=given.width))
    return task.evaluate(task.build_model())


def page(found: harness.Table, base: dict[str, float], sizes: dict[str, int], given: argparse.Namespace) -> str:
    whole = base["nats"] - statistics.mean(found["full, no privacy"]["scores"])
    rows, kept = [], []
    for label, one in found.items():
        row = next(name for name in ROWS if label.startswith(name))
        gain = [base["nats"] - value for value in one["scores"]]
        scores = [run["scores"] for run in one["runs"]]
        share = statistics.mean(gain) / whole
        size = sizes[row] / sizes["full"]
        cpu = statistics.mean(run["cpu_seconds"] for run in one["runs"]) / given.rounds
        rows.append(
            (
                label,
                harness.show(one["scores"]),
                harness.show(gain),
                f"{100 * share:.0f} %",
                f"{statistics.mean(s['accuracy'] for s in scores):.4f}",
                f"{statistics.mean(s['accuracy_characters'] for s in scores):.4f}",
                f"{4 * sizes[row] / 1000:.0f} ({100 * size:.1f} %)",
                f"{cpu:.2f}",
            )
        )
        if share >= 0.5 and size <= 0.05:
            kept.append(label)
    header = (
        *("row", "nats", "gain", "of full, no privacy", "accuracy", "characters", "kB each way a user"),
        "CPU seconds a round",
    )
    reached = f"reached by {', '.join(kept)}" if kept else "**not reached**"
    command = f"python benchmarks/claims/lora.py --base {given.base}"
    return f"""# LoRA under user-level privacy

**Goal.** Adapters of at most 5 % of the bytes keep half of the gain of full fine-tuning without privacy.

**Run here.** `poems`, base model trained on Tang: nats {base["nats"]:.3f}, accuracy {base["accuracy"]:.4f}.
{given.rounds} rounds of {given.cohort} of {given.users:,} poets, at most {given.most} windows each, delta 1e-5. Judged
by nats, the mean cross-entropy of characters; lower is better.

{harness.markdown_table(header, rows)}

**Verdict.** The goal is {reached}.

{harness.footer(command, found, tuned=True)}
"""


def main() -> None:
    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--base", required=True, help="SHA-256 that benchmarks/claims/base.py prints")
        for name, value in (("rounds", 60), ("cohort", 195), ("users", 7806), ("width", 64), ("most", 4)):
            parser.add_argument(f"--{name}", type=int, default=value)

    given = harness.options(__doc__ or "", more=more)
    chosen = given.cache / STUDY.name / "choices.json"
    harness.tune(STUDY, cells(given), chosen, given.cache)
    found = harness.score(STUDY, cells(given), chosen, given.seeds, given.cache)
    base, sizes = base_scores(given), {name: trained_parameters(row, given) for name, row in ROWS.items()}
    harness.store("lora", {"base": base, "sizes": sizes, "cells": found})
    print(harness.write_page("lora", page(found, base, sizes, given)))


if __name__ == "__main__":
    main()
