"""What happens to tokens of the API."""

from __future__ import annotations

from dataclasses import dataclass

from fieldfare_server.ledger.events.base import Event


@dataclass(frozen=True)
class TokenCreated(Event):
    """A token of the API was made."""

    action = "token.create"
    id: str
    name: str
    scopes: tuple[str, ...]
    expires_at: float | None
    populations: tuple[str, ...] | None
    digest: str  # SHA-256 of its secret


@dataclass(frozen=True)
class TokenRevoked(Event):
    """A token is useless from now on."""

    action = "token.revoke"
    id: str


@dataclass(frozen=True)
class TokenUsed(Event):
    """A token was used."""

    action = "token.use"
    id: str
    what: str
