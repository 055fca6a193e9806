"""What happens to a population's budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fieldfare_server.ledger.events.base import Event


@dataclass(frozen=True)
class Created(Event):
    """A population was created with its budget and its rules, which stay."""

    action = "population.create"
    epsilon: float
    delta: float
    adjacency: str
    simulated: bool
    unit: str
    accounting: str  # whether odometers are kept: "individual" or "worst-case"
    ceiling_epsilon: float | None
    ceiling_delta: float | None
    two_persons: bool
    reservation_seconds: float | None
    # SHA-256 of the salt of its users' hashes: with the salt, a reader of the log could test guesses at pseudonyms.
    salt: str
    leak: float  # d of the filter
    # Where another population of the ledger needs two persons for a raise: it waits for the second by this id.
    proposal: str | None = None
    person: str | None = None  # who asked for it, then


@dataclass(frozen=True)
class Raised(Event):
    """A budget was raised."""

    action = "population.raise"
    epsilon: float
    delta: float
    reason: str
    old: Mapping[str, Any]  # the budget before
    person: str | None = None  # who approved it, where two persons are needed
    proposal: str | None = None


@dataclass(frozen=True)
class Proposed(Event):
    """A raise waits for a second person."""

    action = "population.propose"
    id: str
    epsilon: float
    delta: float
    reason: str
    person: str
    old: Mapping[str, Any]


@dataclass(frozen=True)
class Withdrawn(Event):
    """A raise that waited was taken back or refused."""

    action = "population.withdraw"
    proposal: str
    reason: str


@dataclass(frozen=True)
class Tightened(Event):
    """A budget was lowered."""

    action = "population.tighten"
    epsilon: float
    delta: float
    reason: str
    old: Mapping[str, Any]
    # What is committed of the user who has least left, beyond what all are charged alike, where there are
    # odometers: the log alone has no odometers at hand.
    largest: int | None = None


@dataclass(frozen=True)
class WindowSet(Event):
    """A calendar window was set, changed or (both None) taken away: it limits what begins beside the budget."""

    action = "population.window"
    window_epsilon: float | None
    window_every: str | None  # "day", "week", "month" or "year"
    reason: str
    old: Mapping[str, Any]


@dataclass(frozen=True)
class Noted(Event):
    """Somebody wrote a note on a population, which changes nothing."""

    action = "population.note"
    reason: str


@dataclass(frozen=True)
class Closed(Event):
    """A population accepts no new run."""

    action = "population.close"
    state: str
    old: Mapping[str, Any]
    reason: str


@dataclass(frozen=True)
class Reopened(Event):
    """A population accepts runs again."""

    action = "population.reopen"
    state: str
    old: Mapping[str, Any]
    reason: str


@dataclass(frozen=True)
class Recomputed(Event):
    """Ended runs are charged to their users' odometers from now on."""

    action = "population.odometers"
    runs: Mapping[str, Any]  # run -> the digest of what its rounds cost (`odometers.digest_of_rounds`)
    users: int
    odometers: str  # digest of what ended runs have cost each user


@dataclass(frozen=True)
class Registered(Event):
    """Users `first`, `first` + 1, ... of a population were registered."""

    action = "users.register"
    first: int
    count: int
    hashes: str  # SHA-256 of their salted hashes
    # Run -> what it may cost each of them, of the runs under way that are charged to odometers.
    pledged: Mapping[str, Any] | None = None
