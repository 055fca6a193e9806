"""Registering users: which number each pseudonym has within its population."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import Connection, insert, select, update

from fieldfare.errors import BadInput, LedgerError
from fieldfare_server.ledger.chain import sha256
from fieldfare_server.ledger.sql import models, odometer_tables
from fieldfare_server.ledger.sql.hold import Hold
from fieldfare_server.ledger.sql.journal import Entry
from fieldfare_server.ledger.sql.rows import population_row
from fieldfare_server.ledger.sql.users import SortedIndex, pseudonyms, salted
from fieldfare_server.ledger.state import odometers
from fieldfare_server.ledger.state.replay import Replay

_CHUNK = 1 << 17
"""Users registered in one transaction: bounds memory, and what is repeated after a crash."""


class Registration:
    """The users of one population, as the coordinator that holds one of its runs knows and adds them."""

    def __init__(self, hold: Hold, count: int) -> None:
        """count: how many users the population has."""
        self.count = count
        """How many users the population has, as far as this coordinator knows."""
        self._hold = hold
        # Hashes are read when they are first needed: a run whose users are all known by pseudonym never reads them.
        self._loaded = 0
        self._by_hash, self._by_pseudonym = SortedIndex(), SortedIndex()

    def register(self, ids: ArrayLike) -> NDArray[np.int64]:
        """The index of each user, shape (len(ids),); see `RunHandle.register_users`."""
        wanted = pseudonyms(ids)
        if self._hold.run.hides_presence:
            # One transaction, however many: the number of journal rows must not depend on who is present.
            return self._register(wanted)
        indices = np.empty(wanted.shape, dtype=np.int64)
        for at in range(0, wanted.size, _CHUNK):
            indices[at : at + _CHUNK] = self._register(wanted[at : at + _CHUNK])
        return indices

    def require_known(self, indices: ArrayLike) -> NDArray[np.int64]:
        """`indices` as int64. Raises `BadInput` unless each is the number of a registered user."""
        array = np.asarray(indices)
        if array.size == 0:
            return np.empty(0, dtype=np.int64)
        if not np.issubdtype(array.dtype, np.integer) or array.min() < 0 or array.max() >= self.count:
            raise BadInput("user indices", f"must be integers in [0, {self.count}), from register_users.")
        return array.astype(np.int64, copy=False)

    def _register(self, wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
        always_writes = self._hold.run.hides_presence
        known = self._by_pseudonym.get(wanted)
        if (known >= 0).all() and not always_writes:
            return known
        missing, first = np.unique(wanted[known < 0], return_index=True)
        missing = missing[np.argsort(first)]  # new users are numbered in the order in which they were named
        hashes = salted(missing, self._hold.run.salt)
        if self._loaded < self.count:
            self._read_users()
        if (self._by_hash.get(hashes) < 0).any() or always_writes:
            if always_writes:  # where presence is secret no odometers are kept, and a new user is charged nothing
                self._hold.write(lambda connection, entry: self._add(connection, entry, hashes, None))
            else:
                self._hold.admit(lambda connection, entry, replay: self._add(connection, entry, hashes, replay))
            self._read_users()
        self._by_pseudonym.add(missing, self._by_hash.get(hashes))
        return self._by_pseudonym.get(wanted)

    def _read_users(self) -> None:
        with self._hold.database.read() as connection:
            self._load(connection)

    def _load(self, connection: Connection) -> None:
        run, c = self._hold.run, models.users.c
        unread = (c.population_id == run.population_id, c.first >= self._loaded)
        for first, hashes in connection.execute(select(c.first, c.hashes).where(*unread).order_by(c.first)):
            if first != self._loaded:
                raise LedgerError(f"users of population {run.population}", f"user {self._loaded} is missing.")
            new = np.frombuffer(hashes, dtype="<u8").astype(np.uint64)
            self._by_hash.add(new, np.arange(first, first + new.size))
            self._loaded += new.size
        self.count = self._loaded

    def _add(self, connection: Connection, entry: Entry, hashes: NDArray[np.uint64], replay: Replay | None) -> None:
        run = self._hold.run
        self._load(connection)  # another run may have registered some of them since
        new = hashes[self._by_hash.get(hashes) < 0]
        _, first = np.unique(new, return_index=True)
        new = new[np.sort(first)]
        if not new.size and not run.hides_presence:
            return
        data = new.astype("<u8").tobytes()
        pledged: dict[str, Any] = {}
        if new.size:
            row = {"population_id": run.population_id, "first": self._loaded, "count": new.size, "hashes": data}
            connection.execute(insert(models.users).values(row))
            population = update(models.populations).where(models.populations.c.id == run.population_id)
            connection.execute(population.values(users=self._loaded + new.size))
            caps = {} if replay is None else self._pledge(connection, int(new.size), replay)
            pledged = {"pledged": caps} if caps else {}
        body = {"first": self._loaded, "count": int(new.size), "hashes": sha256(data)}
        run.record(entry, "users.register", {**body, **pledged})

    def _pledge(self, connection: Connection, count: int, replay: Replay) -> dict[str, int]:
        """Pledge the new users to the runs under way; {} without odometers."""
        name = self._hold.run.population
        population, proven = population_row(connection, name), replay.populations[name]
        if not proven.individual:
            return {}
        alike = odometers.units_of(proven.base())
        return odometer_tables.pledge_newcomers(connection, population, alike, self._loaded, count)
