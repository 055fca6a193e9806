"""What happens to the key that signs the journal's head."""

from __future__ import annotations

from dataclasses import dataclass

from fieldfare_server.ledger.events.base import Event


@dataclass(frozen=True)
class HeadKeyChanged(Event):
    """The head's key was replaced, or enrolled a key that is kept offline."""

    action = "head.key"
    line: str
    """The signed line of `fieldfare.head_keys`, by which nodes and witnesses know it too."""
