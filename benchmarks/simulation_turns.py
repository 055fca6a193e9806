"""Turns of a benchmark between processes: each answers a line `N` with the seconds that its next N rounds took.

Standard library only: peers import it in environments of their own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


class Turnstile:
    """Stands between the rounds of this process: `enter` before each one."""

    def __init__(self) -> None:
        self._left, self._rounds = 0, 0
        self._cpu = self._wall = 0.0

    def enter(self) -> bool:
        """Wait here between two turns. Returns whether there is another round to do."""
        if self._left == 0:
            if self._rounds:
                print(f"turn {time.process_time() - self._cpu} {time.perf_counter() - self._wall}", flush=True)
            line = sys.stdin.readline().strip()
            if not line:
                return False
            self._left = self._rounds = int(line)
            self._cpu, self._wall = time.process_time(), time.perf_counter()
        self._left -= 1
        return True


class System:
    """A process with a turnstile, seen from outside."""

    def __init__(self, python: str, script: str, *arguments: str) -> None:
        command = [python, str(Path(__file__).with_name(script)), *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.notes: list[str] = []
        """What it printed besides the seconds of its turns."""

    def turn(self, rounds: int) -> tuple[float, float]:
        """(CPU seconds of all its threads, wall seconds) of one round, mean over its next `rounds`."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{rounds}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("turn "):
                cpu, wall = line.split()[1:]
                return float(cpu) / rounds, float(wall) / rounds
            self.notes.append(line.strip())
        raise RuntimeError(f"{self._process.args!r} ended with exit code {self._process.wait()}")

    def close(self) -> None:
        """No further turn; wait for its end."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self.notes += [line.strip() for line in self._process.stdout]
        self._process.wait()
