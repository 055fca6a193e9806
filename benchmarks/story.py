"""The README's first picture and its tables: what one epsilon buys, by who can use it.

    python benchmarks/story.py            # runs `fieldfare demo`, then writes results/demo.json, docs/demo.png, README
    python benchmarks/story.py --tables   # only the README's tables, from the stored results

The table by epsilon is of `amplified.py`'s results, that of scores of `claims/headline.py`'s. A test compares
the README with what this writes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "claims"))

import headline_plans as headline
from harness import commit

import amplified
from fieldfare_server.cli.demo import ANYONE, WAYS, WHO_CALLS

ROOT = Path(__file__).parents[1]
README, RESULTS = ROOT / "README.md", ROOT / "benchmarks/results"
COMMAND = "fieldfare demo --all --no-serve --json"
NAMES = {
    "independent": "independent",
    "correlated": "correlated (`nu`)",
    "sampled": "sampled: DP-SGD with Poisson rounds",
    "sampled and correlated": "sampled and correlated: `nu`, balls in bins",
    "no privacy": "none: NOT PRIVATE",
}
BY_EPSILON = {
    amplified.INDEPENDENT: ("`independent`", ANYONE),
    amplified.NU_ALONE: ("`nu`", ANYONE),
    amplified.BLT_ALONE: ("`blt`", ANYONE),
    amplified.DP_SGD: ("`independent`, Poisson (DP-SGD)", WHO_CALLS),
    amplified.ALLOCATED: ("`independent`, random allocation", WHO_CALLS),
    amplified.CYCLIC: ("`banded`, cyclic Poisson, best of 2, 4, 8 bands", WHO_CALLS),
    amplified.NU: ("`nu`, balls in bins", WHO_CALLS),
    amplified.BLT: ("`blt`, balls in bins", WHO_CALLS),
    amplified.BANDS: ("`banded`, 16 bands, balls in bins", WHO_CALLS),
    amplified.BANDS_ALLOCATED: ("`banded`, 16 bands, random allocation", WHO_CALLS),
}
BY_SCORE = {
    "nu": ("`nu`", ANYONE),
    headline.POISSON: ("`independent`, Poisson (DP-SGD)", WHO_CALLS),
    headline.NU_BINS: ("`nu`, balls in bins", WHO_CALLS),
}


def run_demo() -> dict[str, Any]:
    """One demo, with what it took; its picture goes to docs/demo.png."""
    made_by, began, load = commit(), time.perf_counter(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", "from fieldfare_server.cli import main; main()", *COMMAND.split()[1:]]
        done = subprocess.run([*words, "--out", folder], stdout=subprocess.PIPE, text=True, check=True)
        told = json.loads(done.stdout)
        shutil.copyfile(told["plot"], ROOT / "docs/demo.png")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "command": COMMAND,
        "commit": made_by,
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "populations": told["populations"],
        "runs": told["runs"],
    }


def table_of_demo(demo: dict[str, Any]) -> str:
    who = {label: users for label, _, _, users in WAYS}
    lines = ["| noise, logistic regression | who can use it | noise in the sum | held-out AUC |", "|---|---|---|---|"]
    for run in demo["runs"]:
        noise = f"{run['prefix_noise']:.2f}" if run["private"] else "0"
        users = who.get(run["label"], "a yardstick only")
        lines.append(f"| {NAMES[run['label']]} | {users} | {noise} | {run['score']:.3f} |")
    return "\n".join(lines)


def table_by_epsilon(rows: list[dict[str, Any]]) -> str:
    noise = {(row["row"], row["epsilon"]): row["prefix_noise"] for row in rows if row["delta"] == amplified.DELTA}
    least = {
        (users, e): min(noise[row, e] for row, (_, who) in BY_EPSILON.items() if who == users)
        for users in (ANYONE, WHO_CALLS)
        for e in amplified.EPSILONS
    }
    lines = ["| noise | " + " | ".join(f"{e:g}" for e in amplified.EPSILONS) + " | who can use it |"]
    lines.append("|---" * (len(amplified.EPSILONS) + 2) + "|")
    for row, (name, users) in BY_EPSILON.items():
        cells = [
            f"**{noise[row, e]:.2f}**" if noise[row, e] == least[users, e] else f"{noise[row, e]:.2f}"
            for e in amplified.EPSILONS
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {users} |")
    return "\n".join(lines)


def table_of_scores(cells: dict[str, Any]) -> str:
    """Mean scores on Fashion-MNIST, of the headline's runs."""
    epsilons = (1, 2, 4, 8)
    lines = ["| noise | " + " | ".join(map(str, epsilons)) + " | who can use it |"]
    lines.append("|---" * (len(epsilons) + 2) + "|")
    for row, (name, users) in BY_SCORE.items():
        means = [f"{mean(cells[f'{row}, epsilon {e}']['scores']):.3f}" for e in epsilons]
        lines.append(f"| {name} | " + " | ".join(means) + f" | {users} |")
    free = f"{mean(cells[headline.NO_PRIVACY]['scores']):.3f}"
    lines.append("| none, clipped: NOT PRIVATE | " + " | ".join([free] * len(epsilons)) + " | a yardstick only |")
    return "\n".join(lines)


def with_tables(text: str, demo: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The README with its tables as the results say."""
    scores = json.loads((RESULTS / "claims/headline-fashion-small.json").read_text())["cells"]
    for head, table in (
        ("| noise, logistic regression |", table_of_demo(demo)),
        ("| noise | 0.5 |", table_by_epsilon(rows)),
        ("| noise | 1 |", table_of_scores(scores)),
    ):
        start = text.index(head)
        text = text[:start] + table + text[text.index("\n\n", start) :]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="run nothing")
    stored = RESULTS / "demo.json"
    if not parser.parse_args().tables:
        stored.write_text(json.dumps(run_demo(), indent=1) + "\n")
    demo, rows = json.loads(stored.read_text()), json.loads((RESULTS / "amplified.json").read_text())
    README.write_text(with_tables(README.read_text(), demo, rows))
    print(table_of_demo(demo), table_by_epsilon(rows), sep="\n\n")


if __name__ == "__main__":
    main()
