"""Populations and their budgets: create, raise, tighten, close, reopen. Each change is journaled, with old and new.

The guarantee of a population is the largest budget that it ever had (`bound_*`): runs were chosen under it. A budget
that is tightened limits what comes; it takes nothing back from what was promised before.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from fieldfare.accounting.filter import default_leak
from fieldfare.accounting.individual import Units
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.names import is_name
from fieldfare.participation import ADJACENCIES, Adjacency
from fieldfare.text import decimal
from fieldfare_server.ledger.chain import sha256
from fieldfare_server.ledger.sql import blobs, models, odometer_tables
from fieldfare_server.ledger.sql.journal import Entry, Journal, clean
from fieldfare_server.ledger.sql.rows import population_row, proposal_row, run_row
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.replay import Replay
from fieldfare_server.ledger.states import ACTIVE

LARGEST_EPSILON = 1e9
"""Beyond it mu^2 soon has no float, and nothing is promised long before."""


@dataclass(frozen=True)
class Rules:
    """What a population states at its creation, for good.

    Args:
        ceiling_epsilon, ceiling_delta: what no raise goes above (None: no ceiling).
        two_persons: a raise waits until a second person approves it, by an admin token.
        reservation_seconds: how long a run without a coordinator keeps its reservation (None: without end).
    """

    ceiling_epsilon: float | None = None
    ceiling_delta: float | None = None
    two_persons: bool = False
    reservation_seconds: float | None = None

    def check(self, epsilon: float, delta: float) -> None:
        """Raise `BadInput` unless the rules are possible and allow the budget (epsilon, delta)."""
        if self.ceiling_epsilon is not None and not math.isfinite(self.ceiling_epsilon):
            raise BadInput(f"ceiling_epsilon = {self.ceiling_epsilon}", "must be finite.", f"{2 * epsilon:g}")
        if self.ceiling_delta is not None and not 0 < self.ceiling_delta < 1:
            raise BadInput(f"ceiling_delta = {self.ceiling_delta}", "must be between 0 and 1.", decimal(delta))
        _require_below(epsilon, delta, self.ceiling_epsilon, self.ceiling_delta)
        seconds = self.reservation_seconds
        if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
            raise BadInput(f"reservation_seconds = {seconds}", "must be positive and finite.", "86400")


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
    rules: Rules | None = None,
) -> None:
    """Insert a population with a fresh salt.

    Raises `BadInput` on a bad or taken name, an impossible budget, or a budget above its own ceiling.
    """
    rules = rules or Rules()
    if not is_name(name):
        raise BadInput(f"population {name!r}", "a name is letters, digits, '.', '_' and '-', at most 100.")
    if adjacency not in ADJACENCIES:
        raise BadInput(f"adjacency = {adjacency!r}", "there is no such adjacency.", ", ".join(ADJACENCIES))
    _require_budget(epsilon, delta)
    rules.check(epsilon, delta)
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
        "ceiling_epsilon": None if rules.ceiling_epsilon is None else float(rules.ceiling_epsilon),
        "ceiling_delta": rules.ceiling_delta,
        "two_persons": rules.two_persons,
        "reservation_seconds": None if rules.reservation_seconds is None else float(rules.reservation_seconds),
    }

    def work(connection: Connection, entry: Entry) -> None:
        if connection.execute(select(models.populations.c.id).where(models.populations.c.name == name)).first():
            raise BadInput(f"population {name!r}", "there is one of that name.", "another name")
        start = {"name": name, "state": "open", "salt": salt, "users": 0, "settled": budget.NOTHING.to_json()}
        bound = {"bound_epsilon": described["epsilon"], "bound_delta": delta}
        created = {"created_at": entry.now, "created_by": actor}
        connection.execute(insert(models.populations).values({**described, **start, **bound, **created}))
        # Readers of the API see the journal; with the salt itself they could test guesses at pseudonyms.
        entry.append("population.create", actor, {**described, "salt": sha256(salt)}, population=name)

    journal.write(work)


def raise_budget(
    journal: Journal,
    name: str,
    *,
    epsilon: float | None,
    delta: float | None,
    reason: str,
    actor: str,
    person: str,
) -> str | None:
    """Raise epsilon, delta or both (None: unchanged); where two persons are needed, propose it.

    The leak D stays: what runs have taken from the old rectangle is within the new one, whose guarantee holds.

    Args:
        person: who asks: a token's id, or the system's user. The one who approves is another.

    Returns:
        The proposal's id where the raise waits for a second person, else None.

    Raises:
        BadInput: a lower budget, one above the ceiling, a closed population, or no reason.
    """
    reason = _require_reason(reason, "raising a budget")

    def work(connection: Connection, entry: Entry, _: Replay) -> str | None:
        row = population_row(connection, name)
        new = _require_raise(row, epsilon, delta)
        if not row.two_persons:
            _raise(connection, entry, row, new, {"reason": reason}, actor)
            return None
        proposal = secrets.token_hex(6)
        values = {"id": proposal, "epsilon": new[0], "delta": new[1], "reason": reason, "person": clean(person, 200)}
        opened = {"state": "waiting", "proposed_at": entry.now, "proposed_by": clean(actor, 200)}
        connection.execute(insert(models.proposals).values({**values, **opened, "population_id": row.id}))
        entry.append("population.propose", actor, {**values, "old": _old(row)}, population=name)
        return proposal

    return journal.admit(work)


def approve(journal: Journal, proposal_id: str, *, actor: str, person: str) -> str:
    """Approve a raise that waits, and apply it; returns the population's name.

    Raises `BadInput` if there is none of that id, if it does not wait any more, if `person` proposed it, or if the
    budget has changed so that it is no raise any more.
    """

    def work(connection: Connection, entry: Entry, _: Replay) -> str:
        proposal = _waiting(connection, proposal_id)
        if proposal.person == person:
            raise BadInput(
                f"approving proposal {proposal_id}", "who proposed it cannot approve it.", "the token of another person"
            )
        row = connection.execute(
            select(models.populations).where(models.populations.c.id == proposal.population_id)
        ).one()
        new = _require_raise(row, proposal.epsilon, proposal.delta)
        _decide(connection, proposal_id, "approved", entry.now, actor)
        about = {"proposal": proposal_id, "reason": proposal.reason, "person": clean(person, 200)}
        _raise(connection, entry, row, new, about, actor)
        return str(row.name)

    return journal.admit(work)


def withdraw(journal: Journal, proposal_id: str, *, reason: str, actor: str) -> str:
    """Take a waiting raise back, or refuse it; returns the population's name. Raises `BadInput` if none waits."""
    reason = _require_reason(reason, "withdrawing a proposal")

    def work(connection: Connection, entry: Entry, _: Replay) -> str:
        proposal = _waiting(connection, proposal_id)
        name = str(
            connection.execute(
                select(models.populations.c.name).where(models.populations.c.id == proposal.population_id)
            ).scalar_one()
        )
        _decide(connection, proposal_id, "withdrawn", entry.now, actor)
        entry.append("population.withdraw", actor, {"proposal": proposal_id, "reason": reason}, population=name)
        return name

    return journal.admit(work)


def tighten(
    journal: Journal, name: str, *, epsilon: float | None, delta: float | None, reason: str, actor: str
) -> None:
    """Lower epsilon, delta or both (None: unchanged), never below what is spent and reserved.

    Raises `BadInput` on a higher budget, a closed population or no reason; `BudgetRefused`, naming the least epsilon,
    if what is committed would not fit.
    """
    reason = _require_reason(reason, "tightening a budget")

    def work(connection: Connection, entry: Entry, replay: Replay) -> None:
        row = population_row(connection, name)
        _require_open(row)
        old = (row.epsilon, row.delta)
        new = (row.epsilon if epsilon is None else float(epsilon), row.delta if delta is None else delta)
        _require_budget(*new)
        what = f"budget ({new[0]:.6g}, {decimal(new[1], 3)}) of population {name!r}"
        if new[0] > old[0] or new[1] > old[1] or new == old:
            raise BadInput(
                what, "tightening lowers a budget.", f"below ({old[0]:.6g}, {decimal(old[1], 3)}), or a raise"
            )
        if row.leak >= new[1]:
            raise BadInput(what, f"delta must stay above the population's leak, {decimal(row.leak, 3)}.")
        proven = replay.populations[name]
        terms = budget.Terms(*new, row.leak)
        committed = proven.committed(terms)
        if not terms.hold(committed):
            least = terms.gauge(committed)
            raise BudgetRefused(
                what,
                f"epsilon {least:.6g} at that delta is spent and reserved already.",
                f"epsilon {_up(least)} at delta {new[1]:.3g}",
            )
        _set(connection, row, {"epsilon": new[0], "delta": new[1]})
        body = {"epsilon": new[0], "delta": new[1], "old": _old(row), "reason": reason}
        if proven.individual:
            # What is committed of the user who has least left: the journal's reader has no odometers at hand.
            body["largest"] = proven.largest(terms)
        entry.append("population.tighten", actor, body, population=name)

    journal.admit(work)


def close(journal: Journal, name: str, *, reason: str, actor: str) -> None:
    """Accept no new run. Raises `BadInput` without a reason, or if the population is closed already."""
    _set_state(journal, name, "closed", "population.close", _require_reason(reason, "closing a population"), actor)


def reopen(journal: Journal, name: str, *, reason: str, actor: str) -> None:
    """Accept new runs again, on the budget as it stands. Raises `BadInput` without a reason, or if it is open."""
    _set_state(journal, name, "open", "population.reopen", _require_reason(reason, "reopening a population"), actor)


def _set_state(journal: Journal, name: str, state: str, action: str, reason: str, actor: str) -> None:
    def work(connection: Connection, entry: Entry, _: Replay) -> None:
        row = population_row(connection, name)
        if row.state == state:
            raise BadInput(f"population {name!r}", f"it is {state} already.")
        _set(connection, row, {"state": state})
        entry.append(action, actor, {"state": state, "old": {"state": row.state}, "reason": reason}, population=name)

    journal.admit(work)


def _raise(
    connection: Connection, entry: Entry, row: Row[Any], new: tuple[float, float], about: dict[str, Any], actor: str
) -> None:
    values = {"epsilon": new[0], "delta": new[1]}
    bound = budget.larger((row.bound_epsilon, row.bound_delta), new, row.leak)
    _set(connection, row, {**values, "bound_epsilon": bound[0], "bound_delta": bound[1]})
    entry.append("population.raise", actor, {**values, "old": _old(row), **about}, population=row.name)


def _set(connection: Connection, row: Row[Any], values: dict[str, Any]) -> None:
    connection.execute(update(models.populations).where(models.populations.c.id == row.id).values(values))


def _old(row: Row[Any]) -> dict[str, float]:
    return {"epsilon": row.epsilon, "delta": row.delta}


def _waiting(connection: Connection, proposal_id: str) -> Row[Any]:
    proposal = proposal_row(connection, proposal_id)
    if proposal.state != "waiting":
        raise BadInput(f"proposal {proposal_id}", f"it is {proposal.state} already.", "a new proposal")
    return proposal


def _decide(connection: Connection, proposal_id: str, state: str, now: float, actor: str) -> None:
    values = {"state": state, "decided_at": now, "decided_by": clean(actor, 200)}
    connection.execute(update(models.proposals).where(models.proposals.c.id == proposal_id).values(values))


def _require_raise(row: Row[Any], epsilon: float | None, delta: float | None) -> tuple[float, float]:
    old = (row.epsilon, row.delta)
    new = (row.epsilon if epsilon is None else float(epsilon), row.delta if delta is None else delta)
    _require_budget(*new)
    _require_open(row)
    if new[0] < old[0] or new[1] < old[1] or new == old:
        raise BadInput(
            f"budget ({new[0]:.6g}, {decimal(new[1], 3)}) of population {row.name!r}",
            "raising a budget does not lower it.",
            f"above ({old[0]:.6g}, {decimal(old[1], 3)}), or `fieldfare population tighten`",
        )
    _require_below(*new, row.ceiling_epsilon, row.ceiling_delta)
    return new


def _require_open(row: Row[Any]) -> None:
    if row.state != "open":
        raise BadInput(f"population {row.name!r}", "it is closed.", "reopen it, or a new population")


def _require_below(epsilon: float, delta: float, ceiling_epsilon: float | None, ceiling_delta: float | None) -> None:
    if ceiling_epsilon is not None and epsilon > ceiling_epsilon:
        raise BadInput(f"epsilon = {epsilon:g}", "is above the population's ceiling.", f"{ceiling_epsilon:g}")
    if ceiling_delta is not None and delta > ceiling_delta:
        raise BadInput(f"delta = {decimal(delta)}", "is above the population's ceiling.", decimal(ceiling_delta))


def _require_reason(reason: str, what: str) -> str:
    reason = clean(reason, 2000)
    if not reason.strip():
        raise BadInput(what, "it needs a reason, for the journal.")
    return reason


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

    def work(connection: Connection, entry: Entry, _: Replay) -> None:
        row = population_row(connection, name)
        if row.adjacency == "add_remove":
            raise BadInput(f"odometers of population {name!r}", "under 'add_remove' who took part is secret.")
        spent = odometer_tables.settled(connection, row.id, row.users).copy()
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
                connection.execute(here.values(charges=odometer_tables.encode(units)))
            where = models.runs.c.seq == run.seq
            connection.execute(update(models.runs).where(where).values(accounting=odometers.INDIVIDUAL))
            digests[run_id] = odometers.digest_of_rounds(rounds)
        values = {"accounting": odometers.INDIVIDUAL}
        connection.execute(update(models.populations).where(models.populations.c.id == row.id).values(values))
        odometer_tables.write_settled(connection, row.id, spent)
        body = {"runs": digests, "users": row.users, "odometers": odometers.digest(spent)}
        entry.append("population.odometers", actor, body, population=name)

    journal.admit(work)


def _require_budget(epsilon: float, delta: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput(f"epsilon = {epsilon}", "must be positive and finite.", "1.0")
    if epsilon > LARGEST_EPSILON:
        raise BadInput(f"epsilon = {epsilon:g}", f"must be at most {LARGEST_EPSILON:g}.", f"{LARGEST_EPSILON:g}")
    if not 0 < delta < 1:
        raise BadInput(f"delta = {delta}", "must be between 0 and 1.", "1e-6")


def _up(value: float) -> str:
    """`value` in six digits, rounded up, so that a limit that an error names is allowed."""
    if value <= 0:
        return "1e-6"
    scale = 10.0 ** (5 - math.floor(math.log10(value)))
    return decimal((math.floor(value * scale) + 1) / scale)
