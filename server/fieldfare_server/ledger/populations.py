"""Populations and their budgets: create, raise, close. A budget is only ever raised, and every change is journaled."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from fieldfare.accounting.filter import default_leak
from fieldfare.accounting.individual import Units
from fieldfare.errors import BadInput
from fieldfare.names import is_name
from fieldfare.participation import ADJACENCIES, Adjacency
from fieldfare_server.ledger import blobs, budget, models, odometers
from fieldfare_server.ledger.chain import sha256
from fieldfare_server.ledger.journal import Entry, Journal, clean
from fieldfare_server.ledger.rows import population_row, run_row
from fieldfare_server.ledger.states import ACTIVE


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


def keep_odometers(journal: Journal, name: str, charges: Mapping[str, Sequence[Units]], *, actor: str) -> None:
    """Charge ended worst-case runs to their users' odometers from now on, and new runs as their plans say.

    Sound whenever it is done: on every path, what a user's odometer says is at least what the user has lost, and at
    most what the worst case charged before. Runs that are not named stay charged to all users alike.

    Args:
        charges: by run, what each committed round cost its participants, in the order of their indices
            (`Cost.increments` of the strategy that the run applied).

    Raises:
        BadInput: a population under `add_remove`, a run that is not ended or not of this population, charges of others.
    """

    def work(connection: Connection, entry: Entry) -> None:
        row = population_row(connection, name)
        if row.adjacency == "add_remove":
            raise BadInput(f"odometers of population {name!r}", "under 'add_remove' who took part is secret.")
        spent = odometers.settled(connection, row.id, row.users)
        digests = {}
        for run_id, rounds in sorted(charges.items()):
            run = run_row(connection, run_id)
            if run.population_id != row.id or run.state in ACTIVE or run.accounting == odometers.INDIVIDUAL:
                raise BadInput(
                    f"run {run_id}", "it is not an ended run of this population that is charged to all alike."
                )
            c = models.participations.c
            query = select(c.round_id, c.count.label("size"), c.users).where(c.run_seq == run.seq).order_by(c.index)
            taken = connection.execute(query).all()
            if [part.size for part in taken] != [units.size for units in rounds]:
                raise BadInput(f"run {run_id}", "the charges are not those of its rounds.")
            for part, units in zip(taken, rounds, strict=True):
                spent[blobs.decode(part.users, part.size)] += units
                here = update(models.participations).where(c.round_id == part.round_id)
                connection.execute(here.values(charges=odometers.encode(units)))
            where = models.runs.c.seq == run.seq
            connection.execute(update(models.runs).where(where).values(accounting=odometers.INDIVIDUAL))
            digests[run_id] = odometers.digest_of_rounds(rounds)
        values = {"accounting": odometers.INDIVIDUAL}
        connection.execute(update(models.populations).where(models.populations.c.id == row.id).values(values))
        odometers.write_settled(connection, row.id, spent)
        body = {"runs": digests, "users": row.users, "odometers": odometers.digest(spent)}
        entry.append("population.odometers", actor, body, population=name)

    journal.write(work)


def _require_budget(epsilon: float, delta: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput(f"epsilon = {epsilon}", "must be positive and finite.", "1.0")
    if not 0 < delta < 1:
        raise BadInput(f"delta = {delta}", "must be between 0 and 1.", "1e-6")
