"""Which stored results the code of today would make again to the bit, and which it may not.

    python benchmarks/claims/bits.py                        # lists results whose code has changed; always ends well
    python benchmarks/claims/rerun.py RESULT CELL CELL      # makes two cells again
    python benchmarks/claims/rerun.py RESULT --record       # makes every cell again, and says so if all are equal

The bits of a run follow from its plan, its seed, and the code that draws noise, trains, samples users and prices the
plan. A run stores a digest of each of these four. Where one differs from today's, the result is *stale*: its numbers
stay what was measured, and a run made again is another draw of the same kind, which falls into its interval but is not
equal. Where a file of it has changed and every cell made again was equal to the bit, the result says that instead
(`rerun.py --record`).

Stale results are listed and refuse no change: a mended draw of noise must not wait for an hour of runs, and the figures
of before remain true of the commit that they name. `make check` prints the list, and MkDocs, which calls
`on_page_markdown`, says it on the pages that show such a figure.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks/results"
_RUN, _CLIENT = "server/fieldfare_server/run", "client/fieldfare_client"
MAKES: dict[str, tuple[str, ...]] = {
    "noise": (
        *(f"shared/fieldfare/{room}/*.py" for room in ("noise", "streams", "mechanisms", "factorization")),
        *(f"shared/fieldfare/{name}.py" for name in ("arrays", "hashing", "nonces", "privatise")),
        *(f"{_RUN}/{name}.py" for name in ("round/noise_state", "round/running_noise", "rehearsal", "session")),
    ),
    "training": (
        *(f"{_CLIENT}/{name}.py" for name in ("training/*", "tasks/*", "app", "settings", "users", "own_randomness")),
        *(f"shared/fieldfare/{name}.py" for name in ("clipping/*", "schema", "task", "registry")),
        "server/fieldfare_server/optimizers/*.py",
        *(f"{_RUN}/round/{name}.py" for name in ("aggregation", "answers", "attempt", "ridden", "rounds")),
        f"{_RUN}/round/task_model.py",
        *("benchmarks/research/fieldfare_research/*.py", "benchmarks/claims/one_pass*.py"),
    ),
    "sampling": (
        "shared/fieldfare/participation*.py",
        "shared/fieldfare/capacity.py",
        *(f"{_RUN}/presence/{name}.py" for name in ("cohorts", "counts", "roster", "secret_draws", "selection")),
    ),
    "price": ("shared/fieldfare/accounting/*.py", "shared/fieldfare/cost.py", "shared/fieldfare/costing.py"),
}
"""Files whose code is behind the bits of a run, by what they make. Prices set the noise multiplier."""
BESIDES: tuple[str, ...] = (
    # The plan, whose digest each run stores; names and refusals.
    *(f"shared/fieldfare/{name}.py" for name in ("plan", "plan_tables", "names", "lazily", "metrics", "text", "trees")),
    *(
        f"shared/fieldfare/{name}.py"
        for name in ("aggregation", "atomic", "blinder_noise", "signed_head", "signatures")
    ),
    # Messages between two processes that are one here, and logs.
    "shared/fieldfare_flower/*.py",
    *(f"{_CLIENT}/{name}.py" for name in ("simulation", "main_guard", "masking", "sources", "storage", "task_faults")),
    *(f"{_CLIENT}/{name}.py" for name in ("shared_users", "witness", "questions", "check", "forked", "budget/*")),
    *(f"{_CLIENT}/{name}.py" for name in ("told", "mods", "journal")),
    *(f"{_RUN}/{name}.py" for name in ("presence/replies", "round/dialects")),
    # When rounds begin and end, who is asked again, what is kept.
    *(f"{_RUN}/presence/{name}.py" for name in ("availability", "failures", "patience", "presence", "standing")),
    *(f"{_RUN}/{name}.py" for name in ("interrupts", "pricing", "private/*")),
    *(f"{_RUN}/round/{name}.py" for name in ("commits", "distant_blinder", "record", "stopping", "strategy")),
    "server/fieldfare_server/faults.py",
)
"""Files that a run executes too, and that leave its bits alone. A test finds a file that is in neither list."""
PAGES = {
    "evidence/headline.md": (
        "claims/headline-fashion-small",
        "claims/headline-fashion-full",
        "claims/headline-chess-small",
        "claims/headline-chess-people",
        "claims/headline-poems-small",
    ),
    "evidence/attack.md": ("claims/attack",),
    "evidence/training.md": ("claims/training-*", "claims/clipping", "claims/ftrl", "claims/lora", "claims/adaptive"),
    "evidence/defaults.md": ("strangers", "unseen", "suggested", "drowned"),
    "tutorial-scientist.md": ("demo",),
}
"""Pages of the site, and the results that they show."""
UNNAMED = "made before results named their code"


def code_of(text: str) -> str:
    """Python source without comments, strings that stand alone (docstrings), and blank lines."""
    lines, at_start = text.splitlines(), True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        (first, left), (last, right) = token.start, token.end
        if token.type == tokenize.COMMENT:
            lines[first - 1] = lines[first - 1][:left]
        elif token.type == tokenize.STRING and at_start:
            lines[last - 1] = lines[last - 1][right:]
            lines[first - 1 : last - 1] = [""] * (last - first)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            at_start = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def files_of(patterns: tuple[str, ...], root: Path = ROOT) -> list[Path]:
    """The files, each once, in the order of their names."""
    return sorted({path for pattern in patterns for path in root.glob(pattern)})


@cache
def digests(root: Path = ROOT) -> dict[str, str]:
    """The first 8 hex digits of SHA-256 of the code of each part of `MAKES`."""
    return {part: _digest(files_of(patterns, root), root) for part, patterns in MAKES.items()}


def _digest(files: list[Path], root: Path) -> str:
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.relative_to(root).as_posix()}\0{code_of(path.read_text(encoding='utf-8'))}\0".encode())
    return whole.hexdigest()[:8]


def made_by(stored: Any) -> Iterator[dict[str, str] | None]:
    """The digests of every run in a stored result; None of a run that has scores and names no digest."""
    if isinstance(stored, dict):
        if "code" in stored or isinstance(stored.get("scores"), dict):
            yield stored.get("code")
            return
        stored = list(stored.values())
    if isinstance(stored, list):
        for one in stored:
            yield from made_by(one)


def changed(stored: Any) -> list[str]:
    """The parts of `MAKES` that are not today's for some run of a stored result, or that a run names no digests."""
    # Cells that were made again are today's; what stands beside them, such as a headline's splits, was not made again.
    beside = {key: value for key, value in stored.items() if key != "cells"} if again(stored) else stored
    now, runs = digests(), list(made_by(beside))
    named = [run for run in runs if run]
    parts = [part for part in MAKES if any(run.get(part) != now[part] for run in named)]
    return parts if named and len(named) == len(runs) else [*parts, UNNAMED]


def again(stored: Any) -> dict[str, Any] | None:
    """What `rerun.py --record` wrote into a stored result, if today's code is what it had then."""
    found = stored.get("again") if isinstance(stored, dict) else None
    return found if found and found["code"] == digests() else None


def stale() -> dict[str, list[str]]:
    """{result: what has changed since} of every stored result that has scores and is shown on a page."""
    found = stored(name for shown in PAGES.values() for name in shown)
    return {name: parts for name, one in found.items() if (parts := changed(one))}


def stored(names: Iterable[str]) -> dict[str, Any]:
    """{result: what it has} of these names of `PAGES`."""
    paths = sorted({path for name in names for path in RESULTS.glob(f"{name}.json")})
    return {path.relative_to(RESULTS).as_posix(): json.loads(path.read_text(encoding="utf-8")) for path in paths}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page, and at its end which of its results today's code may not make again to the bit."""
    shown = PAGES.get(page.file.src_path)
    if shown is None:
        return markdown
    found = stored(shown)
    told = "; ".join(f"`{name}` ({', '.join(parts)})" for name, one in found.items() if (parts := changed(one)))
    if told:
        markdown += f"\n\n*Stale: code behind the bits of these results has changed since they were made: {told}.*\n"
    else:
        markdown += "\n\n*This version's code makes the bits of these results again.*\n"
    told = "; ".join(f"`{name}` {more['cells']}" for name, one in found.items() if (more := again(one)))
    if told:
        markdown += f"\n*Cells made again since that code changed, one seed each, all equal to the bit: {told}.*\n"
    return markdown


if __name__ == "__main__":
    mark = "::warning::" if os.environ.get("GITHUB_ACTIONS") else "stale: "
    for name, parts in stale().items():
        print(f"{mark}{name}: {', '.join(parts)}")
