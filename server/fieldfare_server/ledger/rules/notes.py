"""What may be noted: events that the log keeps and that make no fact.

Whom another key of heads convinces is for who holds a head; what is charged for dropped rows has rows of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from fieldfare.head_keys import KeyLine
from fieldfare_server.ledger.events import heads, nodes, populations, runs, tokens
from fieldfare_server.ledger.events.base import Event, Record, require
from fieldfare_server.ledger.state.rows import Fact
from fieldfare_server.ledger.state.state import State

Holds: TypeAlias = Callable[[State, Record, Any], object]

# What must hold of each, and what is wrong where it does not.
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


def _note(holds: Holds, why: str) -> Callable[[State, Record, Any], Iterator[Fact]]:
    def rule(state: State, record: Record, event: Event) -> Iterator[Fact]:
        require(bool(holds(state, record, event)), why)
        return iter(())

    return rule


NOTES = {kind: _note(*each) for kind, each in _HOLDS.items()}
