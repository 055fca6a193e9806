"""How the budget service behaves with a large ledger, on SQLite and PostgreSQL: ratios and bounds, taken in one run.

    python benchmarks/api.py [--runs 10000] [--rounds 200] [--clients 500] [--out benchmarks/results]
    python benchmarks/api.py --before ../earlier --turns 3 ...     # with a checkout of an earlier version, side by side

For each database, the benchmark writes a ledger of runs x rounds committed rounds with a whole audit chain
(`large_ledger`) and starts one server process. It measures the chain's first walk; latency next to that of a bare route
of the same application, asked in turns; commits alone, during reads of the bare route, and during reads of the ledger;
and the memory of many event streams. PostgreSQL is a private server, started from the installed programs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import large_ledger
from fieldfare_server.ledger import Ledger, RunHandle

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.postgres import Cluster, find_programs

SERVER = """
import sys
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, listen, serve
limits = Settings(requests_per_minute=10**9, burst=10**9, event_clients=2000, event_clients_each=2000)
app = create_app(sys.argv[1], limits)
@app.get("/bare")
def bare() -> dict[str, int]:
    return {"answer": 42}
settings = config(app, port=int(sys.argv[2]))
serve(settings, listen(settings))
"""
READER = """
import httpx, sys
with httpx.Client(base_url=sys.argv[1], timeout=60) as client:
    while True:
        for path in sys.argv[2:]:
            client.get(path)
"""
POPULATION = f"/v1/populations/{large_ledger.POPULATION}"
PATHS = ("/bare", POPULATION, "/v1/runs?limit=50", "/v1/runs/run-1", "/v1/runs/run-1/series", "/v1/audit?limit=12")
READERS = 2
WANTED = {"population p99 over bare": 5.0, "event streams, MiB": 150.0, "commit beside readers over beside bare": 1.5}


def percentile(values: list[float], part: float) -> float:
    return float(np.quantile(values, part))


def timed(client: httpx.Client, path: str) -> float:
    began = time.perf_counter()
    client.get(path).raise_for_status()
    return time.perf_counter() - began


def latencies(client: httpx.Client, paths: tuple[str, ...], times: int) -> dict[str, list[float]]:
    """Seconds a request; the paths take turns, so that a busy machine slows all of them."""
    seconds: dict[str, list[float]] = {path: [] for path in paths}
    for path in paths:
        timed(client, path)
    for _ in range(times):
        for path in paths:
            seconds[path].append(timed(client, path))
    return seconds


def after_commits(client: httpx.Client, run: RunHandle, times: int) -> list[float]:
    """Seconds for the population after each change, when no cached answer serves."""
    seconds = []
    for _ in range(times):
        large_ledger.commit(run)
        seconds.append(timed(client, POPULATION))
    return seconds


def commits(run: RunHandle, count: int) -> list[float]:
    """Seconds to open and commit a round."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        large_ledger.commit(run)
        seconds.append(time.perf_counter() - began)
    return seconds


@contextlib.contextmanager
def readers(url: str, *paths: str) -> Iterator[None]:
    """Processes that request `paths` without a pause."""
    command = [sys.executable, "-c", READER, url, *paths]
    started = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(READERS)]
    try:
        time.sleep(1.0)
        yield
    finally:
        for process in started:
            process.terminate()
            process.wait(20)


def contention(ledger: Ledger, run: RunHandle, url: str, turns: int, count: int) -> dict[str, Any]:
    """Commit times alone, during bare requests and during ledger reads, in turns; then under open read transactions."""
    alone: list[float] = []
    bare: list[float] = []
    read: list[float] = []
    held: list[float] = []
    for _ in range(turns):
        alone += commits(run, count)
        with readers(url, "/bare"):
            bare += commits(run, count)
        with readers(url, "/v1/runs?limit=500", POPULATION, "/v1/runs/run-1/series"):
            read += commits(run, count)
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                connection = stack.enter_context(ledger.database.read())
                connection.exec_driver_sql("SELECT count(*) FROM runs").scalar_one()
            held += commits(run, count)
    ms = {
        name: round(1e3 * statistics.median(v), 2)
        for name, v in (("alone", alone), ("beside bare", bare), ("beside readers", read), ("beside open reads", held))
    }
    return {
        "commit_median_ms": ms,
        "commit beside readers over beside bare": round(ms["beside readers"] / ms["beside bare"], 2),
        "commit beside open reads over alone": round(ms["beside open reads"] / ms["alone"], 2),
        "commit_longest_ms_beside_readers": round(1e3 * max(read), 1),
    }


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def streams(url: str, count: int, run: RunHandle, pid: int) -> tuple[int, float]:
    """(bytes that `count` open event streams add, seconds until the last of them has seen a commit)."""
    before = resident(pid)
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
        ready = asyncio.Semaphore(0)

        async def listen() -> None:
            async with client.stream("GET", "/v1/events") as response:
                response.raise_for_status()
                async for line in response.aiter_lines():
                    if line == "event: hello":
                        ready.release()
                    if line == "event: ledger":
                        return

        tasks = [asyncio.create_task(listen()) for _ in range(count)]
        for _ in range(count):
            await ready.acquire()
        added = resident(pid) - before
        began = time.perf_counter()
        await asyncio.to_thread(large_ledger.commit, run)
        await asyncio.gather(*tasks)
        return added, time.perf_counter() - began


def first_walk(client: httpx.Client) -> dict[str, Any]:
    """Seconds from the first probe to the first that reports ready, and what a request waits meanwhile."""
    began = time.perf_counter()
    bare: list[float] = []
    while True:
        answer = client.get("/readyz")
        if answer.status_code == 200:
            break
        bare += [timed(client, "/bare") for _ in range(10)]
    chain = answer.json()["checks"]["chain"]
    took = time.perf_counter() - began
    meanwhile = {"bare_p99_ms_meanwhile": round(1e3 * percentile(bare, 0.99), 2)} if bare else {}
    return {"first_walk_s": round(took, 1), "first_walk": chain} | meanwhile


def measure(url: str, clients: int, times: int, port: int) -> dict[str, Any]:
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, "-c", SERVER, url, str(port)], stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=address, timeout=120) as client, Ledger.open(url) as ledger:
            end = time.monotonic() + 60
            while True:
                try:
                    client.get("/healthz")
                    break
                except httpx.ConnectError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.1)
            walk = first_walk(client)
            seconds = latencies(client, PATHS, times)
            run = large_ledger.start(ledger, "live", 2000)
            fresh = after_commits(client, run, min(times, 200))
            bare = percentile(seconds["/bare"], 0.99)
            commit = contention(ledger, run, address, turns=3, count=40)
            added, late = asyncio.run(streams(address, clients, run, process.pid))
            run.finish("stopped")
            return {
                **walk,
                "p50_ms": {p: round(1e3 * statistics.median(v), 2) for p, v in seconds.items()},
                "p99_ms": {p: round(1e3 * percentile(v, 0.99), 2) for p, v in seconds.items()},
                "p99_over_bare": {p: round(percentile(v, 0.99) / bare, 2) for p, v in seconds.items()},
                "population p99 over bare": round(percentile(seconds[POPULATION], 0.99) / bare, 2),
                "population p99 over bare, after a commit each": round(percentile(fresh, 0.99) / bare, 2),
                **commit,
                "event_clients": clients,
                "event streams, MiB": round(added / 2**20, 1),
                "last_stream_sees_a_commit_s": round(late, 2),
                "server_resident_mib": round(resident(process.pid) / 2**20),
            }
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def databases(names: list[str]) -> Iterator[Iterator[tuple[str, str]]]:
    """(name, URL of a new database) of each installed kind; prints which are missing."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ffbench-")))

        def each() -> Iterator[tuple[str, str]]:
            if "sqlite" in names:
                yield "sqlite", f"sqlite:///{folder / 'ledger.sqlite3'}"
                for file in folder.iterdir():
                    file.unlink()
            programs = find_programs()
            if "postgresql" in names and programs is None:
                print("PostgreSQL's programs are not installed: not measured", file=sys.stderr)
            elif "postgresql" in names and programs is not None:
                # As durable as in production, unlike the tests' cluster.
                settings = ("fsync = on", "shared_buffers = 128MB", "max_wal_size = 4GB", "max_connections = 60")
                cluster = Cluster(programs, settings)
                stack.callback(cluster.remove)
                yield "postgresql", cluster.new_database()

        yield each()


def table(result: dict[str, Any]) -> str:
    """The results as a page of Markdown."""
    stores = result["stores"]
    rows = [("figure", *stores, "wanted"), ("---",) * (len(stores) + 2)]

    def row(name: str, pick: Any, wanted: str = "") -> None:
        rows.append((name, *(str(pick(one)) for one in stores.values()), wanted))

    row("population, p99 over a bare route's", lambda s: s["population p99 over bare"], "5")
    row("the same, each time after a commit", lambda s: s["population p99 over bare, after a commit each"], "5")
    for path in PATHS:
        row(f"`GET {path}`, median / p99, ms", lambda s, p=path: f"{s['p50_ms'][p]} / {s['p99_ms'][p]}")
    for name in ("alone", "beside bare", "beside readers", "beside open reads"):
        row(f"open and commit a round, {name}, median ms", lambda s, n=name: s["commit_median_ms"][n])
    row("commit beside readers over beside bare", lambda s: s["commit beside readers over beside bare"], "about 1")
    row("commit beside open reads over alone", lambda s: s["commit beside open reads over alone"], "about 1")
    row("longest commit beside readers, ms", lambda s: s["commit_longest_ms_beside_readers"])
    row(f"memory of {result['clients']} event streams, MiB", lambda s: s["event streams, MiB"], "150")
    row("the last of them sees a commit after, s", lambda s: s["last_stream_sees_a_commit_s"])
    row("first walk of the chain, s (not ready until then)", lambda s: s["first_walk_s"])
    row("`GET /bare` meanwhile, p99 ms", lambda s: s.get("bare_p99_ms_meanwhile", "—"))
    row("the server's memory at the end, MiB", lambda s: s["server_resident_mib"])
    row("filling, s", lambda s: s["fill_s"])
    lines = "\n".join("| " + " | ".join(cells) + " |" for cells in rows)
    return f"""# The budget service over a large ledger

`{result["command"]}`

{result["runs"]:,} runs, {result["rounds"]:,} committed rounds, {result["audit_rows"]:,} audit rows; {result["machine"]}

{lines}

p99 of {result["times"]} requests each, the paths in turn, one client. "Beside bare": while {READERS} processes ask the
bare route without a pause; "beside readers": while they read the ledger; "beside open reads": while four read
transactions are held open for the whole of it. The three take turns.
"""


def measure_stores(asked: argparse.Namespace) -> dict[str, Any]:
    """Fill and measure each of the databases that were asked for."""
    stores: dict[str, Any] = {}
    rows = 0
    with databases(asked.store or ["sqlite", "postgresql"]) as each:
        for name, url in each:
            began = time.perf_counter()
            large_ledger.fill(url, asked.runs, asked.rounds)
            filled = round(time.perf_counter() - began, 1)
            with Ledger.open(url) as ledger:
                rows = ledger.head().count
            print(f"{name}: filled in {filled} s", file=sys.stderr)
            stores[name] = {"fill_s": filled} | measure(url, asked.clients, asked.times, asked.port)
    return {
        "machine": f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end",
        "runs": asked.runs,
        "rounds": asked.runs * asked.rounds,
        "audit_rows": rows,
        "clients": asked.clients,
        "times": asked.times,
        "wanted": WANTED,
        "stores": stores,
    }


def take_turns(trees: list[Path], arguments: list[str], turns: int) -> dict[str, Any]:
    """Run the benchmark of each checkout, one after the other, `turns` times; the result has one store for each.

    Each runs the code and the benchmark of its checkout, in a process by itself. Of several turns, each figure is the
    median, so that what else the machine does counts alike.
    """
    found: dict[Path, list[dict[str, Any]]] = {tree: [] for tree in trees}
    for turn in range(turns):
        for tree in trees:
            places = os.pathsep.join(str(tree / part) for part in ("shared", "server", "client"))
            command = [sys.executable, str(tree / "benchmarks" / "api.py"), *arguments]
            print(f"turn {turn + 1} of {turns}: {tree}", file=sys.stderr)
            environment = os.environ | {"PYTHONPATH": places}
            done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True)
            found[tree].append(json.loads(done.stdout))
    each = {version(tree): middle(results) for tree, results in found.items()}
    newest = each[version(trees[-1])]
    names = newest["stores"]
    stores = {f"{store}, {tree}": result["stores"][store] for store in names for tree, result in each.items()}
    return {**newest, "stores": stores}


def version(tree: Path) -> str:
    """The commit of a checkout; its folder's name without git."""
    asked = subprocess.run(["git", "-C", str(tree), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return asked.stdout.strip() or tree.name


def middle(values: list[Any]) -> Any:
    """The median of results of one shape, figure by figure; of words, the last."""
    if isinstance(values[0], dict):
        return {name: middle([value[name] for value in values if name in value]) for name in values[0]}
    numbers = all(isinstance(value, int | float) for value in values)
    return statistics.median_low(values) if numbers else values[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200, help="of each run")
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--times", type=int, default=500, help="requests of each path")
    parser.add_argument("--port", type=int, default=8899)
    parser.add_argument("--store", action="append", choices=["sqlite", "postgresql"], help="default: both")
    parser.add_argument("--out", type=Path, help="folder for api.json and api.md")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier version, measured first")
    parser.add_argument("--turns", type=int, default=1, help="how often the two take turns; the figures are medians")
    asked = parser.parse_args()
    if asked.before is None:
        result = measure_stores(asked)
    else:
        trees = [asked.before.resolve(), Path(__file__).resolve().parents[1]]
        same = [f"--{name}={getattr(asked, name)}" for name in ("runs", "rounds", "clients", "times", "port")]
        same += [f"--store={store}" for store in asked.store or ()]
        result = take_turns(trees, same, asked.turns)
    result |= {"command": " ".join(["python", "benchmarks/api.py", *sys.argv[1:]])}
    print(json.dumps(result, indent=2))
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "api.json").write_text(json.dumps(result, indent=2) + "\n")
        (asked.out / "api.md").write_text(table(result))


if __name__ == "__main__":
    main()
