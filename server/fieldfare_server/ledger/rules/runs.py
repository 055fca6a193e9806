"""Runs as the ledger admits, steers and settles them; `run_handle` is what their coordinator writes."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.accounting.individual import Demand, Units
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.names import is_name
from fieldfare.participation import CALLED
from fieldfare_server.ledger.chain import sha256
from fieldfare_server.ledger.schedule import scheduled
from fieldfare_server.ledger.sql import leases, models, odometer_tables
from fieldfare_server.ledger.sql.journal import Entry, Journal, clean
from fieldfare_server.ledger.sql.rows import population_name, population_row, run_row
from fieldfare_server.ledger.state import budget, odometers
from fieldfare_server.ledger.state.admission import Position, admit
from fieldfare_server.ledger.state.replay import Replay
from fieldfare_server.ledger.states import ACTIVE, STATE_AFTER, EndState, Request

CERTIFY = "run.certify"
"""The journal's action for the seed of a certified charge, before the run is started."""
RESIDUAL_TEST = "run.audit"
"""The journal's action for the result of a residual test."""


def new_run_id() -> str:
    """A fresh run id: 48 random bits in hex."""
    return secrets.token_hex(6)


@dataclass(frozen=True)
class NewRun:
    """What a run is admitted by.

    Args:
        plan_json: a JSON object; where it has `privacy.adjacency`, that must be the population's.
        plan_digest: the plan's digest, as `Plan.digest` computes it.
        population: the population whose budget is charged.
        rounds: at least 1.
        planned: the loss that is reserved: what the run spends if it reaches its end.
        noise_source: what turns the key into noise; "seeded" for a fixed seed, which only simulated populations accept.
        key_commitment: `files.key_commitment` of the noise key. A key serves one run.
        trust_node_ids: whether participation limits rest on what nodes say of themselves.
        format: how its noise is drawn and its charge computed: from `models.NONCES` on each commit carries a nonce and
            the present rule charges, from `models.STAIRCASE` on map 3 makes floats; 0: the first version of all.
        leak: d of the run's price: of a sampled run, how much of the population's D it takes (None:
            `filter.RUN_SHARE` of what is left); of another, what its noise leaks (`Cost.leak`; None: nothing).
        id: the run's id, at most 40 characters.
        strategy: SHA-256 of the stored strategy that the run applies.
        demand: what the run asks of single users, under individual accounting. None: it is charged to all users alike,
            and so is every run on a population without odometers.
    """

    plan_json: str
    plan_digest: str
    population: str
    rounds: int
    planned: PrivacyLoss
    noise_source: str
    key_commitment: str
    trust_node_ids: bool
    format: int = 0
    leak: float | None = None
    id: str = field(default_factory=new_run_id)
    strategy: str | None = None
    demand: Demand | None = None


def start(journal: Journal, run: NewRun, holder: str, lease_seconds: float) -> int:
    """Reserve the price of `run.planned` and insert the run, in one transaction; returns the token of its first lease.

    Of two runs that race for the last of a budget, one is refused.

    Under individual accounting the run is pledged to each user, up to what that user has left (`odometers`).

    Raises:
        BudgetRefused: the prices of what is spent, reserved and planned exceed the budget, or too few users have enough
            left.
        BadInput: a leak out of range, a loss known by zCDP alone, an unknown or closed population, another adjacency, a
        taken id, a key that another run has used, a
            fixed seed on real people, or, under `add_remove` on real people, a plan without `run.round_seconds`.
    """
    adjacency = _adjacency(run.plan_json)
    if not is_name(run.id) or len(run.id) > 40:
        raise BadInput(f"run id {run.id!r}", "an id is letters, digits, '.', '_' and '-', at most 40.")
    if run.rounds < 1:
        raise BadInput(f"rounds = {run.rounds}", "must be at least 1.", "1")
    if not is_name(run.noise_source) or len(run.noise_source) > 40:
        raise BadInput(f"noise source {run.noise_source!r}", "a source has a name of at most 40 letters and digits.")
    if run.planned.concentrated:
        raise BadInput("a run of which only rho-zCDP is known", "has no price that holds across runs.")
    if run.leak is not None and not 0 <= run.leak < 1:
        raise BadInput(f"leak = {run.leak}", "must be at least 0, and below delta.", "1e-7")
    while True:
        # Priced before the transaction: under sampling a price is a numerical convolution, and other writers wait.
        with journal.database.read() as connection:
            population_row(connection, run.population)
        seen = journal.proof.ask(lambda replay: replay.populations[run.population].position(run.population))
        cost = budget.quote(run.planned, seen.alike, seen.terms, run.leak)
        with contextlib.suppress(_Moved):
            return _insert(journal, run, adjacency, seen, cost, holder, lease_seconds)


class _Moved(Exception):
    """Another run started or ended since the price was quoted, so its leak was chosen by old numbers."""


def _insert(
    journal: Journal,
    run: NewRun,
    adjacency: object,
    seen: Position,
    cost: Price,
    holder: str,
    lease_seconds: float,
) -> int:
    """`start` in one transaction, at the price `cost` that was quoted at `seen`. Raises `_Moved`, and as `start`."""
    described = {
        "plan_digest": run.plan_digest,
        "rounds": run.rounds,
        "planned": run.planned.to_json(),
        "price": cost.to_json(),
        "noise_source": run.noise_source,
        "key_commitment": run.key_commitment,
        "trust_node_ids": run.trust_node_ids,
        "format": run.format,
        "strategy": run.strategy,
    }

    def work(connection: Connection, entry: Entry, replay: Replay) -> int:
        population = population_row(connection, run.population)
        _require_open(population, run, adjacency)
        _require_schedule(population, run)
        _require_callable(population, run)
        _require_unused(connection, run)
        proven = replay.populations[run.population]
        position = proven.position(run.population)
        try:
            admit(position, run.planned, cost, run.demand)
        except BudgetRefused:
            if (position.alike, position.committed) != (seen.alike, seen.committed):
                raise _Moved from None
            raise
        caps: Units | None = None
        charged: dict[str, Any] = {"accounting": odometers.WORST_CASE, "most": None}
        if run.demand is not None and position.room is not None:
            caps = odometers.pledge(position.room, run.demand.most)
            charged = {"accounting": odometers.INDIVIDUAL, "most": run.demand.most}
        values = {
            **described,
            **charged,
            "id": run.id,
            "population_id": population.id,
            "plan": run.plan_json,
            "started_at": entry.now,
            "started_by": clean(holder, 200),
        }
        begun = {"spent": budget.NOTHING.to_json(), "state": "running", "request": None, "message": "", "next_round": 0}
        seq = connection.execute(
            insert(models.runs).values({**values, **begun}).returning(models.runs.c.seq)
        ).scalar_one()
        token = leases.create(connection, seq, clean(holder, 300), lease_seconds, entry.now)
        body = {**described, **charged, "plan": sha256(run.plan_json.encode())}
        if caps is not None:
            odometer_tables.write_caps(connection, seq, caps)
            body["pledged"] = odometers.digest(caps)
        elif proven.individual:
            # What is committed of the user who has least left: the journal's reader has no odometers at hand.
            body["largest"] = proven.largest(position.terms)
        entry.append("run.start", holder, body, population=run.population, run=run.id)
        return token

    return journal.admit(work)


def draw_seed(journal: Journal, run_id: str, population: str, plan_digest: str, actor: str) -> tuple[bytes, int]:
    """Write a fresh seed into the journal, with its number among all that this plan was given, from 1; returns both.

    The i-th certificate of a plan may fail with half the probability of the one before, so a second try is paid for.
    """

    def work(connection: Connection, entry: Entry) -> tuple[bytes, int]:
        population_row(connection, population)
        c = models.journal.c
        rows = connection.execute(select(c.body).where(c.action == CERTIFY, c.population == population)).scalars()
        attempt = 1 + sum(json.loads(body)["plan_digest"] == plan_digest for body in rows)
        seed = secrets.token_bytes(16)
        body = {"attempt": attempt, "plan_digest": plan_digest, "seed": seed.hex()}
        entry.append(CERTIFY, actor, body, population=population, run=run_id)
        return seed, attempt

    return journal.write(work)


def request(journal: Journal, run_id: str, wish: Request | None, actor: str) -> None:
    """Record what a person asks of a run's coordinator. Raises `BadInput` if the run has ended or is stopping."""
    if wish not in STATE_AFTER:
        raise BadInput(f"request {wish!r}", "there is no such request.", "stop, pause")

    def work(connection: Connection, entry: Entry) -> None:
        row = run_row(connection, run_id)
        entry.now = scheduled(row, entry.now)
        if row.state not in ACTIVE:
            raise BadInput(f"request to run {run_id}", f"it has ended: {row.state}.")
        if row.request == "stop" and wish != "stop":
            raise BadInput(f"request to run {run_id}", "it was asked to stop, which is not taken back.")
        # An interrupted run has no coordinator that could act: the request waits for the one that resumes it.
        state = row.state if row.state == "interrupted" else STATE_AFTER[wish]
        values = {"request": wish, "state": state}
        connection.execute(update(models.runs).where(models.runs.c.seq == row.seq).values(values))
        entry.append("run.request", actor, {"request": wish}, run=run_id)

    journal.write(work)


def settle(connection: Connection, entry: Entry, run_id: str, state: EndState, message: str, actor: str) -> None:
    """End a run in the caller's transaction: its spent loss joins the population's settled total."""
    run = run_row(connection, run_id)
    c, message = models.populations.c, clean(message, 2000)
    population = connection.execute(select(models.populations).where(c.id == run.population_id)).one()
    settled = PrivacyLoss.from_json(population.settled) + PrivacyLoss.from_json(run.spent)
    connection.execute(update(models.populations).where(c.id == population.id).values(settled=settled.to_json()))
    values = {"state": state, "message": message, "request": None, "ended_at": entry.now}
    connection.execute(update(models.runs).where(models.runs.c.seq == run.seq).values(values))
    leases.give_back(connection, run.seq)
    body = {"state": state, "message": message, "spent": run.spent, "settled": settled.to_json()}
    if run.accounting == odometers.INDIVIDUAL:
        body["odometers"] = odometer_tables.settle(connection, population, run)
    entry.append("run.finish", actor, body, population=population.name, run=run_id)


def record_residual_test(journal: Journal, run_id: str, result: Mapping[str, Any], actor: str) -> None:
    """Record the result of a residual test. Raises `BadInput` if there is no such run, ValueError on NaN."""

    def work(connection: Connection, entry: Entry) -> None:
        row = run_row(connection, run_id)
        entry.now = scheduled(row, entry.now)
        population = population_name(connection, row.population_id)
        entry.append(RESIDUAL_TEST, actor, result, population=population, run=run_id)

    journal.write(work)


def record_key_destroyed(journal: Journal, run_id: str, actor: str) -> None:
    """Record that an ended run's key, noise state and checkpoints are destroyed. Raises `BadInput` while it lives."""

    def work(connection: Connection, entry: Entry) -> None:
        run = run_row(connection, run_id)
        if run.state in ACTIVE:
            raise BadInput(f"the key of run {run_id}", f"the run is {run.state}.", "end it first")
        entry.now = scheduled(run, entry.now)
        body = {"key_commitment": run.key_commitment}
        entry.append(
            "run.key_destroyed", actor, body, population=population_name(connection, run.population_id), run=run_id
        )

    journal.write(work)


def _require_open(population: Row[Any], run: NewRun, adjacency: object) -> None:
    if population.state != "open":
        raise BadInput(f"a run on population {population.name!r}", "it is closed.", "another population")
    if run.noise_source == models.SEEDED and not population.simulated:
        raise BadInput(
            f"a fixed noise seed on population {population.name!r}",
            "who knows the seed can take the noise away, so the run would not be private.",
            "no seed, or a population created as simulated",
        )
    if adjacency is not None and adjacency != population.adjacency:
        raise BadInput(
            f"privacy.adjacency = {adjacency!r}",
            f"the budget of population {population.name!r} is for {population.adjacency!r}.",
            repr(population.adjacency),
        )


def _require_schedule(population: Row[Any], run: NewRun) -> None:
    """Refuse to show when rounds of real people under `add_remove` end: the time that they take counts those people."""
    if population.adjacency != "add_remove" or population.simulated:
        return
    table = json.loads(run.plan_json).get("run")
    if not isinstance(table, dict) or table.get("round_seconds") is None:
        timeout = table.get("round_timeout", 600.0) if isinstance(table, dict) else 600.0
        raise BadInput(
            "run.round_seconds",
            f"population {population.name!r} is of real people under 'add_remove', and the time that a round takes "
            "tells how many of them took part: a plan must name the seconds between two releases.",
            f"round_seconds = {3 * timeout:g}",
        )


def _require_callable(population: Row[Any], run: NewRun) -> None:
    """Refuse secret cohorts of real people unless the plan states that they can be called at will."""
    spec = json.loads(run.plan_json).get("participation")
    if population.simulated or not isinstance(spec, dict) or spec.get("scheme") not in CALLED:
        return
    if spec.get("callable") is not True:
        raise BadInput(
            "participation.callable = false",
            f"population {population.name!r} is of real people, and scheme {spec['scheme']!r} calls each in the rounds "
            "that were drawn for them; people who come when they like decide that themselves, and it may show.",
            "callable = true where every user can be called at will (patients of a clinic, customers of a silo); else "
            "scheme = 'min-separation' with adjacency = 'zero_out'",
        )


def _require_unused(connection: Connection, run: NewRun) -> None:
    c = models.runs.c
    if connection.execute(select(c.id).where(c.id == run.id)).first():
        raise BadInput(f"run id {run.id!r}", "there is a run of that id.", "leave the id out")
    same_key = select(c.id).where(c.key_commitment == run.key_commitment)
    if run.noise_source != models.SEEDED and connection.execute(same_key).first():
        raise BadInput(
            "the noise key", "another run has used it; the same noise under two sums would cancel.", "a fresh key"
        )


def _adjacency(plan_json: str) -> object:
    """`privacy.adjacency` of a plan, None where it has none. Raises `BadInput` unless the plan is a JSON object."""
    try:
        plan = json.loads(plan_json)
    except ValueError:
        plan = None
    if not isinstance(plan, dict):
        raise BadInput("the plan", "it is not a JSON object.")
    privacy = plan.get("privacy")
    return privacy.get("adjacency") if isinstance(privacy, dict) else None
