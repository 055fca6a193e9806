"""The ledger's front: open and close it, and change what it keeps. `reads.Reader` is what can be asked of it."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from sqlalchemy import Connection

from fieldfare.accounting.foreign import Foreign
from fieldfare.accounting.individual import Units
from fieldfare.errors import AlreadyThere, BudgetRefused, LedgerError, NoLedger
from fieldfare.participation import Adjacency, hides_presence
from fieldfare.shown import Shown
from fieldfare_server.ledger import chain, holders, views
from fieldfare_server.ledger.events.base import Event, Unfit
from fieldfare_server.ledger.events.charges import ChargeCommitted, ChargeReleased
from fieldfare_server.ledger.events.populations import Noted, Recomputed
from fieldfare_server.ledger.events.runs import Audited, KeyDestroyed, SeedDrawn, Voided
from fieldfare_server.ledger.head_keys import HeadKeys
from fieldfare_server.ledger.rules import charges, populations, runs
from fieldfare_server.ledger.run_handle import RunHandle
from fieldfare_server.ledger.schedule import scheduled
from fieldfare_server.ledger.sql import leases, odometer_tables, rows
from fieldfare_server.ledger.sql import migrate as schema
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.ledger.sql.journal import Clock, Entry, Journal, clean, read_head
from fieldfare_server.ledger.sql.load import load
from fieldfare_server.ledger.sql.memory import Memory
from fieldfare_server.ledger.sql.mend import Examination, Mending, charge_for
from fieldfare_server.ledger.sql.nodes import Nodes
from fieldfare_server.ledger.sql.proof import Disproved, Proof
from fieldfare_server.ledger.sql.rebuild import rebuild
from fieldfare_server.ledger.sql.segments import Segments
from fieldfare_server.ledger.sql.takeover import start_run, take_over
from fieldfare_server.ledger.sql.tokens import TokenCheck, Tokens
from fieldfare_server.ledger.state.state import FoldedPopulation, State
from fieldfare_server.ledger.states import Request

# Seconds to wait for a database that cannot be reached when a ledger is opened.
OPENING = 3.0

log = logging.getLogger(__name__)


class _Undone(Exception):
    """Nothing is to change."""


class Ledger(HeadKeys, Nodes, Tokens, metaclass=Shown):
    """An open ledger. Writes are serialised, durable and journaled.

    `help(ff.Ledger.NAME)` says how each of these is called; others are for coordinator, service and commands.

        open, url, close                                 the ledger
        populations, population_names, population        budgets, and what is spent
        runs, run, rounds, charges                       what was charged
        create_population, raise_population, tighten_population, set_window, note_population,
        close_population, reopen_population              decisions about a budget, with a reason
        reserve_charge, commit_charge, release_charge    what another trainer spends

    Example:
        >>> import fieldfare as ff
        >>> with ff.Ledger.open("sqlite:///ledger.sqlite3", create=True) as ledger:
        ...     made = ledger.create_population("people", 8, 1e-5, actor="ann")
        ...     lower = ledger.tighten_population("people", epsilon=4, reason="no second study", actor="ann")
        ...     people = ledger.population("people")
        ...     print(people.epsilon, people.spent_epsilon, ledger.runs().items)
        4.0 0.0 ()
    """

    SHOWN = ("open",)

    def __init__(self, database: Database, journal: Journal, lease_seconds: float) -> None:
        super().__init__(database, journal.clock, Memory())
        self.database = database
        self.proof = journal.proof  # whether the tables say what the journal proves
        self._journal, self._lease_seconds = journal, lease_seconds
        # Gives the token of a secret if it is valid now and the journal proves it, else None.
        self.check_token = TokenCheck(database, journal.clock, functools.partial(self.revoke_token, actor="expiry"))

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = False,
        migrate: bool = False,
        head_file: Path | None = None,
        coordinator: bool = False,
        segments: bool = False,
        to_show: bool = False,
        lease_seconds: float = leases.SECONDS,
        patience: float = 60.0,
        clock: Clock = time.time,
    ) -> Ledger:
        """Open a ledger.

        Args:
            url: `sqlite:///PATH`, a path, or `postgresql://...`.
            create: make a ledger if there is none.
            migrate: bring an older ledger to this program's version (back it up first).
            head_file: where this writer holds the end of the journal, so that it notices when an old copy of the
                ledger was put back.
            coordinator: this machine runs plans: a head file that is missing although there are runs is a fault.
            segments: keep the log in files beside the head file too, as a coordinator does (`sql.segments`).
            to_show: open also a ledger that is behind the held head, or corrupt at its end. It can be read; every
                write and `hold_head` raise what the opening would have raised.
            lease_seconds: how long a coordinator of a run may be silent before another may take over.
            patience: seconds to wait for a database that went away.
            clock: seconds since 1970.

        Raises:
            LedgerError: the ledger is missing, of another version, corrupt at its end, or behind the held head.
        """
        # A database that is not there when a command starts is told at once; one that goes away later is waited for.
        database = Database(url, create=create, patience=min(patience, OPENING))
        try:
            parents = () if database.path is None else database.path.parents
            at = next(filter(os.path.lexists, parents), None)
            if at is not None and not at.is_dir():
                raise LedgerError(
                    f"ledger {database.name}",
                    f"{at} is {'a file' if at.exists() else 'a link to a place that is not there'}.",
                    "a directory, which FIELDFARE_HOME or --home names",
                    code="home-is-no-directory",
                )
            if not database.exists and not create:
                raise NoLedger(f"ledger {database.name}", "there is none.", "--home, or `fieldfare population create`")
            if create and database.is_empty:
                _require_no_held_head(database, head_file)
                schema.upgrade(database)
            elif migrate:
                cls.migrate(url, head_file)
            schema.check(database)
            held = None if head_file is None else chain.HeadFile(head_file)
            journal = Journal(database, held, clock, coordinator=coordinator, segments=segments)
            with contextlib.suppress(*((LedgerError,) if to_show else ())):
                journal.check()
        except BaseException:
            database.close()
            raise
        database.patience = patience
        return cls(database, journal, lease_seconds)

    @staticmethod
    def migrate(url: str, head_file: Path | None = None) -> str:
        """Bring the ledger at `url` to this program's version, which is returned. Back it up first.

        head_file: where this machine holds the end of the log, beside the files of its runs.
        """
        from fieldfare_server.ledger.sql.convert import convert  # what only old ledgers need

        database = Database(url)
        try:
            if not database.exists or database.is_empty:
                raise NoLedger(f"ledger {database.name}", "there is none to migrate.")
            with database.read() as connection:
                version = schema.version(connection)
            if version is None or not schema.known(version):
                schema.check(database)
            ended = schema.upgrade(database, convert=lambda connection: convert(database, connection, head_file))
            if ended is not None and head_file is not None:
                chain.HeadFile(head_file).write(ended, again=True)
        finally:
            database.close()
        return schema.latest()

    def hold_head(self) -> None:
        """Hold where the journal ends now. Raises `LedgerError` if an old copy was put back."""
        self._journal.hold()

    @property
    def url(self) -> str:
        """Where the ledger is, without a password."""
        return self.database.name

    @property
    def version(self) -> str:
        """The version of the ledger's tables."""
        return schema.latest()

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- populations -----------------------------------------------------------------------------------------

    def create_population(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        adjacency: Adjacency = "zero_out",
        unit: str = "user",
        simulated: bool = False,
        leak: float | None = None,
        rules: populations.Rules | None = None,
        actor: str,
        person: str | None = None,
    ) -> views.PopulationView:
        """Create a population with its budget, or propose it where another one's raises need two persons.

        Args:
            name: letters, digits, ".", "_" and "-", at most 100.
            epsilon, delta: the budget that all runs on the population share, a bound for each of its users.
            adjacency: which change of one user's data the budget is for.
            unit: what a user is, in a word, for people to read.
            simulated: the users are not people; only such a population accepts runs with a fixed noise seed.
            leak: D, the part of delta that sampled runs share, for good; at least 0, below delta. None:
                `filter.default_leak`.
            rules: ceilings, a second person for raises, how long reservations last; None: none of these.
            actor: who creates it, for the journal.
            person: who asks, as in `raise_population`.

        Raises:
            BadInput: the name is malformed or taken, or the budget is impossible.
        """
        salt = secrets.token_bytes(16)

        def work(connection: Connection, entry: Entry) -> None:
            # Readers of the log see the hash; with the salt itself they could test guesses at pseudonyms.
            event = populations.create(
                entry.state,
                epsilon,
                delta,
                adjacency=adjacency,
                unit=clean(unit, 100),
                simulated=simulated,
                salt=entry.contents.keep(salt, lasting=True),
                leak=leak,
                rules=rules,
                person=clean(person or actor, 200),
            )
            entry.append(event, actor, population=name)

        self._journal.admit(work)
        return self.population(name)

    def population_or_new(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        first: float = 0.0,
        adjacency: Adjacency,
        simulated: bool,
        actor: str,
    ) -> tuple[views.PopulationView, bool]:
        """Return the population of that name, and whether this call made it: with this budget, where there was none.

        first: epsilon of its first run at `delta`: for a smaller budget none is made, as only an officer raises it.

        Raises as `create_population`, and `BudgetRefused`.
        """
        if (found := self.find_population(name)) is not None:
            return found, False
        if first > epsilon:
            why = f"population {name!r} is not made: one run alone costs epsilon {first:g}."
            raise BudgetRefused(f"budget = {epsilon:g}", why, f"budget = {first:g} or more, for all runs together")
        try:
            made = self.create_population(name, epsilon, delta, adjacency=adjacency, simulated=simulated, actor=actor)
            return made, True
        except AlreadyThere:  # another process made it meanwhile
            return self.population(name), False

    def raise_population(
        self,
        name: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        reason: str,
        actor: str,
        person: str | None = None,
    ) -> views.PopulationView:
        """Raise a budget, or propose it where two persons are needed: `PopulationView.proposals` shows what waits.

        person: who asks, for the rule of two persons: a token's id; None: `actor`.

        Example:
            >>> with ff.Ledger.open("sqlite:///ledger.sqlite3") as ledger:
            ...     raised = ledger.raise_population("people", epsilon=9, reason="a second study", actor="ann")
            ...     closed = ledger.close_population("people", reason="the study is over", actor="ann")
            ...     opened = ledger.reopen_population("people", reason="it goes on", actor="ann")
            ...     noted = ledger.note_population("people", text="asked the board", actor="ann")
        """
        reason = populations.require_reason(clean(reason, 2000), "raising a budget")
        asks = clean(person or actor, 200)
        return self._change(
            name, lambda state: populations.raise_budget(state, name, epsilon, delta, reason, asks), actor
        )

    def approve_raise(self, proposal_id: str, *, actor: str, person: str) -> views.PopulationView:
        """Approve and apply a raise that waits. Raises `BadInput` if `person`, a token's id, proposed it."""
        name = self.proposal_population(proposal_id)
        return self._change(name, lambda state: populations.approve(state, proposal_id, clean(person, 200)), actor)

    def withdraw_raise(self, proposal_id: str, *, reason: str, actor: str) -> views.PopulationView:
        """Take back, or refuse, a raise that waits."""
        reason = populations.require_reason(clean(reason, 2000), "withdrawing a proposal")
        name = self.proposal_population(proposal_id)
        return self._change(name, lambda state: populations.withdraw(state, proposal_id, reason), actor)

    def tighten_population(
        self, name: str, *, epsilon: float | None = None, delta: float | None = None, reason: str, actor: str
    ) -> views.PopulationView:
        """Lower a budget, never below what is spent and reserved: `populations.tighten` says what is refused."""
        reason = populations.require_reason(clean(reason, 2000), "tightening a budget")
        return self._change(name, lambda state: populations.tighten(state, name, epsilon, delta, reason), actor)

    def set_window(
        self, name: str, *, epsilon: float | None, every: str | None, reason: str, actor: str
    ) -> views.PopulationView:
        """Let at most `epsilon` of a budget begin in each calendar "day", "week", "month" or "year" (UTC).

        A limit beside the budget's, which stays: `state.windows` says what counts. None and None: no window.

        Raises `BadInput` as `populations.window_set`.
        """
        reason = populations.require_reason(clean(reason, 2000), "a window")
        return self._change(name, lambda state: populations.set_window(state, name, epsilon, every, reason), actor)

    def note_population(self, name: str, *, text: str, actor: str) -> views.PopulationView:
        """Write a note on a population into the log, for people. Raises `BadInput` if it says nothing."""
        text = populations.require_reason(clean(text, 2000), "a note")

        def decide(state: State) -> Event:
            populations.find(state, name)
            return Noted(text)

        return self._change(name, decide, actor)

    def close_population(self, name: str, *, reason: str, actor: str) -> views.PopulationView:
        """Refuse every new run on a population. Runs under way go on."""
        reason = populations.require_reason(clean(reason, 2000), "closing a population")
        return self._change(name, lambda state: populations.close(state, name, reason), actor)

    def reopen_population(self, name: str, *, reason: str, actor: str) -> views.PopulationView:
        """Accept new runs on a closed population again."""
        reason = populations.require_reason(clean(reason, 2000), "reopening a population")
        return self._change(name, lambda state: populations.reopen(state, name, reason), actor)

    def keep_odometers(self, name: str, charges: Mapping[str, Sequence[Units]], *, actor: str) -> views.PopulationView:
        """Charge ended worst-case runs to their users' odometers from now on, and new runs as their plans say.

        Sound whenever it is done: on every path, what a user's odometer says is at least what the user has
        lost, and at most what the worst case charged before. Runs that are not named stay charged to all
        users alike.

        Args:
            charges: by run, what each committed round cost its participants, in the order of their indices
                (`Cost.increments` of the strategy that the run applied).

        Raises:
            BadInput: a population of secret presence, a run that is not ended or not of this population, charges of
                others.
        """

        def work(connection: Connection, entry: Entry) -> None:
            row = rows.population_row(connection, name)
            spent = odometer_tables.recompute(connection, row, charges)
            digests = {run: entry.contents.keep_rounds(rounds) for run, rounds in sorted(charges.items())}
            event = Recomputed(digests, row.users, entry.contents.keep_units(spent))
            entry.append(event, actor, population=name)

        self._journal.admit(work)
        return self.population(name)

    def _change(self, name: str, decide: Callable[[State], Event], actor: str) -> views.PopulationView:
        """Do as `_append`; returns what becomes of the population."""
        self._append(name, decide, actor)
        return self.population(name)

    def _append(self, name: str, decide: Callable[[State], Event | None], actor: str) -> None:
        """Append what `decide` makes of the state that the log proves to the events of population `name`."""

        def work(connection: Connection, entry: Entry) -> None:
            event = decide(entry.state)
            if event is not None:
                entry.append(event, actor, population=name)

        self._journal.admit(work)

    # -- runs ------------------------------------------------------------------------------------------------

    def start_run(self, run: runs.NewRun, *, holder: str) -> RunHandle:
        """Reserve what `run` plans to spend and start it; `takeover.start_run` says what is refused.

        Reservations of the population that have expired return to it first.
        """
        self.expire_reservations(run.population)
        token = start_run(self._journal, run, holder, self._lease_seconds)
        return RunHandle(self._journal, run.id, token, self._lease_seconds)

    def resume_run(self, run_id: str, *, key_commitment: str, holder: str, wait: float = 0.0) -> RunHandle:
        """Continue a run that its coordinator left, where it stands.

        wait: seconds to wait for the lease to come free. Raises `BadInput` where the run began with other users, and
        `LedgerError` if it has ended, another coordinator holds it, or `key_commitment` is not that of its noise key.
        """
        with self.read() as connection:
            started_by = rows.run_row(connection, run_id).started_by
        holders.require_same_users(run_id, started_by, holders.is_simulation(holder))
        return self._take_over(run_id, key_commitment, holder, wait=wait)

    def _take_over(
        self, run_id: str, key_commitment: str, holder: str, *, wait: float = 0.0, silent: float = 0.0
    ) -> RunHandle:
        """Hold a run from now on. silent: for so many seconds nobody may have renewed its lease."""
        seconds = self._lease_seconds
        token = take_over(
            self._journal, run_id, key_commitment, holder, lease_seconds=seconds, wait=wait, silent=silent
        )
        return RunHandle(self._journal, run_id, token, seconds)

    def request(self, run_id: str, wish: Request | None, actor: str) -> views.RunView:
        """Ask a run's coordinator to stop or to pause, or (None) to go on after a pause. It acts between rounds."""
        self._steer(run_id, lambda state: runs.request(state, run_id, wish), actor, placed=False)
        return self.run(run_id)

    def abandon(self, run_id: str, *, reason: str, actor: str, silent: float = 0.0) -> views.RunView:
        """End a run that has no coordinator, so that what it reserved and did not spend returns to the budget.

        Its open round, if any, is void: nothing of it was released. Raises `LedgerError` while the run is
        held, or if a coordinator renewed its lease within the last `silent` seconds.
        """
        with self.read() as connection:
            key_commitment = rows.run_row(connection, run_id).key_commitment
        with self._take_over(run_id, key_commitment, actor, silent=silent) as handle:
            handle.finish("stopped", reason)
        return self.run(run_id)

    def expire_reservations(self, population: str | None = None) -> tuple[str, ...]:
        """End the runs that no coordinator has held for as long as their population states; returns their ids.

        population: only runs of this one; None: of all. What such a run reserved and did not spend is free
        again, and its newest committed model stays. A run that is resumed meanwhile goes on. Raises
        `Disproved`.
        """
        with self.read() as connection:
            reserved = rows.reservations(connection, population)
        ended = []
        for run_id, seconds in [(run, seconds) for run, seconds, ends_at in reserved if self._clock() >= ends_at]:
            try:
                why = f"its reservation expired: no coordinator held it for {seconds:g} s"
                # Asked again with the lease: the run may have been taken up and left again since it was read.
                self.abandon(run_id, reason=why, actor="expiry", silent=seconds)
            except Disproved:
                raise
            except LedgerError as error:
                log.info("run %s keeps its reservation: %s", run_id, error)
            else:
                ended.append(run_id)
        return tuple(ended)

    def record_residual_test(self, run_id: str, result: Mapping[str, object], *, actor: str) -> None:
        """Record the result of a run's residual test. Raises `BadInput` if there is no such run."""
        chain.canonical(result)
        self._steer(run_id, lambda state: Audited(result), actor)

    def draw_seed(self, run_id: str, population: str, plan_digest: str, law: str, *, actor: str) -> tuple[bytes, int]:
        """Draw a fresh seed for certifying the charge of a plan: (16 bytes, which certification of its law it is for).

        Both are in the journal when this returns. Raises `BadInput` if there is no such population.
        """

        def work(connection: Connection, entry: Entry) -> SeedDrawn:
            populations.find(entry.state, population)
            event = runs.certify(entry.state, population, plan_digest, law)
            entry.append(event, actor, population=population, run=run_id)
            return event

        event = self._journal.admit(work)
        return bytes.fromhex(event.seed), event.attempt

    def record_key_destroyed(self, run_id: str, *, actor: str) -> None:
        """Record that the noise key of an ended run is destroyed. Raises `BadInput` if the run has not ended."""
        self._steer(run_id, lambda state: KeyDestroyed(state.runs[run_id].row.key_commitment), actor)

    def _steer(self, run_id: str, decide: Callable[[State], Event], actor: str, *, placed: bool = True) -> None:
        """Append what `decide` makes to the events of a run. placed: name its population too. Raises
        `BadInput` if there is no such run."""

        def work(connection: Connection, entry: Entry) -> None:
            entry.now = scheduled(rows.run_row(connection, run_id), entry.now)
            population = entry.state.runs[run_id].row.population if placed else None
            entry.append(decide(entry.state), actor, population=population, run=run_id)

        self._journal.write(work)

    # -- charges of other trainers ---------------------------------------------------------------------------

    def reserve_charge(
        self, population: str, key: str, loss: Foreign, *, what: str, why: str, actor: str
    ) -> views.ChargeView:
        """Reserve a loss of another trainer for all users of a population, durably, before anything is released.

        Raises:
            BudgetRefused: it does not fit.
            BadInput: an impossible loss, one for another adjacency, a key of another's charge, of another loss or of a
                charge that is closed, a closed population, no reason.

        Example:
            >>> from fieldfare.accounting.foreign import Foreign
            >>> with ff.Ledger.open("sqlite:///ledger.sqlite3") as ledger:
            ...     loss = Foreign.of({"mu": 0.5})
            ...     held = ledger.reserve_charge("people", "k1", loss, what="a ranker", why="search", actor="bob")
            ...     paid = ledger.commit_charge("people", "k1", actor="bob")
            ...     print(f"{ledger.population('people').spent_epsilon:.2f}")
            1.99
        """
        what, why, actor = clean(what, 200).strip(), clean(why, 2000).strip(), clean(actor, 200)
        charges.check(key, what, why)
        described = chain.canonical(loss.model_dump(mode="json", exclude_none=True, exclude={"adjacency"}))
        asked = {"key": key, "who": actor, "what": what, "why": why, "loss": described}

        def left(found: FoldedPopulation) -> tuple[bool, str, float]:
            runs.require_adjacency(found.row, loss.adjacency)
            return key in found.charges, found.row.adjacency, max(0.0, found.row.leak - found.base().leak)

        # Priced before the transaction: under sampling a price is a numerical convolution, and other writers wait.
        known, adjacency, leak = self.proof.ask(population, left)
        price = None if known else loss.price(cast(Adjacency, adjacency), leak)
        self._append(population, lambda state: charges.reserve(state, population, price, asked), actor)
        return self.charge(population, key)

    def commit_charge(self, population: str, key: str, *, actor: str, anyones: bool = False) -> views.ChargeView:
        """Record that what was reserved under `key` is spent. Arguments and refusals as of `charges.close`."""
        return self._close_charge(population, ChargeCommitted(key), clean(actor, 200), anyones)

    def release_charge(self, population: str, key: str, *, actor: str, anyones: bool = False) -> views.ChargeView:
        """Give back what was reserved under `key`: it never happened. Arguments and refusals as of `charges.close`."""
        return self._close_charge(population, ChargeReleased(key), clean(actor, 200), anyones)

    def _close_charge(self, population: str, event: charges.End, actor: str, anyones: bool) -> views.ChargeView:
        self._append(population, lambda state: charges.close(state, population, event, actor, anyones), actor)
        return self.charge(population, event.key)

    # -- the ledger itself -----------------------------------------------------------------------------------

    def rebuild(self, *, actor: str) -> tuple[str, ...]:
        """Make every table again from the journal and what it names by hash; see `sql.rebuild`.

        An open round whose cohort is lost with its table is voided: nothing of it was released.

        Returns:
            The runs of such rounds.

        Raises:
            LedgerError: the journal does not fit, or content that it names is missing.
        """
        return self._remake(self._journal, actor)

    def restore(self, segments: Segments, *, held: Iterable[chain.Head] = (), actor: str) -> tuple[str, ...]:
        """Make this ledger, which is empty, from segments: chain, heads and fold are proved, and every table is made.

        Args:
            held: heads that were seen, which the journal must go on from.

        Returns:
            The runs whose open round is void: who was selected for it is kept nowhere.

        Raises:
            OldCopy: the segments are older than a head that was seen.
            LedgerError: the ledger is not empty; a segment is missing or was changed, or is sealed with another key.
        """

        def place(connection: Connection) -> chain.Head:
            if count := read_head(connection).count:
                near = "an empty database; `fieldfare ledger mend` puts right what does not fit"
                raise LedgerError(f"ledger {self.url}", f"it has {count} rows, which an import would forget.", near)
            return load(connection, self.url, segments, held)

        return self._remake(self._journal, actor, place)

    def mend(self, head_files: Sequence[Path], *, actor: str, sure: bool) -> Mending:
        """Drop what stops every budget from the journal, and charge for it; see `sql.mend`.

        Args:
            head_files: of this home, that of its coordinator first; the segments beside them are believed.
            sure: False changes nothing.

        Raises:
            OldCopy: a row that this home has seen is nowhere.
            LedgerError: a copy is not whole, or content that the rows name is missing.
        """
        files = [chain.HeadFile(path) for path in head_files]
        held = chain.held_heads(files)
        copies = [Segments.beside(path) for path in head_files]
        own = copies[0]
        target = Segments(own.directory.with_suffix(".mending"), own.key_file)
        journal = Journal(self.database, clock=self._clock).unchecked()
        unfit: dict[str, str] = {}
        mending: Mending | None = None

        def place(connection: Connection) -> chain.Head:
            nonlocal mending
            mending = Examination(connection, copies, held, target, unfit).mending
            return load(connection, self.url, target, ())

        def charge(connection: Connection, entry: Entry) -> None:
            assert mending is not None
            charge_for(mending, connection, entry, actor)
            entry.flush()
            if not (sure and mending.needed):
                raise _Undone

        while True:
            shutil.rmtree(target.directory, ignore_errors=True)
            try:
                self._remake(journal, actor, place, charge, signer=files[0] if held else None)
                break
            except _Undone:
                shutil.rmtree(target.directory, ignore_errors=True)
                assert mending is not None
                return mending
            except LedgerError as error:
                # The fold of the odometers, which needs who took part, found one more.
                fault = error.__cause__
                if not isinstance(fault, Unfit) or fault.table != "audit":
                    raise
                rows = (row for _, frame in target.frames() for row in frame.rows)
                unfit[next(row["event"] for row in rows if str(row["id"]) == fault.row)] = fault.why
        end = self.head()
        for file, copy in zip(files, copies, strict=True):
            copy.set_aside()
            if file.path.exists():
                file.write(end, again=True)
        target.directory.rename(own.directory)
        Segments.beside(head_files[0]).follow(self.database)
        assert mending is not None
        return mending

    def _remake(
        self,
        journal: Journal,
        actor: str,
        place: Callable[[Connection], chain.Head] | None = None,
        after: Callable[[Connection, Entry], None] | None = None,
        signer: chain.HeadFile | None = None,
    ) -> tuple[str, ...]:
        """`rebuild`. place: puts another journal in place first, and returns where it ends. after: goes on from it."""

        def work(connection: Connection, entry: Entry) -> tuple[str, ...]:
            lost = rebuild(connection, None if place is None else lambda: entry.move(place(connection)))
            for row in lost:
                population = entry.state.populations[entry.state.runs[row.run].row.population].row
                event = Voided(row.attempt, "its cohort was lost with its table", 0, {})
                hidden = hides_presence(population.adjacency)
                entry.append(event, actor, population=population.name, run=row.run, round=row.index, blind=hidden)
            entry.flush()
            if after is not None:
                after(connection, entry)
            Proof(self.database).require(connection)
            return tuple(row.run for row in lost)

        lost = journal.write(work, signer=signer)
        if place is not None:
            self._journal.forget()
        self.proof.restart()
        return lost


def _require_no_held_head(database: Database, head_file: Path | None) -> None:
    """Refuse to make a new ledger where this coordinator has seen one: it would forget what was spent."""
    held = None if head_file is None else chain.HeadFile(head_file).read()
    if held is not None:
        why = f"there is none, and this coordinator has seen {held.count} rows of one; a new one would forget them."
        raise LedgerError(f"ledger {database.name}", why, "the ledger that was here, from its backup")
