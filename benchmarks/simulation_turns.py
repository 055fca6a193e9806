"""Turns of a benchmark between processes: each answers a line `N` with the seconds that its next N rounds took.

Standard library only: peers import it in environments of their own.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path


def _children() -> float:
    """CPU seconds of the processes that this one has started: of those that live, and of those that it waited for."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    ended = os.times()  # where each user trains in a child of their own, it ends with its answer
    return ticks / os.sysconf("SC_CLK_TCK") + ended.children_user + ended.children_system


class Turnstile:
    """Stands between the rounds of this process: `enter` before each one."""

    def __init__(self) -> None:
        self._left, self._rounds = 0, 0
        self._cpu = self._wall = self._others = 0.0

    def enter(self) -> bool:
        """Wait here between two turns. Returns whether there is another round to do."""
        if self._left == 0:
            if self._rounds:
                wall, others = time.perf_counter() - self._wall, _children() - self._others
                print(f"turn {time.process_time() - self._cpu} {wall} {others}", flush=True)
            line = sys.stdin.readline().strip()
            if not line:
                return False
            self._left = self._rounds = int(line)
            self._others = _children()
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
        self.others = 0.0
        """CPU seconds of the processes that it has started, in a round of its last turn."""

    def turn(self, rounds: int) -> tuple[float, float]:
        """(CPU seconds of all its threads and processes, wall seconds) of one round, mean over its next `rounds`."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{rounds}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("turn "):
                cpu, wall, others = (float(value) / rounds for value in line.split()[1:])
                self.others = others
                return cpu + others, wall
            self.notes.append(line.strip())
        raise RuntimeError(f"{self._process.args!r} ended with exit code {self._process.wait()}")

    def close(self) -> None:
        """No further turn; wait for its end."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self.notes += [line.strip() for line in self._process.stdout]
        self._process.wait()
