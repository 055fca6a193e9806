"""How the budget service behaves with a large ledger; every figure is a ratio or a bound, taken in one run.

    python benchmarks/api.py [--runs 10000] [--rounds 200] [--clients 500]

One ledger of runs x rounds committed rounds (written straight into the tables: this measures reading). Then, against
one server process: latency of GET /v1/populations/{name} beside that of a bare route of the same framework; the page's
own requests; commits while readers read; memory of many event streams.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.plan import Plan
from fieldfare_server.ledger import Ledger

LOSS = PrivacyLoss(mu_squared=1e-6)


def plan(rounds: int) -> Plan:
    return Plan.parse(
        {
            "privacy": {"population": "large", "noise_multiplier": 1000.0, "delta": 1e-5},
            "run": {"task": "digits", "rounds": rounds, "cohort": 10},
            "mechanism": {"kind": "independent"},
        }
    )


def fill(path: Path, runs: int, rounds: int) -> None:
    """`runs` ended runs of `rounds` rounds, and one run under way."""
    with Ledger.open(f"sqlite:///{path}", create=True) as ledger:
        ledger.create_population("large", 8.0, 1e-5, actor="benchmark")
        start(ledger, "first", rounds).finish("done")
        copies = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {})"
        columns = (
            "population_id, plan, plan_digest, rounds, planned, spent, noise_source, trust_node_ids, state, message,"
            " started_at, started_by, ended_at"
        )
        with ledger.database.engine.connect() as connection, connection.begin():
            run = connection.exec_driver_sql
            run(
                f"{copies.format(runs)} INSERT INTO runs (id, key_commitment, next_round, {columns}) "
                f"SELECT 'run-' || i, 'key-' || i, {rounds}, {columns} FROM runs, n WHERE id = 'first'"
            )
            run(
                "INSERT INTO leases (run_seq, holder, token, beat, renewed_at, seconds) SELECT seq, '', 1, 1, 0, 1 "
                "FROM runs WHERE id LIKE 'run-%'"
            )
            run(
                f'{copies.format(rounds)} INSERT INTO rounds (run_seq, "index", attempt, noise_row, state, '
                "cohort_size, reports, participants, epsilon, statistics, rejects, reason, opened_at, closed_at) "
                "SELECT seq, i - 1, 0, i - 1, 'committed', 10, 10, 10, 0.001, '{\"score\": 0.5}', '{}', '', i, i + 0.5 "
                "FROM runs, n WHERE id LIKE 'run-%'"
            )


def start(ledger: Ledger, name: str, rounds: int) -> Any:
    described = plan(rounds)
    handle = ledger.start_run(
        described.to_json(),
        described.digest(),
        "large",
        rounds,
        LOSS,
        noise_source="secure",
        key_commitment=hashlib.sha256(name.encode()).hexdigest(),
        trust_node_ids=False,
        holder="benchmark",
        run_id=name,
    )
    handle.register_users(np.arange(10, dtype=np.uint64))
    return handle


SERVER = """
import sys
from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve
app = create_app(sys.argv[1], Settings(requests_per_minute=10**9, burst=10**9, event_clients=2000))
@app.get("/bare")
def bare() -> dict[str, int]:
    return {"answer": 42}
serve(config(app, port=int(sys.argv[2])))
"""


def percentile(values: list[float], part: float) -> float:
    return float(np.quantile(values, part))


def latencies(client: httpx.Client, paths: list[str], times: int) -> dict[str, list[float]]:
    """Seconds a request, the paths in turn, so that a busy machine is busy for all of them."""
    found: dict[str, list[float]] = {path: [] for path in paths}
    for path in paths:
        client.get(path).raise_for_status()
    for _ in range(times):
        for path in paths:
            began = time.perf_counter()
            client.get(path).raise_for_status()
            found[path].append(time.perf_counter() - began)
    return found


def commits(ledger: Ledger, name: str, count: int) -> list[float]:
    """Seconds a commit."""
    handle = start(ledger, name, count)
    found = []
    for t in range(count):
        opened = handle.open_round(np.arange(10))
        began = time.perf_counter()
        handle.commit_round(opened, np.arange(10), LOSS, hashlib.sha256(f"{name}{t}".encode()).hexdigest(), reports=10)
        found.append(time.perf_counter() - began)
    handle.finish("done")
    return found


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def streams(url: str, count: int, ledger: Ledger, pid: int) -> tuple[int, float]:
    """(bytes that `count` open event streams add, seconds until the last of them has seen a commit)."""
    before = resident(pid)
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
        ready, seen = asyncio.Semaphore(0), asyncio.Semaphore(0)

        async def listen() -> None:
            async with client.stream("GET", "/v1/events") as response:
                response.raise_for_status()
                async for line in response.aiter_lines():
                    if line == "event: hello":
                        ready.release()
                    if line == "event: ledger":
                        seen.release()
                        return

        tasks = [asyncio.create_task(listen()) for _ in range(count)]
        for _ in range(count):
            await ready.acquire()
        added = resident(pid) - before
        began = time.perf_counter()
        await asyncio.to_thread(ledger.create_population, f"p{time.time_ns()}", 1.0, 1e-5, actor="benchmark")
        await asyncio.gather(*tasks)
        return added, time.perf_counter() - began


def measure(path: Path, clients: int, times: int, port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, "-c", SERVER, f"sqlite:///{path}", str(port)])
    try:
        with httpx.Client(base_url=url, timeout=120) as client, Ledger.open(f"sqlite:///{path}") as ledger:
            while True:
                try:
                    client.get("/healthz")
                    break
                except httpx.ConnectError:
                    time.sleep(0.1)
            paths = ["/bare", "/v1/populations/large", "/v1/runs?limit=50", "/v1/runs/run-1", "/v1/runs/run-1/series"]
            found = latencies(client, paths, times)
            bare = percentile(found["/bare"], 0.99)
            alone = commits(ledger, "alone", 100)
            added, late = asyncio.run(streams(url, clients, ledger, process.pid))
            return {
                "p50_ms": {p: round(1e3 * statistics.median(v), 2) for p, v in found.items()},
                "p99_ms": {p: round(1e3 * percentile(v, 0.99), 2) for p, v in found.items()},
                "p99_ratio_to_bare": {p: round(percentile(v, 0.99) / bare, 2) for p, v in found.items()},
                "commit_p50_ms_alone": round(1e3 * statistics.median(alone), 2),
                "commit_p50_ms_while_read": round(1e3 * statistics.median(read_meanwhile(ledger, url)), 2),
                "event_clients": clients,
                "event_clients_mib": round(added / 2**20, 1),
                "event_last_client_s": round(late, 2),
            }
    finally:
        process.terminate()
        process.wait(20)


def read_meanwhile(ledger: Ledger, url: str) -> list[float]:
    """Commit times while another process reads without a pause."""
    reader = (
        "import httpx\nwith httpx.Client() as c:\n while True:\n"
        f"  c.get('{url}/v1/runs?limit=500'); c.get('{url}/v1/populations/large')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", reader], stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        return commits(ledger, "while-read", 100)
    finally:
        process.terminate()
        process.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--port", type=int, default=8899)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite3"
        began = time.perf_counter()
        fill(path, asked.runs, asked.rounds)
        filled = {"runs": asked.runs, "rounds": asked.runs * asked.rounds, "fill_s": round(time.perf_counter() - began)}
        print(json.dumps(filled | measure(path, asked.clients, asked.times, asked.port), indent=2))


if __name__ == "__main__":
    main()
