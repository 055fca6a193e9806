"""What one epsilon buys: the demo's table and picture in the scientist's tutorial, and the README's figure of scores.

    python benchmarks/story.py            # runs `fieldfare demo`, then writes what it shows
    python benchmarks/story.py --tables   # only table and figure, from the stored results

The figure is of the results of `claims/headline.py`. A test compares both with what this writes.
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
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "claims"))

import bits
import headline_figure
from harness import commit

from fieldfare_server.cli.demo import WAYS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
TUTORIAL, FIGURE = ROOT / "docs/tutorial-scientist.md", ROOT / "docs/score.svg"
COMMAND = "fieldfare demo --all --no-serve --json"
NAMES = {
    "independent": "independent",
    "correlated": "correlated (`nu`)",
    "sampled": "sampled: DP-SGD with Poisson rounds",
    "sampled and correlated": "sampled and correlated: `nu`, balls in bins",
    "no privacy": "none: NOT PRIVATE",
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
        "code": bits.digests(),
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


def figure_of_scores() -> str:
    """Accuracy on Fashion-MNIST against epsilon, of the headline's runs, as SVG."""
    return headline_figure.picture(json.loads((RESULTS / "claims/headline-fashion-small.json").read_text()))


def with_table(text: str, demo: dict[str, Any]) -> str:
    """The scientist's tutorial with its table as the demo's results say."""
    start = text.index("| noise, logistic regression |")
    return text[:start] + table_of_demo(demo) + text[text.index("\n\n", start) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="run nothing")
    stored = RESULTS / "demo.json"
    if not parser.parse_args().tables:
        stored.write_text(json.dumps(run_demo(), indent=1) + "\n")
    demo = json.loads(stored.read_text())
    TUTORIAL.write_text(with_table(TUTORIAL.read_text(), demo))
    FIGURE.write_text(figure_of_scores())
    print(table_of_demo(demo))


if __name__ == "__main__":
    main()
