"""Rounds of a run as a file for other tools: CSV, Parquet, or a TensorBoard log directory.

What is written is what the ledger's readable columns hold: public or privatised values, charged before they were
written there. No user, no norm of an update, no loss on anybody's data.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

from fieldfare.errors import BadInput
from fieldfare_server.durable import replace_file
from fieldfare_server.ledger import Ledger

TEXT = ("state", "score_name", "reason")
WHOLE = ("round", "attempt", "cohort_size", "reports", "participants")
REAL = ("epsilon", "score", "noise_std", "noise_norm", "released_norm", "clip_norm", "opened_at", "closed_at")
COLUMNS = ("round", "attempt", "state", *WHOLE[2:], *REAL, "score_name", "reason")
"""One row an attempt. Epsilon is the run's own so far, times are seconds since 1970; empty where there is no value."""


def check_export(path: Path) -> None:
    """Refuse a file that cannot be written, before anything runs. Raises `BadInput`."""
    if path.suffix not in (".csv", ".parquet", ""):
        raise BadInput(
            f"--export {path}",
            f"does not say which format: {path.suffix!r} is none.",
            "rounds.csv, rounds.parquet, tb/",
        )
    if path.suffix and path.is_dir():
        raise BadInput(f"--export {path}", "is a directory.", f"{path}/rounds{path.suffix}")
    if not path.suffix and path.is_file():
        raise BadInput(f"--export {path}", "is a file, and TensorBoard wants a directory.", f"{path}.csv")


def export_rounds(ledger: Ledger, run_id: str, path: Path) -> int:
    """Write all ended attempts at rounds of a run, oldest first, to `path`; returns how many. Replaces what is there.

    By suffix: .csv, .parquet, none for a directory of TensorBoard events (committed rounds only).
    """
    rows = _rows(ledger, run_id)
    if path.suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.getvalue().encode(), mode=0o644)
    elif path.suffix == ".parquet":
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, _parquet(rows), mode=0o644)
    else:
        _tensorboard(rows, path / run_id)
    return len(rows)


def _rows(ledger: Ledger, run_id: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor: int | None = None
    while True:
        page = ledger.rounds(run_id, cursor, limit=500)
        for seen in page.items:
            if seen.state != "open":
                values = {**seen.statistics, **seen.model_dump(), "round": seen.index}
                rows.append({name: values.get(name) for name in COLUMNS})
        cursor = page.next
        if cursor is None:
            return rows


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        **dict.fromkeys(TEXT, pa.string()),
        **dict.fromkeys(WHOLE, pa.int64()),
        **dict.fromkeys(REAL, pa.float64()),
    }
    table = pa.Table.from_pylist(rows, schema=pa.schema([(name, kinds[name]) for name in COLUMNS]))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _tensorboard(rows: list[dict[str, Any]], directory: Path) -> None:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput(
            f"--export {directory}", "TensorBoard is not installed: pip install 'fieldfare[simulation]'", "rounds.csv"
        ) from None
    for old in directory.glob("events.out.tfevents.*"):
        old.unlink()  # two logs of the same rounds would be drawn as one zigzag
    with SummaryWriter(str(directory)) as writer:
        for row in rows:
            for name in (*WHOLE[2:], *REAL[:-2]):
                value = row[name]
                if row["state"] == "committed" and value is not None and math.isfinite(value):
                    writer.add_scalar(name, value, row["round"], walltime=row["closed_at"])
