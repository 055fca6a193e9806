"""What may happen to a token of the API."""

from __future__ import annotations

from collections.abc import Iterator

from fieldfare_server.ledger.events import tokens
from fieldfare_server.ledger.events.base import Record, require
from fieldfare_server.ledger.state.rows import Fact, TokenRow
from fieldfare_server.ledger.state.state import State


def created(state: State, record: Record, event: tokens.TokenCreated) -> Iterator[Fact]:
    """Yield a token that is valid."""
    require(event.id not in state.tokens, "a token is created twice, which would revive a revoked one")
    yield TokenRow(
        id=event.id,
        name=event.name,
        digest=event.digest,
        scopes=" ".join(event.scopes),
        created_at=record.at,
        created_by=record.actor,
        expires_at=event.expires_at,
        revoked_at=None,
        populations=None if event.populations is None else " ".join(event.populations),
    )


def revoked(state: State, record: Record, event: tokens.TokenRevoked) -> Iterator[Fact]:
    """Yield a token that is useless from now on."""
    yield state.tokens[event.id]._replace(revoked_at=record.at)
