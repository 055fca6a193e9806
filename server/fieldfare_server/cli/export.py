"""Export the rounds of a run for other tools: CSV, Parquet, or a TensorBoard log directory.

The file holds what the ledger's readable columns hold: public or privatised values, charged before they were
written. It names no user and holds no norm of an update and no loss on a user's data.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fieldfare.atomic import replace_file
from fieldfare.errors import AlreadyThere, BadInput, FieldfareError, NotInstalled, Unknown, Unwritable, WrongForm
from fieldfare_server.cli.output import print_warnings
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import every
from fieldfare_server.run.round.ridden import PREFIX

log = logging.getLogger("fieldfare.export")

# Seconds between two reads of the ledger.
EVERY = 1.0
# More than TensorBoard writes for a round.
_EVENT_BYTES = 1024
TEXT = ("state", "score_name", "reason")
WHOLE = ("round", "attempt", "cohort_size", "reports", "participants")
REAL = ("epsilon", "score", "noise_std", "noise_norm", "released_norm", "clip_norm", "opened_at", "closed_at")
# One row an attempt. Epsilon: what the run has spent so far. Times: seconds since 1970. A missing value is empty.
#
# Behind them stand the columns of the run's metrics (`metric_columns`).
COLUMNS = ("round", "attempt", "state", *WHOLE[2:], *REAL, "score_name", "reason")


def metric_columns(plan: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of what a stored plan's `[metrics]` shows: each mean, and the ends of its interval."""
    shown = (plan.get("metrics") or {}).get("show") or {}
    return tuple(f"{PREFIX}{name}{end}" for name in sorted(shown) for end in ("", ".low", ".high"))


def check_export(path: Path) -> None:
    """Raise `BadInput` for a file that cannot be written, or is no earlier export, before anything runs."""
    what = f"--export {path}"
    if path.suffix not in (".csv", ".parquet", ""):
        raise Unknown(
            what, f"does not say which format: {path.suffix!r} is not one.", "rounds.csv, rounds.parquet, tb/"
        )
    if path.suffix and path.is_dir():
        raise WrongForm(what, "is a directory.", f"{path}/rounds{path.suffix}")
    if path.suffix and path.exists() and not _is_export(path):
        raise AlreadyThere(what, "is there, and was not written by --export.", "a new name")
    if not path.suffix and path.is_file():
        raise WrongForm(what, "is a file, and TensorBoard wants a directory.", f"{path}.csv")
    for suffix, module, extra in (("", "tensorboard", "simulation"), (".parquet", "pyarrow", "client")):
        if path.suffix == suffix and importlib.util.find_spec(module) is None:
            raise NotInstalled(what, f"{module} is not installed: pip install 'fieldfare[{extra}]'", "rounds.csv")


def _is_export(path: Path) -> bool:
    """Return whether the file holds the columns of an export, or nothing: only such a file is replaced."""
    if path.stat().st_size == 0:
        return True
    try:
        if path.suffix == ".csv":
            with path.open(newline="", encoding="utf-8") as lines:
                return _are_columns(next(csv.reader(lines), []))
        from pyarrow import parquet

        return _are_columns(list(parquet.read_schema(path).names))
    except (OSError, ValueError, ImportError):
        return False


def _are_columns(names: list[str]) -> bool:
    count = len(COLUMNS)
    return names[:count] == list(COLUMNS) and all(name.startswith(PREFIX) for name in names[count:])


@contextlib.contextmanager
def live_export(ledger: str, run_id: str, to: Path | None) -> Iterator[None]:
    """Keep the file `to` up to date with the run's rounds inside the block, and update it once more at the
    end.

    A thread reads the ledger at `ledger` every second, so that the file has the rounds of a killed run too.
    """
    if to is None:
        yield
        return
    export, ended = RoundExport(run_id, to), threading.Event()

    def follow() -> None:
        while not ended.wait(EVERY):
            try:
                export.update(ledger)
            # The run may not be in the ledger yet, and a full disk may recover.
            except (FieldfareError, OSError) as error:
                log.debug("export to %s: %s", to, error)

    thread = threading.Thread(target=follow, name="export", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending = sys.exception()
        ended.set()
        thread.join()
        try:
            # Without a run there is nothing to export, and the block's own error says why.
            with contextlib.suppress(BadInput):
                export.update(ledger, last=True)
            export.close()
        except OSError as error:
            why = f"cannot be written: {error.strerror}. The run and its rounds are in the ledger."
            if ending is None:
                raise Unwritable(f"--export {to}", why) from None
            print_warnings([f"--export {to} {why}"])


class RoundExport:
    """A growing file of a run's closed attempts at rounds, oldest first; it replaces an older file of that
    name.

    The suffix is the format: .csv, .parquet, or none for a directory of TensorBoard events (committed rounds
    only).
    """

    def __init__(self, run_id: str, path: Path) -> None:
        self._run_id, self._path = run_id, path
        self._rows: list[dict[str, Any]] = []
        self._cursor: int | None = None
        self._written = 0
        self._took, self._rested = 0.0, time.monotonic()
        self._board: Any = None
        self._metrics: tuple[str, ...] = ()

    def update(self, ledger: str, last: bool = False) -> None:
        """Write the attempts that closed since the last update. Raises `BadInput` without such a run, and OSError."""
        with Ledger.open(ledger) as opened:
            self._read(opened)
        if self._written and self._written == len(self._rows):
            return
        if self._path.suffix == ".csv":
            self._csv()
        elif self._path.suffix == ".parquet":
            # A Parquet file cannot grow, so every update rewrites it; updates get at most a tenth of the time.
            if not last and time.monotonic() - self._rested < 9 * self._took:
                return
            began = time.monotonic()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, _parquet(self._rows, self._metrics), mode=0o644)
            self._rested = time.monotonic()
            self._took = self._rested - began
        else:
            try:
                self._tensorboard()
            except OSError:  # its writer is dead: the next update begins a new log
                self._board, self._written = None, 0
                raise
        self._written = len(self._rows)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()

    def _read(self, ledger: Ledger) -> None:
        if not self._rows:
            self._metrics = metric_columns(ledger.run(self._run_id).plan)
        for cursor, row in closed_attempts(ledger, self._run_id, self._cursor, (*COLUMNS, *self._metrics)):
            self._cursor = cursor
            self._rows.append(row)

    def _csv(self) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, (*COLUMNS, *self._metrics), lineterminator="\n")
        if self._written:
            writer.writerows(self._rows[self._written :])
            size = self._path.stat().st_size
            try:
                with self._path.open("a", encoding="utf-8", newline="") as file:
                    file.write(text.getvalue())
            except OSError:
                os.truncate(self._path, size)  # no half a row, which a later update would go on from
                raise
            return
        writer.writeheader()
        writer.writerows(self._rows)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, text.getvalue().encode(), mode=0o644)

    def _tensorboard(self) -> None:
        directory = self._path / self._run_id
        directory.mkdir(parents=True, exist_ok=True)
        room = directory / ".room"
        try:  # on a full disk TensorBoard's own thread would print a traceback
            room.write_bytes(bytes(_EVENT_BYTES * (len(self._rows) - self._written + 1)))
        finally:
            room.unlink(missing_ok=True)
        if self._board is None:
            from torch.utils.tensorboard import SummaryWriter

            for old in directory.glob("events.out.tfevents.*"):
                # TensorBoard would draw two logs of the same rounds as one zigzag.
                old.unlink()
            self._board = SummaryWriter(str(directory))
        for row in self._rows[self._written :]:
            for name in (*WHOLE[2:], *REAL[:-2], *self._metrics):
                value = row[name]
                if row["state"] == "committed" and value is not None and math.isfinite(value):
                    self._board.add_scalar(name, value, row["round"], walltime=row["closed_at"])
        self._board.flush()


def closed_attempts(
    ledger: Ledger, run_id: str, cursor: int | None = None, columns: Sequence[str] = COLUMNS
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield (cursor, row of `columns`) of the attempts of a run that have closed, oldest first, after
    `cursor`.

    Raises `BadInput` without such a run.
    """
    for attempt in every(partial(ledger.rounds, run_id), cursor):
        if attempt.state == "open":
            return
        values = {**attempt.statistics, **attempt.model_dump(), "round": attempt.index}
        yield attempt.id, {name: values.get(name) for name in columns}


def _parquet(rows: list[dict[str, object]], metrics: tuple[str, ...] = ()) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        **dict.fromkeys(TEXT, pa.string()),
        **dict.fromkeys(WHOLE, pa.int64()),
        **dict.fromkeys((*REAL, *metrics), pa.float64()),
    }
    table = pa.Table.from_pylist(rows, schema=pa.schema([(name, kinds[name]) for name in (*COLUMNS, *metrics)]))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()
