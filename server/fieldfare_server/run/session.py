"""One run's state on the server, begun or resumed: what the strategy's rounds work on.

The session holds the raw sum, the noise and the key. What it hands out is `released()`: the last model whose charge is
durable. Everything that is needed to finish a commit travels in the checkpoint's metadata, so that a crash between the
checkpoint and the commit is rolled forward with the very same bytes, never computed again.
"""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save

from fieldfare import clipping
from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.realised import RealisedCharge
from fieldfare.cost import Cost, cost_of
from fieldfare.errors import BadInput, CheckpointError, LedgerError
from fieldfare.noise import SecureNoise
from fieldfare.plan import Plan
from fieldfare.privatise import Privatiser
from fieldfare.schema import Arrays, Schema
from fieldfare.streams.base import Stream
from fieldfare.task import Task, load_task
from fieldfare_flower import logs
from fieldfare_flower.messages import Occasion
from fieldfare_server import faults, optimizers
from fieldfare_server.files.atomic import replace_file
from fieldfare_server.files.checkpoint import RunFiles, key_commitment
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.matrix_cache import StrategyFiles
from fieldfare_server.ledger import Ledger, NewRun, OpenRound, RunHandle, new_run_id, this_process
from fieldfare_server.optimizers import Points, ServerOptimizer, State, StepInfo
from fieldfare_server.run.aggregation import Aggregate
from fieldfare_server.run.availability import SimulatedAvailability
from fieldfare_server.run.lease_keeper import LeaseKeeper
from fieldfare_server.run.rehearsal import Account, Rehearsal
from fieldfare_server.run.roster import Indices
from fieldfare_server.run.selection import Selector

log = logging.getLogger("fieldfare.session")

SAMPLED_COHORTS = 4
"""A Poisson cohort's reply may be as long as that many planned cohorts' clip norms."""
KEEP_CHECKPOINTS = 2
"""Committed checkpoints kept on disk: the newest to resume from, the one before it for the careful."""


class Session:
    """See the module. Use as a context manager: leaving it gives the run's lease back."""

    def __init__(self, plan: Plan, cost: Cost | None, account: Account, store: RunFiles | None, key: bytes) -> None:
        self.plan, self.cost, self.account, self.store = plan, cost, account, store
        self.task: Task = load_task(plan.run.task)
        model = self.task.build_model()
        try:
            self.schema = Schema.of(model)
        except ValueError as error:
            raise BadInput(f"run.task = {plan.run.task!r}", str(error)) from None
        self._model = model
        self.clipping = plan.clipping
        self.optimizer: ServerOptimizer = optimizers.build(plan.server_optimizer)
        self.noise = SecureNoise(key, source=plan.privacy.noise_source)
        self.params = self.schema.flatten(dict(model.named_parameters()))
        self.state: State = self.optimizer.init(self.params)
        self.clip = self.clipping.norm
        self.next_round = 0
        self.spent = PrivacyLoss()
        self.score: dict[str, float] = {}
        self.noise_std = 0.0
        """Per coordinate of the newest released mean update."""
        self.voids = 0
        """Attempts at the next round, in this process, that too few users answered."""
        self.crowd = SimulatedAvailability.of(plan)
        """How simulated users behave; None where the plan does not say, and on every real federation."""
        self._selector = Selector(
            plan.participation.build(),
            plan.run.rounds,
            plan.run.cohort,
            plan.run.over_selection,
            order=self.noise.generator("order", 0),
            fewest=max(1, plan.report_goal),
            availability=self.crowd,
        )
        self._ledger: Ledger | None = None
        self._heart: LeaseKeeper | None = None
        self._charge: RealisedCharge | None = None
        self._stream: Stream | None = None
        self._row_norms: NDArray[np.float64] = np.zeros(plan.run.rounds)
        self._autocovariance: tuple[float, ...] = ()
        self._release = Privatiser(0.0)
        self._most_users = SAMPLED_COHORTS * plan.run.cohort if plan.samples else self._selector.asked
        """Users that one reply is the sum of, at most; a longer sum of a sampled cohort is cut."""
        if cost is not None:
            numel = self.optimizer.queries * self.schema.numel + self.counts
            self._charge = cost.realised()
            self._row_norms = cost.mechanism.row_norms()
            self._release = Privatiser.of(
                plan.privacy.rounding,
                cost.noise_multiplier,
                self.clipping.joint_bound,
                numel,
                self._most_users,
                float(self._row_norms.max()),
            )
            self._stream = self._release.stream(cost.mechanism, numel, self.noise)
            self._autocovariance = cost.mechanism.autocovariance()

    # -- beginnings -----------------------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls,
        home: StateDirectory,
        plan: Plan,
        identity_is_stable: bool,
        actor: str = "coordinator",
        run_id: str | None = None,
    ) -> Self:
        """Reserve the plan's cost and start. Raises `BadInput`, `BudgetRefused`, `LedgerError`, and leaves nothing."""
        require_identity(plan, identity_is_stable)
        cost = cost_of(plan, StrategyFiles(home.root / "strategies"))
        load_task(plan.run.task)
        home.prepare()
        fixed = plan.run.noise_seed is not None
        key = seeded_key(plan.run.noise_seed) if plan.run.noise_seed is not None else secrets.token_bytes(32)
        run_id = run_id or new_run_id()
        store = RunFiles(home.root, run_id, keep=KEEP_CHECKPOINTS)
        ledger = Ledger.open(home.ledger, head_file=home.head_file)
        # The key is durable before the ledger can name it: a run that exists can always be resumed.
        store.create(key)
        try:
            new = NewRun(
                plan.to_json(),
                plan.digest(),
                plan.privacy.population,
                plan.run.rounds,
                cost.loss,
                noise_source="seeded" if fixed else plan.privacy.noise_source,
                key_commitment=key_commitment(key),
                trust_node_ids=plan.run.trust_node_ids,
                id=run_id,
            )
            handle = ledger.start_run(new, holder=f"{actor}@{this_process()}")
        except BaseException:
            store.remove()
            ledger.close()
            raise
        try:
            session = cls(plan, cost, handle, store, key)
        except BaseException as error:
            # Nothing was sent or released: what was reserved returns at once.
            handle.finish("failed", str(error))
            ledger.close()
            raise
        session._keep(ledger, handle)
        return session

    @classmethod
    def rehearse(cls, plan: Plan, *, noise: bool) -> Self:
        """A run that is charged to nobody, stored nowhere and private for nobody: baselines on public data.

        noise: add what the plan's mechanism would add, to compare; without it the sum is released as it is.
        """
        return cls(plan, cost_of(plan) if noise else None, Rehearsal(), None, secrets.token_bytes(32))

    @classmethod
    def resume(cls, home: StateDirectory, run_id: str, identity_is_stable: bool, actor: str = "coordinator") -> Self:
        """Continue a run after an interruption or a crash, exactly where its last commit left it.

        Raises `LedgerError` while another coordinator holds the run, `CheckpointError` where what is on disk is not
        what was committed.
        """
        ledger = Ledger.open(home.ledger, head_file=home.head_file)
        plan = Plan.stored(ledger.run(run_id).plan)
        require_identity(plan, identity_is_stable)
        store = RunFiles(home.root, run_id, keep=KEEP_CHECKPOINTS)
        key = store.key()
        handle = ledger.resume_run(
            run_id,
            key_commitment=key_commitment(key),
            holder=f"{actor}@{this_process()}",
            wait=home.lease_patience,
        )
        try:
            cost = cost_of(plan, StrategyFiles(home.root / "strategies"))
            session = cls(plan, cost, handle, store, key)
            with logs.about(run_id, handle.next_round):
                session._settle_open_round(handle.open_round_pending())
            if handle.checkpoint is not None:
                session._restore(*store.latest_committed(handle.checkpoint), handle.next_round)
        except BaseException as error:
            handle.release(str(error))
            raise
        session._keep(ledger, handle)
        return session

    def _keep(self, ledger: Ledger, handle: RunHandle) -> None:
        """From here to the session's end its lease is kept, however long a step takes."""
        self._ledger, self._heart = ledger, LeaseKeeper(handle.heartbeat, handle.lease_seconds / 6)
        self._heart.start()

    def _settle_open_round(self, opened: OpenRound | None) -> None:
        """A round that a crash left open: commit it as it was going to be, or void it if it never got that far."""
        assert self.store is not None  # resumed runs have files
        if opened is None:
            return
        pending = self.store.pending()
        if pending is not None and pending.meta["round"] == opened.index and pending.meta["attempt"] == opened.attempt:
            self._commit(opened, pending.digest, pending.meta)
            log.info("round %d was complete when the run stopped: committed", opened.index)
            return
        self.store.discard()
        self.account.void_round(opened, "the coordinator stopped during this round", reports=0, rejects={})
        log.info("round %d was open when the run stopped: void", opened.index)

    def _restore(self, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any], next_round: int) -> None:
        if (
            meta["round"] != next_round - 1
            or meta["plan"] != self.plan.digest()
            or meta["schema"] != self.schema.digest()
        ):
            raise CheckpointError(
                f"checkpoint of round {meta['round']} of run {self.account.id}",
                "it belongs to another round, plan or model.",
                "the backup of this run's directory",
            )
        self.params = tensors["params"]
        self.state = {name.removeprefix("opt."): t for name, t in tensors.items() if name.startswith("opt.")}
        self.clip, self.score, self.next_round = float(meta["clip"]), dict(meta["score"]), next_round
        self.spent = PrivacyLoss.from_json(meta["spent"])
        if self._stream is not None:
            kept = {name.removeprefix("noise."): t for name, t in tensors.items() if name.startswith("noise.")}
            self._stream.load_state_dict({**meta["noise"], **kept})
        if self.cost is not None:
            self._charge = RealisedCharge.restored(
                self.cost.mechanism,
                self.cost.participation,
                self.cost.noise_multiplier,
                self.plan.privacy.adjacency,
                self.account.patterns(np.arange(self.account.users)),
                next_round,
            )

    # -- what the strategy asks for -------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Say that the session gets on: its lease is kept only so long as it does. For every loop that waits.

        Raises `LedgerError` if another coordinator has taken over.
        """
        if self._heart is not None:
            self._heart.alive()
        self.account.heartbeat()

    @property
    def noise_multiplier(self) -> float:
        """Std of z in units of the clip; 0 for a rehearsal without noise."""
        return self.cost.noise_multiplier if self.cost else 0.0

    @property
    def counts(self) -> int:
        """Indicators that each reply sums beside the update."""
        return self.clipping.counts

    def aggregate(self, occasion: Occasion, shares: tuple[float, ...]) -> Aggregate:
        """An empty sum for the replies to `occasion`, of queries with these shares."""
        return Aggregate(
            self.schema,
            occasion,
            self.clipping.bound,
            self.counts,
            shares,
            self.clipping.indicator_weight,
            self._release.grid,
            self._most_users,
        )

    def select(self, available: Indices) -> Indices:
        """The next round's cohort among `available` users, by a generator that only this round draws from.

        A round that a crash voided is drawn again as it was, so that the resumed run is the one that would have been;
        a round that too few users answered is drawn anew, for the same users might not answer again.
        """
        stream, t = f"select.{self.voids}" if self.voids else "select", self.next_round
        generator = self.noise.generator(stream, t)

        def select() -> Indices:
            return self._selector.select(
                t,
                available,
                self.account.participation,
                generator,
                lambda n: self.noise.uniform(n, row=t, stream=stream),
            )

        return select() if self.crowd is None else self.crowd.wait(select)

    def points(self) -> Points:
        """What clients train from this round."""
        return self.optimizer.points(self.state, self.params, self._info())

    def settings(self) -> dict[str, Any]:
        """What nodes are told beside the model. Public."""
        return {
            "client": self.plan.client.model_dump(mode="json"),
            "clipping": self.clipping.at(self.clip).model_dump(mode="json"),
            "seed": self.plan.run.seed,
        }

    def _info(self) -> StepInfo:
        t = self.next_round
        std = self._release.std * float(self._row_norms[t]) / self.plan.run.cohort
        return StepInfo(t, self.plan.run.rounds, std * self._rescale(), self._autocovariance)

    def _rescale(self) -> float:
        return self.clipping.mean_scale(self.clip)

    def epsilon(self) -> float:
        """What the committed rounds have spent, at the plan's delta; 0 for a rehearsal."""
        return self.spent.epsilon(self.plan.privacy.delta) if self.spent != PrivacyLoss() else 0.0

    def release(self, opened: OpenRound, total: Aggregate, reported: list[Indices]) -> None:
        """Privatise the sum, step, checkpoint, commit; then, and only then, let the model be seen."""
        info, cohort = self._info(), self.plan.run.cohort
        raw = total.sum()
        if self._stream is not None:
            if self._stream.round != opened.noise_row:
                raise LedgerError(
                    f"round {opened.index} of run {self.account.id}",
                    f"its noise row is {opened.noise_row}, the noise stands at row {self._stream.round}.",
                    "resume the run",
                )
            raw = self._release.privatise(raw, self._stream)
        faults.point("strategy.privatised")
        d = raw.numel() - self.counts
        update = (total.unstacked(raw[:d]) * (self._rescale() / cohort)).float()
        params, state = self.optimizer.step(self.state, self.params, update, info)
        faults.point("strategy.stepped")
        clip = self._next_clip(raw[d:], total.users)
        participants = np.concatenate(reported) if reported else np.zeros(0, np.int64)
        last, every = opened.index + 1 == self.plan.run.rounds, self.plan.run.evaluate_every
        score = self.task.evaluate(self._as_model(params)) if last or (opened.index + 1) % every == 0 else {}
        noise_std = info.noise_std * total.spread
        statistics = {
            "score": score.get(self.task.score_name),
            "score_name": self.task.score_name,
            "noise_std": noise_std,
            "noise_norm": noise_std * math.sqrt(total.asked),
            "released_norm": float(torch.linalg.vector_norm(update.double())),
            "clip_norm": self.clip,
        }
        meta = {
            "round": opened.index,
            "attempt": opened.attempt,
            "plan": self.plan.digest(),
            "schema": self.schema.digest(),
            "participants": participants.tolist(),
            "spent": self._spent(opened.index, participants).to_json(),
            "statistics": {
                k: v if v is None or isinstance(v, str) or math.isfinite(v) else None for k, v in statistics.items()
            },
            "rejects": dict(total.rejects),
            "reports": total.users,
            "clip": clip,
            "score": {k: v for k, v in score.items() if math.isfinite(v)},
            "noise": {},
            # Participants are in the file, its digest is shown: bits of the run's key keep anybody from trying cohorts.
            "blind": self.noise.bytes(16, row=opened.index, stream="blind").hex(),
        }
        tensors = {"params": params, **{f"opt.{name}": value for name, value in state.items()}}
        if self._stream is not None:
            for name, value in self._stream.state_dict().items():
                if isinstance(value, torch.Tensor):
                    tensors[f"noise.{name}"] = value
                else:
                    meta["noise"][name] = value
        digest = self.store.write(opened.index, tensors, meta) if self.store else "0" * 64
        self._commit(opened, digest, meta)
        self.params, self.state, self.clip, self.score = params, state, clip, score
        self.next_round, self.voids, self.noise_std = opened.index + 1, 0, noise_std
        faults.point("strategy.released")

    def _commit(self, opened: OpenRound, digest: str, meta: Mapping[str, Any]) -> None:
        participants, spent = np.asarray(meta["participants"], np.int64), PrivacyLoss.from_json(meta["spent"])
        self.account.commit_round(
            opened,
            participants,
            spent,
            digest,
            statistics=meta["statistics"],
            rejects=meta["rejects"],
            reports=meta["reports"],
        )
        self.spent = spent
        if self.store is not None:
            self.store.promote(digest)

    def _spent(self, index: int, participants: Indices) -> PrivacyLoss:
        if self._charge is None or self.cost is None:
            return PrivacyLoss()
        return self.cost.charged(self._charge.add(index, participants))

    def _next_clip(self, noised: torch.Tensor, reports: int) -> float:
        if not self.counts:
            return self.clip
        assert isinstance(self.clipping, clipping.AdaptiveQuantile)  # the only kind that counts
        over = float(noised[0]) / self.clipping.count_weight
        # How many reported is public, except where the user's very presence is the secret.
        users = self.plan.run.cohort if self.plan.privacy.adjacency == "add_remove" else reports
        return self.clipping.step(self.clip, over, max(users, 1))

    def _as_model(self, params: torch.Tensor) -> torch.nn.Module:
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(self.schema.split(params)[name])
        return self._model

    # -- the end --------------------------------------------------------------------------------------------------

    def released(self) -> Arrays:
        """The last committed model's parameters by name (before the first commit: the initial, public ones)."""
        return self.schema.arrays(self.params)

    def model(self) -> torch.nn.Module:
        """The last committed model. Shared: the next call overwrites it."""
        return self._as_model(self.params)

    def finish(self, state: Any, message: str) -> Path | None:
        """End the run and write its last committed model; returns the model's path."""
        path = None
        if self.store is not None:
            path = self.store.directory / "model.safetensors"
            named = {name: value.clone().contiguous() for name, value in self.schema.split(self.params).items()}
            replace_file(path, save(named), mode=0o644)
        if self._heart is not None:
            self._heart.stop()
        self.account.finish(state, message)
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._heart is not None:
                self._heart.stop()
            self.account.__exit__(kind, error, trace)
        finally:
            if self._ledger is not None:
                self._ledger.close()


def require_identity(plan: Plan, stable: bool) -> None:
    """Refuse a plan whose guarantee rests on knowing who is who, where that cannot be known."""
    if not stable and not plan.run.trust_node_ids:
        raise BadInput(
            "run.trust_node_ids = false",
            "nodes are not authenticated, so nobody can say how often a user takes part; the plan's participation "
            "limits would mean nothing.",
            "authenticate nodes (deploy/README.md), or trust_node_ids = true, which the ledger and the page will show",
        )


def seeded_key(seed: int) -> bytes:
    """The noise key of a plan with `noise_seed`: everybody can compute it, so such a run is not private."""
    return hashlib.blake2b(str(seed).encode(), digest_size=32, person=b"fieldfare.seed").digest()
