"""What operators say of nodes."""

from __future__ import annotations

from dataclasses import dataclass

from fieldfare_server.ledger.events.base import Event


@dataclass(frozen=True)
class NodeAdmitted(Event):
    """An operator stated for how many users a node is registered."""

    action = "node.admit"
    key: str  # SHA-256 of its public key
    name: str
    most_users: int


@dataclass(frozen=True)
class NodeReleased(Event):
    """A node's users are free for other nodes to claim."""

    action = "node.release"
    key: str
    name: str
