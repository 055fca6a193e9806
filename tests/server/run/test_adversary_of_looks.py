"""Ask, train trials, choose one, find values, evaluate: how much each tells is chosen by what earlier ones released, to
the last of a budget. The exact delta of all that was released, as it was really noised, stays below the claim: of all
users where they are charged alike, and of each one where a tuning share and the others pay for what asked them; also
where sealed trials and other trainers are charged between them, in calendar windows, and some are killed or fail."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fieldfare as ff
from fieldfare.accounting.filter import Rectangle
from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.ranged import range_of
from fieldfare.errors import BudgetRefused, Refused
from fieldfare.plan import Plan
from fieldfare.plan_tables import TuningSpec
from fieldfare.questions import parse
from fieldfare_client import forked
from fieldfare_client import questions as node_questions
from fieldfare_client.app import user_names
from fieldfare_flower.messages import asked_users
from fieldfare_server import faults
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.questions import Asked
from fieldfare_server.run.presence import patience
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from oracles import questions as oracle
from support.federation import JOINED_ONCE, USERS, Lie, LyingGrid, plan
from support.liars import error

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
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok


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
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok


TUNES = TuningSpec(share=0.5, users="share")


WINDOW = 4.5
BROKEN = (
    *(("mean", "share", ""), ("metrics", "share", ""), ("foreign", "", ""), ("mean", "others", "strategy.privatised")),
    *(("mean", "share", "away"), ("sealed", "", "too dear"), ("sealed", "", ""), ("metrics", "share", "")),
    *(("train", "others", "checkpoint.pending"), ("foreign", "", "given back"), ("choose", "share", "strategy.summed")),
    *(("items", "", ""), ("evaluate", "others", "strategy.released"), ("metrics", "others", "strategy.summed")),
)
"""What is looked at, on which part, and what breaks: the point at which the process ends, before a second goes on."""
REST = (("mean", "share", ""), ("metrics", "others", ""), ("foreign", "", ""))
"""To the last of the budget."""
UNTOLD = ("away", "too dear", "given back")


class Told(NamedTuple):
    """What one user told: mu of all Gaussian looks and their leaks, and mu of the sealed trials."""

    looks: tuple[tuple[float, float], ...] = ()
    trials: tuple[float, ...] = ()

    def delta(self, epsilon: float) -> float:
        """The exact delta of all of it together, at an epsilon that was claimed."""
        leak, rest = math.fsum(d for _, d in self.looks), math.sqrt(math.fsum(mu**2 for mu, _ in self.looks))
        if self.trials:
            (trial,) = self.trials
            return leak + (1 - leak) * oracle.sealed_delta(trial, len(RATES), rest, epsilon)
        return leak + (1 - leak) * (oracle.delta(rest, epsilon) if rest else 0.0)

    def and_also(self, mu: float, leak: float, sealed: bool) -> Told:
        return self._replace(trials=(*self.trials, mu)) if sealed else self._replace(looks=(*self.looks, (mu, leak)))


RATES = (0.1, 1.0, 4.0)


@pytest.mark.skipif(bool(forked.why_not()), reason="sealed trials cannot be forked here")
def test_what_is_killed_fails_or_is_foreign_tells_no_more_than_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every step: each user's delta at what is said to be spent, and everybody's at what a week may begin."""
    now = [datetime(2026, 11, 23, 9, tzinfo=UTC).timestamp()]  # a Monday
    monkeypatch.setitem(Ledger.open.__func__.__kwdefaults__, "clock", lambda: now[0])  # type: ignore[attr-defined]
    monkeypatch.setattr(patience, "MOST_VOIDS", 2)
    monkeypatch.setattr(node_questions, "_models", {})
    state = StateDirectory(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population("people", BUDGET, DELTA, simulated=True, actor="test", leak=LEAK)
        ledger.set_window("people", epsilon=WINDOW, every="week", reason="agreed", actor="test")
    everybody = {int(name) for name in user_names(CODES)}
    of_user, of_week = dict.fromkeys(everybody, Told()), defaultdict[float, Told](Told)
    models: dict[str, list[str]] = {"share": [], "others": []}
    noise, refused, step, seen, done = 2.1, 0, 0, 0.3, set[tuple[str, str, str]]()
    codes = set[str]()
    while step < len(BROKEN) or (refused < 3 and step < 64):
        kind, part, broken = BROKEN[step] if step < len(BROKEN) else REST[step % len(REST)]
        step += 1
        at = noise * (1 + 0.2 * abs(math.sin(1e4 * seen)))
        made = kind, at, models[part or "others"], part, broken
        try:
            mu, leak, seen, users = at_once(state, made, step, now)
        except Refused as error:  # by budget or window, because too few can still pay, or nobody answered
            codes.add(error.code)
            assert broken != "given back"
            if error.code == "budget-refused":  # the end is told by it, however often too few users can pay before
                refused, noise = refused + 1, noise * 1.4
            mu, leak, users = 0.0, 0.0, set()
        told = mu, leak, kind == "sealed"
        if mu:
            of_week[now[0]] = of_week[now[0]].and_also(*told)
        for user in users or (everybody if mu else ()):
            of_user[user] = of_user[user].and_also(*told)
        if mu or broken in UNTOLD:
            done.add((kind, part, broken))
        with Ledger.open(state.ledger) as ledger:
            claimed = ledger.population("people").spent_epsilon
        assert all(told.delta(max(claimed, 1e-9)) <= DELTA for told in {*of_user.values()}), (step, kind)
        assert all(told.delta(WINDOW) <= DELTA for told in of_week.values())
    assert set(BROKEN) <= done, (set(BROKEN) - done, codes)
    assert "nothing-committed" in codes
    assert refused >= 3
    assert len(of_week) > 1
    worst = max(told.delta(BUDGET) for told in of_user.values())
    assert 1e-3 * DELTA < worst <= DELTA  # the claim is not idle
    with Ledger.open(state.ledger) as ledger:
        assert verify(ledger, state.root, recompute=recharge, held=[ledger.head()]).ok


def at_once(
    state: StateDirectory, made: tuple[Any, ...], step: int, now: list[float]
) -> tuple[float, float, float, set[int]]:
    """Take a step; where this week's window is full, a week later. Returns as `look_at`, mu 0 if nothing was told."""
    try:
        return broken_look(state, *made, step=step)
    except BudgetRefused as full:
        if full.code != "window-full" or made[-1] == "too dear":
            raise
        now[0] += 7 * 86400
        return broken_look(state, *made, step=step)


def broken_look(
    state: StateDirectory, kind: str, noise: float, models: list[str], part: str, broken: str, step: int
) -> tuple[float, float, float, set[int]]:
    if kind == "foreign":  # another trainer, which spends its mu as soon as that is reserved
        mu = 0.5 / noise
        with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
            ledger.reserve_charge("people", f"k{step}", Foreign(mu=mu), what="x", why="y", actor="trainer")
            close = ledger.release_charge if broken else ledger.commit_charge
            close("people", f"k{step}", actor="trainer", anyones=True)
        return (0.0 if broken else mu), 0.0, noise, set()
    if kind == "sealed":
        multiplier = 0.4 if broken else 1.2 * noise
        run = {"run__rounds": 1, "run__task": CODES, "run__accept_noise": True}
        joined = JOINED_ONCE | run | {"privacy__noise_multiplier": multiplier}
        over = {"server_optimizer.learning_rate": list(RATES)}
        tuned = ff.tune(plan(**joined), over, sealed=True, ledger=state.root, progress=False)
        # All trials together cost what the plan's one run would: each of them has more noise.
        trial = tuned.plan.privacy.noise_multiplier  # type: ignore[union-attr]
        assert trial is not None
        return 1 / trial, 0.0, float(tuned.trials[0].score or 0.0), set()  # type: ignore[union-attr]
    return look_at(state, kind, noise, models, part, broken)


def look_at(
    state: StateDirectory, kind: str, noise: float, models: list[str], part: str | None = None, broken: str = ""
) -> tuple[float, float, float, set[int]]:
    """One look: (mu of what it really told of a user at most, its leak, a number that it released, whom it asked).

    part: of users who pay each for themselves; "": both. None: all users are charged alike.
    broken: the fault point at which it ends, to be resumed; "away": no node answers.
    """
    accounting = {"accounting": "worst-case"} if part is None else {}
    tuning = {"tuning": {"share": TUNES.share, "users": part}} if part else {}
    joint = 1.0
    if kind in ("train", "metrics"):
        told = {"privacy__noise_multiplier": noise, "run__task": CODES, **tuning}
        one = {} if part is None else {"run__rounds": 1}  # all of it is released, or nothing
        if kind == "metrics":  # an update of norm 1 and two numbers of weight 1/2 each, in units of the clip norm
            one["metrics"] = {"show": {"loss": [0, 9], "correct": [0, 1]}, "weight": 0.5, "window": 1}
            joint = math.sqrt(1.5)
        made = plan(**JOINED_ONCE | told | one | {f"privacy__{key}": value for key, value in accounting.items()})
    else:
        made = asked(kind, noise, models, accounting, tuning)
    away: dict[int, Lie] = {2: error(3), 3: error(3)} if broken == "away" else {}
    fault = broken if broken != "away" else ""
    first, second = LyingGrid(2, away, task=CODES), LyingGrid(2, task=CODES)
    faults.load({faults.VARIABLE: f"{fault}:raise"} if fault else {})
    try:
        with Session.begin(state, made, identity_is_stable=True) as session:
            run = session.account.id
            with pytest.raises(faults.FaultInjected) if fault else contextlib.nullcontext():
                FieldfareStrategy(session).start(first)
    finally:
        faults.load({})
    if fault:
        with Session.resume(state, run, identity_is_stable=True) as session:
            FieldfareStrategy(session).start(second)
    std = session.rounds.running_noise.privatiser.std
    number, clip, eta = float(session.params.sum()), session.rounds.clipping.bound * joint, 0.0
    if kind == "choose":
        question = parse(made.task["question"])  # type: ignore[arg-type]
        eta = question.eta(session.noise_multiplier, 2 * question.box) * 2 * question.box  # type: ignore[operator, attr-defined]
    users = {int(user) for sent in second.seen or first.seen for user in asked_users(sent.content)}
    if kind in ("train", "metrics"):
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
