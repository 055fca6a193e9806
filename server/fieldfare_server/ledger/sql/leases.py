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
# Made once: every write of a coordinator renews a lease, and to build a statement takes longer than to run it.
_l = models.leases.c
_LEASE = select(models.leases).where(_l.run_seq == bindparam("run"))
_CHANGE = update(models.leases).where(_l.run_seq == bindparam("run"))
_RENEW = _CHANGE.where(_l.token == bindparam("held")).values(beat=_l.beat + 1, renewed_at=bindparam("now"))
_TAKE = _CHANGE.values(
    holder=bindparam("by"),
    token=bindparam("new"),
    beat=_l.beat + 1,
    renewed_at=bindparam("now"),
    seconds=bindparam("silent"),
)
_GIVE_BACK = _CHANGE.values(holder="", token=_l.token + 1)


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
    connection.execute(_TAKE, {"run": run_seq, "by": holder, "new": token, "now": now, "silent": seconds})
    return token


def renew(connection: Connection, run_seq: int, run_id: str, token: int, now: float) -> None:
    """Count a beat. Raises `LedgerError` unless `token` is still the run's."""
    if connection.execute(_RENEW, {"run": run_seq, "held": token, "now": now}).rowcount != 1:
        raise RunHeld(
            f"a write to run {run_id}", "this coordinator no longer holds it: it ended, or another one took over."
        )


def give_back(connection: Connection, run_seq: int) -> None:
    """Free the run; the old token writes nothing more."""
    connection.execute(_GIVE_BACK, {"run": run_seq})
