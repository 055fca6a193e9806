"""What operators say of nodes, as rows of the journal: for how many users a node is registered, and that it lost them.

A node is named by the SHA-256 of its public key. There is no table: rows are few, and who reads them remembers where it
stopped.
"""

from __future__ import annotations

import hashlib
import json
import string
from dataclasses import dataclass

from sqlalchemy import select

from fieldfare.errors import OutOfRange, WrongForm
from fieldfare_server.ledger.events.nodes import NodeAdmitted, NodeReleased
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.ledger.sql.journal import Journal, clean

# The largest number of users that a node can be registered for.
MOST_USERS = 20_000_000
_HEX = frozenset(string.hexdigits.lower())


@dataclass(frozen=True)
class NodeTerms:
    """What is said of one node."""

    most_users: int | None = None  # how many users it may hold; None: nothing was said
    releases: int = 0  # how often its users were set free


def key_digest(key: bytes) -> str:
    """The name of the node with this public key (PEM), in 64 hex digits."""
    return hashlib.sha256(key).hexdigest()


class NodeRegister:
    """Reads what was said of nodes, and later only what is new."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read = 0
        self._terms: dict[str, NodeTerms] = {}

    def terms(self, key: str) -> NodeTerms:
        """What is said of the node whose public key has the SHA-256 `key`, hex."""
        c = models.journal.c
        news = (
            select(c.id, c.action, c.body)
            .where(c.id > self._read, c.action.in_((NodeAdmitted.action, NodeReleased.action)))
            .order_by(c.id)
        )
        with self._database.read() as connection:
            end = connection.execute(select(models.head.c.count)).scalar_one()
            rows = connection.execute(news).all()
        for _, action, text in rows:
            body = json.loads(text)
            old = self._terms.get(body["key"], NodeTerms())
            most = body["most_users"] if action == NodeAdmitted.action else old.most_users
            self._terms[body["key"]] = NodeTerms(most, old.releases + (action == NodeReleased.action))
        self._read = max(self._read, end)
        return self._terms.get(key, NodeTerms())


class Nodes:
    """What a ledger writes about nodes. A key that is none is refused as `BadInput`."""

    database: Database
    _journal: Journal

    def admit_node(self, key: str, name: str, most_users: int, *, actor: str) -> None:
        """State for how many users a node is registered. key: SHA-256 of its public key, hex. Raises `BadInput`."""
        _require_key(key)
        if not 1 <= most_users <= MOST_USERS:
            raise OutOfRange(f"most users = {most_users}", f"must be in [1, {MOST_USERS}].", "1")
        event = NodeAdmitted(key, clean(name, 200), most_users)
        self._journal.write(lambda connection, entry: entry.append(event, actor))

    def release_node(self, key: str, name: str, *, actor: str) -> None:
        """Set the users of a node free: the next node that claims one has it. Raises `BadInput`."""
        _require_key(key)
        event = NodeReleased(key, clean(name, 200))
        self._journal.write(lambda connection, entry: entry.append(event, actor))

    def node_register(self) -> NodeRegister:
        """Return what was said of nodes; it reads what is new each time that it is asked."""
        return NodeRegister(self.database)


def _require_key(key: str) -> None:
    if len(key) != 64 or not _HEX.issuperset(key):
        raise WrongForm(f"node {key[:80]!r}", "a node is named by the SHA-256 of its public key, in 64 hex digits.")
