"""Shorthands for tests on ledgers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import fsum
from typing import Any

import numpy as np
from sqlalchemy import Connection, text

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.accounting.individual import Demand
from fieldfare_server.ledger import Ledger, NewRun, Outcome, RunHandle
from fieldfare_server.ledger.state import budget
from fieldfare_server.ledger.state.state import State

WITHOUT_NONCES = "secure-box-muller"
"""A noise source whose rounds have no nonces, as converted runs have one: most tests are about something else."""
PLAN = '{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}'


def gaussian(mu: float) -> PrivacyLoss:
    """The loss of a Gaussian mechanism with mu = sensitivity / noise multiplier."""
    return PrivacyLoss(mu_squared=mu * mu, sampled=())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def start(ledger: Ledger, mu: float = 0.8, rounds: int = 4, holder: str = "test", **changes: Any) -> RunHandle:
    """Start a run on population `people` with a fresh key; `changes` are fields of its `NewRun`."""
    values: dict[str, Any] = {
        "plan_json": PLAN,
        "plan_digest": digest(PLAN),
        "population": "people",
        "rounds": rounds,
        "planned": gaussian(mu),
        "noise_source": WITHOUT_NONCES,
        "key_commitment": digest(f"key {np.random.default_rng().integers(2**60)}"),
        "trust_node_ids": False,
    }
    return ledger.start_run(NewRun(**{**values, **changes}), holder=holder)


def proven(ledger: Ledger) -> State:
    """What the journal of a ledger proves, which all its tables say too."""
    with ledger.read() as connection:
        return ledger.proof.require(connection)


def demand(most: int, rounds: int = 4, cohort: int = 1) -> Demand:
    """What a run asks of single users that costs each at most `most` units, half of it a round."""
    return Demand(most=most, costs=(most // 2, most), rounds=rounds, cohort=cohort, separation=1)


def commit(run: RunHandle, cohort: list[int], mu: float) -> None:
    """Open a round with `cohort` and commit it, with the run's cumulative mu."""
    opened = run.open_round(cohort)
    run.commit_round(opened, Outcome(cohort, gaussian(mu), reports=len(cohort)), digest(f"{run.id} {opened.index}"))


def plain_sums(charges: list[budget.RunCharge], foreign: Sequence[tuple[str, str]] = ()) -> budget.Sums:
    """What all users of a population are charged alike, summed from every run and every (price, state) of `foreign`."""
    each = [budget.parts(charge) for charge in charges]
    others = [(Price.from_json(price), state) for price, state in foreign if state != "released"]
    spent = [part.spent for part in each] + [price for price, state in others if state == "committed"]
    committed = [part.committed for part in each] + [price for price, _ in others]
    return budget.Sums(
        *(Price(fsum(p.mu_squared for p in some), fsum(p.leak for p in some)) for some in (spent, committed))
    )


def edit_behind_the_guards(connection: Connection, statement: str) -> None:
    """What somebody can do who owns the database: take the triggers away, edit, and put them back."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        assert connection.execute(text(statement)).rowcount > 0
        return
    guards = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")).all()
    for name, _ in guards:
        connection.execute(text(f"DROP TRIGGER {name}"))
    assert connection.execute(text(statement)).rowcount > 0
    for _, made in guards:
        connection.execute(text(made))
