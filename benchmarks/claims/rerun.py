"""Make cells of a stored result again, and compare them with it.

    python benchmarks/claims/rerun.py headline-fashion-small "nu, epsilon 4" "DP-SGD, Poisson (add_remove), epsilon 4"
    python benchmarks/claims/rerun.py training-nu --record      every cell, and keep what was found

Each cell is trained as its frozen choice says, with the first of its seeds, and never from the cache. Where code,
versions and kind of machine are those of the stored run, the model must be equal to the bit. Otherwise its score must
fall into the 99 % prediction interval of one more run, Student's t over the stored ones. Ends with 1 where it does not.
The model's digest is printed, so that two of your own runs can be compared.
Seconds a cell, and half a minute more where a plan needs a certificate.

Runs ask for kernels meant to round alike on Intel and AMD processors (`kernels.py`), and name them "portable". Others
that are stored were made with the kernels that an AMD processor chooses: `MKL_CBWR= ONEDNN_MAX_CPU_ISA=` (empty) gives
their bits there, and ATEN_CPU_CAPABILITY=avx512 those of results that name no kernels.

With `--record` a result whose every cell was equal to the bit names today's code, too, and is stale no longer.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import sys
from pathlib import Path

import bits
import harness
import headline_plans
import numpy as np
import training
from scipy.stats import t as student


def cells_of(name: str, stored: harness.Table, labels: list[str]) -> tuple[harness.Study, dict[str, harness.Cell]]:
    """The study of a stored result, and its cells with these labels. Ends the command where there is none."""
    if name.startswith("headline-"):
        data, size = stored["data"], stored["size"]
        s = headline_plans.SETTINGS[data, size]
        s = dataclasses.replace(s, task=stored["setting"]["task"])
        study = harness.Study(name, headline_plans.scored, s.score, s.higher, data)
        made = []
        for label in labels:
            row, _, epsilon = label.rpartition(", epsilon ")
            known = row in headline_plans.ROWS or label == headline_plans.NO_PRIVACY
            if not known:
                continue
            of = ([row], [float(epsilon)]) if row else ([], [])
            made += headline_plans.cells_of(data, s, *of, count=3)[: 1 if row else None]
    elif name.startswith("training-"):
        study = harness.Study(name, training.scored, "accuracy", data="fashion")
        made = training.CLAIMS[stored["claim"]].made(training.Size(**stored["size"]))[0]
    else:
        sys.exit(f"{name} has its own command, which makes all of it again; cells: headline-*, training-*")
    cells = {cell.label: cell for cell in made if cell.label in stored["cells"]}
    if unknown := [label for label in labels if label not in cells]:
        sys.exit(f"{name} has no cell {unknown[0]!r}; it has: {'; '.join(stored['cells'])}")
    return study, {label: cells[label] for label in labels}


def compared(record: harness.Table, cell: harness.Table, score: str) -> tuple[bool, str]:
    """(whether a new run agrees with the stored ones of its cell, what is said of it)."""
    (before,) = (run for run in cell["runs"] if run["seed"] == record["seed"])
    value, stored = record["scores"][score], before["scores"][score]
    said = f"{value:.6f}, stored {stored:.6f}"
    differ = [part for part, now in record["code"].items() if before.get("code", {}).get(part) != now]
    if before["versions"] != record["versions"]:
        differ.append("versions")
    if not differ:
        equal = record["model"] == before["model"]
        return equal, f"{said}: {'equal to the bit' if equal else 'NOT EQUAL, with the same code and versions'}"
    scores = [run["scores"][score] for run in cell["runs"]]
    spread = float(np.std(scores, ddof=1)) * math.sqrt(1 + 1 / len(scores))
    half, mean = float(student.ppf(0.995, len(scores) - 1)) * spread, float(np.mean(scores))
    inside = abs(value - mean) <= half
    where = f"{'inside' if inside else 'OUTSIDE'} {mean:.6f} ± {half:.6f} (99 % of one more run)"
    bits_too = "; model equal to the bit all the same" if record["model"] == before["model"] else ""
    return inside, f"{said}: {where}; other {', '.join(differ)} since{bits_too}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", help="a file of benchmarks/results/claims without .json")
    parser.add_argument("cells", nargs="*", metavar="cell", help="without one: every cell")
    parser.add_argument("--seed", type=int, default=harness.FIRST_SEED, help="of the stored ones")
    parser.add_argument("--record", action="store_true", help="store that every cell was equal to the bit")
    given = parser.parse_args()
    if given.record and given.cells:
        parser.error("--record makes every cell again")
    path = harness.RESULTS / f"{given.result}.json"
    if not re.fullmatch(r"[\w-]+", given.result) or not path.is_file():
        sys.exit(f"no stored result {given.result}")
    stored = json.loads(path.read_text())
    study, cells = cells_of(given.result, stored, given.cells or list(stored["cells"]))
    runs, well, equal = harness.Runs(study, Path(), len(cells), quiet=True), True, True
    for label, cell in cells.items():
        one = stored["cells"][label]
        record = runs.made(cell, cell.choices[one["choice"]], "test", given.seed)
        agrees, said = compared(record, one, study.score)
        well &= agrees
        equal &= any(run["model"] == record["model"] for run in one["runs"] if run["seed"] == given.seed)
        print(f"{label}, seed {given.seed}: {said}; model {record['model']}", flush=True)
    print(f"code: {', '.join(f'{part} {digest}' for part, digest in bits.digests().items())}")
    if given.record and equal:
        again = {
            "seed": given.seed,
            "cells": len(cells),
            **{key: record[key] for key in ("code", "commit", "versions")},
        }
        harness.store(given.result, stored | {"again": again})
    elif given.record:
        print("not recorded: a cell is not equal to the bit")
    sys.exit(0 if well and (equal or not given.record) else 1)


if __name__ == "__main__":
    main()
