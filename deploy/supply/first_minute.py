"""The first minute of a stranger: an empty environment, one command that installs, the page with a run on real data.

    python deploy/supply/first_minute.py [--python PYTHON] [--extras demo | service] [--out FILE]

Builds the wheel of this checkout with PYTHON alone, installs it into a new environment, and does there, in an empty
account, what the README's first screen says. `demo`: prices a plan and runs `fieldfare demo` until its page shows a run
on real data with a committed round, then to its end. `service`: prices a plan, gives a population a budget and serves
the page, without PyTorch and Flower. Says what each step took and what is above its aim; exit code 1 where one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KEPT = ("PIP_", "SSL_CERT_FILE", "TMPDIR", "LANG")
"""Beginnings of the variables that stay: how pip reaches its index. Every other one is gone."""
AIMS: dict[str, dict[str, float]] = {
    "demo": {"installed, MB": 1200, "page with a run, s": 60, "page with a run, processor s": 90},
    "service": {"installed, MB": 300},
}
"""What is above is told, and fails nothing: seconds are the machine's load, and sizes other people's releases."""
PATIENCE = 600.0
"""Seconds for the page to show a run, on a machine however busy."""


def processor() -> float:
    """Seconds of processor of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor_of(group: int) -> float:
    """Seconds of processor so far of a process under way, and of its ended children (Linux; 0 elsewhere)."""
    try:
        fields = Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def megabytes(folder: Path) -> float:
    """What a folder takes on disk."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512 / 1e6


class Stranger:
    """An environment with nothing in it, an empty account, and what each step there took."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.took: dict[str, float] = {}
        self.env = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        self.env |= {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        self.empty = self.weight()

    def weight(self) -> float:
        """Return megabytes on disk of the environment, pip included."""
        return megabytes(self.folder / "venv")

    def program(self, name: str) -> str:
        """The path of a program of the environment."""
        return str(self.folder / "venv/bin" / name)

    def does(self, what: str, *words: str) -> None:
        """Run a program of the environment to its end. Raises `CalledProcessError` where it fails."""
        began, before = time.perf_counter(), processor()
        command = [self.program(words[0]), *words[1:]]
        subprocess.run(command, env=self.env, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        self.took |= {f"{what}, s": time.perf_counter() - began, f"{what}, processor s": processor() - before}

    def serves(self, what: str, shown: Callable[[str], bool], *words: str) -> subprocess.Popen[bytes]:
        """Start a program of the environment, and wait until its page has what `shown` wants."""
        began, told = time.perf_counter(), self.folder / "told.txt"
        command = [self.program(words[0]), *words[1:]]
        with told.open("w") as file:
            started = subprocess.Popen(command, env=self.env, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=file)
        while not (address := page_of(told.read_text())) or not shown(address):
            if started.poll() is not None or time.perf_counter() - began > PATIENCE:
                started.kill()
                end = f"exit code {started.wait()} after {time.perf_counter() - began:.0f} s"
                raise RuntimeError(f"{' '.join(words)}: {end} and no page that shows it\n{told.read_text()[-2000:]}")
            time.sleep(0.2)
        self.took |= {f"{what}, s": time.perf_counter() - began, f"{what}, processor s": processor_of(started.pid)}
        return started


def answer(url: str) -> Any:
    """What an address answers: JSON, or text; None where nothing listens yet."""
    try:
        # An address of this machine: no proxy of the caller's environment has it.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20) as response:
            body = response.read()
    except OSError:
        return None
    return json.loads(body) if response.headers.get_content_type() == "application/json" else body.decode()


def page_of(told: str) -> str:
    """The address of the page in what a program has told; empty before it is there, and whole."""
    _, found, rest = told.partition("Budget page: ")
    line, whole, _ = rest.partition("\n")
    return line.strip() if found and whole else ""


def has_page(address: str) -> bool:
    """Whether the page, its program and the budgets are served."""
    page, budgets = answer(address), answer(address.rstrip("/") + "/v1/populations")
    return bool(page and "app.js" in page and budgets is not None)


def has_run(address: str) -> bool:
    """Whether the page is served and the API tells of a run with a committed round."""
    runs = answer(address.rstrip("/") + "/v1/runs")
    return has_page(address) and bool(runs and any(run["committed_rounds"] for run in runs["items"]))


def first_minute(python: str, extras: str, folder: Path) -> dict[str, float]:
    """What each step took, in seconds, and what the environment weighs, in megabytes."""
    one = Stranger(folder, python)
    one.does("build the wheel", "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", ".", str(ROOT))
    (wheel,) = folder.glob("fieldfare-*.whl")
    pip = ("python", "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", str(ROOT / "constraints.txt"))
    one.does("install", *pip, f"{wheel}[{extras}]")
    one.took["installed, MB"] = one.weight() - one.empty  # what the command adds: pip was there
    one.does("price", "fieldfare", "plan", str(ROOT / "deploy/plans/gboard-blt.toml"))
    if extras == "service":
        # An account that ends is no home of people's budgets: so these are made up.
        limit = ("--epsilon", "8", "--delta", "1e-5", "--simulated")
        one.does("population", "fieldfare", "population", "create", "writers", *limit)
        page = one.serves("page", has_page, "fieldfare", "serve", "--port", "0")
        page.send_signal(signal.SIGTERM)
        page.wait(60)
    else:
        began, before = time.perf_counter(), processor()
        demo = one.serves("page with a run", has_run, "fieldfare", "demo", "--port", "0")
        if code := demo.wait(PATIENCE):
            raise RuntimeError(f"fieldfare demo: exit code {code}")
        one.took |= {"demo, s": time.perf_counter() - began, "demo, processor s": processor() - before}
    one.took["used, MB"] = one.weight() - one.empty
    return one.took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--extras", choices=sorted(AIMS), default="demo")
    parser.add_argument("--out", type=Path, help="a file for the figures, as JSON")
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="fieldfare-first-") as folder:
        took = first_minute(asked.python, asked.extras, Path(folder))
    version = subprocess.run([asked.python, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    told = {
        "extras": asked.extras,
        "python": version,
        "day": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "took": {name: round(value, 1) for name, value in took.items()},
    }
    print(json.dumps(told, indent=1))
    if asked.out is not None:
        asked.out.write_text(json.dumps(told, indent=1) + "\n")
    over = [f"{name}: {took[name]:.4g} of {most:g}" for name, most in AIMS[asked.extras].items() if took[name] > most]
    if over:
        print("Above its aim: " + "; ".join(over))


if __name__ == "__main__":
    main()
