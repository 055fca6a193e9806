"""What may happen to a token of the API, to a node, and to the log."""

from __future__ import annotations

from collections.abc import Iterator

from fieldfare.head_keys import KeyLine
from fieldfare_server.ledger.events import heads, nodes, tokens
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


def used(state: State, record: Record, event: tokens.TokenUsed) -> Iterator[Fact]:
    """Note that a token was used."""
    require(event.id in state.tokens, "a token is used that was never created")
    yield from ()


def node_admitted(state: State, record: Record, event: nodes.NodeAdmitted) -> Iterator[Fact]:
    """Register a node for a number of users."""
    require(len(event.key) == 64 and event.most_users >= 1, "a node is admitted for no users")
    yield from ()


def node_released(state: State, record: Record, event: nodes.NodeReleased) -> Iterator[Fact]:
    """Set a node's users free."""
    require(len(event.key) == 64, "a node without a key is released")
    yield from ()


def head_key_changed(state: State, record: Record, event: heads.HeadKeyChanged) -> Iterator[Fact]:
    """Note that the key of heads changed, or enrolled another. Whom that convinces is for who holds a head."""
    KeyLine.parse(event.line)  # raises ValueError
    yield from ()


def mended(state: State, record: Record, event: heads.Mended) -> Iterator[Fact]:
    """Note that rows were dropped. What is charged for them has rows of its own."""
    require(0 <= event.kept < record.number, "more rows stayed than there are")
    yield from ()


def converted(state: State, record: Record, event: heads.Converted) -> Iterator[Fact]:
    """Begin the log with what an older one said."""
    require(record.number == 1 and event.count >= 1 and event.omitted >= 0, "only a log's beginning is converted")
    yield from ()
