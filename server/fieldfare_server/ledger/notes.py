"""Audit rows that change no budget: what a token was used for, and what an empirical audit of a run found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from fieldfare_server.ledger import models, reads
from fieldfare_server.ledger.journal import Entry, Journal, clean

TOKEN_USE = "token.use"  # noqa: S105 - an action's name
RUN_AUDIT = "run.audit"


def token_use(journal: Journal, token_id: str, what: str, actor: str) -> None:
    """Record that a token was used; nothing if it was revoked since it was checked. The secret is not in the row."""

    def work(connection: Connection, entry: Entry) -> None:
        c = models.tokens.c
        valid = select(c.id).where(c.id == token_id, c.revoked_at.is_(None))
        if connection.execute(valid).first() is not None:
            entry.append(TOKEN_USE, clean(actor, 200), {"id": token_id, "what": what})

    journal.write(work)


def run_audit(journal: Journal, run_id: str, result: Mapping[str, Any], actor: str) -> None:
    """Record the result of an empirical audit. Raises `BadInput` if there is no such run, ValueError on NaN."""

    def work(connection: Connection, entry: Entry) -> None:
        row = reads.run_row(connection, run_id)
        c = models.populations.c
        population = connection.execute(select(c.name).where(c.id == row.population_id)).scalar_one()
        entry.append(RUN_AUDIT, clean(actor, 200), result, population=population, run=run_id)

    journal.write(work)
