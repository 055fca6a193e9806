"""Run `make check` and the tests at the same time: `make test`, and `make test-all` with more workers.

    python tests/quick.py [arguments of pytest]

As many processes run them as there are cores. Two more ended no sooner, and took a fifth more of the processor. A check
that fails ends the tests. `CHECK=0` leaves the check out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory. The tests write thousands of small ones, and each waits for the disk elsewhere."""
ENOUGH = 4 << 30
"""Bytes that must be free there. Programs must be allowed to start from there as well."""


def main(arguments: list[str]) -> int:
    """Exit status: 0 where the check and all tests passed."""
    began = time.monotonic()
    # All tests together may write more than memory has room for.
    memory = MEMORY if "--quick" in arguments and MEMORY.is_dir() and _is_fit() else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="fieldfare-tests-", ignore_cleanup_errors=True) as folder:
        status = run(arguments, Path(folder))
    used = os.times()
    spent = used.children_user + used.children_system
    print(f"check and tests took {time.monotonic() - began:.0f} s and {spent:.0f} s of processor time")
    return status


def _is_fit() -> bool:
    return shutil.disk_usage(MEMORY).free > ENOUGH and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC


def run(arguments: list[str], folder: Path) -> int:
    """The check and the tests, with temporary files in `folder`."""
    workers = os.cpu_count() or 1
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.workers", f"--workers={workers}", "-rsfE"]
    tests = subprocess.Popen([*command, f"--basetemp={folder / 'tests'}", *arguments], cwd=ROOT)
    try:
        if os.environ.get("CHECK") != "0" and subprocess.run(["make", "--no-print-directory", "check"]).returncode:
            return 1
        return tests.wait()
    finally:
        tests.kill()
        tests.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
