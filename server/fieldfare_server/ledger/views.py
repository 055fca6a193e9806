"""What the ledger shows: frozen values, safe for the API, the page and the command line.

None of them holds a user, a node or a key. Counts of users are public, except where presence is secret:
there a user's presence is the secret, so the counts are None (or empty), here and in the bodies of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.participation import Adjacency
from fieldfare_server.ledger.state.windows import Every
from fieldfare_server.ledger.states import (
    Accounting,
    ChargeState,
    PopulationState,
    Request,
    RoundState,
    RunState,
    Scope,
)

T = TypeVar("T")
Item = TypeVar("Item", covariant=True)


# The end of the year 9999, in seconds since 1970: no calendar goes further.
LATEST = 253_402_300_799.0


def utc(seconds: float) -> datetime:
    """Return seconds since 1970 as a UTC time. Tokens of older versions may expire after the calendar's last day."""
    return datetime.fromtimestamp(min(seconds, LATEST), UTC)


# A time; the ledger's is in seconds since 1970.
Time = Annotated[datetime, BeforeValidator(lambda at: utc(at) if isinstance(at, int | float) else at)]


def like(**example: Any) -> ConfigDict:
    """Return the configuration of a view with this example in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [example]})


class View(BaseModel):
    """Base of all views. A view is made from a row: columns that are not among its fields are left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True, arbitrary_types_allowed=True)


class Proposal(View):
    """A raise that waits for a second person."""

    model_config = like(
        id="5f0c1a2b3c4d",
        epsilon=3.0,
        delta=1e-5,
        reason="the board agreed",
        proposed_by="token officer",
        proposed_at="2026-01-01T12:00:00Z",
    )

    id: str = Field(description="approve or withdraw it by this")
    epsilon: float = Field(description="the limit that is proposed")
    delta: float = Field(description="the delta that is proposed")
    reason: str = Field(description="why")
    proposed_by: str = Field(description="who")
    proposed_at: Time = Field(description="when")


class RunInBrief(View):
    """What of a run is known without asking for it."""

    id: str
    seq: int
    planned: PrivacyLoss
    leak: float | None
    accounting: Accounting
    plan_digest: str
    rounds_left: int


class Together(View):
    """The guarantee, (epsilon, delta), of a user who is in several populations, by their largest budgets so far."""

    populations: int = Field(description="how many there are")
    epsilon: float = Field(description="with delta what such a user loses at most")
    delta: float = Field(description="see epsilon")


class PopulationView(View):
    """A population and its budget. Every epsilon is at the population's delta. Times are seconds since 1970, UTC.

    (`bound_epsilon`, `bound_delta`), the largest budget so far, is the guarantee: it holds however each run
    is chosen. (`epsilon`, `delta`) limits what comes. `spent_epsilon` and the other epsilons are a gauge,
    equation (1) of `fieldfare.accounting.filter` for the sums of prices so far: how much of the budget is
    used, and not a guarantee for a run that stops because of what was released.
    """

    name: str
    epsilon: float
    delta: float
    adjacency: Adjacency
    unit: str
    simulated: bool  # not people: only such a population may be charged by a run with a fixed noise seed
    leak: float  # d, the part of delta that sampled runs share; fixed when the population is made
    bound_epsilon: float
    bound_delta: float
    ceiling_epsilon: float | None  # no raise goes above; None: no ceiling
    ceiling_delta: float | None
    two_persons: bool  # a raise waits until a second person approves it
    # How long a run without a coordinator keeps its reservation; None: without end.
    reservation_seconds: float | None
    window_epsilon: float | None  # what may begin in each `window_every`; None: there are no windows
    window_every: Every | None
    proposals: tuple[Proposal, ...]  # raises that wait, newest first
    state: PopulationState
    users: int | None  # users known so far
    # individual: each user is charged what that user took part in; worst-case: all alike.
    accounting: Accounting
    # How many users have up to a tenth of M left for new runs, up to two tenths, ..., all; None without odometers.
    left: tuple[int, ...] | None
    exhausted: int | None  # how many of them have nothing left; None without odometers
    # Sum of the prices of everything released so far; with odometers, that of the user who has spent most.
    spent: Price
    spent_epsilon: float
    committed: Price  # spent by ended runs and reserved by the runs under way
    # More is committed than the budget holds, by runs that an earlier rule admitted. It takes no new run.
    overdrawn: bool
    committed_epsilon: float
    reserved_epsilon: float  # committed_epsilon - spent_epsilon
    # For how many users a run of `remaining_epsilon` can be started: those who have most left. None: for all.
    remaining_users: int | None
    # As `remaining_epsilon`, of the largest run for which every user has enough left.
    remaining_epsilon_of_all: float
    # The epsilon, taken alone, of the largest single Gaussian run that can still be started; 0 when none can.
    # With odometers, a run of those users alone who have most left.
    remaining_epsilon: float
    remaining_mu: float  # the mu (sensitivity / noise multiplier) of that run
    rounds_left: int  # rounds still to come in the runs under way
    runs_active: int
    runs_total: int
    newest_run: RunInBrief | None = Field(exclude=True)  # as `TakenSums.newest`
    # Of the runs under way, the one that was started last; None without one.
    active_run: RunInBrief | None = Field(exclude=True)
    created_at: float
    created_by: str


class RunView(View):
    """A run. Each epsilon is at the population's delta and of this run alone."""

    id: str
    seq: int
    population: str
    plan: dict[str, Any]
    plan_digest: str
    adjacency: Adjacency
    delta: float
    rounds: int
    next_round: int  # rounds committed so far, which is also the index of the next
    planned: PrivacyLoss
    planned_epsilon: float
    spent: PrivacyLoss
    spent_epsilon: float
    # What all its rounds show the server alone, as planned; None: the server reads what it sums.
    against_server: PrivacyLoss | None
    leak: float  # what it has reserved of the population's leak D
    noise_source: str
    trust_node_ids: bool  # participation limits hold only if nodes tell the truth about who they are
    state: RunState
    request: Request | None
    message: str
    checkpoint: str | None  # SHA-256 of the newest committed checkpoint
    strategy: str | None  # SHA-256 of the stored strategy that the run applies; None where none was stored
    accounting: Accounting  # individual: charged to its users' odometers; worst-case: to all users alike
    started_at: float
    started_by: str
    ended_at: float | None

    @property
    def held(self) -> tuple[PrivacyLoss, float]:
        """What it released costs, and epsilon of that, whatever decided when it ended: early, all that was planned."""
        early = 0 < self.next_round < self.rounds
        return (self.planned, self.planned_epsilon) if early else (self.spent, self.spent_epsilon)


class RoundView(View):
    """One attempt at a round. A void attempt released nothing, cost nothing, and used no noise."""

    id: int
    run: str
    index: int
    attempt: int
    noise_row: int
    state: RoundState
    cohort_size: int | None
    reports: int | None
    participants: int | None
    spent: PrivacyLoss | None  # the run's cumulative loss after this round
    epsilon: float | None  # `spent` at the delta that the population had then
    checkpoint: str | None
    statistics: dict[str, Any]  # public or privatised values only
    rejects: dict[str, int]
    reason: str
    opened_at: float
    closed_at: float | None


class SeriesPoint(View):
    """One committed round of a down-sampled series."""

    index: int
    epsilon: float
    participants: int | None
    cohort_size: int | None
    reports: int | None
    opened_at: float
    closed_at: float
    statistics: dict[str, Any]


class JournalView(View):
    """A journal row: something that happened, with its place in the chain."""

    id: int
    at: float
    actor: str
    action: str
    population: str | None
    run: str | None
    round: int | None
    body: dict[str, Any]
    event: str
    previous: str
    hash: str


class ChargeView(View):
    """What another trainer charged to all users of a population."""

    population: str
    key: str
    who: str
    what: str
    why: str
    loss: dict[str, float | int]  # as it was reported
    price: Price  # what it takes from the population's rectangle
    state: ChargeState
    reserved_at: float
    closed_at: float | None


class TokenView(View):
    """An API token, without its secret, which was shown once, when it was made."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    created_at: float
    created_by: str
    expires_at: float | None
    revoked_at: float | None
    populations: tuple[str, ...] | None  # those that the token is for; None: all

    def allows(self, population: str | None) -> bool:
        """Return whether the token is for this population; for None, which concerns all: for all of them."""
        return self.populations is None or population in self.populations


class ListPart(View, Generic[T]):
    """Part of a list: pass `next` as the cursor of the next page; None at the end."""

    items: tuple[T, ...]
    next: int | None


class Paged(Protocol[Item]):
    """A part of a list, whatever kind of cursor it has."""

    @property
    def items(self) -> tuple[Item, ...]: ...
    @property
    def next(self) -> Any: ...


def every(part: Callable[[Any, int], Paged[Item]], cursor: object = None, most: int = 500) -> Iterator[Item]:
    """Yield every item of a list from `cursor` on. part: of a cursor and the most items to give; each is a snapshot."""
    while True:
        page = part(cursor, most)
        yield from page.items
        if page.next is None:
            return
        cursor = page.next


RunPage: TypeAlias = ListPart[RunView]
RoundPage: TypeAlias = ListPart[RoundView]
JournalPage: TypeAlias = ListPart[JournalView]
