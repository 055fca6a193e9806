"""Taking over a run that its last coordinator left: after an interruption, a crash, or a silence."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Row, update

from fieldfare.errors import LedgerError
from fieldfare_server.ledger.schedule import scheduled
from fieldfare_server.ledger.sql import leases, models
from fieldfare_server.ledger.sql.journal import Entry, Journal, clean
from fieldfare_server.ledger.sql.rows import population_name, run_row
from fieldfare_server.ledger.state.replay import Replay
from fieldfare_server.ledger.states import ACTIVE, STATE_AFTER


def take_over(
    journal: Journal, run_id: str, key_commitment: str, holder: str, *, lease_seconds: float, wait: float
) -> int:
    """Take the lease of a run, waiting at most `wait` seconds for it to come free; returns the new token.

    Raises `LedgerError` if the run has ended, another coordinator holds it, or `key_commitment` is not that of the
    run's noise key.
    """
    with journal.database.read() as connection:
        run = run_row(connection, run_id)
        _require_resumable(run, key_commitment)
        seen = leases.read(connection, run.seq)
    begin = unchanged_since = time.monotonic()
    while True:
        now = time.monotonic()
        # The second test holds even where the wall clock was set back: no beat for as long as a holder may be silent.
        if seen.free(journal.clock()) or now - unchanged_since >= seen.seconds:
            token = _try_take(journal, run_id, key_commitment, holder, seen, lease_seconds)
            if token is not None:
                return token
        if now - begin >= wait:
            raise LedgerError(
                f"run {run_id}",
                f"it is held by {seen.holder}.",
                f"stop that coordinator; the run is free {seen.seconds:g} s after it fell silent",
            )
        time.sleep(min(0.2, seen.seconds / 10))
        with journal.database.read() as connection:
            latest = leases.read(connection, run.seq)
        if (latest.token, latest.beat) != (seen.token, seen.beat):
            unchanged_since = time.monotonic()
        seen = latest


def _try_take(
    journal: Journal, run_id: str, key_commitment: str, holder: str, seen: leases.Lease, lease_seconds: float
) -> int | None:
    """Take the lease if it is still the one that was `seen`; None if its holder or another coordinator was faster."""

    def work(connection: Connection, entry: Entry, _: Replay) -> int | None:
        run = run_row(connection, run_id)
        _require_resumable(run, key_commitment)
        lease = leases.read(connection, run.seq)
        if (lease.token, lease.beat) != (seen.token, seen.beat):
            return None
        token = leases.take(connection, run.seq, clean(holder, 300), lease_seconds, entry.now)
        entry.now = scheduled(run, entry.now)
        values = {"state": STATE_AFTER[run.request], "message": ""}
        connection.execute(update(models.runs).where(models.runs.c.seq == run.seq).values(values))
        body = {"token": token, "next_round": run.next_round}
        population = population_name(connection, run.population_id)
        entry.append("run.resume", holder, body, population=population, run=run_id)
        return token

    return journal.admit(work)


def _require_resumable(run: Row[Any], key_commitment: str) -> None:
    if run.state not in ACTIVE:
        raise LedgerError(f"resuming run {run.id}", f"it has ended: {run.state}.", "start a new run")
    if run.key_commitment != key_commitment:
        raise LedgerError(
            f"resuming run {run.id}",
            "the noise key is not the one it was started with; other noise would break the guarantee.",
            "the key file that belongs to it",
        )
