"""What happens to charges of other trainers, and to what runs of earlier formats have spent."""

from __future__ import annotations

from dataclasses import dataclass

from fieldfare_server.ledger.events.base import Event


@dataclass(frozen=True)
class ChargeReserved(Event):
    """Another trainer set a loss aside for all users of a population."""

    action = "charge.reserve"
    key: str
    who: str
    what: str
    why: str
    loss: str
    price: str
    largest: int | None = None  # as of `populations.Tightened`


@dataclass(frozen=True)
class ChargeCarried(Event):
    """What a run of an earlier format has spent, which a rule of then admitted: all users are charged for it alike."""

    action = "charge.carry"
    key: str
    who: str
    what: str
    why: str
    loss: str
    price: str


@dataclass(frozen=True)
class ChargeCommitted(Event):
    """What was reserved under a key is spent."""

    action = "charge.commit"
    key: str


@dataclass(frozen=True)
class ChargeReleased(Event):
    """What was reserved under a key never happened."""

    action = "charge.release"
    key: str
