"""Ask, train trials, choose one, find values, evaluate: how much each tells is chosen by what earlier ones released, to
the last of a budget. The exact delta of all that was released, as it was really noised, stays below the claim: of all
users where they are charged alike, and of each one where a tuning share and the others pay for what asked them."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from fieldfare.accounting.filter import Rectangle
from fieldfare.accounting.ranged import range_of
from fieldfare.errors import BudgetRefused, Refused
from fieldfare.plan import Plan
from fieldfare.plan_tables import TuningSpec
from fieldfare.questions import parse
from fieldfare_client import questions as node_questions
from fieldfare_client.app import user_names
from fieldfare_flower.messages import asked_users
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
            mu, leak, seen, _ = look_at(state, kind, told, models)
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


SHARED = (
    *(("mean", "share"), ("train", "share"), ("train", "share"), ("choose", "share"), ("train", "others")),
    *(("evaluate", "others"), ("items", ""), ("mean", "others"), ("evaluate", "share"), ("train", "others")),
)
"""What is looked at, and on which part of the users: tune on the share, train the others, and evaluate on both."""


def test_no_user_of_either_part_tells_more_than_the_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom a look asked is read from what the nodes were sent, and not from what the ledger says that it charged."""
    state = StateDirectory(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", BUDGET, DELTA, simulated=True, actor="test", leak=LEAK)
    monkeypatch.setattr(node_questions, "_models", {})
    told: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    models: dict[str, list[str]] = {"share": [], "others": []}
    noise, refused, step, seen, done = 1.9, 0, 0, 0.3, set[tuple[str, str]]()
    while refused < 6 and step < 40:
        kind, part = SHARED[step % len(SHARED)]
        at = noise * (1 + 0.2 * abs(math.sin(1e4 * seen)))
        step += 1
        try:
            mu, leak, seen, users = look_at(state, kind, at, models[part or "others"], part)
        except Refused:  # by the budget, or because too few can still pay
            refused, noise = refused + 1, noise * 1.4
            continue
        assert users
        for user in users:
            told[user].append((mu, leak))
        done.add((kind, part))
    assert set(SHARED) <= done
    assert refused == 6
    names = user_names(CODES)
    tunes = set(names[TUNES.takes("people", names)].tolist())
    most = dict.fromkeys((True, False), 0.0)
    for user, looks in told.items():
        mu_squared, leak = (math.fsum(column) for column in zip(*((mu**2, d) for mu, d in looks), strict=True))
        assert leak <= LEAK
        assert leak + (1 - leak) * oracle.delta(math.sqrt(mu_squared), BUDGET) <= DELTA
        most[user in tunes] = max(most[user in tunes], mu_squared)
    # Neither part's claim is idle, nor has one paid for the other.
    sound = Rectangle.of(BUDGET, DELTA, LEAK).mu_squared
    assert all(0.5 * sound < each <= sound for each in most.values())
    with Ledger.open(state.ledger) as ledger:
        assert verify(ledger, state.root, recompute=recharge, held=ledger.head()).ok


TUNES = TuningSpec(share=0.5, users="share")


def look_at(
    state: StateDirectory, kind: str, noise: float, models: list[str], part: str | None = None
) -> tuple[float, float, float, set[int]]:
    """One look: (mu of what it really told of a user at most, its leak, a number that it released, whom it asked).

    part: of users who pay each for themselves; "": both. None: all users are charged alike.
    """
    accounting = {"accounting": "worst-case"} if part is None else {}
    tuning = {"tuning": {"share": TUNES.share, "users": part}} if part else {}
    if kind == "train":
        told = {"privacy__noise_multiplier": noise, "run__task": CODES, **tuning}
        one = {} if part is None else {"run__rounds": 1}  # all of it is released, or nothing
        made = plan(**JOINED_ONCE | told | one | {f"privacy__{key}": value for key, value in accounting.items()})
    else:
        made = asked(kind, noise, models, accounting, tuning)
    grid = LyingGrid(2, task=CODES)
    with Session.begin(state, made, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)
        std = session.rounds.running_noise.privatiser.std
        run, number = session.account.id, float(session.params.sum())
        clip, eta = session.rounds.clipping.bound, 0.0
        if kind == "choose":
            question = parse(made.task["question"])  # type: ignore[arg-type]
            eta = question.eta(session.noise_multiplier, 2 * question.box) * 2 * question.box  # type: ignore[operator, attr-defined]
    users = {int(user) for sent in grid.seen for user in asked_users(sent.content)}
    if kind == "train":
        models.append(run)
    if kind == "choose":
        # The law of a choice of range r is a coin's, exactly; its mu is the Gaussian that dominates it.
        assert eta == pytest.approx(range_of(1 / noise), rel=1e-6)
        return -2 * oracle_quantile(1 / (1 + math.exp(eta / 2))), 0.0, number, users
    return clip / std, 1e-7 if kind == "items" else 0.0, number, users


def oracle_quantile(p: float) -> float:
    """The quantile of the normal law, by bisection of its integral."""
    low, high = -40.0, 40.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.5 * math.erfc(-middle / math.sqrt(2)) < p else (low, middle)
    return low


def asked(kind: str, noise: float, models: list[str], accounting: dict[str, str], tuning: dict[str, Any]) -> Plan:
    tables: dict[str, dict[str, Any]] = {
        "mean": {"kind": "mean", "measure": "code", "low": -50, "high": 50},
        "items": {"kind": "items", "measure": "code", "most": 2, "leak": 1e-7},
        "evaluate": {"kind": "mean", "measure": "loss", "low": 0, "high": 9, "model": (models or ["none"])[-1]},
        "choose": {"kind": "choose", "measure": "loss", "models": models[:2], "shows": "best"},
    }
    privacy = {"population": "people", "noise_multiplier": noise, "delta": DELTA, **accounting}
    users = TUNES.model_copy(update={"users": tuning["tuning"]["users"]}) if tuning else None
    names = user_names(CODES)
    cohort = USERS if users is None else int(users.takes("people", names).sum())
    run = {"task": CODES, "cohort": cohort, "min_reports": 4, "round_timeout": 5.0}
    return Asked.of({"question": tables[kind], "run": run, "privacy": privacy, **tuning}).plan_for_nodes()
