"""One coordinator at a time holds a run.

Safety does not rest on clocks. Every holder gets a token one above the last, and every write checks the writer's token
in its own transaction, so a holder that was taken over can write nothing more, whatever the reason. Clocks decide only
when a silent holder may be taken over. A clock that was set back makes a lease look younger than it is; the lease's
beat counter, watched on the monotonic clock, covers that case (`takeover`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from fieldfare.errors import RunHeld
from fieldfare_server.ledger.holders import process_is_gone
from fieldfare_server.ledger.sql import models

# How long a holder may be silent, by default.
SECONDS = 30.0
_LEASE = select(models.leases).where(models.leases.c.run_seq == bindparam("run"))


def free(lease: Row[Any], now: float) -> bool:
    """Whether it may be taken over: it was given back, its holder fell silent, or the holder's process is dead."""
    return not lease.holder or now >= lease.renewed_at + lease.seconds or process_is_gone(lease.holder)


def create(connection: Connection, run_seq: int, holder: str, seconds: float, now: float) -> int:
    """Insert the first lease of a run; returns its token."""
    values = {"run_seq": run_seq, "holder": holder, "token": 1, "beat": 0, "renewed_at": now, "seconds": seconds}
    connection.execute(insert(models.leases).values(values))
    return 1


def read(connection: Connection, run_seq: int) -> Row[Any]:
    """The lease of a run. Times in seconds since 1970; an empty `holder` means that the run is free."""
    return connection.execute(_LEASE, {"run": run_seq}).one()


def take(connection: Connection, run_seq: int, holder: str, seconds: float, now: float) -> int:
    """Make `holder` the holder and fence off the previous one; returns the new token."""
    token: int = read(connection, run_seq).token + 1
    connection.execute(
        update(models.leases)
        .where(models.leases.c.run_seq == run_seq)
        .values(holder=holder, token=token, beat=models.leases.c.beat + 1, renewed_at=now, seconds=seconds)
    )
    return token


def renew(connection: Connection, run_seq: int, run_id: str, token: int, now: float) -> None:
    """Count a beat. Raises `LedgerError` unless `token` is still the run's."""
    renewed = connection.execute(
        update(models.leases)
        .where(models.leases.c.run_seq == run_seq, models.leases.c.token == token)
        .values(beat=models.leases.c.beat + 1, renewed_at=now)
    )
    if renewed.rowcount != 1:
        raise RunHeld(
            f"a write to run {run_id}", "this coordinator no longer holds it: it ended, or another one took over."
        )


def give_back(connection: Connection, run_seq: int) -> None:
    """Free the run; the old token writes nothing more."""
    connection.execute(
        update(models.leases)
        .where(models.leases.c.run_seq == run_seq)
        .values(holder="", token=models.leases.c.token + 1)
    )
