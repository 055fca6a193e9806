"""Rows of the ledger's tables: finding them, and turning them into views.

Every function takes the connection of its caller's transaction. `row` arguments are rows of the table that the
function's name says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from sqlalchemy import (
    BindParameter,
    Case,
    ColumnElement,
    Connection,
    Row,
    RowMapping,
    Select,
    and_,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
)

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.accounting.individual import from_units
from fieldfare.aggregation import shown_to_server
from fieldfare.errors import LedgerCorrupt, NotFound
from fieldfare.names import QUESTION, is_name
from fieldfare.participation import PRESENCE, hides_presence
from fieldfare.participation_record import ParticipationRecord
from fieldfare_server.ledger import views
from fieldfare_server.ledger.chain import Head
from fieldfare_server.ledger.sql import blobs, models, odometer_tables
from fieldfare_server.ledger.sql.memory import Account, Memory
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.states import ACTIVE, HELD

# Made once: to build a statement takes longer than to run it.
_RUN = select(models.runs).where(models.runs.c.id == bindparam("id"))
# All runs, each with its population's terms and its lease: the rows that `run_view` takes.
RUNS = (
    select(
        models.runs,
        models.populations.c.name.label("population"),
        models.populations.c.adjacency,
        models.populations.c.delta,
        models.leases.c.holder,
        models.leases.c.renewed_at,
        models.leases.c.seconds,
    )
    .join(models.populations, models.runs.c.population_id == models.populations.c.id)
    .join(models.leases, models.leases.c.run_seq == models.runs.c.seq)
)
# One of them.
RUN_SHOWN = RUNS.where(models.runs.c.id == bindparam("id"))
_POPULATION = select(models.populations).where(models.populations.c.name == bindparam("name"))
_h = models.head.c
_POPULATION_AND_HEAD = _POPULATION.join(models.head, _h.id == 1).add_columns(
    _h.ledger.label("head_ledger"), _h.count.label("head_count"), _h.hash.label("head_hash")
)
# Each journal row with whether a user's presence is the secret in its population, and with it every count of users.
_j = models.journal.c
_JOURNAL = select(models.journal, (models.populations.c.adjacency == PRESENCE).label("hidden")).join(
    models.populations, models.populations.c.name == _j.population, isouter=True
)
# The rows after one, oldest first, as `journal_view` takes them.
EVENTS = _JOURNAL.where(_j.id > bindparam("after")).order_by(_j.id).limit(bindparam("most"))
# The rows before one, newest first.
NEWEST_FIRST = _JOURNAL.where(_j.id < bindparam("before")).order_by(_j.id.desc()).limit(bindparam("most"))
# Beyond every journal row.
END = 2**62
_p = models.proposals.c
_WAITING = (
    select(models.proposals)
    .where(_p.population_id == bindparam("number"), _p.state == "waiting")
    .order_by(_p.proposed_at.desc(), _p.id)
)


def population_row(connection: Connection, name: str) -> Row[object]:
    """The row of a population. Raises `BadInput` that names the populations there are."""
    row = connection.execute(_POPULATION, {"name": name}).first() if is_name(name) else None
    if row is None:
        names = connection.execute(select(models.populations.c.name).order_by(models.populations.c.name)).scalars()
        known = ", ".join(names) or "create it: `fieldfare population create`"
        raise NotFound(f"population {name[:100]!r}", "the ledger has none of that name.", known)
    return row


def population_and_head(connection: Connection, name: str) -> tuple[Row[object], Head]:
    """The row of a population, and where the journal ends: one statement. Raises as `population_row`."""
    row = connection.execute(_POPULATION_AND_HEAD, {"name": name}).first() if is_name(name) else None
    row = row or population_row(connection, name)
    return row, Head(row.head_ledger, row.head_count, row.head_hash)


def run_row(connection: Connection, run_id: str, query: Select[object] = _RUN) -> Row[object]:
    """The row of a run, or (query `RUN_SHOWN`) what `run_view` takes. Raises `BadInput` if there is none."""
    row = connection.execute(query, {"id": run_id}).first() if is_name(run_id) else None
    if row is None:
        raise NotFound(f"run {run_id!r}"[:100], "the ledger has none of that id.", "one that `fieldfare runs` lists")
    return row


def reservations(connection: Connection, population: str | None = None) -> list[tuple[str, float, float]]:
    """(run, seconds, end) of each run under way whose population states how long reservations last.

    seconds: what the population states. end: seconds since 1970 at which the reservation goes unless the
    lease is renewed before. population: only runs of this one; None: of all.
    """
    r, p, lease = models.runs.c, models.populations.c, models.leases.c
    query = (
        select(r.id, p.reservation_seconds, lease.renewed_at, lease.seconds)
        .join_from(models.runs, models.populations, r.population_id == p.id)
        .join(models.leases, lease.run_seq == r.seq)
        .where(p.reservation_seconds.is_not(None), r.state.in_(ACTIVE))
    )
    if population is not None:
        query = query.where(p.name == (population if is_name(population) else ""))
    # A lease that still runs is not expired, however short a time the population states.
    try:
        return [
            (row.id, row.reservation_seconds, row.renewed_at + max(row.reservation_seconds, row.seconds))
            for row in connection.execute(query)
        ]
    except TypeError:
        why = "a reservation_seconds is not a number, so its reservations do not expire."
        raise LedgerCorrupt("table populations", why, "`fieldfare verify` names the row that was changed") from None


def participation(connection: Connection, run_seq: int, users: int = 0) -> ParticipationRecord:
    """Realised participation of a run. Raises ValueError, naming the round, if a blob is corrupt."""
    c = models.participations.c
    record = ParticipationRecord(users)
    query = select(c.index, c.count, c.users).where(c.run_seq == run_seq).order_by(c.index)
    for index, count, blob in connection.execute(query):
        record.add(index, blobs.decode(blob, count))
    return record


def population_participation(connection: Connection, population: Row[Any], most: int) -> dict[int, int] | None:
    """How many users took part how many times in all runs of a population; None above `most` committed rounds."""
    c, of = models.participations.c, models.runs.c
    within = models.participations.join(models.runs, of.seq == c.run_seq)
    if (
        connection.scalars(select(func.count()).select_from(within).where(of.population_id == population.id)).one()
        > most
    ):
        return None
    times = np.zeros(population.users, np.int64)
    query = select(c.count, c.users).select_from(within).where(of.population_id == population.id)
    for count, blob in connection.execute(query):
        # Indices are the population's; within a round they are distinct.
        times[blobs.decode(blob, count)] += 1
    return {number: int(users) for number, users in enumerate(np.bincount(times)) if number and users}


def terms_of(population: Row[object]) -> budget.Terms:
    """A population's budget."""
    return budget.Terms(population.epsilon, population.delta, population.leak)


# -- what secret presence hides ------------------------------------------------------------------------------


# Members of a journal body that tell how many users there are.
_COUNTS = {"cohort_size", "count", "first", "participant_count", "rejects", "reports"}
# Those, and the members that would let a reader test a guess.
_SECRET = _COUNTS | {"blind", "cohort", "hashes", "participants"}


# -- views ---------------------------------------------------------------------------------------------------


def journal_view(row: RowMapping) -> views.JournalView:
    """A row of `EVENTS` or `NEWEST_FIRST`, without counts of users where they are secret in its population."""
    body = json.loads(row["body"])
    if row["hidden"]:
        # The reason for a void round may count the replies.
        secret = _SECRET | {"reason"} if row["action"] == "round.void" else _SECRET
        body = {name: value for name, value in body.items() if name not in secret}
    return views.JournalView(**{**row, "body": body})


def population_view(connection: Connection, row: Row[object], head: Head, memory: Memory) -> views.PopulationView:
    """A population with what its runs have spent and reserved, at `head`. O(what is new); see `memory`."""
    taken = memory.ask(connection, row, head, Account.taken)
    terms, totals = terms_of(row), taken.sums
    left: odometers.Left | None = None
    if odometer_tables.is_individual(row):
        base = odometers.units_of(totals.committed)
        most_spent, left = memory.odometers.figures(connection, row, taken.individual, taken.history, base)
        totals = budget.Sums(
            totals.spent + odometers.price_of(most_spent), totals.committed + odometers.price_of(left.most_committed)
        )
    spent_epsilon, committed_epsilon = terms.gauge(totals.spent), terms.gauge(totals.committed)
    # Only where a raise needs two persons does one wait.
    waiting = connection.execute(_WAITING, {"number": row.id}).all() if row.two_persons else ()
    room = for_all = budget.Room(0.0, 0.0)
    if row.state == "open":
        used = totals.committed
        if left is not None and left.largest is not None:
            # A run can still be started for those who have most left.
            used = Price(from_units(odometers.limit_units(terms) - left.largest), used.leak)
        room = budget.room(used, terms)
        if left is not None and left.least is not None:
            everyone = Price(from_units(odometers.limit_units(terms) - left.least), totals.committed.leak)
            for_all = budget.room(everyone, terms)
        else:
            for_all = room
    values = {
        "proposals": tuple(views.Proposal(**each._mapping) for each in waiting),
        "users": None if hides_presence(row.adjacency) else row.users,
        "left": None if left is None else left.classes,
        "exhausted": None if left is None else left.exhausted,
        "spent": totals.spent,
        "spent_epsilon": spent_epsilon,
        "committed": totals.committed,
        "committed_epsilon": committed_epsilon,
        "reserved_epsilon": max(0.0, committed_epsilon - spent_epsilon),
        "remaining_epsilon": room.epsilon,
        "remaining_mu": room.mu,
        "remaining_users": None if left is None else left.having_most,
        "remaining_epsilon_of_all": for_all.epsilon,
        "overdrawn": not terms.hold(totals.committed),
        "rounds_left": sum(run.rounds_left for run in taken.active),
        "runs_active": len(taken.active),
        "runs_total": taken.runs,
        "newest_run": taken.newest,
        "active_run": taken.active[-1] if taken.active else None,
    }
    return views.PopulationView(**{**row._mapping, **values})


def state_now(now: float | BindParameter[float]) -> Case[str]:
    """The state that `run_view` shows at `now`, for queries over runs joined with their leases."""
    c, lease = models.runs.c, models.leases.c
    silent = and_(c.state.in_(HELD), or_(lease.holder == "", lease.renewed_at + lease.seconds <= now))
    return case((silent, "interrupted"), else_=c.state)


def asks(dialect: str) -> ColumnElement[bool]:
    """Whether a run asks a question, by its stored plan (`fieldfare.names.is_question`), on this kind of database."""
    plan = models.runs.c.plan
    task: ColumnElement[str] = func.json_extract(plan, "$.run.task")
    if dialect != "sqlite":
        from sqlalchemy.dialects.postgresql import JSONB  # 2 MB

        task = cast(plan, JSONB)["run"]["task"].astext
    return task == QUESTION


def run_view(row: Row[object], now: float) -> views.RunView:
    """A run as it stands at `now`: one whose holder fell silent is interrupted, whatever its row says."""
    planned, spent = budget.loss(row.planned), budget.loss(row.spent)
    silent = row.state in HELD and (not row.holder or now >= row.renewed_at + row.seconds)
    plan = json.loads(row.plan)
    values = {
        "plan": plan,
        "planned": planned,
        "against_server": shown_to_server(plan, planned),
        "planned_epsilon": budget.epsilon(planned, row.delta),
        "spent": spent,
        "spent_epsilon": budget.epsilon(spent, row.delta),
        "leak": budget.stored_price(row.price).leak,
        "state": "interrupted" if silent else row.state,
    }
    return views.RunView(**{**row._mapping, **values})


def round_view(row: RowMapping, run_id: str, hide: bool) -> views.RoundView:
    """One attempt at a round. hide: leave out every count of users."""
    values = {
        "run": run_id,
        "spent": None if row["spent"] is None else PrivacyLoss.from_json(row["spent"]),
        "statistics": json.loads(row["statistics"]),
        "rejects": json.loads(row["rejects"]),
    }
    counts = ("cohort_size", "reports", "participants")
    hidden: dict[str, object] = {**dict.fromkeys(counts), "rejects": {}, "reason": ""}
    return views.RoundView(**{**row, **values, **(hidden if hide else {})})


def charge_view(row: Row[object], population: str) -> views.ChargeView:
    """A charge of another trainer."""
    values = {"population": population, "loss": json.loads(row.loss), "price": Price.from_json(row.price)}
    return views.ChargeView(**{**row._mapping, **values})


def token_view(row: RowMapping | Mapping[str, Any]) -> views.TokenView:
    """A token without its digest."""
    limited = row["populations"]
    populations = None if limited is None else tuple(limited.split())
    return views.TokenView(**{**row, "scopes": tuple(row["scopes"].split()), "populations": populations})
