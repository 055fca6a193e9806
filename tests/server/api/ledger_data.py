"""A real ledger with real runs in it, for tests of what the service says about them."""

from __future__ import annotations

import hashlib

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.plan import Plan
from fieldfare_server.ledger import Ledger, NewRun, OpenRound, Outcome, RunHandle
from support.ledgers import WITHOUT_NONCES

USERS = 500
SIGMA = 4.0


def plan(rounds: int = 16, *, adjacency: str = "zero_out", kind: str = "independent", sigma: float = SIGMA) -> Plan:
    """Each user at most 4 times, a quarter of the rounds apart."""
    return Plan.parse(
        {
            "privacy": {
                "population": "aircraft",
                "noise_multiplier": sigma,
                "delta": 1e-5,
                "adjacency": adjacency,
            },
            "run": {"task": "flights", "rounds": rounds, "cohort": 50, "min_reports": 40},
            "participation": {"scheme": "min-separation", "separation": rounds // 4, "max_participations": 4},
            "mechanism": {"kind": kind},
        }
    )


def new_ledger(url: str, *, epsilon: float = 8.0) -> Ledger:
    ledger = Ledger.open(url, create=True)
    ledger.create_population("aircraft", epsilon, 1e-5, actor="officer")
    return ledger


def start(
    ledger: Ledger,
    name: str,
    rounds: int = 16,
    source: str = WITHOUT_NONCES,
    described: Plan | None = None,
    sigma: float = SIGMA,
) -> RunHandle:
    described = described or plan(rounds, sigma=sigma)
    # Independent noise, at most 4 rounds a user: mu^2 = 4 / sigma^2.
    planned = PrivacyLoss(mu_squared=4 / sigma**2)
    handle = ledger.start_run(
        NewRun(
            described.to_json(),
            described.digest(),
            "aircraft",
            rounds,
            planned,
            noise_source=source,
            key_commitment=hashlib.sha256(name.encode()).hexdigest(),
            trust_node_ids=False,
            id=name,
        ),
        holder="test",
    )
    handle.register_users(np.arange(max(USERS, 50 * (rounds // 4)), dtype=np.uint64))
    return handle


def commit(
    handle: RunHandle, *, late: int = 2, sigma: float = SIGMA, better: float = 0.0, opened: OpenRound | None = None
) -> None:
    t = handle.next_round
    every = handle.rounds // 4
    cohort = np.arange(50) + 50 * (t % every)
    opened = opened or handle.open_round(cohort)
    done = min(4, t // every + 1)
    handle.commit_round(
        opened,
        Outcome(
            cohort[late:],
            PrivacyLoss(mu_squared=done / sigma**2),
            {
                "score": 0.6 + t / 100 + better,
                "score_name": "AUC",
                "noise_std": SIGMA / 50,
                "noise_norm": 0.8,
                "released_norm": 1.0,
            },
            {"late": late} if late else {},
            reports=50 - late,
        ),
        hashlib.sha256(f"{handle.id}{t}".encode()).hexdigest(),
    )


def whole(ledger: Ledger, name: str, *, sigma: float = SIGMA, better: float = 0.0) -> None:
    """A run that committed all its rounds; its last score is .75 + better."""
    handle = start(ledger, name, sigma=sigma)
    for _ in range(handle.rounds):
        commit(handle, sigma=sigma, better=better)
    handle.finish("done", "all rounds committed")


def void(handle: RunHandle) -> None:
    opened = handle.open_round(np.arange(10))
    handle.void_round(opened, "3 reports, 40 needed", reports=3, rejects={"error reply": 7})


def forge(ledger: Ledger, *statements: str) -> None:
    """Change what no writer of the ledger would, past the database's own guards."""
    with ledger.database.engine.connect() as connection, connection.begin():
        run = connection.exec_driver_sql
        if connection.dialect.name == "postgresql":
            for table in ("audit", "head"):
                run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        else:
            for name in run("SELECT name FROM sqlite_master WHERE type = 'trigger'").scalars().all():
                run(f"DROP TRIGGER {name}")
        for statement in statements:
            run(statement)
