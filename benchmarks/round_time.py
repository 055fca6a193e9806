"""What a round costs on a deployment, and where its time goes: the compose file's processes, with TLS and node keys.

    python benchmarks/round_time.py [--rounds N] [--nodes N] [--users N] [--out benchmarks/results]

Starts, on loopback, what docker-compose.yml starts (a SuperLink with a SQLite file, the coordinator's SuperExec, and
per node an authenticated SuperNode and its SuperExec), runs a plan on it, and takes each round apart from the ledger's
times and the lines that Flower logs. Twice in one command: with Flower's own programs and waits, then with
`fieldfare_flower.coordinator`, `fieldfare_flower.supernode` and `fieldfare_flower.warm`. No container, no PostgreSQL.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fieldfare_server.deployment.certificates import make_node, make_server
from fieldfare_server.deployment.nodes import register_node
from fieldfare_server.deployment.simulation import stop
from fieldfare_server.deployment.submit import environment, program, submit
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RoundView

PLAN = """
[privacy]
population = "rounds"
epsilon = 8.0
delta = 1e-5
[run]
task = "{task}"
rounds = {rounds}
cohort = 24
min_reports = 16
min_available = {users}
[participation]
scheme = "min-separation"
separation = 3
max_participations = {most}
[mechanism]
kind = "nu"
nu = "auto"
[client]
epochs = 1
batch_size = 8
learning_rate = 0.3
"""
TASK = """from fieldfare_client.tasks.digits import DigitsTask
class Digits(DigitsTask):
    def __init__(self):
        super().__init__(users_count={users})
"""
WAYS = ("flower", "fieldfare")
PHASES = {
    "Receiving: train": "the SuperNodes see the message",
    "Start `flwr-clientapp`": "their ClientApps run",
    "Sending: train": "the replies are made",
    "Sent successfully": "the SuperLink has them",
}
"""Lines of Flower's logs that end a phase. The coordinator's part follows the last of them."""


@dataclass(frozen=True)
class Line:
    at: float
    node: int
    phase: str
    cpu: float


RESTART = """trap 'trap - TERM; kill 0' TERM; while :; do "$@" & wait $!; sleep 1; done"""
"""A shell's loop that starts a program again whenever it ends, as the compose file does."""


class Watched:
    """Processes that end with the context, and the lines of their output that end a phase, with their times.

    restart: start each again whenever it ends.
    """

    def __init__(self, work: Path, restart: bool = False) -> None:
        self.work, self.lines, self._restart = work, list[Line](), restart
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, node: int, command: Sequence[str], **extra: str) -> None:
        env = environment(self.work / f"flwr-{name}", {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **extra})
        loop = ["sh", "-c", RESTART, "sh"] if self._restart else []
        process = subprocess.Popen(
            [*loop, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._processes.append(process)
        threading.Thread(target=self._read, args=(name, node, process), daemon=True).start()

    def _read(self, name: str, node: int, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        training = False
        with (self.work / f"{name}.log").open("wb") as log:
            for line in process.stdout:
                at, text = time.time(), line.decode(errors="replace")
                log.write(line)
                log.flush()
                if "Receiving:" in text or "Sending:" in text:
                    training = "train" in text
                for phase in PHASES:
                    # "Sent successfully" does not say what was sent.
                    if phase in text and (training or not phase.startswith("Sent")):
                        self.lines.append(Line(at, node, phase, self.cpu()))

    def cpu(self, first: int | None = None) -> float:
        """Seconds of processor time of all processes, or of the `first` ones started, and their children."""
        sessions, ticks = {process.pid for process in self._processes[:first]}, 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[3]) in sessions:
                    ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        for process in reversed(self._processes):
            stop(process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, patience: float = 300.0) -> None:
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing listens on port {port}")
        time.sleep(0.1)


@contextlib.contextmanager
def federation(
    work: Path,
    home: StateDirectory,
    nodes: int,
    task: str,
    ours: bool,
    reach: Callable[[str, str], str] = lambda party, address: address,
    restart: bool = False,
) -> Iterator[tuple[Watched, str, Path]]:
    """The compose file's processes; yields their watched output, the SuperLink's address and its certificate.

    Args:
        reach: ("coordinator" or "nodes", the SuperLink's address) -> the address that this party connects to.
        restart: start each process again whenever it ends.
    """
    hosts = ["127.0.0.1", "localhost"]
    make_server(work / "server", work / "exchange", hosts)
    ca = work / "exchange" / "ca.crt"
    link, address = work / "server" / "superlink", f"127.0.0.1:{(port := free_port())}"
    watched = Watched(work, restart)

    try:
        watched.start(
            "superlink",
            -1,
            [
                program("flower-superlink"),
                "--host=127.0.0.1",
                f"--port={port}",
                "--isolation=process",
                f"--database={work / 'superlink.db'}",
                "--enable-supernode-auth",
                f"--ssl-ca-certfile={link / 'ca.crt'}",
                f"--ssl-certfile={link / 'server.crt'}",
                f"--ssl-keyfile={link / 'server.key'}",
                f"--superexec-auth-secret-file={link / 'superexec.secret'}",
            ],
        )
        wait_for_port(port)
        executor = [sys.executable, "-Pm", "fieldfare_flower.coordinator"] if ours else [program("flower-superexec")]
        watched.start(
            "coordinator",
            -1,
            [
                *executor,
                f"--root-certificates={ca}",
                f"--runtime-api-address={reach('coordinator', address)}",
                f"--superexec-auth-secret-file={link / 'superexec.secret'}",
            ],
            FIELDFARE_HOME=str(home.root),
            FIELDFARE_LEDGER=home.ledger,
            FIELDFARE_NODE_AUTH="required",
        )
        for index in range(nodes):
            make_node(work / f"node-{index}", work / "exchange", f"node-{index}", hosts)
            register_node(address, ca, work / f"node-{index}" / "node.pub", timeout=300)
        for index in range(nodes):
            start_node(watched, work, index, nodes, reach("nodes", address), ca, task, ours)
        yield watched, address, ca
    finally:
        watched.close()


def start_node(
    watched: Watched,
    work: Path,
    index: int,
    nodes: int,
    address: str,
    ca: Path,
    task: str,
    ours: bool,
    more: str = "",
    **env: str,
) -> None:
    """An authenticated SuperNode and its executor. more: of its configuration. env: of its executor."""
    own, port = work / f"node-{index}", free_port()
    secret = f"--superexec-auth-secret-file={own / 'superexec.secret'}"
    python = [sys.executable, "-Pm"]
    watched.start(
        own.name,
        index,
        ([*python, "fieldfare_flower.supernode"] if ours else [program("flower-supernode")])
        + [f"--superlink={address}", f"--root-certificates={ca}", f"--auth-supernode-private-key={own / 'node'}"]
        + ["--host=127.0.0.1", f"--port={port}", "--isolation=process"]
        + [f"--ssl-ca-certfile={own / 'runtime-ca.crt'}", f"--ssl-certfile={own / 'runtime.crt'}"]
        + [f"--ssl-keyfile={own / 'runtime.key'}", secret]
        + [f'--node-config=partition-id={index} num-partitions={nodes} task="{task}" {more}'.strip()],
    )
    wait_for_port(port)
    watched.start(
        f"executor-{index}",
        index,
        ([*python, "fieldfare_flower.warm", "--preload", "fieldfare_client.app:preload"] if ours else [])
        + [program("flower-superexec"), f"--runtime-api-address=127.0.0.1:{port}"]
        + [f"--root-certificates={own / 'runtime-ca.crt'}", secret],
        **({"FIELDFARE_WARM_TASK": task, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"} if ours else {}),
        **env,
    )


def measure(ours: bool, asked: argparse.Namespace, work: Path) -> list[dict[str, float]]:
    """Seconds of each phase of each round, without the first and the last."""
    home = StateDirectory(work / "home", f"sqlite:///{work / 'home' / 'ledger.sqlite3'}")
    home.prepare()
    (work / "benchmarked.py").write_text(TASK.format(users=asked.users))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(work), os.environ.get("PYTHONPATH", "")])
    task = "benchmarked:Digits"
    with Ledger.open(home.ledger, create=True, head_file=home.head_file) as ledger:
        ledger.create_population("rounds", 8.0, 1e-5, simulated=True, actor="benchmark")
    plan = PLAN.format(task=task, rounds=asked.rounds, users=asked.users, most=-(-asked.rounds // 3))
    with federation(work, home, asked.nodes, task, ours) as (watched, address, ca):
        patience = 60.0 + 60.0 * asked.rounds
        output = submit(work / "run", address, plan=plan, task=task, run_id="r", root_certificates=ca, timeout=patience)
    with Ledger.open(home.ledger) as ledger:
        view, page = ledger.run("r"), ledger.rounds("r", limit=500)
    attempts = sorted((r for r in page.items if r.state == "committed"), key=lambda r: r.index)
    if view.state != "done" or len(attempts) != asked.rounds:
        logs = "\n".join(p.read_text(errors="replace")[-2000:] for p in sorted(work.glob("*.log")))
        raise RuntimeError(f"the run is {view.state} after {len(attempts)} rounds:\n{output[-2000:]}\n{logs}")
    return [apart(this, following, watched.lines) for this, following in itertools.pairwise(attempts[1:])]


def apart(this: RoundView, following: RoundView, lines: list[Line]) -> dict[str, float]:
    """A round's phases, in order. A phase ends when its last node ends it, nodes without a selected user aside."""
    assert this.closed_at is not None
    first = next(iter(PHASES))
    asked = {line.node for line in lines if line.phase == first and this.opened_at < line.at < this.closed_at}
    ends, phases, before = dict.fromkeys(asked, this.opened_at), dict[str, float](), this.opened_at
    for phase, name in PHASES.items():
        for node in asked:
            ends[node] = min(
                line.at for line in lines if (line.node, line.phase) == (node, phase) and line.at > ends[node]
            )
        phases[name], before = max(ends.values()) - before, max(ends.values())
    later = max(line.cpu for line in lines if line.at <= following.opened_at)
    earlier = max(line.cpu for line in lines if line.at <= this.opened_at)
    return {
        **phases,
        "the coordinator has it and commits": this.closed_at - before,
        "the next round is opened": following.opened_at - this.closed_at,
        "**round**": following.opened_at - this.opened_at,
        "processor time of all processes": later - earlier,
    }


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """Median and 90th percentile of each phase, in seconds."""
    rows = ["| seconds | " + " | ".join(f"{way} median | p90" for way in results) + " |"]
    rows.append("|---|" + "--:|--:|" * len(results))
    for phase in next(iter(results.values()))[0]:
        cells = []
        for rounds in results.values():
            taken = [r[phase] for r in rounds]
            p90 = statistics.quantiles(taken, n=10, method="inclusive")[-1] if len(taken) > 1 else taken[0]
            cells.append(f"{statistics.median(taken):.2f} | {p90:.2f}")
        rows.append(f"| {phase} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--users", type=int, default=400, help="of the digits task, over all nodes")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this one")
    parser.add_argument("--keep", type=Path, help="a folder for logs and state, else removed")
    parser.add_argument("--out", type=Path, help="write round_time.md here")
    asked = parser.parse_args()
    results, load = {}, [os.getloadavg()[0]]
    for way in asked.way or WAYS:
        with contextlib.ExitStack() as left:
            work = asked.keep / way if asked.keep else Path(left.enter_context(tempfile.TemporaryDirectory()))
            work.mkdir(parents=True, exist_ok=True)
            results[way] = measure(way == WAYS[1], asked, work)
        load.append(os.getloadavg()[0])
    text = table(results)
    print(text)
    if asked.out:
        (asked.out / "round_time.md").write_text(page(asked, text, load))


def page(asked: argparse.Namespace, text: str, load: list[float]) -> str:
    return f"""# What a round takes on a deployment

{text}

{time.strftime("%Y-%m-%d")}.
Phases add up to the round; one ends when the last of the nodes has ended it. {asked.nodes} nodes, {asked.users} users
in all, {asked.rounds} rounds, of which the first and the last are not counted; digits task; TLS, node keys, SQLite; all
processes on one machine of {os.cpu_count()} cores, load average {", ".join(f"{x:.1f}" for x in load)} before, between
and after. Flower's: `flower-supernode` and `flower-superexec` as they come; the coordinator is the same in both.

`python benchmarks/round_time.py --rounds {asked.rounds} --nodes {asked.nodes} --users {asked.users} --out DIRECTORY`
"""


if __name__ == "__main__":
    main()
