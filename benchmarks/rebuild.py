"""How long a large ledger (SQLite) takes to be checked, to lose a table, to come back from files and to be mended.

python benchmarks/rebuild.py --runs 10000 --rounds 200

Seconds of wall and of this process, its largest memory in each part, and whether every row of every table is the same
after it. `--tables all` drops one table after another; each time all of them are made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

import large_ledger
import proof
from fieldfare_server.ledger import Ledger, chain
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.rebuild import PROJECTED
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
    Path("/proc/self/clear_refs").write_text("5")  # the largest memory begins anew
    began, busy = time.perf_counter(), time.process_time()
    work()
    figures[f"{name}_seconds"] = round(time.perf_counter() - began, 1)
    figures[f"{name}_cpu_seconds"] = round(time.process_time() - busy, 1)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    figures[f"{name}_peak_mib"] = int(status["VmHWM"].split()[0]) // 1024
    figures["load"] = float(Path("/proc/loadavg").read_text().split()[0])
    print(json.dumps(figures), flush=True)


def drop(path: Path, table: str) -> None:
    """What no program of the product does: without guards, and behind its back."""
    link = sqlite3.connect(path)
    for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        link.execute(f"DROP TRIGGER {name}")
    link.execute(f"DROP TABLE {table}")
    link.commit()
    link.close()


def forge(path: Path) -> None:
    """Append a row that is chained and that no rule allows: it stops every budget."""
    link = sqlite3.connect(path)
    count, last = link.execute("SELECT count, hash FROM head").fetchone()
    row = {"id": count + 1, "at": time.time(), "actor": "x", "action": "token.use", "population": None, "run": None}
    row |= {"round": None, "event": secrets.token_hex(16), "body": '{"id":"none","what":"x"}', "previous": last}
    row["hash"] = chain.row_hash(row)
    link.execute(f"INSERT INTO audit ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
    link.execute("UPDATE head SET count = ?, hash = ?", (row["id"], row["hash"]))
    link.commit()
    link.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--ledger", type=Path, help="a file that `large_ledger.fill` made with these runs and rounds")
    parser.add_argument("--tables", default="rounds", help="that are dropped, with commas; or all")
    parser.add_argument("--without", default="", help="parts that are left out, with commas: mend, import")
    asked = parser.parse_args()
    left = asked.without.split(",")
    figures: dict[str, Any] = {"runs": asked.runs, "rounds": asked.runs * asked.rounds}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        path, head = home / "ledger.sqlite3", home / "ledger.head"
        url = f"sqlite:///{path}"
        if asked.ledger:
            shutil.copy(asked.ledger, path)
        else:
            timed(figures, "make", lambda: large_ledger.fill(url, asked.runs, asked.rounds))
        segments = Segments.beside(head)
        with Ledger.open(url) as ledger:
            timed(figures, "first_walk", ledger.proof.advance)
            proof.measure(ledger)
            before = digests(ledger)
            timed(figures, "export", lambda: segments.follow(ledger.database))
        figures["database_bytes"] = path.stat().st_size
        figures["segment_bytes"] = sum(file.stat().st_size for file in segments.directory.glob("*.segment"))
        for table in PROJECTED if asked.tables == "all" else asked.tables.split(","):
            drop(path, table)
            with Ledger.open(url) as ledger:
                timed(figures, f"rebuild_without_{table}", lambda: ledger.rebuild(actor="benchmark"))
                figures[f"alike_without_{table}"] = digests(ledger) == before
        after = before
        if "mend" not in left:
            forge(path)
            with Ledger.open(url) as ledger:
                timed(figures, "mend", lambda: ledger.mend((head,), actor="benchmark", sure=True))
                after = digests(ledger)
                figures["differ_after_mending"] = sorted(name for name in before if after[name] != before[name])
                figures["charges_after_mending"] = ledger.proof.advance().whole
        if "import" in left:
            return print(json.dumps(figures, indent=2))
        with Ledger.open(f"sqlite:///{home / 'other.sqlite3'}", create=True) as other:
            timed(figures, "import", lambda: other.restore(segments, actor="benchmark"))
            figures["imported_alike"] = digests(other) == after
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
