"""Noise in a prefix sum, with sampling and correlation together and apart, by epsilon: the demo's plan.

    python benchmarks/amplified.py

64 rounds, 16 rounds from one participation of a user to the next, 4 times, delta 1e-5, clip norm 1. Every row has the
same rounds, cohort and epsilon. Balls in bins, b-min-sep and banded random allocation are certified charges, as
`fieldfare plan` previews them; the others are exact. Cyclic Poisson has the number of bands that does best at each
epsilon. Adjacency is add_remove with secret cohorts for sampled rows and zero_out for the others. The last row is a
smaller delta. Writes benchmarks/results/amplified.json and amplified.md; a cell that the former has is not measured
again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "claims"))

from harness import commit

from fieldfare.costing import cost_of
from fieldfare.plan import Plan
from fieldfare.text import decimal

RESULTS = Path(__file__).parent / "results"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA, SMALLER_DELTA = 1e-5, 1e-6
BINS = {"adjacency": "add_remove", "participation": {"scheme": "balls-in-bins", "bins": 16}}
POISSON = {"adjacency": "add_remove", "participation": {"scheme": "poisson", "rate": 1 / 16}}
FRESH = {"adjacency": "add_remove", "participation": {"scheme": "random-allocation", "bins": 16}}
SPACED = {"adjacency": "add_remove", "participation": {"scheme": "b-min-sep", "separation": 8, "rate": 1 / 9}}
APART = {
    "adjacency": "zero_out",
    "participation": {"scheme": "min-separation", "separation": 16, "max_participations": 4},
}


def cyclic(bands: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Banded noise with as many groups as bands, of which each round samples one, 1/16 of all users a round."""
    way = {"scheme": "cyclic-poisson", "groups": bands, "rate": bands / 16}
    return {"kind": "banded", "bands": bands}, {"adjacency": "add_remove", "participation": way}


NU, BLT, BANDS = "`nu`, balls in bins", "`blt`, balls in bins", "`banded`, 16 bands, balls in bins"
DP_SGD, ALLOCATED = "`independent`, Poisson (DP-SGD)", "`independent`, random allocation"
BANDS_ALLOCATED, BANDS_SPACED = "`banded`, 16 bands, random allocation", "`banded`, 8 bands, b-min-sep"
CYCLIC = "`banded`, cyclic Poisson, best of 2, 4 and 8 bands"
BLT_ALONE, NU_ALONE, INDEPENDENT = "`blt`, no sampling", "`nu`, no sampling", "`independent`, no sampling"
ROWS: dict[str, tuple[tuple[dict[str, Any], dict[str, Any]], ...]] = {
    NU: (({"kind": "nu"}, BINS),),
    BLT: (({"kind": "blt"}, BINS),),
    BANDS: (({"kind": "banded", "bands": 16}, BINS),),
    BANDS_ALLOCATED: (({"kind": "banded", "bands": 16}, FRESH),),
    BANDS_SPACED: (({"kind": "banded", "bands": 8}, SPACED),),
    DP_SGD: (({"kind": "independent"}, POISSON),),
    ALLOCATED: (({"kind": "independent"}, FRESH),),
    CYCLIC: (cyclic(2), cyclic(4), cyclic(8)),
    BLT_ALONE: (({"kind": "blt"}, APART),),
    NU_ALONE: (({"kind": "nu"}, APART),),
    INDEPENDENT: (({"kind": "independent"}, APART),),
}
"""Name of a row: the ways of which it shows the best."""


def plan(mechanism: dict[str, Any], way: dict[str, Any], epsilon: float, delta: float = DELTA) -> Plan:
    return Plan.parse(
        {
            "privacy": {"population": "demo", "epsilon": epsilon, "delta": delta, "adjacency": way["adjacency"]},
            "run": {"rounds": 64, "cohort": 202},
            "participation": way["participation"],
            "mechanism": mechanism,
        }
    )


def measure(name: str, epsilon: float, delta: float, made_by: str) -> dict[str, Any]:
    """A row's best way: what it charges, how much noise it leaves, and what pricing it took."""
    began, clock = time.process_time(), time.perf_counter()
    costs = [cost_of(plan(mechanism, way, epsilon, delta)) for mechanism, way in ROWS[name]]
    cost = min(costs, key=lambda one: one.prefix_noise_rms)
    shown = cost.to_json()
    row: dict[str, Any] = {
        "row": name,
        "epsilon": epsilon,
        "delta": delta,
        "charged_epsilon": shown["epsilon"],
        "noise_multiplier": shown["noise_multiplier"],
        "prefix_noise": shown["prefix_noise_rms"],
        "without_amplification": shown["epsilon_without_amplification"],
        "mechanism": cost.plan.mechanism.model_dump(exclude_none=True),
        "first_column": cost.mechanism.strategy_matrix(64)[:, 0].tolist(),
        "processor_seconds": round(time.process_time() - began, 2),
        "seconds": round(time.perf_counter() - clock, 2),
        "load": round(os.getloadavg()[0], 1),
        "commit": made_by,
    }
    if cost.certificate is not None:
        row |= {"failure": cost.certificate.curve.failure, "samples": list(cost.certificate.curve.samples)}
    print(f"{name:<52} {epsilon:>4g} {row['prefix_noise']:8.3f}  {row['processor_seconds']:.1f} s", flush=True)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """The rows of `amplified.md`: bold is the least noise of a column."""
    at = [row for row in rows if row["delta"] == DELTA]
    names = list(dict.fromkeys(row["row"] for row in at))
    epsilons = sorted({row["epsilon"] for row in at})
    noise = {(row["row"], row["epsilon"]): row["prefix_noise"] for row in at}
    least = {e: min(noise[name, e] for name in names if (name, e) in noise) for e in epsilons}
    lines = ["| epsilon | " + " | ".join(f"{e:g}" for e in epsilons) + " |", "|---" * (len(epsilons) + 1) + "|"]
    for name in names:
        shown = {e: f"{noise[name, e]:.2f}" for e in epsilons if (name, e) in noise}
        cells = [f"**{text}**" if noise[name, e] == least[e] else text for e, text in shown.items()]
        lines.append(f"| {name} | " + " | ".join([*cells, *["not measured"] * (len(epsilons) - len(cells))]) + " |")
    return "\n".join(lines)


def page(rows: list[dict[str, Any]]) -> str:
    """`amplified.md`."""
    certified = [row for row in rows if "samples" in row]
    smaller = [row for row in certified if row["delta"] == SMALLER_DELTA]
    slowest = max(certified, key=lambda row: row["processor_seconds"])
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    loads = [row["load"] for row in rows]
    lines = [
        "# Sampling and correlation together",
        "",
        "`python benchmarks/amplified.py`: root-mean-square noise in a prefix sum, clip norm 1, at equal epsilon,",
        "rounds (64) and cohort; a user takes part every 16 rounds, 4 times (b-min-sep: on average); delta 1e-5.",
        "Balls in bins, b-min-sep and banded random allocation are certified charges (failure probability below",
        "1e-9, part of delta). Sampled rows are add_remove with secret cohorts and need users that can be called at",
        "will; the others are zero_out.",
        "",
        table(rows),
        "",
        f"Commit {commits}; two cores that other work shared, load {min(loads):.0f} to {max(loads):.0f}.",
        "The preview's public seed is fixed. The slowest certificate, with the search for mechanism and noise, took",
        f"{slowest['processor_seconds']:.0f} s of processor and {slowest['seconds']:.0f} s by the clock, two threads.",
    ]
    lines += [
        f"At delta {decimal(row['delta'])} and epsilon {row['epsilon']:g} "
        f"{row['row']} has {row['prefix_noise']:.2f},\n"
        f"certified with {sum(row['samples']):,} samples in {row['processor_seconds']:.0f} s of processor, "
        f"{row['seconds']:.0f} s by the clock."
        for row in smaller
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="measure every cell, also those that are stored")
    given = parser.parse_args()
    stored = RESULTS / "amplified.json"
    known = json.loads(stored.read_text()) if stored.exists() and not given.again else []
    rows, made_by = [], commit()
    wanted = [(name, epsilon, DELTA) for name in ROWS for epsilon in EPSILONS] + [(NU, 1.0, SMALLER_DELTA)]
    for name, epsilon, delta in wanted:
        cell = [row for row in known if (row["row"], row["epsilon"], row["delta"]) == (name, epsilon, delta)]
        rows.append(cell[0] if cell else measure(name, epsilon, delta, made_by))
        # With what is still to come from before: an interrupted run loses no cell.
        later = [row for row in known if (row["row"], row["epsilon"], row["delta"]) in wanted[len(rows) :]]
        stored.write_text(json.dumps(rows + later, indent=1) + "\n")
    (RESULTS / "amplified.md").write_text(page(rows))
    print(page(rows))


if __name__ == "__main__":
    main()
