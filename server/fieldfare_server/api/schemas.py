"""What is shown of runs, journal and service: frozen, with one vocabulary; an epsilon stands with its delta.

Each class is the service's answer, what `--json` prints, what the page draws and what `Client` returns. It is
made from the ledger's row of the same thing: fields of the same name are taken over, `of` says where the
others come from.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fieldfare import __version__
from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import PLAIN_SHARE, Price
from fieldfare.names import is_question, mechanism_word, task_words
from fieldfare.participation import PRESENCE
from fieldfare_server.evidence.document import Guarantee
from fieldfare_server.ledger import states, views, watch
from fieldfare_server.ledger.state.windows import Every
from fieldfare_server.ledger.views import Time, View, like

T = TypeVar("T")

# What an administrator may ask of a run.
Request = Literal["stop", "pause", "resume"]

LOSS: dict[str, Any] = {"epsilon": 0.61, "delta": 1e-5, "rho": 0.0093, "mu": 0.136}
PLANNED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "rho": 0.022, "mu": 0.21}
# Values of examples in the OpenAPI document.
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
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
    "planned": PLANNED,
    "spent": LOSS,
    "score": 0.672,
    "score_name": "AUC",
    "started_at": "2026-01-01T12:00:00Z",
    "updated_at": "2026-01-01T12:24:00Z",
    "ended_at": None,
    "message": None,
}


class Page(View, Generic[T]):
    """One page of a list. `next` is the cursor of the following page, null on the last."""

    items: tuple[T, ...] = Field(description="in the order of the list")
    next: str | None = Field(default=None, description="pass as ?cursor= for the next page")


class LossAnswer(View):
    """A privacy loss. `rho` and `mu` describe a Gaussian loss; they are null if part of the loss was sampled."""

    epsilon: float | None = Field(description="at the population's delta; null when no finite epsilon holds")
    delta: float = Field(description="that every epsilon is at")
    rho: float | None = Field(default=None, description="zero-concentrated DP")
    mu: float | None = Field(default=None, description="Gaussian DP")

    @classmethod
    def of(cls, loss: PrivacyLoss, epsilon: float, delta: float) -> Self:
        """Return `loss`, whose epsilon at `delta` is known."""
        return cls(epsilon=epsilon, delta=delta, rho=loss.zcdp, mu=loss.gdp)

    @classmethod
    def gauge(cls, total: Price, epsilon: float, delta: float) -> Self:
        """Return a sum of prices, which takes `epsilon` of a budget at `delta`."""
        # With a leak that counts, the sum is not the loss of a Gaussian mechanism.
        mu = total.mu if total.leak <= PLAIN_SHARE * delta else None
        return cls(epsilon=epsilon, delta=delta, rho=None if mu is None else total.mu_squared / 2, mu=mu)


class EstimateAnswer(View):
    """One number of an answer."""

    name: str = Field(description="what it is")
    value: float | None = Field(description="null: the interval is all that can be said")
    low: float = Field(description="the interval holds the number without noise with probability 95 %")
    high: float = Field(description="its upper end")


class LookAnswer(View):
    """The answer to a question."""

    users: int = Field(description="how many answered")
    answer: tuple[EstimateAnswer, ...] = Field(description="its numbers, with intervals")


def _look(view: views.RunView, latest: watch.Latest | None) -> LookAnswer | None:
    if not is_question(view.plan):
        return None
    # Only then: this imports the mechanisms.
    from fieldfare_server.evidence.looks import look_of

    found = look_of(view, latest)
    return None if found is None else LookAnswer.model_validate(found)


class BlinderReceipt(View):
    """What the blinder of a masked run signed last."""

    round: int = Field(description="which it answered about, from 0")
    at: Time = Field(description="when that round was committed")
    signed: bool = Field(description="whether the key that the plan names signed it; in a rehearsal, the process's own")
    text: str = Field(description="the line: docs/certificate.md has the format")


class BlinderState(View):
    """What the party that knows the masks of a masked run has said, and whether it answers."""

    key: str = Field(description='"ffb1:...", as the plan names it; "" in a rehearsal, whose process is the blinder')
    least_nodes: int = Field(description="the server sees no sum of fewer")
    asked_at: Time | None = Field(default=None, description="since when a closed round waits for its answer")
    silent: bool = Field(description="none answers: for ten seconds, or until the run was interrupted")
    receipt: BlinderReceipt | None = Field(default=None, description="null: it has answered about no round yet")
    message: str = Field(description="the same in words")


class Run(View):
    """One execution of a plan, charged to a population."""

    model_config = like(**_RUN)

    id: str = Field(description="names the run in every other answer")
    name: str | None = Field(default=None, description="[run] name of the plan")
    tags: tuple[str, ...] = Field(default=(), description="[run] tags of the plan")
    population: str = Field(description="whose budget it is charged to")
    state: states.RunState = Field(description="interrupted: its coordinator has fallen silent, and it can be resumed")
    request: states.Request | None = Field(default=None, description="not yet obeyed")
    task: str = Field(description="what is trained, or what is asked")
    mechanism: str = Field(description="the kind of noise; threshold or exponential of an answer that is no noised sum")
    adjacency: str = Field(description=f"under {PRESENCE} no count of users or replies is shown anywhere")
    accounting: states.Accounting = Field(
        default="worst-case", description="individual: each user is charged what that user took part in"
    )
    rounds: int = Field(description="rounds of the plan")
    committed_rounds: int = Field(description="rounds whose model was released and charged")
    planned: LossAnswer = Field(description="of the whole plan, taken alone")
    spent: LossAnswer = Field(description="of the rounds committed so far, taken alone")
    against_server: LossAnswer | None = Field(
        default=None,
        description="of the whole plan, to the server alone, if it follows the protocol: the blinder's noise; null: "
        "the server reads what it sums",
    )
    blinder: BlinderState | None = Field(default=None, description="of a run with masked sums; null: of a plain one")
    leak: float | None = Field(default=None, description="what it has reserved of the population's leak D")
    score: float | None = Field(default=None, description="latest held-out score that was released")
    score_name: str | None = Field(default=None, description="what the score measures")
    look: LookAnswer | None = Field(default=None, description="of a question: its answer, once that was charged")
    started_at: Time = Field(description="when it was admitted")
    updated_at: Time = Field(description="its newest committed round, its end, or its start")
    ended_at: Time | None = Field(default=None, description="null while it is under way")
    message: str | None = Field(default=None, description="why it ended, or what it waits for")

    @classmethod
    def of(cls, view: views.RunView, latest: watch.Latest | None, **more: Any) -> Self:
        """Return a run of the ledger. latest: its newest committed round, None before the first; more: other fields."""
        # The plan may be of another version, in which a table has another shape.
        run = part if isinstance(part := view.plan.get("run"), dict) else {}
        statistics = latest.statistics if latest else {}
        shown = view.against_server
        score, score_name = statistics.get("score"), statistics.get("score_name")
        own = {
            "name": run.get("name"),
            "tags": tuple(run.get("tags", ())),
            "task": task_words(view.plan),
            "look": _look(view, latest),
            "mechanism": mechanism_word(view.plan),
            "committed_rounds": view.next_round,
            "planned": LossAnswer.of(view.planned, view.planned_epsilon, view.delta),
            "spent": LossAnswer.of(view.spent, view.spent_epsilon, view.delta),
            "against_server": shown and LossAnswer.of(shown, shown.epsilon(view.delta), view.delta),
            "score": score if isinstance(score, float) else None,
            "score_name": score_name if isinstance(score_name, str) else None,
            "updated_at": max(view.ended_at or 0.0, latest.closed_at if latest else 0.0, view.started_at),
            "message": view.message or None,
        }
        return cls.model_validate(vars(view) | own | more)


class ResidualTestResult(View):
    """The newest residual test of a run's plan: does the code add the noise that is charged?"""

    passed: bool = Field(default=False, description="false: other noise was found than is charged")
    scale: float = Field(default=0.0, description="measured over claimed noise standard deviation; 1 when honest")
    message: str = Field(default="", description="what was found, in words")
    canaries: dict[str, float | list[dict[str, float]] | None] | None = Field(
        default=None,
        description="a simulated attack: a lower bound (0: no evidence), an estimate, the trade-off, what was charged",
    )
    at: Time = Field(description="when it was tested")


class RunDetail(Run):
    """A run with its plan and its guarantee."""

    model_config = like(
        **_RUN,
        plan={"run": {"task": "flights", "rounds": 64, "cohort": 202}},
        plan_digest=DIGEST,
        guarantee={
            "statement": "Everything this run releases is (1.00, 1e-5)-differentially private for every user once all "
            "64 rounds are committed; (0.610, 1e-5) is spent so far.",
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

    plan: dict[str, Any] = Field(description="the validated plan")
    plan_digest: str = Field(description="SHA-256 of the plan")
    guarantee: Guarantee = Field(description="what is promised, on which assumptions, and what is not covered")
    rejects: dict[str, int] = Field(description=f"replies refused so far, by reason; empty under {PRESENCE}")
    void_rounds: int | None = Field(description=f"not shown under {PRESENCE}")
    cohort: int = Field(description="planned users a round")
    min_reports: int = Field(description="fewest users with which a round is committed")
    noise_multiplier: float | None = Field(default=None, description="as the planned charge implies it")
    audit: ResidualTestResult | None = Field(default=None, description="null: not tested yet")


class Round(View):
    """One attempt at a round."""

    model_config = like(
        index=23,
        attempt=0,
        state="committed",
        opened_at="2026-01-01T12:23:00Z",
        closed_at="2026-01-01T12:24:00Z",
        cohort=202,
        reports=198,
        rejects={"late": 4},
        epsilon=0.61,
        checkpoint=DIGEST,
        statistics={"score": 0.672, "noise_std": 0.031},
    )

    index: int = Field(description="from 0")
    attempt: int = Field(description="from 0; a void attempt is followed by another")
    state: states.RoundState = Field(description="a void attempt released nothing and cost nothing")
    opened_at: Time = Field(description="when its users were asked")
    closed_at: Time | None = Field(default=None, description="when it was committed or voided")
    cohort: int | None = Field(description=f"users asked; not shown under {PRESENCE}")
    reports: int | None = Field(default=None, description=f"users in the sum; not shown under {PRESENCE}")
    rejects: dict[str, int] = Field(
        default_factory=dict, description=f"refused replies by reason; empty under {PRESENCE}"
    )
    reason: str | None = Field(default=None, description="why a round was void")
    epsilon: float | None = Field(default=None, description="this run's spent epsilon after this round")
    checkpoint: str | None = Field(
        default=None, description="SHA-256 of the released state; of a closed round, of its masked sum"
    )
    statistics: dict[str, Any] = Field(default_factory=dict, description="public or released statistics only")

    @classmethod
    def of(cls, view: views.RoundView) -> Self:
        """Return an attempt of the ledger."""
        # The users in the sum of a committed round; the replies that came in for a void one; not yet known while open.
        reports = {"open": None, "committed": view.participants, "void": view.reports}[view.state]
        own = {"cohort": view.cohort_size, "reports": reports, "reason": view.reason or None}
        return cls.model_validate(vars(view) | own)


class Point(View):
    """One point of a down-sampled series. Counts are those of that round."""

    round: int = Field(description="from 0")
    at: Time = Field(description="when it was committed")
    epsilon: float | None = Field(description="epsilon if the run stopped after this round")
    cohort: int | None = Field(description=f"users asked; not shown under {PRESENCE}")
    reports: int | None = Field(default=None, description=f"users in the sum; not shown under {PRESENCE}")
    statistics: dict[str, float] = Field(default_factory=dict, description="released numbers, for a chart")

    @classmethod
    def of(cls, point: views.RoundView) -> Self:
        """Return a committed round of the ledger."""
        # A chart shows numbers only; in Python a bool is an int too.
        numbers = {
            name: value for name, value in point.statistics.items() if isinstance(value, float) or type(value) is int
        }
        own = {"round": point.index, "at": point.closed_at, "cohort": point.cohort_size, "reports": point.participants}
        return cls.model_validate(vars(point) | own | {"statistics": numbers})


class Series(View):
    """A run's rounds, down-sampled by the ledger, so that a page never downloads all of them."""

    model_config = like(
        run="7f3a90c1d2e4",
        rounds=64,
        committed_rounds=24,
        planned_epsilon=1.0,
        limit_epsilon=2.0,
        delta=1e-5,
        points=[{"round": 23, "at": "2026-01-01T12:24:00Z", "epsilon": 0.61, "cohort": 202, "reports": 198}],
    )

    run: str = Field(description="the run")
    rounds: int = Field(description="rounds of the plan")
    committed_rounds: int = Field(description="rounds committed so far")
    planned_epsilon: float | None = Field(description="of the whole plan, taken alone")
    limit_epsilon: float = Field(description="the population's whole budget")
    delta: float = Field(description="that every epsilon is at")
    points: tuple[Point, ...] = Field(description="oldest first; the newest round is one")


class Histogram(View):
    """Users by number of rounds: `users[i]` users took part `i` times. Empty where presence is secret."""

    model_config = like(run="7f3a90c1d2e4", users=[900, 1500, 700], allowed=4, separation=16)

    run: str = Field(description="the run")
    users: tuple[int, ...] = Field(description=f"users[i] users took part i times; empty under {PRESENCE}")
    allowed: int | None = Field(description="most rounds that the plan allows one user; null if not known")
    separation: int | None = Field(description="least distance, in rounds, between two participations of a user")


class AuditRow(View):
    """A row of the audit log. `hash` covers the row and `previous`, so that no row can change unseen."""

    model_config = like(
        id=51,
        at="2026-01-01T12:24:00Z",
        actor="run 7f3a90c1d2e4",
        event="round.commit",
        population="aircraft",
        run="7f3a90c1d2e4",
        round=23,
        details={"attempt": 0, "noise_row": 23, "epsilon": 0.61},
        previous=DIGEST,
        hash=DIGEST[::-1],
    )

    id: int = Field(description="its place in the log, from 1")
    at: Time = Field(description="when it was written")
    actor: str = Field(description="who did it: a coordinator, a token, or a user of the command line")
    event: str = Field(description="what happened")
    population: str | None = Field(default=None, description="whose budget it concerns")
    run: str | None = Field(default=None, description="the run that it concerns")
    round: int | None = Field(default=None, description="the round that it concerns, from 0")
    details: dict[str, Any] = Field(default_factory=dict, description="what the event holds; no user is named")
    previous: str = Field(description="hash of the row before it")
    hash: str = Field(description="of this row and `previous`")

    @classmethod
    def of(cls, view: views.JournalView) -> Self:
        """Return a row of the journal."""
        return cls.model_validate(vars(view) | {"event": view.action, "details": view.body})


class Verification(View):
    """Whether the audit chain is whole, and every table says what it proves."""

    model_config = like(ok=True, complete=True, rows=51, head=DIGEST, message=None, at="2026-01-01T12:25:00Z")

    ok: bool = Field(description="every row follows the one before and the tables agree; false while that is unknown")
    complete: bool = Field(description="false while a check is under way and has found nothing wrong; ask again")
    rows: int = Field(description="rows checked, from the first")
    head: str | None = Field(default=None, description="hash of the newest row; keep it elsewhere to detect a rollback")
    message: str | None = Field(default=None, description="what does not fit, or how far the check has come")
    table: str | None = Field(default=None, description="where the first row is that does not fit", examples=["runs"])
    row: str | None = Field(default=None, description="that row's name", examples=["7f3a90c1d2e4"])
    at: Time = Field(description="when it was checked")


class NewestHead(View):
    """The newest head of the journal that the coordinator signed. docs/head.md has the format."""

    model_config = like(
        ledger="0f" * 16, count=51, hash=DIGEST, key=DIGEST, text=f"fieldfare-head-v1 {'0f' * 16} 51 ...", since=None
    )

    ledger: str = Field(description="which ledger it is of")
    count: int = Field(description="rows that it stands for")
    hash: str = Field(description="hash of the last of them")
    key: str = Field(description="the coordinator's Ed25519 public key")
    text: str = Field(description="the line to keep: `fieldfare verify --head` takes it")
    since: str | None = Field(default=None, description="hash of the row that was asked for; null: there is none")
    keys: list[str] = Field(default_factory=list, description="the lines by which the key changed, in their order")


class Change(BaseModel):
    """A change of a budget: the values that change, and why."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    # Strict: `true` would be a limit of 1.
    epsilon: float | None = Field(default=None, gt=0, strict=True, description="the new limit; null: unchanged")
    delta: float | None = Field(default=None, gt=0, lt=1, strict=True, description="the new delta; null: unchanged")
    reason: str = Field(min_length=1, max_length=2000, description="why; the journal keeps it for ever")


class NewWindow(BaseModel):
    """A calendar window, or (both null) none."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    epsilon: float | None = Field(default=None, gt=0, strict=True, description="what may begin in one")
    every: Every | None = Field(default=None, description="its length")
    reason: str = Field(min_length=1, max_length=2000, description="why; the journal keeps it for ever")


class Note(BaseModel):
    """A note for people."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=2000, description="the journal keeps it for ever")


class Reason(BaseModel):
    """Why something is asked for."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(min_length=1, max_length=2000, description="why; the journal keeps it for ever")


class Accepted(View):
    """A request that the coordinator obeys at the next round boundary."""

    model_config = like(run="7f3a90c1d2e4", request="stop", state="stopping")

    run: str = Field(description="the run that is asked")
    request: Request = Field(description="what is asked of it")
    state: str = Field(description="its state; the request is obeyed at the next round boundary")


class Me(View):
    """The caller, as the service sees it."""

    model_config = like(name="officer", scopes=["read"], anonymous=False, expires_at=None)

    name: str = Field(description="of the token; anonymous without one")
    scopes: tuple[states.Scope, ...] = Field(description="what it may do")
    anonymous: bool = Field(description="whether there is no token")
    expires_at: Time | None = Field(default=None, description="null: never")
    populations: tuple[str, ...] | None = Field(default=None, description="those that the token is for; null: all")


class Health(View):
    """A probe's answer."""

    model_config = like(status="ok", checks={"ledger": "ok", "chain": "51 rows verified"}, version=__version__)

    status: Literal["ok", "unavailable"] = Field(description="whether it is ready")
    checks: dict[str, str] = Field(default_factory=dict, description="what was looked at, and what was found")
    version: str = Field(description="of the program")
