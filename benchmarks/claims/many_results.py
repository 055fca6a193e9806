"""What is stored and shown of the runs of `many.py`: the headline's grids, DP-SGD's splits, and the attack.

    python benchmarks/claims/many_results.py --out FOLDER --commit NAME --again OTHER/runs.jsonl

Makes no run. Writes benchmarks/results/claims, and the figures of docs/evidence. NAME is the commit of the code that
made the runs: the digests that they name must be those of that code.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import attack_page
import bits
import harness
import headline
import headline_figure
import headline_page
import many

COMMAND = "python benchmarks/claims/many.py --out FOLDER"
TIMES = ("cpu_seconds", "wall_seconds", "load")


def digests_at(commit: str) -> dict[str, str]:
    """The digests of the code at a commit of this repository."""
    packed = subprocess.run(
        ["git", "archive", commit, "shared", "server", "client", "benchmarks"],
        cwd=harness.ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(folder, filter="data")
        return bits.digests(Path(folder))


def twice(first: Sequence[str], second: Sequence[str]) -> dict[str, int]:
    """Of two `runs.jsonl` of the same runs: how many, and how many are equal in all but times."""

    def runs(lines: Sequence[str]) -> dict[str, harness.Table]:
        read = [json.loads(line) for line in lines]
        kept = [{key: value for key, value in one["record"].items() if key not in TIMES} for one in read]
        return {json.dumps(one["job"], sort_keys=True): record for one, record in zip(read, kept, strict=True)}

    one, other = runs(first), runs(second)
    both = one.keys() & other.keys()
    return {"runs": len(one.keys() | other.keys()), "equal": sum(one[job] == other[job] for job in both)}


def dated(cells: Mapping[str, harness.Table], commit: str, code: Mapping[str, str]) -> dict[str, harness.Table]:
    """Cells whose runs name the commit of their code; ends the command where a run has other digests."""
    for label, cell in cells.items():
        if any(run["code"] != code for run in cell["runs"]):
            sys.exit(f"{label}: its runs were not made by the code of {commit}")
    return {
        label: {**cell, "runs": [{**run, "commit": commit} for run in cell["runs"]]} for label, cell in cells.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder that many.py wrote")
    parser.add_argument("--commit", required=True, help="of the code that made the runs")
    parser.add_argument("--again", type=Path, help="runs.jsonl of the same runs, made a second time")
    given = parser.parse_args()
    parts = many.parts_of(tiny=False)
    many.read(parts, given.out)
    code = digests_at(given.commit)
    made = {}
    if given.again:
        lines = [path.read_text(encoding="utf-8").splitlines() for path in (given.out / "runs.jsonl", given.again)]
        made = {"made twice": twice(*lines)}
        print(made)
    grids = [part for part in parts if isinstance(part, many.Grid)]
    splits = {
        part.size.removeprefix("small-"): dated(found, given.commit, code)
        for part in grids
        if part.is_split and (found := part.result())
    }
    for grid in grids:
        path = harness.RESULTS / f"{grid.name}.json"
        stored = json.loads(path.read_text()) if path.is_file() else {}
        before, fresh = stored.get("splits", {}), splits if (grid.data, grid.size) == ("fashion", "small") else {}
        if cells := {} if grid.is_split else dated(grid.result(), given.commit, code):
            stored = headline.joined(grid.name, grid.data, grid.size, grid.setting, cells)
            stored |= {"command": f"{COMMAND} --parts {grid.name}", **made}
        elif grid.is_split or not fresh:
            continue
        if before or fresh:
            stored["splits"] = before | fresh
        print(harness.store(grid.name, stored))
        (harness.ROOT / f"docs/evidence/{grid.name}.svg").write_text(headline_figure.picture(stored))
    print(harness.write_page("headline", headline_page.page()))
    shadows = [part for part in parts if isinstance(part, many.Shadows)]
    if shadows and all(len(part.found) == part.models * len(attack_page.LABELS) for part in shadows):
        result = {"command": COMMAND, **made, "settings": attack_page.results(shadows, given.commit, code)}
        print(harness.store("attack", result))
        (harness.ROOT / "docs/evidence/attack.svg").write_text(attack_page.picture(result))
        print(harness.write_page("attack", attack_page.page(result)))


if __name__ == "__main__":
    main()
