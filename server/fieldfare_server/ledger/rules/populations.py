"""What may happen to a population's budget: create, raise, tighten, pace, close, reopen, register users.

The guarantee of a population is the largest budget that it ever had (`bound_*`): runs were chosen under it. A budget
that is tightened limits what comes; it takes nothing back from what was promised before.

A function with a record says which facts its event makes, or refuses it: when it is written, and when it is
read again. The others make the event of what a person asks.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fieldfare.accounting.filter import Price, default_leak
from fieldfare.errors import (
    AlreadyThere,
    BadInput,
    BudgetRefused,
    Conflict,
    NotAllowed,
    NotFound,
    NotGiven,
    NotNow,
    OutOfRange,
    Unknown,
    Unsupported,
    WrongForm,
)
from fieldfare.names import is_name
from fieldfare.participation import ADJACENCIES, PRESENCE, Adjacency, hides_presence
from fieldfare.text import decimal, up
from fieldfare_server.ledger.events import populations as events
from fieldfare_server.ledger.events.base import Record, require
from fieldfare_server.ledger.state import budget, odometers, rows
from fieldfare_server.ledger.state.state import FoldedPopulation, State
from fieldfare_server.ledger.state.windows import EVERY

# States of a population that a second person has not approved.
NEVER_OPEN = ("proposed", "withdrawn")
# Beyond it mu^2 soon has no float, and nothing is promised long before.
LARGEST_EPSILON = 1e9


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
            raise OutOfRange(f"ceiling_epsilon = {self.ceiling_epsilon}", "must be finite.", f"{2 * epsilon:g}")
        if self.ceiling_delta is not None and not 0 < self.ceiling_delta < 1:
            raise OutOfRange(f"ceiling_delta = {self.ceiling_delta}", "must be between 0 and 1.", decimal(delta))
        _require_below(epsilon, delta, self.ceiling_epsilon, self.ceiling_delta)
        seconds = self.reservation_seconds
        if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
            near = "86400 (--reservation-hours 24)"
            raise OutOfRange(f"reservation_seconds = {seconds}", "must be positive and finite.", near)


def find(state: State, name: str) -> FoldedPopulation:
    """Return the population of this name. Raises `BadInput` that names the populations there are."""
    if not (is_name(name) and name in state.populations):
        known = ", ".join(sorted(state.populations)) or "create it: `fieldfare population create`"
        raise NotFound(f"population {name[:100]!r}", "the ledger has none of that name.", known)
    return state.populations[name]


# -- create --------------------------------------------------------------------------------------------------


def create(
    state: State,
    epsilon: float,
    delta: float,
    *,
    adjacency: Adjacency,
    unit: str,
    simulated: bool,
    salt: str,
    leak: float | None = None,
    rules: Rules | None = None,
    person: str,
) -> events.Created:
    """Make a population. It waits for a second person where raising some population's budget needs two.

    salt: SHA-256 of its fresh salt. leak: D; None: the default. person: who asks, as in `raise_budget`.

    Raises `BadInput` on an impossible budget, one above its own ceiling, and one that one person could raise
    where others need two.
    """
    rules = rules or Rules()
    if adjacency not in ADJACENCIES:
        raise Unknown(f"adjacency = {adjacency!r}", "there is no such adjacency.", ", ".join(ADJACENCIES))
    _require_budget(epsilon, delta)
    rules.check(epsilon, delta)
    leak = default_leak(adjacency, delta) if leak is None else leak
    if not 0 <= leak < delta:
        why = f"must be at least 0 and below delta = {decimal(delta)}."
        raise OutOfRange(f"leak = {leak}", why, decimal(delta / 10))
    strict = sorted(name for name, each in state.populations.items() if each.row.two_persons)
    # A second population of the same users is a raise by another name.
    if strict and not rules.two_persons:
        why = f"in this ledger a raise of {strict[0]!r} needs two persons, and the same users could be in both."
        raise BadInput("a population that one person can raise", why, "--two-persons", code="one-person-population")
    return events.Created(
        epsilon=float(epsilon),
        delta=delta,
        adjacency=adjacency,
        simulated=simulated,
        unit=unit,
        # Where who takes part is secret, an odometer would tell it.
        accounting=odometers.WORST_CASE if hides_presence(adjacency) else odometers.INDIVIDUAL,
        ceiling_epsilon=None if rules.ceiling_epsilon is None else float(rules.ceiling_epsilon),
        ceiling_delta=rules.ceiling_delta,
        two_persons=rules.two_persons,
        reservation_seconds=None if rules.reservation_seconds is None else float(rules.reservation_seconds),
        salt=salt,
        leak=leak,
        proposal=secrets.token_hex(6) if strict else None,
        person=person if strict else None,
    )


def created(state: State, record: Record, event: events.Created) -> Iterator[rows.Fact]:
    """Yield a population, with no user."""
    name = record.place
    if not is_name(name):
        raise WrongForm(f"population {name!r}", "a name is letters, digits, '.', '_' and '-', at most 100.")
    if name in state.populations:
        raise AlreadyThere(f"population {name!r}", "there is one of that name.", "that one; another for other people")
    require(0 <= event.leak < event.delta, "its leak is not below its delta")
    kept = event.accounting == odometers.INDIVIDUAL
    require(not kept or not hides_presence(event.adjacency), "its odometers would tell who is there")
    _require_below(event.epsilon, event.delta, event.ceiling_epsilon, event.ceiling_delta)
    waits = event.proposal is not None
    require(waits == (event.person is not None), "it names a proposal or a person, and not both")
    require(event.two_persons or not waits, "it waits for a second person, and needs none")
    yield rows.PopulationRow(
        **rows.said(rows.PopulationRow, event),
        name=name,
        state="proposed" if waits else "open",
        users=0,
        settled=budget.NOTHING.to_json(),
        created_at=record.at,
        created_by=record.actor,
        bound_epsilon=event.epsilon,
        bound_delta=event.delta,
    )
    if waits:
        yield _proposal(
            state, record, event.proposal or "", event.epsilon, event.delta, "a new population", event.person or ""
        )


# -- raise ---------------------------------------------------------------------------------------------------


def raise_budget(
    state: State, name: str, epsilon: float | None, delta: float | None, reason: str, person: str
) -> events.Raised | events.Proposed:
    """Raise epsilon, delta or both (None: unchanged); where two persons are needed, propose it.

    person: who asks: a token's id, or the system's user. The one who approves is another.

    Raises `BadInput`: a lower budget, one above the ceiling, a closed population.
    """
    row = find(state, name).row
    new = _merged(row, epsilon, delta)  # the leak D stays, so what runs have taken is within the new rectangle as well
    _require_raise(row, *new)
    if row.two_persons:
        return events.Proposed(secrets.token_hex(6), *new, reason=reason, person=person, old=_old(row))
    return events.Raised(*new, reason=reason, old=_old(row))


def approve(state: State, proposal_id: str, person: str) -> events.Raised:
    """Return the raise as `person` approves it. Raises `BadInput` if none of that id waits."""
    proposal = waiting(state, proposal_id)
    old = _old(state.populations[proposal.population].row)
    return events.Raised(proposal.epsilon, proposal.delta, proposal.reason, old, person, proposal_id)


def withdraw(state: State, proposal_id: str, reason: str) -> events.Withdrawn:
    """Return the event that ends a raise that waited. Raises `BadInput` if none of that id waits."""
    return events.Withdrawn(waiting(state, proposal_id).id, reason)


def proposed(state: State, record: Record, event: events.Proposed) -> Iterator[rows.Fact]:
    """Yield a raise that waits."""
    row = state.populations[record.place].row
    require(row.two_persons, "a raise is proposed where none is needed")
    _require_old(event.old, row)
    yield _proposal(state, record, event.id, event.epsilon, event.delta, event.reason, event.person)


def raised(state: State, record: Record, event: events.Raised) -> Iterator[rows.Fact]:
    """Yield a budget after its raise."""
    row = state.populations[record.place].row
    if row.state == "proposed":
        require((event.epsilon, event.delta) == (row.epsilon, row.delta), "a new population opens with another budget")
    else:
        _require_raise(row, event.epsilon, event.delta)
    _require_old(event.old, row)
    if row.two_persons:
        proposal = waiting(state, event.proposal or "", row.name)
        same = (proposal.epsilon, proposal.delta) == (event.epsilon, event.delta)
        require(same, "another raise was proposed")
        if proposal.person == event.person:
            why = "who proposed it cannot approve it."
            raise NotAllowed(f"approving proposal {proposal.id}", why, "the token of another person")
        yield proposal._replace(state="approved", decided_at=record.at, decided_by=record.actor)
    bound = budget.larger((row.bound_epsilon, row.bound_delta), (event.epsilon, event.delta), row.leak)
    now = "open" if row.state == "proposed" else row.state
    yield row._replace(
        epsilon=event.epsilon, delta=event.delta, bound_epsilon=bound[0], bound_delta=bound[1], state=now
    )


def withdrawn(state: State, record: Record, event: events.Withdrawn) -> Iterator[rows.Fact]:
    """Yield a raise, or a new population, that waits no more."""
    proposal, row = waiting(state, event.proposal, record.place), state.populations[record.place].row
    yield proposal._replace(state="withdrawn", decided_at=record.at, decided_by=record.actor)
    if row.state == "proposed":
        yield row._replace(state="withdrawn")


def _proposal(
    state: State, record: Record, id: str, epsilon: float, delta: float, reason: str, person: str
) -> rows.ProposalRow:
    """A budget that waits for a second person."""
    require(id not in state.proposals, "it is proposed twice")
    return rows.ProposalRow(
        id=id,
        population=record.place,
        epsilon=epsilon,
        delta=delta,
        reason=reason,
        state="waiting",
        proposed_at=record.at,
        proposed_by=record.actor,
        person=person,
    )


def waiting(state: State, proposal_id: str, population: str | None = None) -> rows.ProposalRow:
    """Return a raise that waits. population: whose it must be. Raises `BadInput`."""
    proposal = state.proposals.get(proposal_id)
    if proposal is None:
        raise NotFound(
            f"proposal {proposal_id[:100]!r}", "there is none of that id.", "one that `fieldfare population show` lists"
        )
    if proposal.state != "waiting":
        raise NotNow(f"proposal {proposal_id}", f"it is {proposal.state} already.", "a new proposal")
    require(population in (None, proposal.population), "it was proposed for another population")
    return proposal


# -- tighten, close, reopen ----------------------------------------------------------------------------------


def tighten(state: State, name: str, epsilon: float | None, delta: float | None, reason: str) -> events.Tightened:
    """Lower epsilon, delta or both (None: unchanged), never below what is spent and reserved.

    Raises `BadInput` on a higher budget or a closed population.
    """
    population = find(state, name)
    new = _merged(population.row, epsilon, delta)
    _require_tightening(population.row, *new)
    largest = population.largest(budget.Terms(*new, population.row.leak)) if population.row.individual else None
    return events.Tightened(*new, reason=reason, old=_old(population.row), largest=largest)


def tightened(state: State, record: Record, event: events.Tightened) -> Iterator[rows.Fact]:
    """Yield a budget after it was lowered.

    Raises `BudgetRefused`, naming the least epsilon, if what is committed would not fit.
    """
    population = state.populations[record.place]
    row = population.row
    _require_tightening(row, event.epsilon, event.delta)
    _require_old(event.old, row)
    terms = budget.Terms(event.epsilon, event.delta, row.leak)
    committed = committed_of(population, event.largest)
    if not terms.hold(committed):
        least = terms.gauge(committed)
        raise BudgetRefused(
            _budget(row, event.epsilon, event.delta),
            f"epsilon {up(least, 6):g} at that delta is spent and reserved already.",
            # A little above, so that what is named is allowed whatever the last digits are.
            f"epsilon {decimal(up(max(least, 1e-6) * (1 + 1e-9), 6))} at delta {decimal(event.delta)}",
        )
    yield row._replace(epsilon=event.epsilon, delta=event.delta)


# -- windows -------------------------------------------------------------------------------------------------


def set_window(state: State, name: str, epsilon: float | None, every: str | None, reason: str) -> events.WindowSet:
    """Let at most `epsilon` begin in each calendar day, week, month or year; None and None: take the window away.

    Raises `BadInput` on an impossible window, a closed population, and a wider window where two persons are needed.
    """
    row = find(state, name).row
    return events.WindowSet(None if epsilon is None else float(epsilon), every, reason, _old_window(row))


def window_set(state: State, record: Record, event: events.WindowSet) -> Iterator[rows.Fact]:
    """Yield a population with another window, or none. What began before counts in it."""
    row, (epsilon, every) = state.populations[record.place].row, (event.window_epsilon, event.window_every)
    what = f"a window of population {row.name!r}"
    _require_open(row)
    require(event.old == _old_window(row), "the old window that it names is another")
    if (epsilon is None) != (every is None):
        raise Conflict(what, "it has an epsilon and a length, or neither.", "--epsilon 2 --every week")
    if epsilon is not None:
        if every not in EVERY:
            raise Unknown(f"every = {str(every)[:40]!r}", "there is no such window.", ", ".join(EVERY))
        _require_budget(epsilon, row.delta)
        if epsilon > row.epsilon:
            raise OutOfRange(what, "it would hold more than the budget, and limit nothing.", f"{row.epsilon:g} or less")
    if (epsilon, every) == (row.window_epsilon, row.window_every):
        raise NotNow(what, "it is so already." if every else "there is none.")
    held = row.window_epsilon
    if row.two_persons and held is not None and not (every == row.window_every and (epsilon or math.inf) < held):
        why = "raises of its budget need two persons, so one person only makes its window smaller."
        raise NotAllowed(what, why, f"less than epsilon {held:g} a {row.window_every}")
    yield row._replace(window_epsilon=epsilon, window_every=every)


def _old_window(row: rows.PopulationRow) -> dict[str, object]:
    return {"window_epsilon": row.window_epsilon, "window_every": row.window_every}


def close(state: State, name: str, reason: str) -> events.Closed:
    """Accept no new run."""
    return events.Closed("closed", {"state": find(state, name).row.state}, reason)


def reopen(state: State, name: str, reason: str) -> events.Reopened:
    """Accept new runs again, on the budget as it stands."""
    return events.Reopened("open", {"state": find(state, name).row.state}, reason)


def closed(state: State, record: Record, event: events.Closed | events.Reopened) -> Iterator[rows.Fact]:
    """Yield a population that is closed, or open again. Raises `BadInput` if it is already."""
    row = state.populations[record.place].row
    now = "closed" if isinstance(event, events.Closed) else "open"
    if row.state in (now, *NEVER_OPEN):
        raise NotNow(f"population {row.name!r}", f"it is {row.state} already.")
    require(event.state == now, "it names another state")
    yield row._replace(state=now)


# -- users and their odometers -------------------------------------------------------------------------------


def register(population: FoldedPopulation, first: int, count: int, hashes: str) -> events.Registered:
    """Add users, each pledged to the runs under way that are charged to odometers, by their starts.

    Args:
        population: as the log proves it, where it has odometers.
        first, count: the numbers of the users.
        hashes: SHA-256 of their salted hashes.
    """
    runs = [(run.row.id, run.row.most or 0) for run in population.runs if run.row.individual]
    if not (count and runs):
        return events.Registered(first, count, hashes)
    room = odometers.limit_units(population.terms) - odometers.units_of(population.base())
    return events.Registered(first, count, hashes, odometers.newcomer_caps(runs, room))


def registered(state: State, record: Record, event: events.Registered) -> Iterator[rows.Fact]:
    """Yield users, and what the runs under way may cost each of them."""
    population = state.populations[record.place]
    require(event.first == population.row.users, "users are not numbered one after another")
    require(event.count >= 0, "fewer users than none are registered")
    if not event.count:
        return
    yield population.row._replace(users=population.row.users + event.count)
    yield rows.UsersRow(population.row.name, event.first, event.count, event.hashes)
    pledged = event.pledged or {}
    for run in population.runs:
        if run.row.individual:
            yield rows.NewPledge(run.row.id, event.first, event.count, pledged[run.row.id])


def recomputed(state: State, record: Record, event: events.Recomputed) -> Iterator[rows.Fact]:
    """Yield ended runs that are charged to odometers, and odometers that hold what they cost.

    Raises `BadInput`: a population where presence is secret, a run that is not ended or not of this population.
    """
    row = state.populations[record.place].row
    if hides_presence(row.adjacency):
        raise Unsupported(f"odometers of population {row.name!r}", f"under {PRESENCE!r} who took part is secret.")
    require(event.users == row.users, "it counts other users")
    for run_id, digest in event.runs.items():
        run = state.runs[run_id].row
        if run.population != row.name or run.active or run.individual:
            raise NotNow(f"run {run_id}", "it is not an ended run of this population that is charged to all alike.")
        yield rows.Recharge(run_id, digest)
        yield run._replace(accounting=odometers.INDIVIDUAL)
    yield row._replace(accounting=odometers.INDIVIDUAL)
    yield rows.Odometers(row.name, event.odometers)


# -- what several rules ask ----------------------------------------------------------------------------------


def committed_of(population: FoldedPopulation, largest: int | None) -> Price:
    """Return what is committed of the user who has least left. largest: `largest` of then, as an event says."""
    require((largest is not None) == population.row.individual, "it names the largest odometer, or none")
    require(largest is None or largest >= 0, "it names a largest odometer below 0")
    return population.with_largest(largest or 0)


def _merged(row: rows.PopulationRow, epsilon: float | None, delta: float | None) -> tuple[float, float]:
    return (row.epsilon if epsilon is None else float(epsilon), row.delta if delta is None else delta)


def _old(row: rows.PopulationRow) -> dict[str, float]:
    return {"epsilon": row.epsilon, "delta": row.delta}


def _require_old(old: Mapping[str, object], row: rows.PopulationRow) -> None:
    require(old == _old(row), "the old value that it names is another")


def _budget(row: rows.PopulationRow, epsilon: float, delta: float) -> str:
    return f"budget ({epsilon:.6g}, {decimal(delta, 3)}) of population {row.name!r}"


def _require_raise(row: rows.PopulationRow, epsilon: float, delta: float) -> None:
    _require_budget(epsilon, delta)
    _require_open(row)
    if epsilon < row.epsilon or delta < row.delta or (epsilon, delta) == (row.epsilon, row.delta):
        raise OutOfRange(
            _budget(row, epsilon, delta),
            "raising a budget does not lower it.",
            f"above ({row.epsilon:.6g}, {decimal(row.delta, 3)}), or `fieldfare population tighten`",
        )
    _require_below(epsilon, delta, row.ceiling_epsilon, row.ceiling_delta)


def _require_tightening(row: rows.PopulationRow, epsilon: float, delta: float) -> None:
    _require_open(row)
    _require_budget(epsilon, delta)
    if epsilon > row.epsilon or delta > row.delta or (epsilon, delta) == (row.epsilon, row.delta):
        raise OutOfRange(
            _budget(row, epsilon, delta),
            "tightening lowers a budget.",
            f"below ({row.epsilon:.6g}, {decimal(row.delta, 3)}), or a raise",
        )
    if row.leak >= delta:
        what = _budget(row, epsilon, delta)
        raise OutOfRange(what, f"delta must stay above the population's leak, {decimal(row.leak, 3)}.")


def _require_open(row: rows.PopulationRow) -> None:
    if row.state in NEVER_OPEN:
        raise NotNow(f"population {row.name!r}", f"it is {row.state}: a second person has not approved it.")
    if row.state != "open":
        raise NotNow(f"population {row.name!r}", "it is closed.", "reopen it, or a new population")


def _require_below(epsilon: float, delta: float, ceiling_epsilon: float | None, ceiling_delta: float | None) -> None:
    if ceiling_epsilon is not None and epsilon > ceiling_epsilon:
        raise OutOfRange(f"epsilon = {epsilon:g}", "is above the population's ceiling.", f"{ceiling_epsilon:g}")
    if ceiling_delta is not None and delta > ceiling_delta:
        raise OutOfRange(f"delta = {decimal(delta)}", "is above the population's ceiling.", decimal(ceiling_delta))


def require_reason(reason: str, what: str) -> str:
    """Return `reason`. Raises `BadInput` if it says nothing."""
    if not reason.strip():
        raise NotGiven(what, "it needs a reason, for the journal.")
    return reason


def _require_budget(epsilon: float, delta: float) -> None:
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongForm(f"{name} = {value!r}", "is not a number.", {"epsilon": "1.0"}.get(name, "1e-6"))
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise OutOfRange(f"epsilon = {epsilon}", "must be positive and finite.", "1.0")
    if epsilon > LARGEST_EPSILON:
        raise OutOfRange(f"epsilon = {epsilon:g}", f"must be at most {LARGEST_EPSILON:g}.", f"{LARGEST_EPSILON:g}")
    if not 0 < delta < 1:
        raise OutOfRange(f"delta = {delta}", "must be between 0 and 1.", "1e-6")
