"""What a reply of a gigabyte costs: peak memory of each program of a deployment, with a real SuperLink.

    python benchmarks/large_reply.py [--megabytes 1000] [--width 2000] [--out benchmarks/results]

Starts what docker-compose.yml starts, as benchmarks/round_time.py does, with a model of width x width float32
parameters on three nodes. In the second of three rounds node 0 sends so many megabytes more than its update: in parts
of 1 MB, of 30 MB (the gate takes 32 MB a request), or in one part. Memory is the kernel's own peak (VmHWM) of each
process, read five times a second; a program with several processes is its largest one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from fieldfare_server.deployment.submit import require_ended, submit
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from round_time import federation

TESTS = Path(__file__).parents[1] / "tests"
TASK = """import torch
from support.federation import TinyTask
class Wide(TinyTask):
    def build_model(self):
        torch.manual_seed(self.seed)
        first, last = torch.nn.Linear(3, {width}), torch.nn.Linear({width}, 1)
        return torch.nn.Sequential(first, torch.nn.Linear({width}, {width}), last)
"""
PLAN = """
[privacy]
population = "{name}"
noise_multiplier = 20.0
delta = 1e-5
[run]
task = "wide:Wide"
rounds = 3
cohort = 21
round_timeout = {timeout}
[participation]
scheme = "poisson"
rate = 0.9
[mechanism]
kind = "independent"
[client]
epochs = 1
batch_size = 6
learning_rate = 0.01
"""
PROGRAMS = {"coordinator": "coordinator", "superlink": "SuperLink", "node-0": "the node's SuperNode"}


class Peaks:
    """The largest VmHWM of the processes of each program, sampled until `close`."""

    def __init__(self, work: Path) -> None:
        self._mark = f"FLWR_HOME={work}/flwr-".encode()
        self._peaks: dict[str, int] = defaultdict(int)
        self._over = threading.Event()
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        while not self._over.wait(0.2):
            for place in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError, IndexError):
                    environment = (place / "environ").read_bytes()
                    if self._mark not in environment:
                        continue
                    name = environment.split(self._mark)[1].split(b"\0")[0].decode()
                    peak = int((place / "status").read_text().split("VmHWM:")[1].split()[0])
                    self._peaks[name] = max(self._peaks[name], peak)

    def take(self) -> dict[str, float]:
        """Megabytes by program."""
        return {name: peak / 1024 for name, peak in self._peaks.items()}

    def close(self) -> None:
        self._over.set()


def measure(asked: argparse.Namespace, work: Path) -> list[tuple[str, dict[str, float], int, str, float]]:
    """For each sort of reply, on its own processes: peaks, answers of status 500, what was counted, seconds."""
    rows = []
    (work / "wide.py").write_text(TASK.format(width=asked.width))
    paths = [work, TESTS / "e2e/wire", TESTS, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, paths))
    lies = [
        ("honest", "", 0, 1),
        (f"{asked.megabytes} MB more, in parts of 1 MB", "megabytes", asked.megabytes, 1),
        (f"{asked.megabytes} MB more, in parts of 30 MB", "megabytes", asked.megabytes, 30),
        (f"{asked.one_part} MB more, in one part", "megabytes", asked.one_part, asked.one_part),
    ]
    for index, (sort, lie, size, part) in enumerate(lies):
        if asked.reply and index not in asked.reply:
            continue
        own = work / f"{index}"
        os.environ.update(WIRE_MEGABYTES=str(size), WIRE_PART=str(part))
        own.mkdir()
        os.environ["WIRE_LIES"] = str(own)
        (own / "script.json").write_text(json.dumps({"train": ["", lie, ""], "query": "", "late": 0}))
        home = StateDirectory(own / "home", f"sqlite:///{own / 'home' / 'ledger.sqlite3'}")
        home.prepare()
        with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
            ledger.create_population("wide", 1000.0, 1e-5, actor="benchmark")
        with federation(own, home, 3, "wide:Wide", ours=True) as (_, address, ca):
            peaks, began = Peaks(own), time.monotonic()
            plan = PLAN.format(name="wide", timeout=asked.timeout)
            options = {"plan": plan, "task": "wide:Wide", "run_id": "large", "root_certificates": ca}
            # Not followed: the stream of its log ends where the SuperLink's database is locked for a moment.
            output = submit(own / "run", address, timeout=10 * asked.timeout, stream=False, **options)
            while time.monotonic() - began < 10 * asked.timeout and not has_ended(home):
                time.sleep(0.5)
            seconds = time.monotonic() - began
            peaks.close()
        require_ended(home, "large", output)
        with Ledger.open(home.ledger) as ledger:
            views = sorted(ledger.rounds("large").items, key=lambda view: view.index)
        counted = ", ".join(f"{reason}" for view in views for reason in view.rejects) or "nothing"
        failed = (own / "superlink.log").read_text(errors="replace").count('HTTP/1.1" 500')
        rows.append((sort, peaks.take(), failed, counted, seconds))
        print(rows[-1], f"superlink.db {(own / 'superlink.db').stat().st_size >> 20} MB", flush=True)
    return rows


def has_ended(home: StateDirectory) -> bool:
    """Whether the one run of `home` has begun and is over."""
    with Ledger.open(home.ledger) as ledger:
        return any(run.ended_at is not None for run in ledger.runs().items)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--one-part", type=int, default=256, help="megabytes of the reply in one part")
    parser.add_argument("--width", type=int, default=2000)
    parser.add_argument("--reply", type=int, action="append", choices=range(4), help="only this one of the four")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds of a round")
    parser.add_argument("--keep", type=Path, help="a folder for logs and state, else removed")
    parser.add_argument("--out", type=Path, help="write large_reply.md here")
    asked = parser.parse_args()
    with contextlib.ExitStack() as left:
        work = asked.keep or Path(left.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        rows = measure(asked, work.resolve())
    lines = ["| reply | " + " | ".join(PROGRAMS.values()) + " | errors 500 | counted | run |"]
    lines.append("|---|" + "--:|" * 4 + "---|--:|")
    for sort, peaks, failed, counted, seconds in rows:
        cells = " | ".join(f"{peaks.get(name, 0.0):.0f} MB" for name in PROGRAMS)
        lines.append(f"| {sort} | {cells} | {failed} | {counted} | {seconds:.0f} s |")
    print("\n".join(lines))
    if asked.out:
        model = 4 * (asked.width**2 + 6 * asked.width + 1) / 2**20
        text = PAGE.format(table="\n".join(lines), model=model, bound=2 * model + 5, **vars(asked))
        (asked.out / "large_reply.md").write_text(text)


PAGE = """# What a reply of a gigabyte costs

{table}

Peak memory of one process, for a model of {model:.0f} MB on three nodes with TLS and node keys, three rounds; node 0
answers like that in the second. All three rounds of all runs committed.

**The coordinator** stops to pull a reply at twice the bytes that it sent and 5 MB more ({bound:.0f} MB here), counts
`size`, and has the rest deleted. httpx and Flower copy a part up to four times while it is read. So a reply of any size
costs the coordinator at most about four times that bound above the peak of an honest reply, whatever its parts are.

**The SuperLink and the SuperNodes are Flower's.** A SuperNode holds the whole reply of its own ClientApp, up to three
times. Both hold whole requests, several at once: a part costs each about six times its size. The gate of deploy/
bounds a request at 32 MB; without it one part is bounded by the memory of the node that sends it. A SuperLink at its
memory limit (docker-compose.yml: 2 GB) is killed and started again, which costs the rounds of about half a minute.

**Errors 500** are what the SuperLink answered to any party while the upload kept its SQLite database locked. Flower's
own programs end at the first of them. Ours ask again (`fieldfare_flower.server_errors`).

`python benchmarks/large_reply.py --megabytes {megabytes} --one-part {one_part} --width {width} --timeout {timeout:g}`,
on a busy machine of two cores
"""


if __name__ == "__main__":
    sys.exit(main())
