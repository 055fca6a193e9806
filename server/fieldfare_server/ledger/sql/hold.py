"""A coordinator's hold on one run: every write checks the lease, and every journal row names the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection

from fieldfare.accounting import PrivacyLoss
from fieldfare.participation import hides_presence
from fieldfare_server.ledger.events.base import Event
from fieldfare_server.ledger.schedule import Schedule
from fieldfare_server.ledger.sql import leases
from fieldfare_server.ledger.sql.journal import Entry, Journal

T = TypeVar("T")


@dataclass(frozen=True)
class RunFacts:
    """What never changes while a run is under way."""

    id: str
    seq: int
    planned: PrivacyLoss
    population: str
    population_id: int
    adjacency: str
    delta: float
    salt: bytes
    # Where the plan names `run.round_seconds`: the only times that are stored of this run.
    schedule: Schedule | None
    nonces: bool  # whether each committed round has a nonce
    simulated: bool  # whether the users are not people
    individual: bool = False  # whether the run is charged to its users' odometers

    @property
    def hides_presence(self) -> bool:
        """Whether a user's presence, and with it every count of users, is secret."""
        return hides_presence(self.adjacency)

    def record(self, entry: Entry, event: Event, round: int | None = None, at: float | None = None) -> None:
        """Append an event of this run."""
        entry.append(
            event,
            f"run {self.id}",
            population=self.population,
            run=self.id,
            round=round,
            at=at,
            blind=self.hides_presence,
        )


class Hold:
    """Writes for one run that succeed only while `token` is that of its lease."""

    def __init__(self, journal: Journal, run: RunFacts, token: int, seconds: float) -> None:
        self.database, self.run, self.clock = journal.database, run, journal.clock
        self.seconds = seconds  # how long this coordinator may be silent
        self._journal, self._token = journal, token
        self._renewed = time.monotonic()

    def write(self, work: Callable[[Connection, Entry], T], *, admits: bool = False) -> T:
        """One durable transaction that also renews the lease. Raises `LedgerError` if the run was taken over.

        admits: it charges a budget, by the state that the journal proves (`Journal.admit`).
        """

        def fenced(connection: Connection, entry: Entry) -> T:
            self._renew(connection, entry)
            return work(connection, entry)

        result = (self._journal.admit if admits else self._journal.write)(fenced)
        self._renewed = time.monotonic()
        return result

    def _renew(self, connection: Connection, entry: Entry) -> None:
        # The lease is renewed at the real time, which no view shows.
        leases.renew(connection, self.run.seq, self.run.id, self._token, entry.now)
        if self.run.schedule is not None:
            entry.now = self.run.schedule.latest(entry.now)

    def heartbeat(self) -> None:
        """Renew the lease if a sixth of its time has passed. Raises `LedgerError` if the run was taken over."""
        if time.monotonic() - self._renewed >= self.seconds / 6:
            self.write(lambda connection, entry: None)
