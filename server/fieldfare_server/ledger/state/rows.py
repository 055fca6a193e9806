"""What events make, row by row: the facts of the ledger, each frozen and named by the columns of its table.

Where a table holds content that the log names by hash (a plan, a salt, who took part), the row here has the hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from fieldfare_server.ledger.events.base import Event, shape
from fieldfare_server.ledger.state.odometers import INDIVIDUAL

# SHA-256 of `{}`: the statistics of a round that has none.
EMPTY = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def said(kind: type[NamedTuple], event: Event) -> dict[str, Any]:
    """What an event says of the fields of a row of this kind, by their names: those that both have."""
    return {name: getattr(event, name) for name, *_ in shape(type(event)) if name in kind._fields}


class PopulationRow(NamedTuple):
    """A population and its budget."""

    name: str
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    simulated: bool
    state: str
    salt: str
    users: int
    settled: str
    created_at: float
    created_by: str
    leak: float
    bound_epsilon: float
    bound_delta: float
    ceiling_epsilon: float | None
    ceiling_delta: float | None
    reservation_seconds: float | None
    two_persons: bool
    accounting: str
    window_epsilon: float | None = None
    window_every: str | None = None

    @property
    def individual(self) -> bool:
        """Whether the ledger keeps odometers of it."""
        return self.accounting == INDIVIDUAL


class ProposalRow(NamedTuple):
    """A raise that waits for a second person, or did."""

    id: str
    population: str
    epsilon: float
    delta: float
    reason: str
    state: str
    proposed_at: float
    proposed_by: str
    person: str
    decided_at: float | None = None
    decided_by: str | None = None


class RunRow(NamedTuple):
    """A run."""

    id: str
    population: str
    plan: str
    plan_digest: str
    rounds: int
    planned: str
    spent: str
    noise_source: str
    key_commitment: str
    trust_node_ids: bool
    started_at: float
    started_by: str
    price: str
    strategy: str | None
    accounting: str
    most: int | None
    state: str = "running"
    request: str | None = None
    message: str = ""
    next_round: int = 0
    checkpoint: str | None = None
    ended_at: float | None = None

    @property
    def individual(self) -> bool:
        """Whether it is charged to its users' odometers."""
        return self.accounting == INDIVIDUAL

    @property
    def active(self) -> bool:
        """Whether it holds a reservation."""
        return self.ended_at is None


class RoundRow(NamedTuple):
    """One attempt at a round."""

    run: str
    index: int  # type: ignore[assignment]
    attempt: int
    noise_row: int
    state: str
    cohort: str | None  # of an open round only: who was selected is forgotten, and who took part is kept
    cohort_size: int
    rejects: Mapping[str, object]
    opened_at: float
    reports: int = 0
    participants: int = 0
    spent: str | None = None
    epsilon: float | None = None
    checkpoint: str | None = None  # of an open round: what it was closed with, if it is
    statistics: str = EMPTY
    reason: str = ""
    closed_at: float | None = None
    nonce: str | None = None

    @property
    def closing(self) -> bool:
        """Whether its masked sum may have been opened, and it is not committed: it is never made another time."""
        return self.state == "open" and self.checkpoint is not None

    def void(self, at: float, reason: str) -> RoundRow:
        """This attempt with nothing released. Who was selected is forgotten."""
        return self._replace(state="void", cohort=None, checkpoint=None, reason=reason, closed_at=at)


class ParticipationRow(NamedTuple):
    """Who took part in a committed round."""

    run: str
    index: int  # type: ignore[assignment]
    count: int  # type: ignore[assignment]
    users: str
    charges: str | None  # digest of what it cost each of them; None without odometers


class UsersRow(NamedTuple):
    """Users who were registered together."""

    population: str
    first: int
    count: int  # type: ignore[assignment]
    hashes: str


class TokenRow(NamedTuple):
    """A token of the API."""

    id: str
    name: str
    digest: str
    scopes: str
    created_at: float
    created_by: str
    expires_at: float | None
    revoked_at: float | None
    populations: str | None


class ChargeRow(NamedTuple):
    """A charge of another trainer."""

    population: str
    key: str
    who: str
    what: str
    why: str
    loss: str
    price: str
    state: str
    reserved_at: float
    closed_at: float | None = None


class Odometers(NamedTuple):
    """What ended runs have cost the users of a population, by its digest."""

    population: str
    digest: str


class Pledge(NamedTuple):
    """What a run was pledged of the users that there were at its start, by its digest."""

    run: str
    digest: str


class NewPledge(NamedTuple):
    """What a run was pledged of each of `count` users who were registered since."""

    run: str
    first: int
    count: int  # type: ignore[assignment]
    cap: int


class Recharge(NamedTuple):
    """What the rounds of an ended run cost its users, computed again, by its digest."""

    run: str
    digest: str


class Seed(NamedTuple):
    """A seed that was drawn for the certified charge of a plan."""

    population: str
    law: str
    plan_digest: str
    attempt: int
    seed: str


Fact: TypeAlias = (
    PopulationRow
    | ProposalRow
    | RunRow
    | RoundRow
    | ParticipationRow
    | UsersRow
    | TokenRow
    | ChargeRow
    | Odometers
    | Pledge
    | NewPledge
    | Recharge
    | Seed
)
