"""Which node each user of a population is bound to, where nodes prove who they are.

The first node that claims a user is bound to that user, for this run and all later ones on the population, so
no other node can take the user over, also while the first is offline. While the first is in quarantine
(`standing`), another node that claims the user answers for them, and the binding stays. `fieldfare nodes
release` sets a node's users free: they moved, the node has a new key, or it had claimed users that were never
its own. A binding decides who is asked for an update. It changes no number that is charged: a user has one
number in the population, whichever node answers.

The file stands in the coordinator's state directory, not in the ledger. It holds user numbers, which mean
nothing without the nodes' own lists, and how many users each node has, which is secret where presence is.
Without the file users are bound again as nodes claim them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fieldfare.atomic import alone_at, replace_file
from fieldfare.errors import CheckpointError
from fieldfare_server.ledger.sql.nodes import NodeRegister, key_digest
from fieldfare_server.run.presence.identity import has_key, list_nodes
from fieldfare_server.run.presence.selection import Users


class Bindings:
    """The bindings of one population."""

    def __init__(self, root: Path, population: str, register: NodeRegister) -> None:
        """
        Args:
            root: the coordinator's state directory.
            register: what operators said of nodes.

        Raises:
            CheckpointError: the file cannot be read.
        """
        self._path = root / f".bindings-{population}.safetensors"
        self._register = register
        # By the key of a node: how often its users had been set free when they were bound. By user number: the
        # position of its node in the first; -1: free.
        self._releases, self._node = self._read()

    def node_names(self, grid: Grid) -> Mapping[int, str]:
        """Return node id -> SHA-256 of its public key, for the nodes that are online and show one."""
        return {node.id: key_digest(node.key) for node in list_nodes(grid) if has_key(node)}

    def most_users(self, name: str) -> int | None:
        """Return how many users the node was registered for; None: nothing was said."""
        return self._register.terms(name).most_users

    def bind(self, users: Users, name: str) -> NDArray[np.bool_]:
        """Bind those of `users` that are free; returns which of them belong to `name` now, shape (n,)."""
        missing = int(users.max(initial=-1)) + 1 - self._node.size
        if missing > 0:
            self._node = np.concatenate([self._node, np.full(missing, -1, np.int32)])
        for position in np.unique(self._node[users]).tolist():
            if position >= 0:
                self._set_free(position)
        own = self._position(name, self._register.terms(name).releases)
        holder = self._node[users]
        self._node[users[holder == -1]] = own
        return np.asarray((holder == -1) | (holder == own))

    def _position(self, name: str, releases: int) -> int:
        self._releases.setdefault(name, releases)
        return list(self._releases).index(name)

    def _set_free(self, position: int) -> None:
        """Free the users of a node that an operator released since they were bound."""
        name = list(self._releases)[position]
        releases = self._register.terms(name).releases
        if releases > self._releases[name]:
            self._node[self._node == position] = -1
            self._releases[name] = releases

    def save(self) -> None:
        """Make the bindings durable, with those that another run on the population has made since."""
        with alone_at(self._path):  # two runs at once: neither writes over what the other read
            held, theirs = self._read()
            self._node = np.concatenate([self._node, np.full(max(0, theirs.size - self._node.size), -1, np.int32)])
            for position, (key, count) in enumerate(held.items()):
                new = np.flatnonzero((theirs == position) & (self._node[: theirs.size] == -1))
                if new.size and self._register.terms(key).releases == count:
                    self._node[new] = self._position(key, count)
            meta = {"nodes": json.dumps([*self._releases.items()])}
            replace_file(self._path, save({"node": self._node}, meta))

    def _read(self) -> tuple[dict[str, int], NDArray[np.int32]]:
        if not self._path.exists():
            return {}, np.zeros(0, np.int32)
        try:
            with safe_open(self._path, "np") as file:
                nodes = json.loads(file.metadata()["nodes"])
                bound = file.get_tensor("node")
            releases = {str(key): int(count) for key, count in nodes}
            if bound.dtype != np.int32 or bound.ndim != 1 or not -1 <= bound.max(initial=-1) < len(releases):
                raise ValueError("a user of no node")
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"bindings {self._path.name}",
                f"cannot be read ({type(error).__name__}).",
                "its backup; without the file, users are bound again as nodes claim them",
            ) from None
        return releases, bound
