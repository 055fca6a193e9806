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
from fieldfare.participation import PRESENCE, Adjacency
from fieldfare_server.ledger.state.formats import SEEDED
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


class PopulationBudget(View):
    """What every view of a population shows: its budget, its rules, and what is left of it."""

    name: str = Field(description="names the population in every other answer")
    state: PopulationState = Field(
        description="all but open: it takes no new run; proposed: a second person has not approved it"
    )
    simulated: bool = Field(default=False, description="no real people: it may be charged by runs with a fixed seed")
    unit: str = Field(description="what a user is")
    adjacency: Adjacency = Field(description="how two neighbouring data sets differ")
    epsilon: float = Field(description="with delta the limit of all runs together; see bound_epsilon for the guarantee")
    delta: float = Field(description="of the limit")
    bound_epsilon: float = Field(
        default=0.0,
        description="with bound_delta the guarantee: the largest budget so far, which a tightening leaves as it is",
    )
    bound_delta: float = Field(default=0.0, description="see bound_epsilon")
    ceiling_epsilon: float | None = Field(default=None, description="no raise goes above; null: no ceiling")
    ceiling_delta: float | None = Field(default=None, description="the same for delta")
    two_persons: bool = Field(default=False, description="a raise waits until another admin approves it")
    reservation_seconds: float | None = Field(
        default=None, description="a run without a coordinator ends after this time; null: never"
    )
    proposals: tuple[Proposal, ...] = Field(default=(), description="raises that wait, newest first")
    leak: float = Field(default=0.0, description="D, the part of delta that sampled runs share; never changes")
    overdrawn: bool = Field(default=False, description="more is committed than the budget holds: it takes no new run")
    reserved_epsilon: float = Field(description="committed minus spent epsilon")
    remaining_epsilon: float = Field(
        description="epsilon, taken alone, of the largest run that could still be started; with odometers, a run of "
        "those users alone who have most left"
    )
    remaining_users: int | None = Field(
        default=None, description="for how many users `remaining_epsilon` is: those who have most left; null: for all"
    )
    remaining_epsilon_of_all: float = Field(
        default=0.0, description="epsilon, taken alone, of the largest run for which every user has enough left"
    )
    remaining_mu: float = Field(
        default=0.0, description="mu (sensitivity over noise multiplier) of the run that `remaining_epsilon` is of"
    )
    users: int | None = Field(description=f"users seen so far; not shown under {PRESENCE}")
    accounting: Accounting = Field(
        default="worst-case", description="individual: each user is charged what that user took part in"
    )
    left: tuple[int, ...] | None = Field(
        default=None,
        description="how many users have up to a tenth of the budget (mu^2) left, up to two tenths, ..., all of it",
    )
    exhausted: int | None = Field(default=None, description="users who have nothing left and are no longer asked")
    runs_active: int = Field(default=0, description="how many runs are under way")
    created_at: Time = Field(description="when it was given a budget")
    created_by: str = Field(default="", description="by whom")


class PopulationView(PopulationBudget):
    """A population as the ledger has it. Every epsilon is at the population's delta.

    (`bound_epsilon`, `bound_delta`), the largest budget so far, is the guarantee: it holds however each run
    is chosen. (`epsilon`, `delta`) limits what comes. `spent_epsilon` and the other epsilons are a gauge,
    equation (1) of `fieldfare.accounting.filter` for the sums of prices so far: how much of the budget is
    used, and not a guarantee for a run that stops because of what was released.
    """

    window_epsilon: float | None  # what may begin in each `window_every`; None: there are no windows
    window_every: Every | None
    # Sum of the prices of everything released so far; with odometers, that of the user who has spent most.
    spent: Price
    spent_epsilon: float
    committed: Price  # spent by ended runs and reserved by the runs under way
    committed_epsilon: float
    rounds_left: int  # rounds still to come in the runs under way
    runs_total: int
    newest_run: RunInBrief | None = Field(exclude=True)  # as `TakenSums.newest`
    # Of the runs under way, the one that was started last; None without one.
    active_run: RunInBrief | None = Field(exclude=True)


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
    def private(self) -> bool:
        """Whether its noise was secret."""
        return self.noise_source != SEEDED

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


class ChargeTerms(View):
    """What another trainer charged to all users of a population: what the ledger and its service both show."""

    population: str = Field(description="who is charged")
    key: str = Field(description="idempotency key")
    state: ChargeState = Field(description="reserved until it is committed or released")
    who: str = Field(description="the token, or the user of the command line")
    what: str = Field(description="what is trained")
    why: str = Field(description="why")
    loss: dict[str, float | int] = Field(description="as it was reported")
    reserved_at: Time = Field(description="when it was reserved")
    closed_at: Time | None = Field(default=None, description="when it was committed or released")


class ChargeView(ChargeTerms):
    """The ledger's view of it."""

    price: Price  # what it takes from the population's rectangle


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
