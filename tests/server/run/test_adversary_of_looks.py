"""Ask, train trials, choose one, find values, evaluate: how much each tells is chosen by what earlier ones released, to
the last of a budget. The exact delta of all that was released, as it was really noised, stays below the claim."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fieldfare.accounting.filter import Rectangle
from fieldfare.accounting.ranged import range_of
from fieldfare.errors import BudgetRefused
from fieldfare.plan import Plan
from fieldfare.questions import parse
from fieldfare_client import questions as node_questions
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from oracles import questions as oracle
from support.federation import JOINED_ONCE, USERS, LyingGrid, plan

BUDGET, DELTA, LEAK = 6.0, 1e-5, 1e-6
SEQUENCE = ("mean", "train", "train", "choose", "items", "evaluate")
"""The two that train are trials, of which the choice takes one."""
CODES = "server.run.test_items:Codes"


def test_no_choice_of_looks_tells_more_than_the_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateDirectory(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", BUDGET, DELTA, simulated=True, actor="test", leak=LEAK)
    monkeypatch.setattr(node_questions, "_models", {})
    mus, leaks, done = list[float](), list[float](), list[str]()
    models: list[str] = []
    noise, refused, step, seen = 2.1, 0, 0, 0.3
    sound = Rectangle.of(BUDGET, DELTA, LEAK)
    while refused < 4 and step < 24:
        kind = SEQUENCE[step] if step < len(SEQUENCE) else ("mean", "items")[step % 2]
        # The adversary answers to what it saw: how much is told next follows from it.
        told = noise * (1 + 0.2 * abs(math.sin(1e4 * seen)))
        step += 1
        try:
            mu, leak, seen = look_at(state, kind, told, models)
        except BudgetRefused:
            refused, noise = refused + 1, noise * 1.9
            continue
        mus.append(mu)
        leaks.append(leak)
        done.append(kind)
    assert {"mean", "train", "choose", "items", "evaluate"} <= set(done)
    assert refused >= 3
    # Each look is dominated by the (mu, leak) of what was really made, and all are charged to all users alike.
    mu, leak = math.sqrt(math.fsum(each**2 for each in mus)), math.fsum(leaks)
    assert leak <= LEAK
    assert leak + (1 - leak) * oracle.delta(mu, BUDGET) <= DELTA
    assert mu**2 <= sound.mu_squared
    assert mu**2 > 0.5 * sound.mu_squared  # the claim is not idle
    with Ledger.open(state.ledger) as ledger:
        assert verify(ledger, state.root, recompute=recharge, held=ledger.head()).ok


def look_at(state: StateDirectory, kind: str, noise: float, models: list[str]) -> tuple[float, float, float]:
    """One look: (mu of what it really told of a user at most, its leak, a number that it released)."""
    if kind == "train":
        told = {"privacy__noise_multiplier": noise, "privacy__accounting": "worst-case", "run__task": CODES}
        made = plan(**JOINED_ONCE, **told)
    else:
        made = asked(kind, noise, models)
    with Session.begin(state, made, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(LyingGrid(2, task=CODES))
        std = session.rounds.running_noise.privatiser.std
        run, number = session.account.id, float(session.params.sum())
        clip, eta = session.rounds.clipping.bound, 0.0
        if kind == "choose":
            question = parse(made.task["question"])  # type: ignore[arg-type]
            eta = question.eta(session.noise_multiplier, 2 * question.box) * 2 * question.box  # type: ignore[operator, attr-defined]
    if kind == "train":
        models.append(run)
    if kind == "choose":
        # The law of a choice of range r is a coin's, exactly; its mu is the Gaussian that dominates it.
        assert eta == pytest.approx(range_of(1 / noise), rel=1e-6)
        return -2 * oracle_quantile(1 / (1 + math.exp(eta / 2))), 0.0, number
    return clip / std, 1e-7 if kind == "items" else 0.0, number


def oracle_quantile(p: float) -> float:
    """The quantile of the normal law, by bisection of its integral."""
    low, high = -40.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.5 * math.erfc(-middle / math.sqrt(2)) < p else (low, middle)
    return low


def asked(kind: str, noise: float, models: list[str]) -> Plan:
    tables: dict[str, dict[str, Any]] = {
        "mean": {"kind": "mean", "measure": "code", "low": -50, "high": 50},
        "items": {"kind": "items", "measure": "code", "most": 2, "leak": 1e-7},
        "evaluate": {"kind": "mean", "measure": "loss", "low": 0, "high": 9, "model": (models or ["none"])[-1]},
        "choose": {"kind": "choose", "measure": "loss", "models": models[:2], "shows": "best"},
    }
    privacy = {"population": "people", "noise_multiplier": noise, "delta": DELTA, "accounting": "worst-case"}
    run = {"task": CODES, "cohort": USERS, "min_reports": 4, "round_timeout": 5.0}
    return Asked.of({"question": tables[kind], "run": run, "privacy": privacy}).plan_for_nodes()
