"""Break one privacy-relevant line at a time, and see that a named test notices: `make mutants`.

`mutants.toml` lists the mutants: a file, the text to replace (it must stand there exactly once), what replaces it, the
harm that it would do, and the tests that must fail. Each mutant is applied to a copy of the source folders, of
the gate and of the certificate's checker, so that the checkout is never touched. A mutant that survives, that no
longer applies, or whose tests fail without it, fails the run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("shared", "server", "client", "benchmarks/research", "benchmarks/claims", "deploy/gate")
SECONDS = 300
BATCH_SECONDS = 1200
"""For the named tests of a batch together, without a mutant."""
STEP = 97
"""How many mutants further on each turn begins."""
BATCH = 32
"""Of so many mutants the named tests are run without a mutant, before these are judged."""
FAILED_TESTS = 1
"""pytest's exit status when tests ran and some failed; errors of collection or usage have others."""


@dataclass(frozen=True)
class Mutant:
    """One broken line."""

    name: str
    file: str
    old: str
    new: str
    harm: str
    tests: tuple[str, ...]


def mutants() -> list[Mutant]:
    """All mutants of the table, by name."""
    table = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text(encoding="utf-8"))
    return [Mutant(name=name, **{**row, "tests": tuple(row["tests"])}) for name, row in table.items()]


def copy_sources(to: Path, mutant: Mutant | None) -> None:
    """The source folders below `to`, with `mutant` applied. Raises ValueError where it does not apply."""
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (to / "docs").mkdir()
    for checker in (ROOT / "docs").glob("check_*"):
        shutil.copy(checker, to / "docs")
    if mutant is None:
        return
    path = to / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"its text stands {text.count(mutant.old)} times in {mutant.file}")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def run_tests(sources: Path, tests: tuple[str, ...], seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """pytest over `tests` with the copied sources in front of the installed ones."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(str(sources / folder) for folder in SOURCES)
    environment["FIELDFARE_CHECKER"] = str(sources / "docs")
    environment["FIELDFARE_GATE"] = str(sources / "deploy/gate")
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["OMP_NUM_THREADS"] = "1"
    # A plugin that no mutant's test needs takes half of the time that pytest takes to start.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command += ["-m", "not slow", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)


def judge(mutant: Mutant) -> str:
    """Empty where a test killed `mutant`, else what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            copy_sources(Path(folder), mutant)
            done = run_tests(Path(folder), mutant.tests)
        except ValueError as error:
            return f"does not apply: {error}"
        except subprocess.TimeoutExpired:
            return ""  # a mutant that hangs is noticed
    if done.returncode == FAILED_TESTS:
        return ""
    return (
        f"SURVIVED: {mutant.harm}" if done.returncode == 0 else f"no test ran: {done.stdout[-300:]}{done.stderr[-300:]}"
    )


def main() -> int:
    """Run the mutants whose names contain one of the arguments, or all; 1 if one survived."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only mutants whose name contains one of these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutant after so many seconds")
    parser.add_argument("--turn", type=int, default=0, help="where to begin, so that turns reach all of them")
    arguments = parser.parse_args()
    chosen = [m for m in mutants() if not arguments.names or any(name in m.name for name in arguments.names)]
    first = arguments.turn * STEP % max(1, len(chosen))
    chosen = chosen[first:] + chosen[:first]
    bad: list[str] = []
    run = 0

    def unbroken(tests: tuple[str, ...]) -> str:
        """What pytest says of `tests` where they fail without any mutant, else an empty text."""
        with tempfile.TemporaryDirectory() as folder:
            copy_sources(Path(folder), None)
            left = arguments.seconds + began - time.monotonic()
            done = run_tests(Path(folder), tests, min(BATCH_SECONDS, max(1.0, left)))
        return f"{done.stdout[-3000:]}{done.stderr[-1000:]}" if done.returncode else ""

    def judge_in_time(mutant: Mutant) -> str | None:
        return judge(mutant) if time.monotonic() - began < arguments.seconds else None

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for start in range(0, len(chosen), BATCH):
            if time.monotonic() - began >= arguments.seconds:
                break
            batch = chosen[start : start + BATCH]
            tests = sorted({test for mutant in batch for test in mutant.tests})
            shares = [tuple(tests[job :: arguments.jobs]) for job in range(min(arguments.jobs, len(tests)))]
            try:
                failed = "".join(pool.map(unbroken, shares))
            except subprocess.TimeoutExpired:
                if arguments.seconds > BATCH_SECONDS + time.monotonic() - began:
                    raise
                break
            if failed:
                print(f"The named tests fail without any mutant:\n{failed}")
                return 1
            for mutant, wrong in zip(batch, pool.map(judge_in_time, batch), strict=True):
                if wrong is not None:
                    print(told := f"{mutant.name}: {wrong or 'killed'}", flush=True)
                    bad, run = bad + [told] * bool(wrong), run + 1
    for told in bad:
        print(told)  # again, where the end is all that is kept
    print(f"{run - len(bad)} passed, {len(bad)} failed")
    if run < len(chosen):
        print(f"Left out: {len(chosen) - run} of {len(chosen)} mutants")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
