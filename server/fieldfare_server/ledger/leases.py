"""One coordinator a run.

Safety does not rest on clocks: every holder gets a token one above the last, every write checks its token in its own
transaction, so that a holder that was taken over, for whatever reason, can write nothing more. Clocks only decide
when a silent holder may be taken over. A clock that went backwards makes a lease look younger than it is; then
the lease's beat counter is watched on the monotonic clock instead.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select, update

from fieldfare.errors import LedgerError
from fieldfare_server.ledger import models

SECONDS = 30.0
"""How long a holder may be silent."""


@dataclass(frozen=True)
class Lease:
    holder: str
    token: int
    beat: int
    renewed_at: float
    seconds: float

    def free(self, now: float) -> bool:
        """Whether it may be taken over: given back, silent for too long, or its process is known to be gone."""
        return not self.holder or now >= self.renewed_at + self.seconds or process_is_gone(self.holder)


def create(connection: Connection, run_seq: int, holder: str, seconds: float, now: float) -> int:
    """The first lease of a run; returns its token."""
    values = {"run_seq": run_seq, "holder": holder, "token": 1, "beat": 0, "renewed_at": now, "seconds": seconds}
    connection.execute(insert(models.leases).values(values))
    return 1


def read(connection: Connection, run_seq: int) -> Lease:
    """The lease of a run."""
    row: Any = connection.execute(select(models.leases).where(models.leases.c.run_seq == run_seq)).one()
    return Lease(row.holder, row.token, row.beat, row.renewed_at, row.seconds)


def take(connection: Connection, run_seq: int, holder: str, seconds: float, now: float) -> int:
    """Make `holder` the holder and fence off whoever was; returns the new token."""
    token = read(connection, run_seq).token + 1
    connection.execute(
        update(models.leases)
        .where(models.leases.c.run_seq == run_seq)
        .values(holder=holder, token=token, beat=models.leases.c.beat + 1, renewed_at=now, seconds=seconds)
    )
    return token


def renew(connection: Connection, run_seq: int, run_id: str, token: int, now: float) -> None:
    """Raise `LedgerError` unless `token` is still the run's; then count a beat."""
    done = connection.execute(
        update(models.leases)
        .where(models.leases.c.run_seq == run_seq, models.leases.c.token == token)
        .values(beat=models.leases.c.beat + 1, renewed_at=now)
    )
    if done.rowcount != 1:
        raise LedgerError(
            f"a write to run {run_id}", "this coordinator no longer holds it: it ended, or another one took over."
        )


def give_back(connection: Connection, run_seq: int) -> None:
    """Nobody holds the run; the old token writes nothing more."""
    connection.execute(
        update(models.leases)
        .where(models.leases.c.run_seq == run_seq)
        .values(holder="", token=models.leases.c.token + 1)
    )


_BOOT = Path("/proc/sys/kernel/random/boot_id")


def this_process() -> str:
    """A holder name by which others on this machine can see whether this process is still there."""
    pid = os.getpid()
    return "/".join((platform.node(), _boot(), _namespace(), str(pid), _started(pid) or "?"))


def process_is_gone(holder: str) -> bool:
    """Whether `holder` is a name by `this_process` from this machine (this boot, this container) of a dead process.

    The name may follow a prefix that ends in "@".
    """
    parts = holder.rpartition("@")[2].split("/")
    if len(parts) != 5 or not _boot() or parts[:3] != [platform.node(), _boot(), _namespace()]:
        return False
    return parts[3].isdecimal() and parts[4] != "?" and _started(int(parts[3])) != parts[4]


def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """The process's start time in clock ticks since boot (field 22 of /proc/PID/stat); None if there is none alive."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
