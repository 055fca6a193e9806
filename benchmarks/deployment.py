"""What a round costs a deployment by nodes and parameters, against Flower's FedAvg in its wrapper for fixed clipping.

    python benchmarks/deployment.py [--cell NODESxPARAMETERS ...] [--rounds N] [--turns N] [--out benchmarks/results]

Starts, on loopback, what docker-compose.yml starts, as benchmarks/round_time.py does, and runs an app of
benchmarks/deployment_app.py on it, each way in turn on processes of its own. Of each round but the first:

* CPU of all processes and the children that have ended, from /proc, read whenever the ServerApp has a new model;
* bytes that two relays pass on: between SuperNodes and SuperLink, and between ServerApp and SuperLink, with TLS.

The relays and the readings are no part of it. Peak memory is that of the largest program of ServerApp and nodes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fieldfare_server.deployment.submit import environment, program, tail, write_connection
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from large_reply import Peaks
from round_time import Watched, federation

HERE = Path(__file__).parent
WAYS = {
    "Flower": ("flower", "client", False),
    "Flower's strategy, our programs": ("flower", "client", True),
    "plain dialect": ("plain", "client", True),
    "plain dialect, float16": ("half", "half", True),
    "cohort dialect": ("cohort", "cohort", True),
}
"""A way's strategy, ClientApp, and whether the programs are ours."""
APP = """[project]
name = "sized"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "fieldfare"
[tool.flwr.app.components]
serverapp = "deployment_app:server"
clientapp = "deployment_app:{client}"
[tool.flwr.app.config]
parameters = {parameters}
nodes = {nodes}
rounds = {rounds}
strategy = "{strategy}"
marks = "{marks}"
"""


class Relay:
    """Passes connections on to `target`, host:port, and counts the bytes from (`sent`) and to (`got`) who connects."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target, self._listening = (host, int(port)), socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.counts = {"sent": 0, "got": 0}
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                with contextlib.suppress(OSError):
                    far = socket.create_connection(self._target)
                    for way in (("sent", near, far), ("got", far, near)):
                        threading.Thread(target=self._pass, args=way, daemon=True).start()

    def _pass(self, way: str, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                with self._lock:
                    self.counts[way] += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


@dataclass(frozen=True)
class Reading:
    """At one moment: seconds of the clock, CPU seconds of all processes and the SuperLink's, bytes by relay and way."""

    at: float
    cpu: float
    superlink: float
    passed: dict[str, int]


class Readings:
    """One reading whenever the file `marks` has grown, until `close`."""

    def __init__(self, marks: Path, watched: Watched, relays: dict[str, Relay]) -> None:
        self.taken: list[Reading] = []
        self._over, self._asked = threading.Event(), (marks, watched, relays)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        marks, watched, relays = self._asked
        while not self._over.wait(0.02):
            if marks.exists() and marks.stat().st_size > len(self.taken):
                passed = {f"{name} {way}": n for name, relay in relays.items() for way, n in relay.counts.items()}
                self.taken.append(Reading(time.monotonic(), watched.cpu(), watched.cpu(1), passed))

    def close(self) -> None:
        self._over.set()


def measure(way: str, nodes: int, parameters: int, rounds: int, work: Path) -> dict[str, float]:
    """A round's seconds, CPU seconds and bytes, and peak MB, in the mean over all rounds but the first."""
    strategy, client, ours = WAYS[way]
    home = StateDirectory(work / "home", f"sqlite:///{work / 'home' / 'ledger.sqlite3'}")
    home.prepare()
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("sized", 1e6, 1e-5, actor="benchmark")
    app, marks, relays = work / "app", work / "marks", dict[str, Relay]()
    app.mkdir()
    (app / "pyproject.toml").write_text(
        APP.format(client=client, parameters=parameters, nodes=nodes, rounds=rounds, strategy=strategy, marks=marks)
    )

    # `ff.private` makes its model before there is a run.
    os.environ["DEPLOYMENT_PARAMETERS"] = str(parameters)

    def reach(party: str, address: str) -> str:
        return relays.setdefault(party, Relay(address)).address

    with federation(work, home, nodes, "", ours, reach) as (watched, address, ca):
        write_connection(work / "flwr", address, ca)
        readings, peaks = Readings(marks, watched, relays), Peaks(work)
        command = [program("flwr"), "run", str(app), "federation", "--stream"]
        done = subprocess.run(
            command, env=environment(work / "flwr"), capture_output=True, text=True, timeout=120 + 120 * rounds
        )
        readings.close()
        peaks.close()
    for relay in relays.values():
        relay.close()
    if len(readings.taken) != rounds + 1:
        raise RuntimeError(f"{way}: {len(readings.taken)} models\n{tail(done.stdout + done.stderr, 60)}")
    first, last = readings.taken[1], readings.taken[-1]
    largest = peaks.take()
    passed = {name: (last.passed[name] - first.passed[name]) / (rounds - 1) for name in last.passed}
    return {
        "wall": (last.at - first.at) / (rounds - 1),
        "cpu": (last.cpu - first.cpu) / (rounds - 1),
        "superlink": (last.superlink - first.superlink) / (rounds - 1),
        "down": passed["nodes got"] / nodes,
        "up": passed["nodes sent"] / nodes,
        "server": passed["coordinator got"] + passed["coordinator sent"],
        "peak": largest["coordinator"],
        "of a node": max(peak for name, peak in largest.items() if name.startswith("node-")),
    }


def cells(texts: list[str]) -> Iterator[tuple[int, int]]:
    for text in texts:
        nodes, _, parameters = text.partition("x")
        yield int(nodes), int(float(parameters))


def place(row: str) -> tuple[int, int, int]:
    """Where a row of the table stands: by nodes, parameters and way."""
    nodes, parameters, way = (cell.strip() for cell in row.split("|")[1:4])
    return int(nodes), int(parameters.replace(",", "")), list(WAYS).index(way)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", nargs="+", default=["2x1e5", "5x1e5", "10x1e5", "2x1e6", "5x1e6", "2x1e7"])
    parser.add_argument("--way", choices=WAYS, action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=4, help="of which the first is not counted")
    parser.add_argument("--turns", type=int, default=1, help="how often each is measured, in alternation")
    parser.add_argument("--keep", type=Path, help="a folder for logs and state, else removed")
    parser.add_argument("--out", type=Path, help="write deployment.md here")
    asked = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    rows = []
    for nodes, parameters in cells(asked.cell):
        found: dict[str, list[dict[str, float]]] = defaultdict(list)
        for turn in range(asked.turns):
            for number, way in enumerate(asked.way or WAYS):
                with contextlib.ExitStack() as left:
                    work = Path(left.enter_context(tempfile.TemporaryDirectory()))
                    if asked.keep:
                        work = asked.keep.resolve() / f"{nodes}-{parameters}-{number}-{turn}"
                        work.mkdir(parents=True)
                    row = measure(way, nodes, parameters, asked.rounds, work)
                found[way].append({**row, "load": os.getloadavg()[0]})
                print(nodes, parameters, way, found[way][-1], flush=True)
        middle = {way: {name: median(r[name] for r in taken) for name in taken[0]} for way, taken in found.items()}
        for way, row in middle.items():
            share = f"{row['cpu'] / middle['Flower']['cpu']:.2f}" if "Flower" in middle else ""
            of = [f"{nodes}", f"{parameters:,}", way, f"{row['cpu']:.1f}", share, f"{row['superlink']:.1f}"]
            of += [f"{row[name] / 1e6:.3g} MB" for name in ("down", "up", "server")]
            of += [f"{row['peak']:.0f} MB", f"{row['of a node']:.0f} MB", f"{row['wall']:.0f}", f"{row['load']:.0f}"]
            rows.append(f"| {' | '.join(of)} |")
    print("\n".join(rows))
    if asked.out:
        page = asked.out / "deployment.md"
        commands = [f"`{shlex.join(['python', 'benchmarks/deployment.py', *sys.argv[1:]])}`"]
        # What earlier calls measured of other cells stays.
        measured = [row.split("|")[1:4] for row in rows]
        for line in page.read_text().splitlines() if page.exists() else ():
            if line.startswith("`python"):
                commands.insert(-1, line)
            elif line.startswith("| ") and line[2:3].isdigit() and line.split("|")[1:4] not in measured:
                rows.append(line)
        rows.sort(key=place)
        text = PAGE.format(rows="\n".join(rows), commands="\n".join(commands), cores=os.cpu_count())
        page.write_text(f"{text}\n{time.strftime('%Y-%m-%d')}\n")


PAGE = """# What a round costs, by nodes and parameters

| nodes | parameters | way | CPU s | of Flower's | SuperLink | down | up | ServerApp | its peak | node | wall s | load |
|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{rows}

Means of all rounds but the first. **CPU s**: of all processes, those that have ended included; of them the
SuperLink's. "Of Flower's" stands where one call measured both. **Down** and **up**: bytes between the SuperLink
and one node; those of the ServerApp are both ways, of all nodes. Two TCP relays count them, with TLS, polls and
heartbeats. Peak memory is that of the largest program of the ServerApp, and of any node. One MB is 10^6 bytes, of
memory 2^20.
All processes share one machine of {cores} cores with other programs. The load is that at the end, and CPU seconds
grow with it: compare bytes freely, and CPU seconds only at like loads. Cells that are not here were not
measured.

"Flower" is FedAvg in Flower's wrapper for fixed clipping on the server, on Flower's own programs, where each
message starts an interpreter that imports PyTorch. The other ways run on ours (`fieldfare_flower.coordinator`,
`supernode` and `warm`); the dialects also keep a ledger and checkpoints. The ClientApp is the same, but that of
float16 answers with changes, and in the cohort dialect each node trains its one user under `ff.private` in a
child.

{commands}
"""


if __name__ == "__main__":
    sys.exit(main())
