"""Noise in a prefix sum, with sampling and correlation together and apart, by epsilon: the demo's plan.

    python benchmarks/amplified.py

64 rounds, 16 rounds from one participation of a user to the next, 4 times, delta 1e-5, clip norm 1. Every row has the
same rounds, cohort and epsilon. Balls in bins are certified charges, as `fieldfare plan` previews them; the others are
exact. Adjacency is add_remove with secret cohorts for sampled rows and zero_out for the others. Writes
benchmarks/results/amplified.json and amplified.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from fieldfare.cost import cost_of
from fieldfare.plan import Plan

RESULTS = Path(__file__).parent / "results"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
BINS = {"adjacency": "add_remove", "participation": {"scheme": "balls-in-bins", "bins": 16}}
POISSON = {"adjacency": "add_remove", "participation": {"scheme": "poisson", "rate": 1 / 16}}
CYCLIC = {"adjacency": "add_remove", "participation": {"scheme": "cyclic-poisson", "groups": 2, "rate": 1 / 8}}
APART = {
    "adjacency": "zero_out",
    "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "`nu`, balls in bins (certified)": ({"kind": "nu"}, BINS),
    "`blt`, balls in bins (certified)": ({"kind": "blt"}, BINS),
    "`independent`, Poisson (DP-SGD)": ({"kind": "independent"}, POISSON),
    "`banded`, 2 bands, cyclic Poisson": ({"kind": "banded", "bands": 2}, CYCLIC),
    "`blt`, no sampling": ({"kind": "blt"}, APART),
    "`nu`, no sampling": ({"kind": "nu"}, APART),
}


def plan(mechanism: dict[str, Any], way: dict[str, Any], epsilon: float) -> Plan:
    return Plan.parse(
        {
            "privacy": {"population": "demo", "epsilon": epsilon, "delta": 1e-5, "adjacency": way["adjacency"]},
            "run": {"rounds": 64, "cohort": 202},
            "participation": way["participation"],
            "mechanism": mechanism,
        }
    )


def measure(epsilons: tuple[float, ...]) -> list[dict[str, Any]]:
    rows = []
    for name, (mechanism, way) in ROWS.items():
        for epsilon in epsilons:
            began = time.process_time()
            cost = cost_of(plan(mechanism, way, epsilon))
            shown = cost.to_json()
            row = {
                "row": name,
                "epsilon": epsilon,
                "charged_epsilon": shown["epsilon"],
                "noise_multiplier": shown["noise_multiplier"],
                "prefix_noise": shown["prefix_noise_rms"],
                "without_amplification": shown["epsilon_without_amplification"],
                "processor_seconds": round(time.process_time() - began, 2),
            }
            if cost.certificate is not None:
                row |= {"failure": cost.certificate.curve.failure, "samples": list(cost.certificate.curve.samples)}
            rows.append(row)
            print(f"{name:<40} {epsilon:>4g} {row['prefix_noise']:8.3f}  {row['processor_seconds']:.1f} s", flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(row["row"] for row in rows))
    epsilons = sorted({row["epsilon"] for row in rows})
    noise = {(row["row"], row["epsilon"]): row["prefix_noise"] for row in rows}
    least = {e: min(noise[name, e] for name in names if (name, e) in noise) for e in epsilons}
    lines = [
        "# Sampling and correlation together",
        "",
        "`python benchmarks/amplified.py`: root-mean-square noise in a prefix sum, clip norm 1, at equal epsilon,",
        "rounds (64) and cohort; a user takes part every 16 rounds, 4 times; delta 1e-5. Balls in bins are certified",
        "charges (failure probability below 1e-9, part of delta). Sampled rows are add_remove with secret cohorts and",
        "need users that can be called at will; the others are zero_out.",
        "",
        "| epsilon | " + " | ".join(f"{e:g}" for e in epsilons) + " |",
        "|---" * (len(epsilons) + 1) + "|",
    ]
    for name in names:
        shown = {e: f"{noise[name, e]:.2f}" for e in epsilons if (name, e) in noise}
        cells = [f"**{text}**" if noise[name, e] == least[e] else text for e, text in shown.items()]
        cells += ["not measured"] * (len(epsilons) - len(cells))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    slowest = max(row["processor_seconds"] for row in rows)
    lines += ["", f"The slowest row takes {slowest:.0f} s of one processor."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, action="append", help="instead of all five")
    given = parser.parse_args()
    rows = measure(tuple(given.epsilon or EPSILONS))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "amplified.json").write_text(json.dumps(rows, indent=1) + "\n")
    (RESULTS / "amplified.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
