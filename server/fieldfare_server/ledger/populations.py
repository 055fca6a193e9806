"""Populations and their budgets: create, raise, close. A budget is only ever raised, and every change is journaled."""

from __future__ import annotations

import math
import secrets
from typing import Any

from sqlalchemy import Connection, insert, select, update

from fieldfare.accounting.filter import default_leak
from fieldfare.errors import BadInput
from fieldfare.names import is_name
from fieldfare.participation import ADJACENCIES, Adjacency
from fieldfare_server.ledger import budget, models, odometers
from fieldfare_server.ledger.chain import sha256
from fieldfare_server.ledger.journal import Entry, Journal, clean
from fieldfare_server.ledger.rows import population_row


def create(
    journal: Journal,
    name: str,
    epsilon: float,
    delta: float,
    *,
    adjacency: Adjacency,
    unit: str,
    simulated: bool,
    actor: str,
    leak: float | None = None,
) -> None:
    """Insert a population with a fresh salt. Raises `BadInput` on a bad or taken name, or on an impossible budget."""
    if not is_name(name):
        raise BadInput(f"population {name!r}", "a name is letters, digits, '.', '_' and '-', at most 100.")
    if adjacency not in ADJACENCIES:
        raise BadInput(f"adjacency = {adjacency!r}", "there is no such adjacency.", ", ".join(ADJACENCIES))
    _require_budget(epsilon, delta)
    actor, salt = clean(actor, 200), secrets.token_bytes(16)
    described: dict[str, Any] = {
        "epsilon": float(epsilon),
        "delta": delta,
        "adjacency": adjacency,
        "simulated": simulated,
        "unit": clean(unit, 100),
        "leak": budget.require_leak(default_leak(adjacency, delta) if leak is None else leak, delta),
        # Where who takes part is secret, an odometer would tell it.
        "accounting": odometers.WORST_CASE if adjacency == "add_remove" else odometers.INDIVIDUAL,
    }

    def work(connection: Connection, entry: Entry) -> None:
        if connection.execute(select(models.populations.c.id).where(models.populations.c.name == name)).first():
            raise BadInput(f"population {name!r}", "there is one of that name.", "another name")
        start = {"name": name, "state": "open", "salt": salt, "users": 0, "settled": budget.NOTHING.to_json()}
        created = {"created_at": entry.now, "created_by": actor}
        connection.execute(insert(models.populations).values({**described, **start, **created}))
        # Readers of the API see the journal; with the salt itself they could test guesses at pseudonyms.
        entry.append("population.create", actor, {**described, "salt": sha256(salt)}, population=name)

    journal.write(work)


def raise_budget(
    journal: Journal, name: str, *, epsilon: float | None, delta: float | None, reason: str, actor: str
) -> None:
    """Raise epsilon, delta or both (None: unchanged). Raises `BadInput` on a lower budget, or without a reason.

    The leak D stays: what runs have taken from the old rectangle is within the new one, whose guarantee holds.
    """
    reason = clean(reason, 2000)
    if not reason.strip():
        raise BadInput("raising a budget", "it needs a reason, for the journal.")

    def work(connection: Connection, entry: Entry) -> None:
        row = population_row(connection, name)
        old = (row.epsilon, row.delta)
        new = (row.epsilon if epsilon is None else epsilon, row.delta if delta is None else delta)
        _require_budget(*new)
        if row.state != "open":
            raise BadInput(f"population {name!r}", "it is closed.", "a new population")
        if new[0] < old[0] or new[1] < old[1] or new == old:
            raise BadInput(
                f"budget ({new[0]:.6g}, {new[1]:.3g}) of population {name!r}",
                "a budget is only ever raised.",
                f"above ({old[0]:.6g}, {old[1]:.3g})",
            )
        values = {"epsilon": new[0], "delta": new[1]}
        connection.execute(update(models.populations).where(models.populations.c.id == row.id).values(values))
        entry.append("population.raise", actor, {**values, "reason": reason}, population=name)

    journal.write(work)


def close(journal: Journal, name: str, *, actor: str) -> None:
    """Accept no new run. Raises `BadInput` if the population is closed already."""

    def work(connection: Connection, entry: Entry) -> None:
        row = population_row(connection, name)
        if row.state == "closed":
            raise BadInput(f"population {name!r}", "it is closed already.")
        connection.execute(update(models.populations).where(models.populations.c.id == row.id).values(state="closed"))
        entry.append("population.close", actor, {}, population=name)

    journal.write(work)


def _require_budget(epsilon: float, delta: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput(f"epsilon = {epsilon}", "must be positive and finite.", "1.0")
    if not 0 < delta < 1:
        raise BadInput(f"delta = {delta}", "must be between 0 and 1.", "1e-6")
