"""Run the suite of `make test` again and again on a busy machine, and say which tests failed: `make flaky`.

    python tests/flaky.py [runs]

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
ENDS = ("FAILED ", "ERROR ")


def failed(output: str) -> set[str]:
    """The tests that pytest's summary says failed, or could not be collected."""
    return {line.split(" ", 1)[1].partition(" - ")[0] for line in output.splitlines() if line.startswith(ENDS)}


def main(runs: int) -> int:
    """Exit status: 0 where every run passed."""
    command = [sys.executable, str(HERE / "halves.py"), "--quick", "-m", "not slow"]
    counts: Counter[str] = Counter()
    bad = 0
    for run in range(1, runs + 1):
        began = time.monotonic()
        load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
        try:
            done = subprocess.run(
                command, env={**os.environ, "CHECK": "0"}, capture_output=True, text=True, check=False
            )
        finally:
            for one in load:
                one.kill()
        names = failed(done.stdout)
        bad += bool(done.returncode)
        counts.update(names)
        print(f"run {run} of {runs}: {'failed' if done.returncode else 'passed'}, {time.monotonic() - began:.0f} s")
        print("".join(f"  {name}\n" for name in sorted(names)), end="", flush=True)
        if done.returncode and not names:
            print(done.stdout[-2000:], done.stderr[-2000:])
    print(f"{runs - bad} of {runs} runs passed")
    print("".join(f"{count:4} times {name}\n" for name, count in counts.most_common()), end="")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
