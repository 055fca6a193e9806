"""Run the suite of `make test` on a busy machine, each test that waits many times; which failed: `make flaky`.

    python tests/flaky.py [runs] [arguments of pytest]

As many processes as there are cores do nothing but work meanwhile. Exit status 1 where any test failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
RUNS = 20
QUICK = ["--quick", "-m", "not slow"]
ENDS = ("FAILED ", "ERROR ")


def failed(output: str) -> Counter[str]:
    """How often each test failed, or could not be collected, as pytest's summary says."""
    return Counter(line.split(" ", 1)[1].partition(" - ")[0] for line in output.splitlines() if line.startswith(ENDS))


def main(runs: int, arguments: list[str]) -> int:
    """Exit status: 0 where every test passed every time."""
    command = [sys.executable, str(HERE / "quick.py"), "-p", "tests.support.again", f"--again={runs}", *arguments]
    command += ["-o", "timeout_func_only=true"]  # else one timer for all runs of a test
    began = time.monotonic()
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        done = subprocess.run(command, env={**os.environ, "CHECK": "0"}, stdout=subprocess.PIPE, text=True, check=False)
    finally:
        for one in load:
            one.kill()
    print(done.stdout)
    print(f"{'failed' if done.returncode else 'passed'}, {time.monotonic() - began:.0f} s")
    print("".join(f"{count:4} of {runs} times {name}\n" for name, count in failed(done.stdout).most_common()), end="")
    return int(done.returncode > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS, sys.argv[2:] or QUICK))
