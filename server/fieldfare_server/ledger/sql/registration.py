"""Registering users: which number each pseudonym has within its population."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sqlalchemy import Connection, bindparam, select

from fieldfare.errors import BudgetRefused, LedgerCorrupt, OutOfRange
from fieldfare.participation import hides_presence
from fieldfare_server.ledger.rules.populations import register
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.hold import Hold
from fieldfare_server.ledger.sql.journal import Entry
from fieldfare_server.ledger.sql.users import SortedIndex, distinct, pseudonyms, salted

# Users registered in one transaction: bounds memory, and what is repeated after a crash.
_CHUNK = 1 << 17
_u = models.users.c
_HASHES = (
    select(_u.first, _u.hashes)
    .where(_u.population_id == bindparam("population"), _u.first >= bindparam("since"))
    .order_by(_u.first)
)


def hashes_of(connection: Connection, population_id: int, name: str, first: int = 0) -> NDArray[np.uint64]:
    """The salted hashes of a population's users `first`, `first` + 1, ..., in order.

    Raises `LedgerError` if one is missing.
    """
    chunks, at = [np.zeros(0, dtype=np.uint64)], first
    for begins, hashes in connection.execute(_HASHES, {"population": population_id, "since": first}):
        if begins != at:
            raise LedgerCorrupt(f"users of population {name}", f"user {at} is missing.")
        chunks.append(np.frombuffer(hashes, dtype="<u8").astype(np.uint64))
        at += chunks[-1].size
    return np.concatenate(chunks)


def require_apart(connection: Connection, population_id: int, names: NDArray[np.uint64]) -> None:
    """Raise `BudgetRefused` if a user of a population is in another one of this ledger, too: it would have two budgets.

    Two simulated populations may have the same users.

    names: pseudonyms of users that are new to the population, shape (n,).
    """
    if not names.size:
        return
    c = models.populations.c
    shown = select(c.id, c.name, c.salt, c.simulated, c.adjacency)
    own = connection.execute(shown.where(c.id == population_id)).one()
    # Where a population hides who is there, the answer would tell that: budgets are
    # added up instead (`Reader.together`).
    if hides_presence(own.adjacency):
        return
    for other in connection.execute(shown.where(c.id != population_id).order_by(c.id)).all():
        if hides_presence(other.adjacency) or (own.simulated and other.simulated):
            continue
        # With the other's salt, from the pseudonyms at hand: nothing is stored by which a reader could match users.
        both = int(np.isin(salted(names, other.salt), hashes_of(connection, other.id, other.name)).sum())
        if both:
            raise BudgetRefused(
                f"{both} of {names.size} users who are new to population {own.name!r}",
                f"they are in population {other.name!r} of this ledger, and a second budget for the same users would "
                "let them lose more than either says.",
                f"population = {other.name!r}, or users who are in no other population",
                code="user-in-two-populations",
            )


class Registration:
    """The users of one population, as the coordinator that holds one of its runs knows and adds them."""

    def __init__(self, hold: Hold, count: int) -> None:
        """count: how many users the population has."""
        self.count = count  # how many users the population has, as far as this coordinator knows
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
        if array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= self.count:
            raise OutOfRange("user indices", f"must be integers in [0, {self.count}), from register_users.")
        return array.astype(np.int64, copy=False)

    def _register(self, wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
        always_writes = self._hold.run.hides_presence
        known = self._by_pseudonym.get(wanted)
        if (known >= 0).all() and not always_writes:
            return known
        missing = distinct(wanted[known < 0])  # new users are numbered in the order in which they were named
        hashes = salted(missing, self._hold.run.salt)
        if self._loaded < self.count:
            self._read_users()
        if (self._by_hash.get(hashes) < 0).any() or always_writes:
            # Where presence is secret no odometers are kept, and a new user is charged nothing.
            self._hold.write(
                lambda connection, entry: self._add(connection, entry, missing, hashes), admits=not always_writes
            )
            self._read_users()
        numbers = self._by_hash.get(hashes)
        self._by_pseudonym.add(missing, numbers)
        return numbers if missing.size == wanted.size else self._by_pseudonym.get(wanted)

    def _read_users(self) -> None:
        with self._hold.database.read() as connection:
            self._load(connection)

    def _load(self, connection: Connection) -> None:
        run = self._hold.run
        new = hashes_of(connection, run.population_id, run.population, self._loaded)
        self._by_hash.add(new, np.arange(self._loaded, self._loaded + new.size))
        self._loaded += new.size
        self.count = self._loaded

    def _add(self, connection: Connection, entry: Entry, names: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> None:
        run = self._hold.run
        self._load(connection)  # another run may have registered some of them since
        fresh = self._by_hash.get(hashes) < 0
        require_apart(connection, run.population_id, names[fresh])
        new = distinct(hashes[fresh])
        if not new.size and not run.hides_presence:
            return
        name = entry.contents.keep(new.astype("<u8").tobytes())
        population = entry.state.populations[run.population]
        run.record(entry, register(population, self._loaded, int(new.size), name))
