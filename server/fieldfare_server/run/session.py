"""One run on the server, from its beginning or its resumption to its end.

`Session` is the run's life cycle: the key, the reservation, the lease, the final model. What happens within a
round is `Rounds` (from the sum to the released model) and `Cohorts` (who is asked).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from flwr.app import ConfigRecord
from flwr.serverapp import Grid
from numpy.typing import NDArray
from safetensors.numpy import load_file

from fieldfare import questions
from fieldfare.accounting import PrivacyLoss
from fieldfare.aggregation import PLAIN
from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput, CheckpointError, Interrupted, NotAllowed, NotFound, NotNow, Refused
from fieldfare.lazily import torch
from fieldfare.names import QUESTION
from fieldfare.noise import NEWEST_MAP, Map, SecureNoise
from fieldfare.plan import Plan
from fieldfare.schema import Arrays, Schema
from fieldfare_flower import logs
from fieldfare_flower.masked import HELLO
from fieldfare_server.files.checkpoint import RunFiles, key_commitment
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.plan_file import require_task
from fieldfare_server.files.strategies import Decisions, StoredStrategy, settle
from fieldfare_server.ledger import Ledger, NewRun, RunHandle, new_run_id, this_process
from fieldfare_server.ledger.state.formats import noise_map
from fieldfare_server.ledger.states import ACTIVE, EndState
from fieldfare_server.run.ending import destroy, destroy_left_behind, write_model
from fieldfare_server.run.interrupts import Interrupts
from fieldfare_server.run.lease_keeper import LeaseKeeper
from fieldfare_server.run.presence.availability import is_simulated
from fieldfare_server.run.presence.bindings import Bindings
from fieldfare_server.run.presence.cohorts import Cohorts
from fieldfare_server.run.presence.identity import keys_are_proven
from fieldfare_server.run.pricing import demand_of, price_with_model, stated_noise
from fieldfare_server.run.rehearsal import Account, Rehearsal
from fieldfare_server.run.round.dialects import CohortDialect, Dialect
from fieldfare_server.run.round.node_terms import terms_record
from fieldfare_server.run.round.record import Released
from fieldfare_server.run.round.rounds import Rounds
from fieldfare_server.run.round.task_model import Model, TaskModel
from fieldfare_server.run.round.witnesses import Witnesses

log = logging.getLogger("fieldfare.session")

# Committed checkpoints kept on disk: the newest, from which a run resumes, and the one before it.
KEEP_CHECKPOINTS = 2


# A task's reference -> the pseudonyms of its users, shape (users,).
UsersOf = Callable[[str], NDArray[np.uint64]]


class Session:
    """One run. As a context manager it gives the run's lease back at the end."""

    def __init__(
        self,
        plan: Plan,
        cost: Cost | None,
        account: Account,
        files: RunFiles | None,
        key: bytes,
        model: Model | None = None,
        dialect: Dialect | None = None,
        map: Map = NEWEST_MAP,
    ) -> None:
        """Use `begin`, `resume` or `rehearse`.

        Args:
            cost: the mechanism and its noise; None for a rehearsal without noise.
            files: where checkpoints go; None for a rehearsal.
            key: 32 bytes from which the run's noise and cohorts follow.
            model: what is trained; None: the model of the plan's task.
            dialect: how nodes are talked to; None: Fieldfare's own messages.
            map: how the key's bits become floats: as when the run began.
        """
        self.plan, self.cost, self.account, self.files = plan, cost, account, files
        self.noise = SecureNoise(key, source=plan.privacy.noise_source, map=map)
        self.model = TaskModel(plan.task_reference) if model is None else model
        self.dialect = _dialect_of(plan, files) if dialect is None else dialect
        self.rounds = Rounds(plan, cost, account, files, self.noise, self.model)
        roster = self.dialect.roster(self.schema, account.id, account.register_users)
        roster.takes = plan.takes
        self.cohorts = Cohorts(plan, roster, account, self.noise, self.rounds.affords, self.rounds.payable)
        self.interrupts = Interrupts()
        # Whether all nodes are of this process, and none keeps users back: other users at a resume are other data.
        self.has_all_users = False
        self.ended = False  # whether the ledger has noted the run's end
        self._home: StateDirectory | None = None
        self._ledger: Ledger | None = None
        self._lease_keeper: LeaseKeeper | None = None
        self._witnesses: Witnesses | None = None
        self._shown: dict[int, dict[str, ConfigRecord]] = {}
        self._terms: dict[str, ConfigRecord] = {}

    # -- beginnings ------------------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls,
        home: StateDirectory,
        plan: Plan,
        identity_is_stable: bool,
        actor: str = "coordinator",
        run_id: str | None = None,
        model: Model | None = None,
        dialect: Dialect | None = None,
        users_last: bool = True,
        priced: tuple[Cost, dict[str, bytes]] | None = None,
        users: UsersOf | None = None,
    ) -> Self:
        """Reserve the plan's cost and start.

        Args:
            identity_is_stable: whether no node can claim the users of another (see
                `run.app.identity_is_stable`).
            actor: who begins the run, for the lease's holder.
            run_id: the new run's id; None: a random one.
            model, dialect: as `Session`'s.
            users_last: whether a user's name is the same in later runs. Where it is not, an odometer would go
                on with another user's past: the run is charged to all users alike, whatever its plan says.
            priced: the run's cost, and what optimisers decided for it; None: the plan is priced now.
            users: gives the pseudonyms of a task's users, where they are all known here: no others may
                resume.

        Raises:
            BadInput, BudgetRefused, LedgerError: and leaves nothing behind.
        """
        require_identity(plan, identity_is_stable)
        if plan.aggregation.rings and dialect is not None and not dialect.tells:
            why = "the answer to an @app.query carries no masks."
            near = "ff.private.measure at the nodes; or aggregation.kind = 'plain'"
            raise BadInput("aggregation.kind = 'masked'", why, near, code="masked-plain-dialect")
        home.prepare()
        run_id = run_id or new_run_id()
        price = partial(price_with_model, plan, schema=None if model is None else model.schema)
        decided: dict[str, bytes] = Decisions(plan, home.root)
        if priced is not None:
            cost, decided = priced
        elif not plan.draws_its_price:
            cost = price(decided)
        # Made before the run is in the ledger, which stores a commitment to it: a resumed run proves by that
        # that it has the same key.
        key = _new_key(plan)
        files = RunFiles(home.root, run_id, keep=KEEP_CHECKPOINTS)
        with _coordinators(home, actor) as ledger:
            if plan.draws_its_price and priced is None:
                # The seed of a certificate is in the ledger before anything is drawn from it.
                draw = partial(
                    ledger.draw_seed, run_id, plan.privacy.population, plan.digest(), plan.law(), actor=actor
                )
                cost = price(decided, draw=draw)
            cost, strategy = settle(cost, decided)
            # Key and strategy are durable before the ledger can name them: a run that exists can always be resumed.
            files.create(key)
            try:
                StoredStrategy(home.root, run_id, cost.strategy, cost.loss).write(strategy)
                model = TaskModel(plan.task_reference) if model is None else model
                model.save(files.directory)
                # Before the start, so that a resume with other data is refused even if nothing was ever committed.
                if users is not None:
                    files.has_users(users(plan.task_reference))
                new = NewRun(
                    plan.run_json(cost.resolution),
                    plan.digest(),
                    plan.privacy.population,
                    plan.run.rounds,
                    cost.loss,
                    noise_source=plan.privacy.noise_source if plan.run.noise_seed is None else "seeded",
                    key_commitment=key_commitment(key),
                    trust_node_ids=plan.run.trust_node_ids,
                    leak=cost.leak,
                    id=run_id,
                    strategy=cost.strategy,
                    demand=demand_of(plan, cost) if users_last else None,
                    noise=stated_noise(plan, cost, model.schema),
                )
                # From here on the whole price is reserved, and a crash leaves a run that can be resumed.
                handle = ledger.start_run(new, holder=f"{actor}@{this_process()}")
            except BaseException as error:
                with contextlib.suppress(NotFound):
                    if not isinstance(error, BadInput) and ledger.run(run_id):  # it goes on by these files
                        why = str(error).partition(" Nearest allowed")[0]
                        raise Interrupted(f"run {run_id}: {why} Continue it with --resume {run_id}.") from error
                files.remove()
                raise
            try:
                session = cls(plan, cost, handle, files, key, model, dialect)
            except BaseException as error:
                # Nothing was sent or released: the whole reservation returns at once.
                handle.finish("failed", str(error))
                destroy(home, ledger, run_id, actor)
                raise
            session._keep_lease(home, ledger, handle)
            return session

    @classmethod
    def rehearse(cls, plan: Plan, *, noise: bool, model: Model | None = None, dialect: Dialect | None = None) -> Self:
        """Return a run that is charged to no population, stored nowhere and not private: a baseline on public
        data.

        noise: add what the plan's mechanism would add, to compare; without it the sum is shown as it is.
        """
        plan = plan.model_copy(update={"aggregation": PLAIN})  # nothing is durable that could be opened once
        return cls(plan, cost_of(plan) if noise else None, Rehearsal(), None, _new_key(plan), model, dialect)

    @classmethod
    def resume(
        cls,
        home: StateDirectory,
        run_id: str,
        identity_is_stable: bool,
        actor: str = "coordinator",
        model: Model | None = None,
        dialect: Dialect | None = None,
        users: UsersOf | None = None,
    ) -> Self:
        """Continue a run after an interruption or a crash, exactly where its last commit left it.

        model, dialect: as `Session`'s; those with which the run began.
        users: as of `begin`.

        Raises:
            BadInput: the run has ended, or began with other users; neither changes it.
            LedgerError: another coordinator holds the run.
            CheckpointError: what is on disk is not what was committed, or the run's strategy is not there.
        """
        with _coordinators(home, actor) as ledger:
            run = ledger.run(run_id)
            plan = Plan.stored(run.plan)
            if model is None:
                require_task(run_id, plan)
            require_identity(plan, identity_is_stable)
            if run.state not in ACTIVE:
                why = f"it has ended ({run.state}), and its noise key is destroyed."
                raise NotNow(f"run {run_id}", why, "a new run")
            files = RunFiles(home.root, run_id, keep=KEEP_CHECKPOINTS)
            key = files.key()
            if users is not None:  # before the ledger would keep an error: it may quote their rows
                _require_users(files, users(plan.task_reference))
            cost = StoredStrategy(home.root, run_id, run.strategy, run.planned).cost(run.plan)
            handle = ledger.resume_run(
                run_id,
                key_commitment=key_commitment(key),
                holder=f"{actor}@{this_process()}",
                wait=home.lease_patience,
            )
            try:
                session = cls(plan, cost, handle, files, key, model, dialect, noise_map(run.noise_source))
                # A crash left it open: it is settled before anything is read from checkpoints, since it may add
                # the newest one.
                opened = handle.open_round_pending()
                if opened is not None:
                    with logs.about(run_id, handle.next_round):
                        if session.rounds.settle_open_round(opened, files):
                            log.info("round %d was complete when the run stopped: committed", opened.index + 1)
                        elif session.rounds.sums.closed is not None:
                            log.info("round %d was closed when the run stopped: it is opened again", opened.index + 1)
                        else:
                            log.info("round %d was open when the run stopped: void", opened.index + 1)
                if handle.checkpoint is not None:
                    session.rounds.restore(*files.latest_committed(handle.checkpoint), handle.next_round)
                closed = session.rounds.sums.closed
                files.discard(
                    None if closed is None else closed.opened.closing
                )  # a checkpoint of rounds that were never committed
            except BaseException as error:
                handle.hand_back(str(error))
                raise
            session._keep_lease(home, ledger, handle)
            return session

    def _keep_lease(self, home: StateDirectory, ledger: Ledger, handle: RunHandle) -> None:
        """Renew the lease in the background, from now to the session's end, however long a step takes."""
        self._home = home
        self._witnesses = Witnesses(ledger)
        roster = self.cohorts.roster
        # Nodes say which row they remember, and are shown its hash with the head: so each can see a fork.
        roster.hear = self._witnesses.hear
        if self.dialect.tells and self.cost is not None:
            roster.told = self._terms = terms_record(home, ledger, handle, self.plan, self.cost)
        if self.plan.aggregation.party:
            roster.told = self._terms | {HELLO: ConfigRecord({"plan": self.plan.digest()})}
        self._ledger, self._lease_keeper = ledger, LeaseKeeper(handle.heartbeat, handle.lease_seconds / 6)
        self._lease_keeper.start()

    def require_users(self, names: NDArray[np.uint64]) -> None:
        """Refuse other users, by pseudonym, than those with whom the run began, where the caller has all of their data
        (`has_all_users`). The first call fixes them. Raises `BadInput`; the run stays as it is.
        """
        if self.has_all_users and self.files is not None:
            _require_users(self.files, names)

    def meet(self, grid: Grid) -> None:
        """Before the first look at the nodes of `grid`: bind users to nodes durably where nodes have proven keys."""
        if self._witnesses is not None and self._ledger is not None and not is_simulated(grid):
            self._witnesses.people = not self._ledger.population(self.plan.privacy.population).simulated
        if self.dialect.name != "cohort" or self._ledger is None or self._home is None or not keys_are_proven(grid):
            return
        register = self._ledger.node_register()
        self.cohorts.roster.bindings = Bindings(self._home.root, self.plan.privacy.population, register)

    def shown_heads(self, nodes: Iterable[int]) -> dict[int, dict[str, ConfigRecord]]:
        """Return, for each of `nodes`: the records, by name, of the journal's signed head and the run's
        terms.

        {} for a rehearsal.

        Within a group of rounds the same ones: this run writes none.
        """
        nodes = list(nodes)
        if self._witnesses is None:
            return {node: {} for node in nodes}
        if self.coming_round == self.next_round:
            self._shown = {}
        missing = [node for node in nodes if node not in self._shown]
        self._shown |= self._witnesses.records(missing) if missing else {}
        return {node: self._shown[node] | self._terms for node in nodes}

    def require_going_on(self, seen: set[str]) -> None:
        """Stop a run where one of `seen`, signed ends of journals that nodes told, proves that ledger or blinder went
        back: one node is enough, and none can make it up. So is a receipt of the ledger's own. Empties `seen`. Raises
        `JournalRefused` or `BlinderWentBack` before the first commit, with which the run ends, and `Interrupted` later.
        """
        refused: Refused | None = self.rounds.sums.denied()
        while refused is None and seen and self._witnesses is not None:
            refused = self._witnesses.denied(seen.pop(), self.rounds.sums.head)
        if refused is None:
            return
        if self.coming_round:
            raise Interrupted(f"run {self.account.id}: {refused}")
        self.finish("failed", str(refused))
        raise refused

    def heartbeat(self) -> None:
        """Note progress and renew the lease, in every loop that waits.

        Raises `LedgerError` after a takeover, and the `KeyboardInterrupt` that has come.
        """
        self.interrupts.check()
        if self._lease_keeper is not None:
            self._lease_keeper.note_progress()
        self.account.heartbeat()

    @property
    def stamp(self) -> Callable[[float], float] | None:
        """A real time -> what lines of the log show for it, where real times would count users; None: itself."""
        schedule = self.account.schedule
        return None if schedule is None else schedule.latest

    # -- what may be seen ------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """Names and shapes of the model's parameters."""
        return self.model.schema

    @property
    def released(self) -> Released:
        """The last committed model and what belongs to it; before the first commit, the initial, public one."""
        return self.rounds.commits.released

    @property
    def params(self) -> torch.Tensor:
        """The last committed model, flat float32 (d,)."""
        return self.released.params

    @property
    def next_round(self) -> int:
        """The round that comes next: as many are committed."""
        return self.released.next_round

    @property
    def coming_round(self) -> int:
        """The round that is trained next: above `next_round` by the rounds of a group under way."""
        return self.rounds.newest.next_round

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of z in clip norms; 0 for a rehearsal without noise."""
        return self.cost.noise_multiplier if self.cost else 0.0

    def epsilon(self) -> float:
        """Return what the committed rounds have spent, at the plan's delta; 0 for a rehearsal."""
        return self.epsilon_of(self.released)

    def epsilon_of(self, released: Released) -> float:
        """Return what the rounds up to `released` have spent, at the plan's delta; 0 for a rehearsal."""
        spent = released.spent
        return spent.epsilon(self.plan.privacy.delta) if spent != PrivacyLoss() else 0.0

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self, state: EndState, message: str) -> Path | None:
        """Write the last committed model, end the run, and destroy its key and noise state.

        Returns the model's path, None for a rehearsal. Raises `CheckpointError` if the disk refuses; the run
        has ended then, and the next command on this home destroys what is left.
        """
        self.rounds.commits.commit_held()
        path = None
        if self.files is not None:
            path = write_model(self.files, self.model.tensors(self.params))
        if self._lease_keeper is not None:
            self._lease_keeper.stop()
        # First the ledger, then the files: a key that is destroyed while its run goes on could not be resumed.
        self.account.finish(state, message)
        self.ended = True
        if self._ledger is not None and self._home is not None:
            destroy(self._home, self._ledger, self.account.id, f"run {self.account.id}")
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            if self._lease_keeper is not None:
                self._lease_keeper.stop()
            self.account.__exit__(*raised)
        finally:
            if self._ledger is not None:
                self._ledger.close()


def _dialect_of(plan: Plan, files: RunFiles | None) -> Dialect:
    """Choose Fieldfare's own messages; for a question about released models, with them. Raises `BadInput` without."""
    if plan.run.task != QUESTION:
        return CohortDialect()
    runs = questions.parse(plan.task["question"]).runs  # type: ignore[arg-type]
    if files is None:
        return CohortDialect(None, plan.task)
    models: dict[str, Arrays] = {}
    for run in runs:
        file = files.directory.parent / run / "model.safetensors"
        if not file.is_file():
            raise NotFound(f"the model of run {run}", f"it released none, or not into {file.parent}.", "another run")
        models[run] = load_file(file)
    return CohortDialect(None, plan.task, models)


def _require_users(files: RunFiles, names: NDArray[np.uint64]) -> None:
    if not files.has_users(names):
        run_id = files.directory.name
        why = "its users are not those with whom it began, and what is left of its rounds counts on them."
        near = f"their data as they were; or fieldfare abandon {run_id}, and a new run"
        raise BadInput(f"run {run_id}", why, near, code="other-users")


@contextlib.contextmanager
def _coordinators(home: StateDirectory, actor: str) -> Iterator[Ledger]:
    """Open the coordinator's ledger for a session, which keeps it; where none comes of it, it is closed again."""
    ledger = Ledger.open(home.ledger, head_file=home.head_file, coordinator=True)
    try:
        # What is left of ended runs. What cannot be destroyed now stops no other run: the doctor names it.
        with contextlib.suppress(CheckpointError):  # it is in the log
            destroy_left_behind(home, ledger, actor)
        yield ledger
    except BaseException:
        ledger.close()
        raise


def require_identity(plan: Plan, stable: bool) -> None:
    """Refuse a plan whose guarantee rests on knowing who is who, where that cannot be known."""
    if not stable and not plan.run.trust_node_ids:
        raise NotAllowed(
            "run.trust_node_ids = false",
            "the SuperLink registers any node, or could not be tried, so it is unknown how often a user takes part; "
            "the plan's participation limits would mean nothing.",
            "a SuperLink with --enable-supernode-auth (FIELDFARE_NODE_AUTH=required where ServerApps run says that it "
            "has, if it cannot be tried); or trust_node_ids = true, which the ledger and the page will show",
        )


def _new_key(plan: Plan) -> bytes:
    """Return the noise key of a new run or rehearsal of `plan`."""
    seed = plan.run.noise_seed
    return secrets.token_bytes(32) if seed is None else seeded_key(seed)


def seeded_key(seed: int) -> bytes:
    """Return the noise key of a plan with `noise_seed`. Anyone can compute it, so such a run is not private."""
    return hashlib.blake2b(str(seed).encode(), digest_size=32, person=b"fieldfare.seed").digest()
