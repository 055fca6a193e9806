"""What may happen to a run: it is admitted, taken over, steered and ended.

A function with a record says which facts its event makes, or refuses it: when it is written, and when it is read again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, is_price, require_priced
from fieldfare.accounting.individual import Demand, Units
from fieldfare.errors import (
    AlreadyThere,
    Conflict,
    Differs,
    LedgerError,
    NotAllowed,
    NotGiven,
    NotNow,
    OutOfRange,
    OutOfTurn,
    Unknown,
    WrongForm,
)
from fieldfare.names import is_name
from fieldfare.participation import CALLED, PRESENCE, hides_presence
from fieldfare.plan_tables import schedule_for
from fieldfare.population_size import beyond_noise
from fieldfare.text import decimal
from fieldfare_server.ledger.events import runs as events
from fieldfare_server.ledger.events.base import Record, require
from fieldfare_server.ledger.rules.populations import committed_of
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.admission import admit
from fieldfare_server.ledger.state.formats import FORMAT, SEEDED
from fieldfare_server.ledger.state.rows import Fact, Odometers, Pledge, PopulationRow, RunRow, Seed, said
from fieldfare_server.ledger.state.state import FoldedPopulation, FoldedRun, State
from fieldfare_server.ledger.states import STATE_AFTER, EndState, Request
from fieldfare_server.ledger.views import PopulationView


def new_run_id() -> str:
    """Draw a fresh run id: 48 random bits in hex."""
    return secrets.token_hex(6)


@dataclass(frozen=True)
class NewRun:
    """What a run is admitted by.

    Args:
        plan_json: a JSON object; its `privacy.adjacency`, or zero_out where it has none, must be the population's.
        plan_digest: the plan's digest, as `Plan.digest` computes it.
        population: the population whose budget is charged.
        rounds: at least 1.
        planned: the loss that is reserved: what the run spends if it reaches its end.
        noise_source: what turns the key into noise; "seeded" for a fixed seed, which only simulated populations accept.
        key_commitment: `files.key_commitment` of the noise key. A key serves one run.
        trust_node_ids: whether participation limits rest on what nodes say of themselves.
        leak: d of the run's price: of a sampled run, how much of the population's D it takes (None:
            `filter.RUN_SHARE` of what is left); of another, what its noise leaks (`Cost.leak`; None: nothing).
        id: the run's id, at most 40 characters.
        strategy: SHA-256 of the stored strategy that the run applies.
        demand: what the run asks of single users, under individual accounting. None: it is charged to all users alike,
            and so is every run on a population without odometers.
        noise: what the log says of the run's noise (`run.pricing.stated_noise`). None: nothing, and its certificates
            then say that.
    """

    plan_json: str
    plan_digest: str
    population: str
    rounds: int
    planned: PrivacyLoss
    noise_source: str
    key_commitment: str
    trust_node_ids: bool
    leak: float | None = None
    id: str = field(default_factory=new_run_id)
    strategy: str | None = None
    demand: Demand | None = None
    noise: Mapping[str, float] | None = None

    def check(self) -> None:
        """Raise `BadInput` on anything malformed."""
        _table(self.plan_json, "privacy")
        if not is_name(self.id) or len(self.id) > 40:
            raise WrongForm(f"run id {self.id!r}", "an id is letters, digits, '.', '_' and '-', at most 40.")
        if self.rounds < 1:
            raise OutOfRange(f"rounds = {self.rounds}", "must be at least 1.", "1")
        if not is_name(self.noise_source) or len(self.noise_source) > 40:
            raise WrongForm(
                f"noise source {self.noise_source!r}", "a source has a name of at most 40 letters and digits."
            )
        require_priced(self.planned)
        if self.leak is not None and not 0 <= self.leak < 1:
            raise OutOfRange(f"leak = {self.leak}", "must be at least 0, and below delta.", "1e-7")


# -- start ---------------------------------------------------------------------------------------------------


def start(state: State, run: NewRun, cost: Price, plan: str, at: float) -> tuple[events.Started, Units | None]:
    """Return the start of `run` at the price `cost`, and what it may cost each user; None: all alike.

    Under individual accounting the run is pledged to each user, up to what that user has left (`odometers`).

    plan: SHA-256 of its plan. at: now, seconds since 1970.

    Raises:
        BudgetRefused: it does not fit in what is left, or in its calendar window, or too few users have enough left.
        BadInput: a closed population, another adjacency, a fixed seed on real people, or, with secret presence of real
            people, a plan without `run.round_seconds`.
    """
    population = state.populations[run.population]
    _require_open(population.row, run.noise_source)
    # As `Plan.stored` reads it.
    require_adjacency(population.row, _table(run.plan_json, "privacy").get("adjacency", "zero_out"))
    _require_schedule(population.row, run)
    _require_callable(population.row, run)
    _require_reach(population.row, run)
    position = population.position(at)
    admit(position, run.planned, cost, run.demand)
    caps: Units | None = None
    # What the row says of odometers, so that whoever reads the log alone can decide the same.
    charged: dict[str, Any] = {"accounting": odometers.WORST_CASE, "most": None}
    if run.demand is not None and position.room is not None:
        caps = odometers.pledge(position.room, run.demand.most)
        charged = {"accounting": odometers.INDIVIDUAL, "most": run.demand.most, "pledged": odometers.digest(caps)}
    elif population.row.individual:
        # What is committed of the user who has least left: the log's reader has no odometers at hand.
        charged["largest"] = population.largest(position.terms)
    event = events.Started(
        plan_digest=run.plan_digest,
        rounds=run.rounds,
        planned=run.planned.to_json(),
        price=cost.to_json(),
        noise_source=run.noise_source,
        key_commitment=run.key_commitment,
        trust_node_ids=run.trust_node_ids,
        format=FORMAT,
        strategy=run.strategy,
        plan=plan,
        noise=run.noise,
        **charged,
    )
    return event, caps


def started(state: State, record: Record, event: events.Started) -> Iterator[Fact]:
    """Yield a run, and what it was pledged. Raises `BudgetRefused` if its price does not fit."""
    name = record.run or ""
    population = state.populations[record.place]
    _require_open(population.row, event.noise_source)
    if name in state.runs:
        raise AlreadyThere(f"run id {name!r}", "there is a run of that id.", "leave the id out")
    if event.noise_source != SEEDED and event.key_commitment in state.keys:
        raise AlreadyThere(
            "the noise key", "another run has used it; the same noise under two sums would cancel.", "a fresh key"
        )
    require(event.format == FORMAT, "it is a run of another format")
    _require_seeds(state, record.place, event)
    individual = event.accounting == odometers.INDIVIDUAL
    require(population.row.individual or not individual, "it is charged to odometers, and the population has none")
    # Refusals of rows are `require`: no writer of this program makes such a row, so no nearest is named.
    require((event.pledged is not None) == individual, "it is pledged otherwise than it is charged")
    price = Price.from_json(event.price)
    _require_fitting(state, population, event, price)
    # By the time in the row, not by a clock: whoever reads the log again decides the same.
    window = population.window(record.at)
    if window is not None:
        planned = budget.loss(event.planned)
        window.require(budget.run_in_words(record.place, planned, population.terms), planned, price)
    yield RunRow(
        **said(RunRow, event),
        id=name,
        population=record.place,
        spent=budget.NOTHING.to_json(),
        started_at=record.at,
        started_by=record.actor,
    )
    if event.pledged is not None:
        yield Pledge(name, event.pledged)


def _require_fitting(state: State, population: FoldedPopulation, event: events.Started, price: Price) -> None:
    """Raise unless a run's price is what its planned loss costs, and fits in the population's rectangle."""
    planned, terms = budget.loss(event.planned), population.terms
    require(is_price(planned, price, state.thorough), "its price is not what its planned loss costs")
    # What users have left for it is checked with their odometers, which the log alone does not hold. Leaks are shared
    # by all users also where mu^2 is counted for each: D is not an odometer's.
    singly = event.pledged is not None
    committed = population.base() if singly else committed_of(population, event.largest)
    if not (committed.leak + price.leak <= terms.leak if singly else terms.hold(committed + price)):
        raise budget.refusal(population.row.name, planned, price, committed, terms)


def certify(state: State, population: str, plan_digest: str, law: str) -> events.SeedDrawn:
    """Draw a seed for the certified charge of a plan, with its number among those of its law, from 1.

    The i-th certificate may fail with half the probability of the one before, so a second try is paid for, also by a
    plan that differs in other things than its law, such as the noise: that is chosen after the number is known.
    """
    attempt = state.attempts.get((population, law), 0) + 1
    return events.SeedDrawn(attempt, plan_digest, secrets.token_bytes(16).hex(), law)


def certified(state: State, record: Record, event: events.SeedDrawn) -> Iterator[Fact]:
    """Yield a seed of a charge that is certified before its run is started."""
    require(record.place in state.populations, "a charge is certified for no population")
    require(record.run not in state.runs, "a charge is certified after its run was started")
    law = event.law or event.plan_digest
    before = state.attempts.get((record.place, law), 0)
    require(event.attempt == before + 1, "certificates are not numbered one after another")
    require(len(bytes.fromhex(event.seed)) == 16, "its seed has another length")
    yield Seed(record.place, law, event.plan_digest, event.attempt, event.seed)


def _require_seeds(state: State, population: str, event: events.Started) -> None:
    """Require that the seed of a certified charge was written down before, with the number that the charge uses."""
    for attempt, seed in budget.loss(event.planned).seeds:
        found = (population, event.plan_digest, attempt, seed)
        require(found in state.seeds, "the seed of its certified charge is not in the journal")


# -- while it is under way -----------------------------------------------------------------------------------


def under_way(state: State, record: Record) -> FoldedRun:
    """Return the run of a record. Raises `LedgerError` unless it is under way."""
    run = state.runs[record.run or ""]
    require(run.row.active, "the run has ended")
    require(record.population in (None, run.row.population), "it is a run of another population")
    return run


def require_resumable(run: RunRow, key_commitment: str) -> None:
    """Raise `LedgerError` unless the run is under way and `key_commitment` is that of its noise key."""
    if not run.active:
        raise OutOfTurn(f"run {run.id}", f"it has ended: {run.state}.", "start a new run")
    if run.key_commitment != key_commitment:
        why = "the noise key is not the one it was started with; other noise would break the guarantee."
        raise LedgerError(f"resuming run {run.id}", why, "the key file that belongs to it", code="other-key")


def resumed(state: State, record: Record, event: events.Resumed) -> Iterator[Fact]:
    """Yield a run that a coordinator took over."""
    row = under_way(state, record).row
    yield row._replace(message="", state=STATE_AFTER[row.request])


def interrupted(state: State, record: Record, event: events.RunInterrupted) -> Iterator[Fact]:
    """Yield a run that nobody holds."""
    yield under_way(state, record).row._replace(state="interrupted", message=event.message)


def request(state: State, run_id: str, wish: Request | None) -> events.Requested:
    """Ask something of a run's coordinator. Raises `BadInput` if the run has ended or is stopping."""
    if wish not in STATE_AFTER:
        raise Unknown(f"request {wish!r}", "there is no such request.", "stop, pause")
    row = state.runs[run_id].row
    if not row.active:
        raise NotNow(f"request to run {run_id}", f"it has ended: {row.state}.")
    if row.request == "stop" and wish != "stop":
        raise NotNow(f"request to run {run_id}", "it was asked to stop, which is not taken back.")
    return events.Requested(wish)


def requested(state: State, record: Record, event: events.Requested) -> Iterator[Fact]:
    """Yield a run that was asked something."""
    row = under_way(state, record).row
    # An interrupted run has no coordinator that could act: the request waits for the one that resumes it.
    after = row.state if row.state == "interrupted" else STATE_AFTER[event.request]
    yield row._replace(request=event.request, state=after)


CLOSED_AT_END = "its run ended before it was committed"

# -- its end -------------------------------------------------------------------------------------------------


def finish(
    state: State, run_id: str, end: EndState, message: str, settled: str | None, *, whole: bool = False
) -> events.Finished:
    """End a run.

    Args:
        settled: digest of what ended runs have cost each user, with this one; None where it is charged to all alike.
        whole: charge all that it reserved: what it released is not known.
    """
    row = state.runs[run_id].row
    spent = row.planned if whole else row.spent
    total = budget.loss(state.populations[row.population].row.settled) + budget.loss(spent)
    return events.Finished(end, message, spent, total.to_json(), settled, True if whole else None)


def finished(state: State, record: Record, event: events.Finished) -> Iterator[Fact]:
    """Yield the run as ended, and its population, which pays only for what the run spent."""
    run = under_way(state, record)
    row, population = run.row, state.populations[record.place].row
    if run.open is not None:
        left = run.attempts[run.open].row
        require(left.closing, "the run ends with a round open")
        # In one event with the run's end, after which no attempt follows.
        yield left.void(record.at, CLOSED_AT_END)
    right = row.planned if event.whole else row.spent
    require(event.spent == right, "it names a loss other than the committed one")
    settled = budget.loss(population.settled) + budget.loss(right)
    require(budget.loss(event.settled) == settled, "the settled total is not the sum")
    require((event.odometers is not None) == row.individual, "it settles otherwise than the run was charged")
    ended = row._replace(state=event.state, message=event.message, request=None, ended_at=record.at)
    yield ended._replace(spent=event.spent)
    yield population._replace(settled=event.settled)
    if event.odometers is not None:
        yield Odometers(population.name, event.odometers)


def key_destroyed(state: State, record: Record, event: events.KeyDestroyed) -> Iterator[Fact]:
    """Note that the key of an ended run is gone. Raises `BadInput` while it lives."""
    row = state.runs[record.run or ""].row
    if row.active:
        raise NotNow(f"the key of run {row.id}", f"the run is {row.state}.", "end it first")
    require(event.key_commitment == row.key_commitment, "it is the key of another run")
    yield from ()


# -- what a plan must say ------------------------------------------------------------------------------------


def _require_open(population: PopulationRow, noise_source: str) -> None:
    if population.state != "open":
        raise NotNow(f"a run on population {population.name!r}", f"it is {population.state}.", "another population")
    if noise_source == SEEDED and not population.simulated:
        raise NotAllowed(
            f"a fixed noise seed on population {population.name!r}",
            "who knows the seed can take the noise away, so the run would not be private.",
            "no seed, or a population created as simulated",
        )


def require_adjacency(population: PopulationRow | PopulationView, adjacency: object) -> None:
    """Raise `BadInput` unless what is priced under `adjacency` may be charged to `population`; None: it names none."""
    if adjacency is not None and adjacency != population.adjacency:
        why = f"the budget of population {population.name!r} is for {population.adjacency!r}."
        raise Differs(f"privacy.adjacency = {adjacency!r}", why, repr(population.adjacency))


def _require_schedule(population: PopulationRow, run: NewRun) -> None:
    """Refuse to show when rounds of real people end whose presence is secret: their time counts those people."""
    if not hides_presence(population.adjacency) or population.simulated:
        return
    table = _table(run.plan_json, "run")
    if table.get("round_seconds") is None:
        raise NotGiven(
            "run.round_seconds",
            f"population {population.name!r} is of real people under {PRESENCE!r}, and the time that a round takes "
            "tells how many of them took part: a plan must name the seconds between two releases.",
            f"round_seconds = {schedule_for(table.get('round_timeout', 600.0))}",
        )


def _require_reach(population: PopulationRow, run: NewRun) -> None:
    """Refuse what the noise cannot keep to real people: its numbers end, and a guarantee so weak goes beyond."""
    spec = _table(run.plan_json, "privacy")
    delta = float(spec.get("delta", population.delta))
    how = str(spec.get("noise_source", "aes-256-ctr")), str(spec.get("rounding", "none"))  # as `Plan.stored`
    if not population.simulated and beyond_noise(run.planned, delta, *how):
        why = f"with {' and '.join(how)}, what no number of the noise reaches is more probable than delta / 100."
        near = 'noise_source = "aes-256-ctr" and rounding = "grid", a smaller epsilon, or rounding = "discrete"'
        raise OutOfRange(f"epsilon = {run.planned.epsilon(delta):.3g} at delta = {decimal(delta)}", why, near)


def _require_callable(population: PopulationRow, run: NewRun) -> None:
    """Refuse secret cohorts of real people unless the plan states that they can be called at will."""
    spec = _table(run.plan_json, "participation")
    if population.simulated or spec.get("scheme") not in CALLED:
        return
    if spec.get("callable") is not True:
        raise Conflict(
            "participation.callable = false",
            f"population {population.name!r} is of real people, and scheme {spec['scheme']!r} calls each in the rounds "
            "that were drawn for them; people who come when they like decide that themselves, and it may show.",
            "callable = true where every user can be called at will (patients of a clinic, customers of a silo); else "
            "scheme = 'min-separation' with adjacency = 'zero_out'",
        )


def _table(plan_json: str, name: str) -> dict[str, Any]:
    """A table of a plan, empty where it has none. Raises `BadInput` unless the plan is a JSON object."""
    try:
        plan = json.loads(plan_json)
    except ValueError:
        plan = None
    if not isinstance(plan, dict):
        raise WrongForm("the plan", "it is not a JSON object.")
    table = plan.get(name)
    return table if isinstance(table, dict) else {}
