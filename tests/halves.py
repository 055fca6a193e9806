"""Run `make check` and pytest twice, all three at the same time, each pytest on half of the folders: `make test`.

    python tests/halves.py [arguments of pytest]

Two processes that collect a half each take half of the processor time that two workers take which collect everything.
Tests also wait, for servers and clocks; the check has that time. `suite.toml` says what the first half is; the second
is the rest. Prints the first and the check as they run, the second at its end. A check that fails ends both. `CHECK=0`
leaves the check out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
NOTHING = 5
"""pytest's status where there was nothing to run."""
MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory. The tests write thousands of small ones, and each waits for the disk elsewhere."""
ENOUGH = 4 << 30
"""Bytes that must be free there. Programs must be allowed to start from there as well."""


def halves() -> tuple[list[str], list[str]]:
    """The two lists of folders and files: together they are all of `tests`, each once."""
    first: list[str] = tomllib.loads((HERE / "suite.toml").read_text())["first"]
    places = {place for place in HERE.iterdir() if place.is_dir() or place.name.startswith("test_")}
    places |= {place for place in (HERE / "server").iterdir() if place.is_dir()}
    places -= {HERE / "server"}
    names = {str(place.relative_to(HERE)) for place in places if place.suffix == ".py" or any(place.rglob("test_*.py"))}
    if unknown := set(first) - names:
        raise SystemExit(f"suite.toml: no such folders of tests: {sorted(unknown)}")
    return sorted(first), sorted(names - set(first))


def main(arguments: list[str]) -> int:
    """Exit status: 0 where the check and both halves passed."""
    began = time.monotonic()
    memory = MEMORY if MEMORY.is_dir() and _is_fit() else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="fieldfare-tests-", ignore_cleanup_errors=True) as folder:
        status = run(arguments, Path(folder))
    used = os.times()
    spent = used.children_user + used.children_system
    print(f"both halves took {time.monotonic() - began:.0f} s and {spent:.0f} s of processor time")
    return status


def _is_fit() -> bool:
    return shutil.disk_usage(MEMORY).free > ENOUGH and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC


def run(arguments: list[str], folder: Path) -> int:
    """The check and the two halves, with temporary files in `folder`."""
    commands = [
        [
            sys.executable,
            "-m",
            "pytest",
            "-rsfE",
            f"--basetemp={folder / half}",
            *arguments,
            *(f"{HERE / p}" for p in ps),
        ]
        for half, ps in zip(("first", "second"), halves(), strict=True)
    ]
    with open(folder / "second.log", "w+") as log:
        processes = [
            subprocess.Popen(command, stdout=stdout, stderr=stderr)
            for command, stdout, stderr in zip(commands, (None, log), (None, subprocess.STDOUT), strict=True)
        ]
        try:
            if os.environ.get("CHECK") != "0" and subprocess.run(["make", "--no-print-directory", "check"]).returncode:
                return 1
            statuses = {process.wait() for process in processes}
        finally:
            for process in processes:
                process.kill()
                process.wait()
        log.seek(0)
        print(log.read(), end="")
    return int(not statuses <= {0, NOTHING})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
