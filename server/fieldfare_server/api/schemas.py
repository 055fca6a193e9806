"""The response schemas: frozen pydantic models with one vocabulary; an epsilon always stands with its delta."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fieldfare.accounting.foreign import Loss as ForeignLoss
from fieldfare.names import LONGEST_NAME, NAME
from fieldfare_server.evidence.guarantee import Guarantee
from fieldfare_server.ledger import states
from fieldfare_server.planning.what_if import Bound

T = TypeVar("T")

Request = Literal["stop", "pause", "resume"]
"""What an administrator may ask of a run."""


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


def _like(**example: Any) -> ConfigDict:
    """The configuration of a frozen answer with this example in the OpenAPI document."""
    return ConfigDict(frozen=True, json_schema_extra={"examples": [example]})


_LOSS: dict[str, Any] = {"epsilon": 0.61, "delta": 1e-5, "rho": 0.0093, "mu": 0.136}
_PLANNED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "rho": 0.022, "mu": 0.21}
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_RUN: dict[str, Any] = {
    "id": "7f3a90c1d2e4",
    "population": "aircraft",
    "state": "running",
    "request": None,
    "task": "flights",
    "mechanism": "nu",
    "adjacency": "zero_out",
    "rounds": 64,
    "committed_rounds": 24,
    "planned": _PLANNED,
    "spent": _LOSS,
    "score": 0.672,
    "score_name": "AUC",
    "started_at": "2026-01-01T12:00:00Z",
    "updated_at": "2026-01-01T12:24:00Z",
    "ended_at": None,
    "message": None,
}


class Page(_Answer, Generic[T]):
    """One page of a list. `next` is the cursor of the following page, null on the last."""

    items: tuple[T, ...]
    next: str | None = Field(default=None, description="pass as ?cursor= for the next page")


class Loss(_Answer):
    """A privacy loss. `rho` and `mu` describe a Gaussian loss; they are null if part of the loss was sampled."""

    epsilon: float | None = Field(description="at the population's delta; null when no finite epsilon holds")
    delta: float
    rho: float | None = Field(default=None, description="zero-concentrated DP")
    mu: float | None = Field(default=None, description="Gaussian DP")


class Population(_Answer):
    """The users that share one budget, and the state of that budget."""

    model_config = _like(
        name="aircraft",
        state="open",
        unit="user",
        adjacency="zero_out",
        epsilon=2.0,
        delta=1e-5,
        spent=_LOSS,
        reserved_epsilon=0.39,
        committed=_PLANNED,
        remaining_epsilon=1.68,
        leak=0.0,
        overdrawn=False,
        users=3237,
        warnings=[],
        runs=1,
        active_run="7f3a90c1d2e4",
        rounds_left=40,
        projected_end="2026-01-01T12:40:00Z",
        level="open",
        last_run="7f3a90c1d2e4",
        last_run_fits=True,
        in_words="Whatever is known already, ...",
        created_at="2026-01-01T12:00:00Z",
    )

    name: str
    state: Literal["open", "closed"]
    simulated: bool = Field(default=False, description="no real people: it may be charged by runs with a fixed seed")
    unit: str
    adjacency: str
    epsilon: float = Field(description="with delta the limit of all runs together; see bound_epsilon for the guarantee")
    delta: float
    bound_epsilon: float = Field(
        default=0.0,
        description="with bound_delta the guarantee: the largest budget so far, which a tightening leaves as it is",
    )
    bound_delta: float = 0.0
    ceiling_epsilon: float | None = Field(default=None, description="no raise goes above; null: no ceiling")
    ceiling_delta: float | None = None
    two_persons: bool = Field(default=False, description="a raise waits until another admin approves it")
    reservation_seconds: float | None = Field(
        default=None, description="a run without a coordinator ends after this time; null: never"
    )
    proposals: tuple[Proposal, ...] = Field(default=(), description="raises that wait")
    leak: float = Field(default=0.0, description="D, the part of delta that sampled runs share; never changes")
    overdrawn: bool = Field(default=False, description="more is committed than the budget holds: it takes no new run")
    spent: Loss = Field(description="a gauge of what committed rounds used of the limit; not a guarantee")
    committed: Loss = Field(description="the same with what the runs under way have reserved")
    reserved_epsilon: float = Field(description="committed minus spent epsilon")
    remaining_epsilon: float = Field(
        description="epsilon, taken alone, of the largest run that could still be started; with odometers, a run of "
        "those users alone who have most left"
    )
    users: int | None = Field(description="users seen so far; not shown under add_remove")
    accounting: states.Accounting = Field(
        default="worst-case", description="individual: each user is charged what that user took part in"
    )
    left: tuple[int, ...] | None = Field(
        default=None,
        description="how many users have up to a tenth of the budget (mu^2) left, up to two tenths, ..., all of it",
    )
    exhausted: int | None = Field(default=None, description="users who have nothing left and are no longer asked")
    warnings: tuple[str, ...] = Field(default=(), description="a delta that is not far below 1 / users")
    runs: int
    active_run: str | None = None
    rounds_left: int | None = Field(default=None, description="rounds the running plan may still commit")
    projected_end: datetime | None = Field(
        default=None, description="when those rounds end at the recent pace; null while the run stands still"
    )
    level: Literal["open", "low", "exhausted"] = Field(
        default="open", description="low: 80 % is committed; exhausted: no useful run fits any more"
    )
    last_run: str | None = None
    last_run_fits: bool | None = Field(default=None, description="whether one more run like the last one would fit")
    in_words: str = Field(
        default="", description="what the guarantee (bound_epsilon, bound_delta) lets anybody conclude about one user"
    )
    created_at: datetime


class NewCharge(BaseModel):
    """What another trainer asks of a population's budget, for all of its users: which of them took part is unknown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str = Field(min_length=1, max_length=100, description="idempotency key: repeating a request changes nothing")
    loss: ForeignLoss | None = Field(default=None, description="needed to reserve; refused otherwise")
    action: Literal["reserve", "commit", "release"] = "reserve"
    what: str = Field(default="", max_length=200, description="what is trained; needed to reserve")
    why: str = Field(default="", max_length=2000, description="needed to reserve")


class Charge(_Answer):
    """A charge of another trainer."""

    model_config = _like(
        population="aircraft",
        key="ranker-7",
        state="reserved",
        who="trainer",
        what="ranker",
        why="weekly training",
        loss={"mu": 0.3},
        mu=0.3,
        leak=0.0,
        reserved_at="2026-01-01T12:00:00Z",
        closed_at=None,
    )

    population: str
    key: str
    state: states.ChargeState
    who: str
    what: str
    why: str
    loss: dict[str, float | int]
    mu: float = Field(description="what it takes from the budget, as mu of Gaussian DP")
    leak: float = Field(description="and of the part of delta that is set aside")
    reserved_at: datetime
    closed_at: datetime | None = None


class Run(_Answer):
    """One execution of a plan, charged to a population."""

    model_config = _like(**_RUN)

    id: str
    name: str | None = Field(default=None, description="[run] name of the plan")
    tags: tuple[str, ...] = ()
    population: str
    state: states.RunState
    request: states.Request | None = Field(default=None, description="not yet obeyed")
    task: str
    mechanism: str
    adjacency: str = Field(description="under add_remove no count of users or replies is shown anywhere")
    rounds: int
    committed_rounds: int
    planned: Loss
    spent: Loss
    score: float | None = Field(default=None, description="latest held-out score that was released")
    score_name: str | None = None
    started_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    message: str | None = None


class ResidualTestResult(_Answer):
    """The newest residual test of a run's plan: does the code add the noise that is charged?"""

    passed: bool
    scale: float = Field(description="measured over claimed noise standard deviation; 1 when honest")
    message: str
    canaries: dict[str, float] | None = Field(
        default=None,
        description="a simulated attack: lower bounds (0: no evidence), an estimate and its error, what was spent",
    )
    at: datetime


class RunDetail(Run):
    """A run with its plan and its guarantee."""

    model_config = _like(
        **_RUN,
        plan={"run": {"task": "flights", "rounds": 64, "cohort": 202}},
        plan_digest=_DIGEST,
        guarantee={
            "statement": "Everything this run releases is (1.00, 1e-5)-differentially private for every user once all "
            "64 rounds are committed; (0.610, 1e-5) so far.",
            "facts": [{"name": "Unit", "value": "user, over the whole training"}],
            "not_covered": ["The server's operator, who can see each node's sum before noise is added."],
            "warnings": [],
        },
        rejects={"late": 7},
        void_rounds=0,
        cohort=202,
        min_reports=150,
        noise_multiplier=6.31,
        audit={"passed": True, "scale": 1.0002, "message": "as claimed", "at": "2026-01-01T12:30:00Z"},
    )

    plan: dict[str, Any]
    plan_digest: str
    guarantee: Guarantee
    rejects: dict[str, int] = Field(description="replies refused so far, by reason; empty under add_remove")
    void_rounds: int | None = Field(description="not shown under add_remove")
    cohort: int = Field(description="planned users a round")
    min_reports: int
    noise_multiplier: float | None = Field(default=None, description="as the planned charge implies it")
    audit: ResidualTestResult | None = None


class Round(_Answer):
    """One attempt at a round."""

    model_config = _like(
        index=23,
        attempt=0,
        state="committed",
        opened_at="2026-01-01T12:23:00Z",
        closed_at="2026-01-01T12:24:00Z",
        cohort=202,
        reports=198,
        rejects={"late": 4},
        epsilon=0.61,
        checkpoint=_DIGEST,
        statistics={"score": 0.672, "noise_std": 0.031},
    )

    index: int
    attempt: int
    state: states.RoundState
    opened_at: datetime
    closed_at: datetime | None = None
    cohort: int | None = Field(description="users asked; not shown under add_remove")
    reports: int | None = Field(default=None, description="users in the sum; not shown under add_remove")
    rejects: dict[str, int] = Field(default_factory=dict)
    reason: str | None = Field(default=None, description="why a round was void")
    epsilon: float | None = Field(default=None, description="this run's spent epsilon after this round")
    checkpoint: str | None = Field(default=None, description="SHA-256 of the released state")
    statistics: dict[str, Any] = Field(default_factory=dict, description="public or released statistics only")


class Point(_Answer):
    """One point of a down-sampled series. Counts are those of that round."""

    round: int
    at: datetime
    epsilon: float | None = Field(description="epsilon if the run stopped after this round")
    cohort: int | None
    reports: int | None = None
    statistics: dict[str, float] = Field(default_factory=dict)


class Series(_Answer):
    """A run's rounds, down-sampled by the ledger, so that a page never downloads all of them."""

    model_config = _like(
        run="7f3a90c1d2e4",
        rounds=64,
        committed_rounds=24,
        planned_epsilon=1.0,
        limit_epsilon=2.0,
        delta=1e-5,
        points=[{"round": 23, "at": "2026-01-01T12:24:00Z", "epsilon": 0.61, "cohort": 202, "reports": 198}],
    )

    run: str
    rounds: int
    committed_rounds: int
    planned_epsilon: float | None
    limit_epsilon: float = Field(description="the population's whole budget")
    delta: float
    points: tuple[Point, ...]


class Histogram(_Answer):
    """Users by number of rounds: `users[i]` users took part `i` times. Empty under add_remove."""

    model_config = _like(run="7f3a90c1d2e4", users=[900, 1500, 700], allowed=4, separation=16)

    run: str
    users: tuple[int, ...]
    allowed: int | None = Field(description="most rounds that the plan allows one user; null if not known")
    separation: int | None = Field(description="least distance, in rounds, between two participations of a user")


class PopulationHistogram(_Answer):
    """Users by number of rounds of all runs together: `users[i]` users took part `i` times. Empty under add_remove."""

    model_config = _like(population="aircraft", users=[900, 1500, 700], counted=True)

    population: str
    users: tuple[int, ...] = Field(description="users[0]: known users who took part in no round")
    counted: bool = Field(description="false: there are too many rounds to count here, and users is empty")


class Moment(_Answer):
    """A population's budget after a change. Every epsilon is a gauge at the delta of that time."""

    at: datetime
    limit_epsilon: float
    spent_epsilon: float
    committed_epsilon: float


class BudgetChange(_Answer):
    """What a person did to a budget: who, when, why, and the terms that changed."""

    id: int = Field(description="the audit row")
    at: datetime
    actor: str
    action: str
    reason: str
    before: dict[str, Any]
    after: dict[str, Any]


class History(_Answer):
    """A population's budget over time: moments oldest first, down-sampled, and every change, newest first."""

    model_config = _like(
        population="aircraft",
        delta=1e-5,
        moments=[{"at": "2026-01-01T12:24:00Z", "limit_epsilon": 2.0, "spent_epsilon": 0.61, "committed_epsilon": 1.0}],
        changes=[
            {
                "id": 7,
                "at": "2026-01-01T12:20:00Z",
                "actor": "officer",
                "action": "population.raise",
                "reason": "a second study, approved on 1 January",
                "before": {"epsilon": 1.0},
                "after": {"epsilon": 2.0},
            }
        ],
    )

    population: str
    delta: float
    moments: tuple[Moment, ...]
    changes: tuple[BudgetChange, ...]


class WhatIf(_Answer):
    """A run's plan with some values changed: what would it cost?"""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str | None = Field(default=None, max_length=LONGEST_NAME, pattern=NAME, description="default: the newest run")
    rounds: int | None = Field(default=None, ge=1, le=20_000)
    cohort: int | None = Field(default=None, ge=1, le=10_000_000)
    mechanism: str | None = Field(default=None, max_length=40, pattern=NAME, description="a kind, with its defaults")
    clip: float | None = Field(default=None, gt=0, le=1e6, allow_inf_nan=False, description="the clip norm")
    epsilon: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)


class WhatIfAnswer(_Answer):
    """What the changed plan costs. Priced from the plan alone: no data are touched and nothing is reserved."""

    model_config = _like(
        run="7f3a90c1d2e4",
        mechanism="blt",
        rounds=128,
        cohort=404,
        clip=0.5,
        epsilon=1.0,
        delta=1e-5,
        noise_multiplier=6.1,
        noise_std=0.0076,
        prefix_noise=0.031,
        fits=True,
        bound="as charged",
        why=None,
        nearest=None,
    )

    run: str = Field(description="whose plan was changed")
    mechanism: str
    rounds: int
    cohort: int
    clip: float
    epsilon: float
    delta: float
    noise_multiplier: float
    noise_std: float = Field(description="of a coordinate of one round's mean update")
    prefix_noise: float = Field(description="RMS over rounds of the noise in the sum of all mean updates so far")
    fits: bool = Field(description="whether the population would admit it now")
    bound: Bound = Field(
        default="as charged",
        description="what the figures are: a run's own, or, where a Monte Carlo certifies the charge, more than a "
        "run's: a certificate drawn from fewer samples, or the charge without amplification where a certificate takes "
        "too long for a request. "
        "Then a run may fit where `fits` is false",
    )
    why: str | None = None
    nearest: str | None = None


class AuditRow(_Answer):
    """A row of the audit log. `hash` covers the row and `previous`, so that no row can change unseen."""

    model_config = _like(
        id=51,
        at="2026-01-01T12:24:00Z",
        actor="run 7f3a90c1d2e4",
        event="round.commit",
        population="aircraft",
        run="7f3a90c1d2e4",
        round=23,
        details={"attempt": 0, "noise_row": 23, "epsilon": 0.61},
        previous=_DIGEST,
        hash=_DIGEST[::-1],
    )

    id: int
    at: datetime
    actor: str
    event: str
    population: str | None = None
    run: str | None = None
    round: int | None = None
    details: dict[str, Any] = Field(default_factory=dict)
    previous: str
    hash: str


class Verification(_Answer):
    """Whether the audit chain is whole, and every table says what it proves."""

    model_config = _like(ok=True, complete=True, rows=51, head=_DIGEST, message=None, at="2026-01-01T12:25:00Z")

    ok: bool = Field(description="every row follows the one before and the tables agree; false while that is unknown")
    complete: bool = Field(description="false while a check is under way and has found nothing wrong; ask again")
    rows: int = Field(description="rows checked, from the first")
    head: str | None = Field(default=None, description="hash of the newest row; keep it elsewhere to detect a rollback")
    message: str | None = None
    table: str | None = Field(default=None, description="where the first row is that does not fit", examples=["runs"])
    row: str | None = Field(default=None, description="that row's name", examples=["7f3a90c1d2e4"])
    at: datetime


class SignedHead(_Answer):
    """The newest head of the journal that the coordinator signed. docs/head.md has the format."""

    model_config = _like(
        ledger="0f" * 16, count=51, hash=_DIGEST, key=_DIGEST, text=f"fieldfare-head-v1 {'0f' * 16} 51 ...", since=None
    )

    ledger: str
    count: int = Field(description="rows that it stands for")
    hash: str = Field(description="hash of the last of them")
    key: str = Field(description="the coordinator's Ed25519 public key")
    text: str = Field(description="the line to keep: `fieldfare verify --head` takes it")
    since: str | None = Field(default=None, description="hash of the row that was asked for; null: there is none")


class Change(BaseModel):
    """A change of a budget: the values that change, and why."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    # Strict: `true` would be a limit of 1.
    epsilon: float | None = Field(default=None, gt=0, strict=True, description="the new limit; null: unchanged")
    delta: float | None = Field(default=None, gt=0, lt=1, strict=True, description="the new delta; null: unchanged")
    reason: str = Field(min_length=1, max_length=2000, description="why; the journal keeps it for ever")


class Reason(BaseModel):
    """Why something is asked for."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(min_length=1, max_length=2000, description="why; the journal keeps it for ever")


class Proposal(_Answer):
    """A raise that waits for a second person."""

    model_config = _like(
        id="5f0c1a2b3c4d",
        epsilon=3.0,
        delta=1e-5,
        reason="the board agreed",
        proposed_by="token officer",
        proposed_at="2026-01-01T12:00:00Z",
    )

    id: str
    epsilon: float
    delta: float
    reason: str
    proposed_by: str
    proposed_at: datetime


class Accepted(_Answer):
    """A request that the coordinator obeys at the next round boundary."""

    model_config = _like(run="7f3a90c1d2e4", request="stop", state="stopping")

    run: str
    request: Request
    state: str


class Me(_Answer):
    """The caller, as the service sees it."""

    model_config = _like(name="officer", scopes=["read"], anonymous=False, expires_at=None)

    name: str
    scopes: tuple[states.Scope, ...]
    anonymous: bool
    expires_at: datetime | None = None
    populations: tuple[str, ...] | None = Field(default=None, description="those that the token is for; null: all")


class Health(_Answer):
    """A probe's answer."""

    model_config = _like(status="ok", checks={"ledger": "ok", "chain": "51 rows verified"}, version="0.1.0")

    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = Field(default_factory=dict)
    version: str
