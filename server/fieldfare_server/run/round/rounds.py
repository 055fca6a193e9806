"""The private part of a round: privatise, step, checkpoint, commit, release; and finish a round that a crash
left open.

Invariant I1: a model is visible only after its charge is durable. So everything that the commit needs travels
in the checkpoint's metadata, the `RoundRecord`. A crash between checkpoint and commit is rolled forward from
those bytes: the noised sum is never computed a second time.

Invariant I2: no noise serves two sums, even where a backup, a copied directory or a rewound machine runs a
round twice. Each round's noise is drawn under a nonce that is made after the sum is final, from fresh bits
and from the sum itself (spec/budgets.md 4.3). A copy made before that meets other bits or another sum, so its
noise is independent; a copy made later holds the same sum and can only repeat the same release.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fieldfare import clipping
from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.individual import Units
from fieldfare.accounting.realised import RealisedCharge
from fieldfare.cost import Cost
from fieldfare.costing import privatiser_of
from fieldfare.errors import CheckpointError, Differs, FieldfareError, OutOfTurn
from fieldfare.lazily import torch
from fieldfare.noise import SecureNoise
from fieldfare.nonces import NONCE_BYTES, Nonces, digest_of
from fieldfare.plan import Plan
from fieldfare.privatise import Privatiser
from fieldfare_flower.messages import Occasion
from fieldfare_server import faults, optimizers
from fieldfare_server.files.checkpoint import RunFiles, model_digest
from fieldfare_server.ledger import OpenRound
from fieldfare_server.optimizers import Points, StepInfo
from fieldfare_server.run.presence.selection import Users
from fieldfare_server.run.pricing import numbers_released, resolution_of
from fieldfare_server.run.rehearsal import Account, Statistics
from fieldfare_server.run.round.aggregation import Aggregate, PlainSums, Reader, split_chunks, squared_norm
from fieldfare_server.run.round.answers import sum_of
from fieldfare_server.run.round.commits import Commits, without_prefix
from fieldfare_server.run.round.masked import MaskedSum, MaskedSums, OpenedSum
from fieldfare_server.run.round.noise_state import NoiseState
from fieldfare_server.run.round.record import Released, RoundRecord
from fieldfare_server.run.round.ridden import RiddenMetrics, statistics_of
from fieldfare_server.run.round.running_noise import RunningNoise
from fieldfare_server.run.round.task_model import Model


class Rounds:
    """The private side of one run, round after round. What it has made becomes durable, and is shown, by `commits`."""

    def __init__(
        self,
        plan: Plan,
        cost: Cost | None,
        account: Account,
        files: RunFiles | None,
        noise: SecureNoise,
        model: Model,
    ) -> None:
        """Take the arguments of `Session`; `noise` draws from its key."""
        self.plan, self.cost, self.account, self.files, self.noise = plan, cost, account, files, noise
        self.model = model
        self._plan_digest = plan.digest()
        self._told: tuple[float, dict[str, object]] = math.nan, {}  # what nodes are told at a clip norm
        self.clipping, self.riders = plan.clipping, plan.riders
        self.optimizer = optimizers.build(plan.server_optimizer)
        self._kind_of_sum = sum_of(plan, 0.0 if cost is None else cost.noise_multiplier)
        self._charge: RealisedCharge | None = None
        # The noise reads this list. It gets a round's nonce before that round's noise is drawn.
        self._nonces = None if account.nonces is None else Nonces(account.nonces)
        self.running_noise = RunningNoise(Privatiser(0.0), None, np.zeros(plan.run.rounds))
        if cost is not None:
            self._charge = cost.realised()
            if account.individual:
                # What a user's first, second, ... participation costs at most, summed up: `payable` looks up
                # how many fit.
                self._dearest = np.asarray(cost.tight_units(), dtype=np.int64)
            numel = numbers_released(plan, self.model.schema)
            # Of a run that is resumed before its first checkpoint, which names a schema.
            if files is not None and 0 < cost.resolution * (1 + 1e-9) < resolution_of(cost)(numel):
                why = f"it has {numel} numbers, and the run is charged for the resolution of fewer."
                raise Differs(f"the model of run {account.id}", why, "the task as it was when the run began")
            self.running_noise = RunningNoise.of(cost, privatiser_of(plan, cost, numel), numel, noise, self._nonces)
        self.sums = self._sums_of()
        std = self.running_noise.privatiser.std * plan.aggregation.widening
        self.metrics = RiddenMetrics(plan, cost, std)
        # A round's noise is drawn before its model is durable, so the noise's state is written with the
        # checkpoint of the round, never by itself.
        self._noise_state = NoiseState(self.running_noise, files, self._nonces)
        initial = self.model.initial
        start = Released(0, initial, self.optimizer.init(initial), self.clipping.norm)
        self.commits = Commits(account, files, self._noise_state, plan.run.rounds, start)

    @property
    def newest(self) -> Released:
        """The newest model that there is: what the next round starts from."""
        return self.commits.newest

    # -- what nodes are sent ---------------------------------------------------------------------------------

    def points(self) -> Points:
        """Return what clients train from in the next round."""
        return self.optimizer.points(self.newest.optimizer_state, self.newest.params, self.step_info())

    @property
    def current_clipping(self) -> clipping.ClippingSpec:
        """The plan's clipping at the norm of the next round."""
        return self.clipping.at(self.newest.clip)

    def settings(self) -> dict[str, object]:
        """Return what nodes are told with the model: `Plan.told` of the next round."""
        clip = self.newest.clip
        if self._told[0] != clip:
            self._told = clip, self.plan.told(self.current_clipping)
        return self._told[1]

    def _sums_of(self) -> PlainSums | MaskedSums:
        """Return how the plan's sums are made."""
        if self.running_noise.privatiser.bits and self.files is not None:
            numel = numbers_released(self.plan, self.model.schema)
            own = 0.0 if self.cost is None else self.plan.aggregation.noise_ratio * self.cost.noise_multiplier
            return MaskedSums(self.plan, self.account, self.files, self.running_noise, numel, own)
        return PlainSums(self.empty_sum)

    def empty_sum(self, occasion: Occasion, shares: tuple[float, ...], reader: Reader | None = None) -> Aggregate:
        """The sum, still empty, for the replies to `occasion`. shares: one for each query. reader: as `Aggregate`'s."""
        (kind, more), grid, most = self._kind_of_sum, self.running_noise.privatiser.grid, self.plan.most_users
        return kind(self.model.schema, occasion, self.clipping.bound, self.riders, shares, grid, most, reader, *more)

    # -- what users have left --------------------------------------------------------------------------------

    def costs(self, index: int, users: Users) -> Units:
        """Return what round `index` would cost each of `users` by its odometer, in units of 2^-44 mu^2, shape (n,)."""
        assert self._charge is not None  # a rehearsal has no odometers
        assert self.cost is not None
        return self.cost.increments(self._charge.growth(index, users))

    def affords(self, index: int, users: Users) -> NDArray[np.bool_] | None:
        """Return which of `users` have enough left for round `index`, shape (n,); None: all, whatever the round."""
        left = self.account.allowance(users)
        return None if left is None else np.asarray(self.costs(index, users) <= left)

    def payable(self, users: Users) -> NDArray[np.int64] | None:
        """Return in how many rounds of the run each of `users` can pay to take part, shape (n,); None: in all."""
        pledged = self.account.pledged(users)
        # Never too many: each round is taken to be as dear as the plan allows.
        return None if pledged is None else np.searchsorted(self._dearest, pledged, side="right")

    # -- from the sum to the released model ------------------------------------------------------------------

    def commit_round(
        self,
        opened: OpenRound,
        summed: Aggregate | MaskedSum,
        reported: Sequence[Users],
        show: Callable[[Released], None] = lambda released: None,
    ) -> None:
        """Turn the final sum of an open round into a released model, in the order of DESIGN section 3.

        Args:
            summed: the raw sum, which is overwritten; or a masked one that is closed.
            reported: indices of the users that it sums, one array for each node.
            show: called with the released model once its charge is durable: now, or at the end of its group.

        Raises:
            LedgerError: the noise stands at another row than the one opened, or the run was taken over.
            CheckpointError: the disk refuses the checkpoint. Nothing was released or charged then.
            BudgetRefused: the charge exceeds what the run reserved.
            FieldfareError: the model could not be scored. The round is charged then, without a score.
        """
        current, info = self.newest, self.step_info()

        # The sum is final: bind fresh bits to it, and privatise under them. From here on, everything is
        # post-processing of the noised sum.
        self._require_noise_row(opened)
        total = self.sums.open(opened, summed)
        faults.point("strategy.summed")
        # After the sum is final and never before: a nonce that was known earlier could meet a second sum.
        self._draw_nonce(opened.index, total)
        noised = total.privatise(self.running_noise)
        faults.point("strategy.privatised")

        # Step. The denominator is the planned cohort: the number of replies depends on users.
        numel = noised.numel() - len(self.riders.weights)
        mean = unstack_queries(noised[:numel], total.shares)
        update = mean.mul_(self._update_scale() / self.plan.run.cohort).float()
        # The coordinates behind the update: counts for adaptive clipping, then metrics. They were noised with it.
        riding = noised[numel:].clone()
        del noised, mean  # the float64 sum, the largest vector of a round: all below is made without it
        params, optimizer_state = self.optimizer.step(current.optimizer_state, current.params, update, info)
        faults.point("strategy.stepped")
        clip = self._step_clip(riding, total.users)
        metrics = self.metrics.add(current.metrics, riding[self.riders.indicators :], total.users)
        shown = statistics_of(self.metrics.read(metrics, opened.index), self.plan.metrics)

        # What commits the round: its charge, and all that a resumed run needs.
        # Where presence is secret nothing says who took part or how many: neither this file nor the ledger.
        secret = self.plan.presence_is_secret
        participants = np.concatenate(reported) if reported and not secret else np.zeros(0, np.int64)
        # On public data alone, so it may be known before the commit; it is shown after it.
        score, failure = self._score(opened.index, params)
        noise_std = info.noise_std * noise_spread(total.shares)
        # Before `_charge_round` below, which adds this round: what a round costs is what it would add.
        costs = self.costs(opened.index, participants) if self.account.individual else None
        nonces = self._nonces
        record = RoundRecord(
            round=opened.index,
            attempt=opened.attempt,
            plan=self._plan_digest,
            schema=self.model.schema.digest(),
            participants=participants,
            spent=self._charge_round(opened.index, participants),
            statistics=self._statistics(total, update, params, score, noise_std, shown),
            rejects={} if secret else dict(total.rejects),
            reports=0 if secret else total.users,
            clip=clip,
            score={name: value for name, value in score.items() if math.isfinite(value)},
            noise={},  # when the checkpoint is written, which for a group is once
            blind=self.noise.bytes(16, row=opened.index, stream="blind").hex(),
            nonce=None if nonces is None else nonces[-1].hex(),
            nonces=None if nonces is None else nonces.digest(),
            charges=None if costs is None else costs.tolist(),
            strategy=None if self.cost is None else self.cost.strategy,
            model=None if self.files is None else model_digest(self.model.tensors(params)),
            metrics=[list(row) for row in metrics] or None,
            receipt=total.receipt,
        )
        newest = Released(opened.index + 1, params, optimizer_state, clip, record.spent, score, noise_std, metrics)

        # Checkpoint, commit, release.
        self.commits.commit(opened, record, newest, show)
        self.sums.done()
        if failure is not None:
            raise failure

    # -- after a crash ---------------------------------------------------------------------------------------

    def settle_open_round(self, opened: OpenRound, files: RunFiles) -> bool:
        """Settle a round that a crash left open; returns whether it was committed.

        With a whole checkpoint the round is rolled forward, with the very bytes that were to be committed.
        Without one, nothing that was made of its sum exists any more: the round is void, and its noise row is
        free. A masked round that is closed stays open: its sum may have been opened, so it is opened again
        (`sums.closed`), the same.
        """
        pending = files.pending()
        if pending is not None:
            record = RoundRecord.from_json(pending.meta)
            if (record.round, record.attempt) == (opened.index, opened.attempt):
                newest = [] if record.nonce is None else [bytes.fromhex(record.nonce)]
                self._require_nonces(record, opened.index + 1, newest)
                self.commits.commit_written(opened, record, pending.digest)
                return True
        if opened.closing is not None:
            self.sums.left_closed(opened)
            return False
        # A checkpoint that was not whole proves that nothing of this sum was released, so its row of noise
        # may serve the next attempt.
        files.discard()
        self.account.void_round(opened, "the coordinator stopped during this round", reports=0, rejects={})
        return False

    def restore(self, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, object], next_round: int) -> None:
        """Continue from the newest committed checkpoint. Raises `CheckpointError` if it is of another plan or model."""
        record = RoundRecord.from_json(meta)
        assert self.cost is not None  # a rehearsal is never resumed
        strategy = self.cost.strategy
        expected = (next_round - 1, self._plan_digest, self.model.schema.digest(), strategy)
        # A converted run's own record names no strategy; its log does.
        if (record.round, record.plan, record.schema, record.strategy or strategy) != expected:
            raise CheckpointError(
                f"checkpoint of round {record.round} of run {self.account.id}",
                "it belongs to another round, plan, model or strategy.",
                "the backup of this run's directory",
            )
        self._require_nonces(record, next_round, [])
        if self._nonces is not None:
            # The last of them where a crash left its round open: it was committed after this object was made.
            self._nonces.extend((self.account.nonces or [])[len(self._nonces) :])
        state = without_prefix("opt.", tensors)
        past = tuple(tuple(row) for row in record.metrics or ())
        self.commits.go_on_from(
            Released(next_round, tensors["params"], state, record.clip, record.spent, record.score, metrics=past)
        )
        self._noise_state.restore(without_prefix("noise.", tensors), record.noise)
        setting = (self.cost.mechanism, self.cost.participation, self.cost.noise_multiplier)
        patterns = self.account.patterns(np.arange(self.account.users))
        self._charge = RealisedCharge.restored(
            *setting, self.plan.privacy.adjacency, patterns, next_round, self.cost.whole
        )

    # -- the parts of a commit -------------------------------------------------------------------------------

    def step_info(self) -> StepInfo:
        """Return what is public about the next step."""
        row = self.newest.next_round
        std = self.running_noise.std(row) / self.plan.run.cohort * self._update_scale()
        return StepInfo(row, self.plan.run.rounds, std, self.running_noise.autocovariance)

    def _update_scale(self) -> float:
        """Return what multiplies the released sum: adaptive clipping with `rescale` undoes the division by the norm."""
        return self.clipping.mean_scale(self.newest.clip)

    def _require_noise_row(self, opened: OpenRound) -> None:
        stream = self.running_noise.stream
        if stream is not None and stream.round != opened.noise_row:
            raise OutOfTurn(
                f"round {opened.index} of run {self.account.id}",
                f"its noise row is {opened.noise_row}, the noise stands at row {stream.round}.",
                "resume the run",
            )

    def _draw_nonce(self, index: int, total: Aggregate | OpenedSum) -> None:
        """Make the nonce of round `index`, whose final sum is `total`, and hand it to the noise."""
        if self._nonces is None:
            return
        if len(self._nonces) != index:
            raise OutOfTurn(
                f"round {index} of run {self.account.id}",
                f"there are nonces of {len(self._nonces)} rounds before it.",
                "resume the run",
            )
        # Fresh bits come after the sum: bits that were drawn earlier would be in a copy of this process as well.
        digest = hashlib.sha256(self.model.schema.digest().encode() + b"\0")
        total.feed(digest)
        self._nonces.append(self.noise.nonce(self.account.id, index, secrets.token_bytes(NONCE_BYTES), digest.digest()))

    def _require_nonces(self, record: RoundRecord, rounds: int, newest: Sequence[bytes]) -> None:
        """Refuse a checkpoint whose nonces are not the ledger's, one for each of `rounds` committed rounds.

        newest: the record's own, where its round is not committed yet.
        """
        held = None if self.account.nonces is None else [*self.account.nonces, *newest]
        named = None if held is None else digest_of(held)
        if record.nonces != named or (held is not None and len(held) != rounds):
            raise CheckpointError(
                f"checkpoint of round {record.round} of run {self.account.id}",
                "the nonces that it names are not those of the ledger's rounds: it is of another branch.",
                "the ledger and the directory of one backup",
            )

    def _step_clip(self, noised_counts: torch.Tensor, reports: int) -> float:
        """Return the next round's clip norm, from the noised indicators."""
        if not isinstance(self.clipping, clipping.AdaptiveQuantile):
            return self.newest.clip
        over = float(noised_counts[0]) / self.clipping.count_weight
        # The number of reports is public, except where a user's very presence is the secret.
        users = self.plan.run.cohort if self.plan.presence_is_secret else reports
        return self.clipping.step(self.newest.clip, over, max(users, 1))

    def _score(self, index: int, params: torch.Tensor) -> tuple[dict[str, float], FieldfareError | None]:
        """Return the scores, and why there are none: an error may quote the model, so its round is charged first."""
        last = index + 1 == self.plan.run.rounds
        try:
            return self.model.evaluate(params) if last or (index + 1) % self.plan.run.evaluate_every == 0 else {}, None
        except FieldfareError as failure:
            return {}, failure

    def _charge_round(self, index: int, participants: Users) -> PrivacyLoss:
        if self._charge is None or self.cost is None:
            return PrivacyLoss()
        return self.cost.charged(self._charge.add(index, participants), self.newest.spent)

    def _statistics(
        self,
        total: Aggregate | OpenedSum,
        update: torch.Tensor,
        params: torch.Tensor,
        score: Mapping[str, float],
        noise_std: float,
        riding: Mapping[str, float],
    ) -> Statistics:
        coordinates = self.model.schema.numel * sum(share > 0 for share in total.shares)
        numbers = {
            "score": score.get(self.model.score_name),
            "noise_std": noise_std,
            "noise_norm": noise_std * math.sqrt(coordinates),
            "released_norm": math.sqrt(squared_norm(_doubles(update))),
            "clip_norm": self.newest.clip,
        }
        finite = {name: v if v is not None and math.isfinite(v) else None for name, v in numbers.items()}
        released = {"released": params.tolist()} if self.model.shows_released else {}
        if isinstance(total, Aggregate) and total.names:
            released["names"] = [name if isinstance(name, str) else float(name) for name in total.names]
        return {**finite, **riding, **released, "score_name": self.model.score_name}


def unstack_queries(noised: torch.Tensor, shares: Sequence[float]) -> torch.Tensor:
    """Return the noised sum of each query in turn: the stack (queries x d,) divided by the shares' roots."""
    if tuple(shares) == (1.0,):
        return noised
    # A query of share 0 was not asked: the noise there is dropped too.
    factors = [1.0 / math.sqrt(share) if share else 0.0 for share in shares]
    return (noised.view(len(shares), -1) * noised.new_tensor(factors)[:, None]).view(-1)


def noise_spread(shares: Sequence[float]) -> float:
    """Return noise in `unstack_queries` relative to that in the stack: root mean square over the queries asked."""
    variances = [1.0 / share for share in shares if share]
    return math.sqrt(math.fsum(variances) / len(variances))


def _doubles(update: torch.Tensor) -> Iterator[NDArray[np.float64]]:
    """Return `update` in float64, chunk by chunk: PyTorch's norm with another dtype converts all of it first."""
    return (chunk.astype(np.float64) for chunk in split_chunks(update.cpu().numpy()))
