"""The ledger: who has which budget, what was spent of it, and by what."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from fieldfare.accounting import PrivacyLoss
from fieldfare.errors import BadInput, LedgerError
from fieldfare.names import is_name
from fieldfare.participation import ADJACENCIES, Adjacency
from fieldfare_server.ledger import budget, chain, leases, models, notes, reads, tokens, views
from fieldfare_server.ledger import migrate as schema
from fieldfare_server.ledger.database import Database, is_empty
from fieldfare_server.ledger.journal import Clock, Entry, Journal, clean
from fieldfare_server.ledger.run_handle import RunHandle, _sha256


def new_run_id() -> str:
    """A fresh run id: date and 32 random bits."""
    return f"{time.strftime('%Y%m%d')}-{secrets.token_hex(4)}"


class Ledger(reads.Reader):
    """An open ledger. Writes are serialised, durable, and audited; see `Reader` for what can be asked."""

    def __init__(self, database: Database, journal: Journal, lease_seconds: float) -> None:
        super().__init__(database, journal.clock)
        self.database = database
        self._journal, self._lease_seconds = journal, lease_seconds

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = False,
        migrate: bool = False,
        head_file: Path | None = None,
        lease_seconds: float = leases.SECONDS,
        patience: float = 60.0,
        clock: Clock = time.time,
    ) -> Ledger:
        """Open the ledger at `url` (`sqlite:///PATH`, a path, `postgresql://...`).

        create: make one if there is none. migrate: bring an older one to this program's version (back it up first).
        head_file: where this coordinator holds the end of the audit log, so that
        an old copy put back is noticed. patience: seconds to wait for a database that went away.
        Raises `LedgerError` if it is missing, of another version, corrupt at its end, or behind the held head.
        """
        database = Database(url, create=create, patience=patience)
        try:
            if not database.exists and not create:
                raise LedgerError(
                    f"ledger {database.name}", "there is none.", "create one: `fieldfare population create`"
                )
            if create and _try_empty(database):
                _no_held_head(database, head_file)
                schema.upgrade(database)
            elif migrate:
                _upgrade(database)
            schema.check(database)
            journal = Journal(database, None if head_file is None else chain.HeadFile(head_file), clock)
            journal.check()
        except BaseException:
            database.close()
            raise
        return cls(database, journal, lease_seconds)

    @staticmethod
    def migrate(url: str) -> str:
        """Bring the ledger at `url` to this program's version, which is returned. Back it up first."""
        database = Database(url)
        try:
            if not database.exists or _try_empty(database):
                raise LedgerError(f"ledger {database.name}", "there is none to migrate.")
            _upgrade(database)
        finally:
            database.close()
        return schema.latest()

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- populations --------------------------------------------------------------------------------------------

    def create_population(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        adjacency: Adjacency = "zero_out",
        unit: str = "user",
        simulated: bool = False,
        actor: str,
    ) -> views.PopulationView:
        """A new budget. simulated: not people; only such a population accepts runs with a fixed noise seed.

        Raises `BadInput` on a bad or taken name, or a budget that is none.
        """
        if not is_name(name):
            raise BadInput(f"population {name!r}", "a name is letters, digits, '.', '_' and '-', at most 100.")
        if adjacency not in ADJACENCIES:
            raise BadInput(f"adjacency = {adjacency!r}", "there is no such adjacency.", ", ".join(ADJACENCIES))
        _require_budget(epsilon, delta)
        actor, salt = clean(actor, 200), secrets.token_bytes(16)
        about: dict[str, Any] = {
            "epsilon": float(epsilon),
            "delta": delta,
            "adjacency": adjacency,
            "simulated": simulated,
        }
        about["unit"] = clean(unit, 100)

        def work(connection: Connection, entry: Entry) -> None:
            if connection.execute(select(models.populations.c.id).where(models.populations.c.name == name)).first():
                raise BadInput(f"population {name!r}", "there is one of that name.", "another name")
            values = {
                **about,
                "name": name,
                "state": "open",
                "salt": salt,
                "users": 0,
                "settled": budget.NOTHING.to_json(),
                "created_at": entry.now,
                "created_by": actor,
            }
            connection.execute(insert(models.populations).values(values))
            entry.append("population.create", actor, {**about, "salt": _sha256(salt)}, population=name)

        self._journal.write(work)
        return self.population(name)

    def raise_population(
        self, name: str, *, epsilon: float | None = None, delta: float | None = None, reason: str, actor: str
    ) -> views.PopulationView:
        """Raise a budget: the only way to get more of it, and audited with its reason. Lowering is refused."""
        reason = clean(reason, 2000)
        if not reason.strip():
            raise BadInput("raising a budget", "it needs a reason, for the audit log.")

        def work(connection: Connection, entry: Entry) -> None:
            row = reads.population_row(connection, name)
            new = {
                "epsilon": row.epsilon if epsilon is None else epsilon,
                "delta": row.delta if delta is None else delta,
            }
            _require_budget(new["epsilon"], new["delta"])
            if row.state != "open":
                raise BadInput(f"population {name!r}", "it is closed.", "a new population")
            if (
                new["epsilon"] < row.epsilon
                or new["delta"] < row.delta
                or new
                == {
                    "epsilon": row.epsilon,
                    "delta": row.delta,
                }
            ):
                raise BadInput(
                    f"budget ({new['epsilon']:.6g}, {new['delta']:.3g}) of population {name!r}",
                    "a budget is only ever raised.",
                    f"above ({row.epsilon:.6g}, {row.delta:.3g})",
                )
            connection.execute(update(models.populations).where(models.populations.c.id == row.id).values(new))
            entry.append("population.raise", actor, {**new, "reason": reason}, population=name)

        self._journal.write(work)
        return self.population(name)

    def close_population(self, name: str, *, actor: str) -> views.PopulationView:
        """No new run may be charged to it. Runs under way go on."""

        def work(connection: Connection, entry: Entry) -> None:
            row = reads.population_row(connection, name)
            if row.state == "closed":
                raise BadInput(f"population {name!r}", "it is closed already.")
            connection.execute(
                update(models.populations).where(models.populations.c.id == row.id).values(state="closed")
            )
            entry.append("population.close", actor, {}, population=name)

        self._journal.write(work)
        return self.population(name)

    # -- runs ---------------------------------------------------------------------------------------------------

    def start_run(
        self,
        plan_json: str,
        plan_digest: str,
        population: str,
        rounds: int,
        planned: PrivacyLoss,
        *,
        noise_source: str,
        key_commitment: str,
        trust_node_ids: bool,
        holder: str,
        run_id: str | None = None,
    ) -> RunHandle:
        """Reserve `planned` and start a run, atomically: of two that race for the last of a budget one is refused.

        plan_json: a JSON object; if it has `privacy.adjacency`, that must be the population's. noise_source: what makes
        the noise from the key; "seeded" for a fixed seed, which only simulated populations accept.
        Raises `BudgetRefused` if spent + reserved + planned exceeds the budget, `BadInput` on an unknown or closed
        population, a key that another run has used, or a fixed seed on real people.
        """
        name = run_id or new_run_id()
        plan = _plan(plan_json)
        if not is_name(name) or len(name) > 40:
            raise BadInput(f"run id {name!r}", "an id is letters, digits, '.', '_' and '-', at most 40.")
        if rounds < 1:
            raise BadInput(f"rounds = {rounds}", "must be at least 1.", "1")
        if not is_name(noise_source) or len(noise_source) > 40:
            raise BadInput(f"noise source {noise_source!r}", "a source has a name of at most 40 letters and digits.")
        loss = planned.to_json()

        def work(connection: Connection, entry: Entry) -> None:
            row = reads.population_row(connection, population)
            self._admit(connection, row, plan, noise_source, key_commitment, name)
            budget.require(population, _committed(connection, row), planned, row.epsilon, row.delta)
            values = {
                "id": name,
                "population_id": row.id,
                "plan": plan_json,
                "plan_digest": plan_digest,
                "rounds": rounds,
                "planned": loss,
                "spent": budget.NOTHING.to_json(),
                "noise_source": noise_source,
                "key_commitment": key_commitment,
                "trust_node_ids": trust_node_ids,
                "state": "running",
                "request": None,
                "message": "",
                "next_round": 0,
                "started_at": entry.now,
                "started_by": clean(holder, 200),
            }
            seq = connection.execute(insert(models.runs).values(values).returning(models.runs.c.seq)).scalar_one()
            leases.create(connection, seq, clean(holder, 300), self._lease_seconds, entry.now)
            body = {
                "plan": _sha256(plan_json.encode()),
                "plan_digest": plan_digest,
                "rounds": rounds,
                "planned": loss,
                "noise_source": noise_source,
                "key_commitment": key_commitment,
                "trust_node_ids": trust_node_ids,
            }
            entry.append("run.start", holder, body, population=population, run=name)

        self._journal.write(work)
        return RunHandle(self._journal, name, 1, self._lease_seconds)

    def resume_run(self, run_id: str, *, key_commitment: str, holder: str, wait: float = 0.0) -> RunHandle:
        """Continue a run that its coordinator left, where it stands.

        wait: seconds to wait for the lease to come free. Raises `LedgerError` if the run has ended, another
        coordinator holds it, or `key_commitment` is not that of the run's noise key.
        """
        with self.database.read() as connection:
            row = reads.run_row(connection, run_id)
        _require_resumable(row, key_commitment)
        begin = time.monotonic()
        with self.database.read() as connection:
            seen = leases.read(connection, row.seq)
        still_since = begin
        while True:
            now = time.monotonic()
            if seen.free(self._clock()) or now - still_since >= seen.seconds:
                token = self._take_over(run_id, key_commitment, holder, seen)
                if token is not None:
                    return RunHandle(self._journal, run_id, token, self._lease_seconds)
            if now - begin >= wait:
                raise LedgerError(
                    f"run {run_id}",
                    f"it is held by {seen.holder}.",
                    f"stop that coordinator; the run is free {seen.seconds:g} s after it fell silent",
                )
            time.sleep(min(0.2, seen.seconds / 10))
            with self.database.read() as connection:
                fresh = leases.read(connection, row.seq)
            if (fresh.token, fresh.beat) != (seen.token, seen.beat):
                still_since = time.monotonic()
            seen = fresh

    def request(self, run_id: str, what: views.Request | None, actor: str) -> views.RunView:
        """Ask a run's coordinator to stop or to pause, or (None) to go on after a pause. It acts between rounds."""
        if what not in ("stop", "pause", None):
            raise BadInput(f"request {what!r}", "there is no such request.", "stop, pause")
        state = {"stop": "stopping", "pause": "paused", None: "running"}[what]

        def work(connection: Connection, entry: Entry) -> None:
            row = reads.run_row(connection, run_id)
            if row.state not in models.ACTIVE:
                raise BadInput(f"request to run {run_id}", f"it has ended: {row.state}.")
            if row.request == "stop" and what != "stop":
                raise BadInput(f"request to run {run_id}", "it was asked to stop, which is not taken back.")
            values = {"request": what} if row.state == "interrupted" else {"request": what, "state": state}
            connection.execute(update(models.runs).where(models.runs.c.seq == row.seq).values(values))
            entry.append("run.request", actor, {"request": what}, run=run_id)

        self._journal.write(work)
        return self.run(run_id)

    def abandon(self, run_id: str, *, reason: str, actor: str) -> views.RunView:
        """End a run that nobody holds, so that what it reserved and did not spend returns to the budget.

        Its open round, if any, is void: nothing of it was released. Raises `LedgerError` while it is held.
        """
        with self.database.read() as connection:
            row = reads.run_row(connection, run_id)
        with self.resume_run(run_id, key_commitment=row.key_commitment, holder=actor) as handle:
            handle.finish("stopped", reason)
        return self.run(run_id)

    # -- tokens -------------------------------------------------------------------------------------------------

    def create_token(
        self, name: str, scopes: tuple[views.Scope, ...], *, actor: str, expires_at: float | None = None
    ) -> tuple[str, views.TokenView]:
        """A new API token: (its secret, shown only now; its view). Raises `BadInput` on an unknown scope."""
        return tokens.create(self._journal, name, scopes, actor, expires_at)

    def revoke_token(self, token_id: str, *, actor: str) -> views.TokenView:
        """Make a token useless from now on. Raises `BadInput` if there is none of that id."""
        return tokens.revoke(self._journal, token_id, actor)

    def check_token(self, secret: str) -> views.TokenView | None:
        """The token with this secret if it is valid now, else None."""
        return tokens.check(self.database, self._clock, secret)

    # -- notes --------------------------------------------------------------------------------------------------

    def note_token_use(self, token_id: str, what: str, *, actor: str) -> None:
        """Record that a token was used, for `what`."""
        notes.token_use(self._journal, token_id, what, actor)

    def note_audit(self, run_id: str, result: Mapping[str, Any], *, actor: str) -> None:
        """Record what an empirical audit of a run found. Raises `BadInput` if there is no such run."""
        notes.run_audit(self._journal, run_id, result, actor)

    # -- inside -------------------------------------------------------------------------------------------------

    def _admit(
        self, connection: Connection, population: Any, plan: dict[str, Any], source: str, key: str, run_id: str
    ) -> None:
        if population.state != "open":
            raise BadInput(f"a run on population {population.name!r}", "it is closed.", "another population")
        if source == models.SEEDED and not population.simulated:
            raise BadInput(
                f"a fixed noise seed on population {population.name!r}",
                "who knows the seed can take the noise away, so the run would not be private.",
                "no seed, or a population created as simulated",
            )
        privacy = plan.get("privacy")
        adjacency = privacy.get("adjacency") if isinstance(privacy, dict) else None
        if adjacency is not None and adjacency != population.adjacency:
            raise BadInput(
                f"privacy.adjacency = {adjacency!r}",
                f"the budget of population {population.name!r} is for {population.adjacency!r}.",
                repr(population.adjacency),
            )
        c = models.runs.c
        if connection.execute(select(c.id).where(c.id == run_id)).first():
            raise BadInput(f"run id {run_id!r}", "there is a run of that id.", "leave the id out")
        if source != models.SEEDED and connection.execute(select(c.id).where(c.key_commitment == key)).first():
            raise BadInput(
                "the noise key", "another run has used it; the same noise under two sums would cancel.", "a fresh key"
            )

    def _take_over(self, run_id: str, key_commitment: str, holder: str, seen: leases.Lease) -> int | None:
        def work(connection: Connection, entry: Entry) -> int | None:
            row = reads.run_row(connection, run_id)
            _require_resumable(row, key_commitment)
            lease = leases.read(connection, row.seq)
            if (lease.token, lease.beat) != (seen.token, seen.beat):
                return None
            token = leases.take(connection, row.seq, clean(holder, 300), self._lease_seconds, entry.now)
            state = {"stop": "stopping", "pause": "paused", None: "running"}[row.request]
            connection.execute(update(models.runs).where(models.runs.c.seq == row.seq).values(state=state, message=""))
            name = select(models.populations.c.name).where(models.populations.c.id == row.population_id)
            entry.append(
                "run.resume",
                holder,
                {"token": token, "next_round": row.next_round},
                population=connection.execute(name).scalar_one(),
                run=run_id,
            )
            return token

        return self._journal.write(work)


def _require_resumable(row: Any, key_commitment: str) -> None:
    if row.state not in models.ACTIVE:
        raise LedgerError(f"resuming run {row.id}", f"it has ended: {row.state}.", "start a new run")
    if row.key_commitment != key_commitment:
        raise LedgerError(
            f"resuming run {row.id}",
            "the noise key is not the one it was started with; other noise would break the guarantee.",
            "the key file that belongs to it",
        )


def _committed(connection: Connection, population: Any) -> PrivacyLoss:
    c = models.runs.c
    active = connection.execute(
        select(c.planned).where(c.population_id == population.id, c.state.in_(models.ACTIVE))
    ).scalars()
    return budget.compose([PrivacyLoss.from_json(population.settled), *map(PrivacyLoss.from_json, active)])


def _require_budget(epsilon: float, delta: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadInput(f"epsilon = {epsilon}", "must be positive and finite.", "1.0")
    if not 0 < delta < 1:
        raise BadInput(f"delta = {delta}", "must be between 0 and 1.", "1e-6")


def _plan(plan_json: str) -> dict[str, Any]:
    try:
        plan = json.loads(plan_json)
    except ValueError:
        plan = None
    if not isinstance(plan, dict):
        raise BadInput("the plan", "it is not a JSON object.")
    return plan


def _try_empty(database: Database) -> bool:
    try:
        return is_empty(database.engine)
    except (SQLAlchemyError, UnicodeError) as error:
        raise database.error(error) from error


def _upgrade(database: Database) -> None:
    with database.read() as connection:
        found = schema.version(connection)
    if found is None or not schema.known(found):
        schema.check(database)
    schema.upgrade(database)


def _no_held_head(database: Database, head_file: Path | None) -> None:
    held = None if head_file is None else chain.HeadFile(head_file).read()
    if held is not None:
        raise LedgerError(
            f"ledger {database.name}",
            f"there is none, and this coordinator has seen {held.count} rows of one; a new one would forget them.",
            "the ledger that was here, from its backup",
        )
