"""Run the tests that touch Flower against several Flowers, without changing the environment: `make flower-matrix`.

Each version's wheel is downloaded, unpacked, and put first on PYTHONPATH over the pinned environment. A version that
does not download or import is "not run", never "passed". The table goes into benchmarks/results/versions.md.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks/results/versions.md"
BEGIN, END = "<!-- flower-matrix: begin -->", "<!-- flower-matrix: end -->"
WANTED = ("flwr==1.40.0", "flwr==1.41.0", "flwr>=1.40,<2")
"""The last is the newest that the registry has."""
MARKS = "not slow and not containers and not postgres"
CHECK = "import sys, flwr, importlib.metadata as m; print(flwr.__file__, m.version('flwr'))"


@dataclass(frozen=True)
class Outcome:
    """What one version did."""

    version: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    note: str = ""

    def row(self) -> str:
        if not self.passed + self.failed:
            return f"| {self.version} | not run: {self.note} | | | |"
        return f"| {self.version} | {self.passed} | {self.failed} | {self.skipped} | {self.seconds:.0f} |"


def flower_tests() -> list[str]:
    """The test files that name Flower, or that run a round on a Grid; containers run what is in their image."""
    names = re.compile(r"\bflwr\b|fieldfare_flower|LocalGrid|local_grid|PrivateStrategy")
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    named = [path for path in files if names.search(path.read_text()) and "containers" not in path.name]
    return [str(path.relative_to(ROOT)) for path in named]


def unpack(wanted: str, cache: Path) -> Path:
    """The folder with the unpacked wheel of `wanted`. Raises OSError where the registry does not give it."""
    download = cache / "wheels" / re.sub(r"[^\w.]", "_", wanted)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(download), wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(download.glob("flwr-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise OSError(f"no download ({done.stderr.strip().splitlines()[-1:]})")
    folder = cache / wheels[-1].name.split("-")[1]
    if not folder.exists():
        with zipfile.ZipFile(wheels[-1]) as wheel:
            wheel.extractall(folder)
    return folder


def run(folder: Path, tests: list[str]) -> Outcome:
    """Run `tests` with the Flower in `folder`, which must be the one that is imported."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    look = subprocess.run([sys.executable, "-c", CHECK], env=environment, capture_output=True, text=True, check=False)
    if look.returncode or not look.stdout.startswith(str(folder)) or look.stdout.split()[1] != folder.name:
        return Outcome(folder.name, note=f"it does not import ({(look.stderr or look.stdout).strip()[-80:]})")
    report = folder.parent / f"{folder.name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-m", MARKS, f"--junitxml={report}", *tests]
    began = time.monotonic()
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    for case in suite.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            print(f"{folder.name}: FAILED {case.get('classname')}.{case.get('name')}")
    return Outcome(folder.name, total - skipped - failed, failed, skipped, time.monotonic() - began)


def write_table(outcomes: list[Outcome], page: Path, load: float, tests: list[str]) -> None:
    """Put the table between the two marks of `page`. tests: those that were named; none: all that name Flower."""
    when = datetime.now(UTC).date().isoformat()
    lines = [
        BEGIN,
        "| flwr | passed | failed | skipped | seconds |",
        "|---|---|---|---|---|",
        *(outcome.row() for outcome in outcomes),
        "",
        f"Measured {when} with `make flower-matrix`; load of the machine at its begin {load:.1f}. Tests: "
        + (", ".join(f"`{test}`" for test in tests) or "all that name Flower")
        + ".",
        END,
    ]
    text = page.read_text()
    head, tail = text[: text.index(BEGIN)], text[text.index(END) + len(END) :]
    page.write_text(head + "\n".join(lines) + tail)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=ROOT / ".flower-matrix")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("tests", nargs="*", help="in the place of all tests that name Flower; the table says which")
    options = parser.parse_args()
    # A shell that starts this in the background makes it, and all that it starts, ignore Ctrl-C, which tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    load, outcomes, cache = os.getloadavg()[0], list[Outcome](), options.cache.absolute()
    for wanted in WANTED:
        try:
            folder = unpack(wanted, cache)
        except OSError as error:
            outcomes.append(Outcome(wanted, note=str(error)))
            continue
        if folder.name not in [outcome.version for outcome in outcomes]:
            outcomes.append(run(folder, options.tests or flower_tests()))
        print(outcomes[-1].row(), flush=True)
    write_table(outcomes, options.page, load, options.tests)
    return int(any(outcome.failed or not outcome.passed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
