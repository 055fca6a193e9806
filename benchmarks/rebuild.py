"""How long a lost database takes to come back: export, import, rebuild; and whether every row is the same.

python benchmarks/rebuild.py --runs 10000 --rounds 200
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

import large_ledger
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.segments import Segments


def digests(ledger: Ledger) -> dict[str, str]:
    """SHA-256 of all rows of each table, but of leases: who holds a run is not in the log."""
    found = {}
    with ledger.read() as connection:
        for table in models.metadata.sorted_tables:
            hasher = hashlib.sha256()
            rows = connection.execution_options(yield_per=10_000).execute(select(table).order_by(*table.primary_key))
            for row in rows:
                hasher.update(repr(tuple(row)).encode())
            found[table.name] = hasher.hexdigest()
    del found["leases"]
    return found


def timed(figures: dict[str, Any], name: str, work: Callable[[], object]) -> None:
    began, busy = time.perf_counter(), time.process_time()
    work()
    figures[f"{name}_seconds"] = round(time.perf_counter() - began, 1)
    figures[f"{name}_cpu_seconds"] = round(time.process_time() - busy, 1)
    figures[f"{name}_peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    asked = parser.parse_args()
    figures: dict[str, Any] = {"runs": asked.runs, "rounds": asked.runs * asked.rounds}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        url = f"sqlite:///{home / 'ledger.sqlite3'}"
        timed(figures, "make", lambda: large_ledger.fill(url, asked.runs, asked.rounds))
        segments = Segments(home / "ledger.segments", home / "ledger.segments.key")
        with Ledger.open(url) as ledger:
            before = digests(ledger)
            timed(figures, "export", lambda: segments.follow(ledger.database))
            timed(figures, "rebuild", lambda: ledger.rebuild(actor="benchmark"))
            figures["rebuilt_alike"] = digests(ledger) == before
        figures["database_bytes"] = (home / "ledger.sqlite3").stat().st_size
        figures["segment_bytes"] = sum(path.stat().st_size for path in segments.directory.glob("*.segment"))
        with Ledger.open(f"sqlite:///{home / 'other.sqlite3'}", create=True) as other:
            timed(figures, "import", lambda: other.restore(segments, actor="benchmark"))
            figures["imported_alike"] = digests(other) == before
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
