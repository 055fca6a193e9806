"""What may happen to a token of the API, and what may be noted: events that the log keeps and that make no fact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from fieldfare.head_keys import KeyLine
from fieldfare_server.ledger.events import heads, nodes, populations, runs, tokens
from fieldfare_server.ledger.events.base import Event, Record, require
from fieldfare_server.ledger.state.rows import Fact, TokenRow, said
from fieldfare_server.ledger.state.state import State

Holds: TypeAlias = Callable[[State, Record, Any], object]


def created(state: State, record: Record, event: tokens.TokenCreated) -> Iterator[Fact]:
    """Yield a token that is valid."""
    require(event.id not in state.tokens, "a token is created twice, which would revive a revoked one")
    populations = None if event.populations is None else " ".join(event.populations)
    listed = {"scopes": " ".join(event.scopes), "populations": populations}
    made = {"created_at": record.at, "created_by": record.actor, "revoked_at": None}
    yield TokenRow(**said(TokenRow, event) | listed | made)


def revoked(state: State, record: Record, event: tokens.TokenRevoked) -> Iterator[Fact]:
    """Yield a token that is useless from now on."""
    yield state.tokens[event.id]._replace(revoked_at=record.at)


def _note(holds: Holds, why: str, state: State, record: Record, event: Event) -> Iterator[Fact]:
    require(bool(holds(state, record, event)), why)
    return iter(())


# What must hold of each note, and what is wrong where it does not. Whom another key of heads convinces is for who holds
# a head; what is charged for dropped rows has rows of its own.
_HOLDS: Mapping[type[Event], tuple[Holds, str]] = {
    populations.Noted: (lambda state, at, _: at.place in state.populations, "it is on no population"),
    runs.Audited: (lambda state, at, _: at.run in state.runs, "a run is audited that was never started"),
    tokens.TokenUsed: (lambda state, _, event: event.id in state.tokens, "a token is used that was never created"),
    nodes.NodeAdmitted: (
        lambda state, _, event: len(event.key) == 64 and event.most_users >= 1,
        "a node is admitted for no users",
    ),
    nodes.NodeReleased: (lambda state, _, event: len(event.key) == 64, "a node without a key is released"),
    heads.HeadKeyChanged: (lambda state, _, event: KeyLine.parse(event.line), "its line is none"),  # raises ValueError
    heads.Mended: (lambda state, at, event: 0 <= event.kept < at.number, "more rows stayed than there are"),
    heads.Converted: (
        lambda state, at, event: at.number == 1 and event.count >= 1 and event.omitted >= 0,
        "only a log's beginning is converted",
    ),
}
NOTES = {kind: partial(_note, *each) for kind, each in _HOLDS.items()}
