"""What each command costs before anybody waits for its work: seconds of processor and largest memory.

    python benchmarks/commands.py [--times 3] [--slow] [--out benchmarks/results]

Each is a process of its own in a new account, the best of several: the load of a shared machine only adds. Python
keeps what it compiled, as it does for users, so the first of several is the slowest. The service is asked until it
answers, then for all that the page loads, then for what it shows of a budget. `--slow` adds prices by Monte Carlo, a
search for a strategy and suggestions, each once: minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from fieldfare_server.cli.application import GROUPS

ROOT = Path(__file__).parents[1]
PLANS = "deploy/plans"
PROGRAM = [str(Path(sys.executable).with_name("fieldfare"))]
PRICED = ("containers", "digits", "gboard-blt", "gboard-tree", "flights", "flights-allocated", "flights-poisson")
PAPERS = ("papers/correlated-noise-cifar10-blt", "papers/correlated-noise-stackoverflow-tree", "papers/disk-mnist-base")
CERTIFIED = ("flights-binned", "flights-spaced", "papers/correlated-noise-cifar10-dense")
LOADED = re.compile(r'(?:src|href)="/assets/([^"]+)"|from "./([^"]+)"')
SHOWN = (
    *("v1/populations?order=nearness&limit=20", "v1/runs?limit=50", "v1/audit?limit=12", "v1/populations/people"),
    *("v1/populations/people/history", "v1/populations/people/participation"),
)
Cost = tuple[float, float, float]
"""Seconds of processor, seconds, megabytes."""


def account(home: str) -> dict[str, str]:
    """The environment of a new account, whose compiled modules are kept."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {"PYTHONPYCACHEPREFIX": f"{home}/compiled", **kept, "FIELDFARE_HOME": home}


def child(words: list[str], home: str) -> Cost:
    """Run a program to its end. Raises RuntimeError where it fails."""
    began = time.perf_counter()
    quiet = subprocess.DEVNULL
    started = subprocess.Popen(words, cwd=ROOT, env=account(home), stdout=quiet, stderr=quiet)
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit code {started.returncode}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - began, used.ru_maxrss / 1024


def so_far(process: int, began: float) -> Cost:
    """What a process under way has cost (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    (peak,) = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    busy = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return busy, time.perf_counter() - began, int(peak) / 1024


def got(url: str, patience: float = 120.0) -> str:
    """What an address of this machine answers, as soon as it does."""
    until = time.monotonic() + patience
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def service(home: str) -> tuple[Cost, Cost, Cost]:
    """Cost of `serve` until the API answers, until all that the page loads was sent, and until a budget is shown."""
    began, words = time.perf_counter(), [*PROGRAM, "serve", "--port", "0"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, env=account(home), stdout=quiet, stderr=subprocess.PIPE, text=True) as started:
        assert started.stderr is not None
        try:
            lines = (line.partition("Budget page: ")[2].strip() for line in started.stderr)
            address = next(line for line in lines if line)
            got(f"{address}v1/populations")
            first = so_far(started.pid, began)
            waiting, loaded = [""], set[str]()
            while waiting:
                if (path := waiting.pop()) not in loaded:
                    loaded.add(path)
                    waiting += [
                        f"assets/{name}" for names in LOADED.findall(got(address + path)) for name in names if name
                    ]
            page = so_far(started.pid, began)
            for path in SHOWN:
                got(address + path)
            return first, page, so_far(started.pid, began)
        finally:
            started.terminate()


def measured(times: int, slow: bool, home: str) -> dict[str, Cost]:
    """Cost by what was run."""

    def best(*words: str) -> Cost:
        return min(child([*PROGRAM, *words], home) for _ in range(times))

    child([*PROGRAM, "population", "create", "people", "--epsilon", "8", "--delta", "1e-5"], home)
    rows = {"`import fieldfare`": min(child([sys.executable, "-c", "import fieldfare"], home) for _ in range(times))}
    rows |= {f"`fieldfare {word}`": best(word) for word in ("--version", "--help", "budget", "runs")}
    until = ("`fieldfare serve`, until the API answers", "the same, until the page is sent", "until it shows a budget")
    rows |= dict(zip(until, min(service(home) for _ in range(times)), strict=True))
    for name in (*GROUPS, "plan", "simulate", "serve"):
        rows[f"`fieldfare {name} --help`"] = best(name, "--help")
    for plan in (*PRICED, *PAPERS):
        rows[f"`fieldfare plan {PLANS}/{plan}.toml`"] = best("plan", f"{PLANS}/{plan}.toml")
    if slow:
        waits = [["plan", f"{PLANS}/{plan}.toml"] for plan in CERTIFIED]
        waits += [["suggest", f"{PLANS}/{plan}.toml"] for plan in ("flights", "flights-poisson")]
        waits.append(["suggest", f"{PLANS}/flights-poisson.toml", "--certified"])
        for words in waits:
            more = ["--out", f"{home}/better.toml"] if words[0] == "suggest" else []
            rows[f"`fieldfare {' '.join(words)}`"] = child([*PROGRAM, *words, *more], home)
            print(words, rows[f"`fieldfare {' '.join(words)}`"], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for commands.md")
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ffbench-") as home:
        rows = measured(asked.times, asked.slow, home)
    lines = [f"| {what} | {cpu:.2f} | {wall:.1f} | {peak:.0f} |" for what, (cpu, wall, peak) in rows.items()]
    text = (
        f"# What each command costs\n\n`{' '.join(['python benchmarks/commands.py', *sys.argv[1:]])}`\n\n"
        f"{time.strftime('%Y-%m-%d')}; Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {load:.0f} to "
        f"{os.getloadavg()[0]:.0f}; best of {asked.times} (slow ones: once).\n\n"
        "| what | processor, s | wall, s | largest memory, MB |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if asked.out is not None:
        (asked.out / "commands.md").write_text(text)


if __name__ == "__main__":
    main()
