"""Shorthands for tests on ledgers."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from sqlalchemy import Connection, text

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.individual import Demand
from fieldfare_server.ledger import Ledger, NewRun, RunHandle

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
        "noise_source": "secure",
        "key_commitment": digest(f"key {np.random.default_rng().integers(2**60)}"),
        "trust_node_ids": False,
    }
    return ledger.start_run(NewRun(**{**values, **changes}), holder=holder)


def demand(most: int, rounds: int = 4, cohort: int = 1) -> Demand:
    """What a run asks of single users that costs each at most `most` units, half of it a round."""
    return Demand(most=most, costs=(most // 2, most), rounds=rounds, cohort=cohort, separation=1)


def commit(run: RunHandle, cohort: list[int], mu: float) -> None:
    """Open a round with `cohort` and commit it, with the run's cumulative mu."""
    opened = run.open_round(cohort)
    run.commit_round(opened, cohort, gaussian(mu), digest(f"{run.id} {opened.index}"), reports=len(cohort))


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
