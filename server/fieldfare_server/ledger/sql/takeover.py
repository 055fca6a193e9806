"""Becoming the coordinator of a run: by starting it, or by taking over what its last coordinator left."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Row

from fieldfare.accounting.filter import Price
from fieldfare.errors import BudgetRefused, RunHeld
from fieldfare_server.ledger.events.runs import Resumed
from fieldfare_server.ledger.rules.runs import NewRun, require_resumable, start
from fieldfare_server.ledger.schedule import scheduled
from fieldfare_server.ledger.sql import leases
from fieldfare_server.ledger.sql.journal import Entry, Journal, clean
from fieldfare_server.ledger.sql.rows import run_row
from fieldfare_server.ledger.sql.tables import Tables
from fieldfare_server.ledger.state import budget


def start_run(journal: Journal, run: NewRun, holder: str, lease_seconds: float) -> int:
    """Reserve the price of `run.planned` and start the run, in one transaction; returns the token of its first lease.

    Of two runs that race for the last of a budget, one is refused.

    Raises:
        BudgetRefused: the prices of what is spent, reserved and planned exceed the budget, too few users have enough
            left, or the calendar window holds less.
        BadInput: a leak out of range, a loss known by zCDP alone, an unknown or closed population, another adjacency, a
            taken id, a key that another run has used, a fixed seed on real people, or, where presence is
            secret on real people, a plan without `run.round_seconds`.
    """
    run.check()
    cost = _price(journal, run)

    def work(connection: Connection, entry: Entry) -> int:
        plan = entry.contents.keep(run.plan_json, lasting=True)
        event, caps = start(entry.state, run, cost, plan, entry.now)
        if caps is not None:
            entry.contents.keep_units(caps)
        entry.append(event, holder, population=run.population, run=run.id)
        entry.flush()
        seq = run_row(connection, run.id).seq
        return leases.create(connection, seq, clean(holder, 300), lease_seconds, entry.now)

    while True:
        try:
            return journal.admit(work)
        except BudgetRefused:
            # If another run started or ended since, the default leak was chosen by old numbers: price the run again.
            before, cost = cost, _price(journal, run)
            if cost == before:
                raise


def _price(journal: Journal, run: NewRun) -> Price:
    # Outside a transaction: under sampling a price is a numerical convolution, and other writers would wait.
    alike, terms = journal.proof.ask(run.population, lambda found: (found.base(), found.terms))
    return budget.quote(run.planned, alike, terms, run.leak)


def take_over(
    journal: Journal, run_id: str, key_commitment: str, holder: str, *, lease_seconds: float, wait: float, silent: float
) -> int:
    """Take the lease of a run, waiting at most `wait` seconds for it to come free; returns the new token.

    silent: seconds that must have passed since it was renewed, free or not. Raises `LedgerError` if the run
    has ended, another coordinator holds it, or `key_commitment` is not that of the run's noise key.
    """
    with journal.database.read() as connection:
        run = run_row(connection, run_id)
        require_resumable(Tables(connection).runs[run_id].row, key_commitment)
        seen = leases.read(connection, run.seq)
    begin = unchanged_since = time.monotonic()
    while True:
        now = time.monotonic()
        # The second test holds even where the wall clock was set back: no beat for as long as a holder may be silent.
        is_free = leases.free(seen, journal.clock()) or now - unchanged_since >= seen.seconds
        if is_free and max(0.0, journal.clock() - seen.renewed_at) >= silent:
            token = _try_take(journal, run_id, key_commitment, holder, seen, lease_seconds)
            if token is not None:
                return token
        if now - begin >= wait:
            near = f"stop that coordinator; the run is free {seen.seconds:g} s after it fell silent"
            raise RunHeld(f"run {run_id}", f"it is held by {seen.holder}.", near)
        time.sleep(min(0.2, seen.seconds / 10))
        with journal.database.read() as connection:
            latest = leases.read(connection, run.seq)
        if (latest.token, latest.beat) != (seen.token, seen.beat):
            unchanged_since = time.monotonic()
        seen = latest


def _try_take(
    journal: Journal, run_id: str, key_commitment: str, holder: str, seen: Row[Any], lease_seconds: float
) -> int | None:
    """Take the lease if it is still the one that was `seen`; None if its holder or another coordinator was faster."""

    def work(connection: Connection, entry: Entry) -> int | None:
        stored = run_row(connection, run_id)
        run = entry.state.runs[run_id].row
        require_resumable(run, key_commitment)
        lease = leases.read(connection, stored.seq)
        if (lease.token, lease.beat) != (seen.token, seen.beat):
            return None
        token = leases.take(connection, stored.seq, clean(holder, 300), lease_seconds, entry.now)
        entry.now = scheduled(stored, entry.now)
        entry.append(Resumed(token, run.next_round), holder, population=run.population, run=run_id)
        return token

    return journal.admit(work)
