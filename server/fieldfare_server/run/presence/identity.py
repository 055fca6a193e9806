"""Who a node of the plain dialect is: one user, told by the node's public key.

| nodes | user | lasts |
|---|---|---|
| of an in-process grid | `partition-INDEX` | while the app splits its rows alike: not over other numbers of nodes |
| of Flower's simulation | `simulated-RANK`, by rank of its id | one run: only worst-case charges hold |
| SuperNodes | a hash of the key's bytes | as long as the key: restarts, if the node has a key file |

A node's id is no identity: a SuperLink that lost its state gives the same key another one. A key proves
something only where the SuperLink authenticates nodes: an operator says so, or it is asked to register a
stranger and refuses; `session.require_identity` wants one of the two.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fieldfare.schema import Schema, pseudonym
from fieldfare_flower.local_grid import FIRST_NODE
from fieldfare_flower.masked import HELLO
from fieldfare_flower.nodes import refuses_unknown_nodes
from fieldfare_flower.server_errors import outlasted
from fieldfare_server.run.presence.failures import PASSING
from fieldfare_server.run.presence.replies import ReceivedReply
from fieldfare_server.run.presence.roster import LOOK_EVERY, Roster
from fieldfare_server.run.presence.selection import Users

Kind = Literal["local", "simulated", "real"]
# Flower's simulation gives each node this many random bytes for a key. A real key is a PEM file.
SIMULATED_KEY_BYTES = 32
_PEM = b"-----BEGIN PUBLIC KEY-----"


class GridNode(NamedTuple):
    """One node as the grid shows it."""

    id: int
    key: bytes


def list_nodes(grid: Grid) -> list[GridNode]:
    """Return the nodes that are online, by increasing id."""
    return sorted(GridNode(int(node.node_id), bytes(node.public_key)) for node in grid.get_nodes())


def kind_of(grid: Grid, nodes: Iterable[GridNode]) -> Kind:
    """Return what sort of nodes these are. Without any node: real ones."""
    if getattr(grid, "simulated", False):
        return "local"
    keys = [node.key for node in nodes]
    # Their look proves nothing: `PrivateStrategy` accepts such nodes for simulated populations only.
    return "simulated" if keys and all(len(key) == SIMULATED_KEY_BYTES for key in keys) else "real"


def has_key(node: GridNode) -> bool:
    """Return whether the node shows a public key in the form of a SuperNode's."""
    return node.key.lstrip().startswith(_PEM)


def key_pseudonym(key: bytes) -> int:
    """Return the 64-bit name of the user whose node has this public key: stable, and apart from other names."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8, person=b"fieldfare.node").digest(), "little")


def keys_are_proven(grid: Grid) -> bool:
    """Return whether the SuperLink authenticates its SuperNodes, so that a key names one node."""
    # deploy/ sets it to "required" together with --enable-supernode-auth.
    stated = os.environ.get("FIELDFARE_NODE_AUTH")
    # Where nothing is stated the SuperLink is tried: it must refuse a stranger.
    return stated == "required" or (not stated and refuses_unknown_nodes(grid))


def identity_is_stable(grid: Grid) -> bool:
    """Return whether no node on this grid can claim the users of another: in process, or by keys that are proven."""
    ours = bool(getattr(grid, "simulated", False)) or os.environ.get("FIELDFARE_NODE_AUTH") == "simulated"
    # A public key alone proves nothing: SuperNodes without authentication make a new one at every start.
    return ours or keys_are_proven(grid)


class KeyRoster(Roster):
    """Users of the plain dialect: one a node, without asking it anything but whether it is a blinder.

    Args:
        simulated: the nodes are those of Flower's simulation.
        asks: a node is taken in once it has answered that it is the blinder, or not: any answer but a blinder's.
    """

    def __init__(
        self,
        schema: Schema,
        run_id: str,
        register_users: Callable[[NDArray[np.uint64]], Users],
        *,
        simulated: bool = False,
        asks: bool = False,
    ) -> None:
        super().__init__(schema, run_id, register_users, "plain")
        self._simulated, self._asks = simulated, asks
        self._ranks: dict[int, int] = {}
        # Of the nodes that were not taken in at the newest look: the user that each one is.
        self._users: dict[int, int | None] = {}

    def look(self, grid: Grid) -> None:
        """Take in the nodes that are new."""
        with outlasted("who is online is what it was"):
            nodes = list_nodes(grid)
            self._users = {node.id: self._name_user(grid, node) for node in nodes if node.id not in self._answered}
            if self._asks:
                super().look(grid)
                return
            self._note_online(grid, {node.id for node in nodes})
            for node in self._users:
                self._take_in_user(node)
        self._next_look = time.monotonic() + LOOK_EVERY

    def _take_in_user(self, node: int) -> None:
        name = self._users.get(node)
        if name is None:
            self.refused["node without a public key"] += 1
        self._take_in(node, np.asarray([] if name is None else [name], np.uint64))

    def _read_users(self, node: int, answer: ReceivedReply) -> None:
        """Take in `node` as the blinder where it says so, else as the one user that its key names."""
        reply = answer.reply
        if reply is not None and (reply.error.code not in PASSING if reply.has_error() else HELLO not in reply.content):
            self._take_in_user(node)
        else:
            super()._read_users(node, answer)

    def _name_user(self, grid: Grid, node: GridNode) -> int | None:
        if getattr(grid, "simulated", False):
            return pseudonym(f"partition-{node.id - FIRST_NODE}")
        if self._simulated:
            # Nodes of a simulation are all there from its beginning; a later one gets the next number.
            rank = self._ranks.setdefault(node.id, len(self._ranks))
            return pseudonym(f"simulated-{rank}")
        return key_pseudonym(node.key) if has_key(node) else None
