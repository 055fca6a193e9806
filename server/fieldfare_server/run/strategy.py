"""The Flower strategy: one round, in the order of DESIGN section 3.

    select -> open (durable) -> send -> aggregate -> [void] -> privatise -> step -> checkpoint -> commit -> release

It is not a wrapper of FedAvg: a private sum needs a fixed denominator, clipping by name, replies that cannot hurt, a
charge that is durable before anything is seen, and an end that still returns the last model. Nothing derived from
users' data leaves this module but the privatised parameters, and those only after their charge is committed (I1).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fieldfare.errors import BadInput, BudgetRefused, Interrupted
from fieldfare_flower import logs
from fieldfare_flower.messages import TRAIN, Occasion, TrainInstruction, write_points
from fieldfare_server import faults
from fieldfare_server.run.aggregation import Aggregate
from fieldfare_server.run.availability import require_simulated
from fieldfare_server.run.roster import Indices, Roster, replies_as_they_come
from fieldfare_server.run.session import Session

log = logging.getLogger("fieldfare.strategy")

NODE_POLL = 1.0
"""Seconds between looks for nodes that are not there yet."""
PAUSE_POLL = 0.5
"""Seconds between looks at a paused run's request."""
MOST_VOIDS = 20
"""Consecutive void rounds after which the run stops (resumable): the nodes are gone or broken."""


@dataclass(frozen=True)
class RoundReport:
    """What may be told of a committed round: public, or post-processing of what was released and charged."""

    round: int
    rounds: int
    cohort: int | None
    """Users asked; None under `add_remove`, where a count of users is secret. So is `reports`."""
    reports: int | None
    epsilon: float
    epsilon_limit: float
    score_name: str
    score: float | None
    noise_std: float


@dataclass
class _Attempt:
    """One attempt at one round, between its opening and its commit."""

    opened: Any
    occasion: Occasion
    cohort: Indices
    sum: Aggregate
    asked: dict[str, tuple[int, Indices]]
    reported: list[Indices]


class FieldfareStrategy(Strategy):
    """Runs a `Session` on a Flower `Grid`.

    Guarantee: everything that is released during and after `start` (models, scores, the ledger's public columns) is
    together (epsilon, delta)-DP for every user of the population, under the plan's adjacency, with the epsilon that
    the ledger shows; whatever nodes send, whatever crashes.
    """

    def __init__(self, session: Session, on_round: Callable[[RoundReport], None] = lambda report: None) -> None:
        self.session = session
        self._on_round = on_round
        self._roster = Roster(session.schema, session.account.id, session.account.register_users)
        self._attempt: _Attempt | None = None

    def summary(self) -> None:
        """Log the plan's public shape."""
        s = self.session
        log.info(
            "run %s: %d rounds of %d users, %s noise, multiplier %.4g",
            s.account.id,
            s.plan.run.rounds,
            s.plan.run.cohort,
            s.cost.mechanism.kind if s.cost else "no",
            s.noise_multiplier,
        )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 0,
        timeout: float = 0.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run from the session's next round to the plan's last, and return the last committed model.

        The plan decides rounds, timeout and settings: the other arguments exist for Flower's signature, and what they
        say is not used. An exhausted budget or a stop request ends the run with its last committed model; an
        interruption (Ctrl-C, vanished nodes) raises `Interrupted` and leaves a run that can be resumed.
        """
        s, voids = self.session, 0
        require_simulated(s.plan, grid)
        if s.crowd is not None:
            s.crowd.names = self._roster.names
        with logs.about(s.account.id):
            self.summary()
        try:
            while s.next_round < s.plan.run.rounds:
                request = s.account.request()
                if request == "stop":
                    s.finish("stopped", "stopped on request")
                    return self._result()
                if request == "pause":
                    s.heartbeat()
                    time.sleep(PAUSE_POLL)
                    continue
                with logs.about(s.account.id, s.next_round):
                    voids = 0 if self._round(grid) else voids + 1
                if not bool(torch.isfinite(s.params).all()):
                    # It is released and charged; training on would only spend more.
                    s.finish("failed", f"the model was not finite any more after round {s.next_round - 1}")
                    raise BadInput(
                        f"server_optimizer and client learning rates of run {s.account.id}",
                        f"the released model diverged: it is not finite after round {s.next_round - 1}.",
                        "smaller learning rates",
                    )
                if voids >= MOST_VOIDS:
                    raise Interrupted(
                        f"run {s.account.id}: {voids} rounds in a row had fewer than {s.plan.report_goal} reports; "
                        "nothing was released or charged for them. Resume when nodes are back."
                    )
        except BudgetRefused as refusal:
            s.finish("exhausted", str(refusal))
            raise
        except KeyboardInterrupt:
            # Leaving the session gives the lease back; the ledger keeps the reservation for whoever resumes.
            raise Interrupted(
                f"run {s.account.id} was interrupted after {s.next_round} of {s.plan.run.rounds} rounds. "
                f"Continue it with --resume {s.account.id}."
            ) from None
        s.finish("done", "all rounds committed")
        return self._result()

    def _result(self) -> Result:
        return Result(arrays=ArrayRecord({k: Array(v) for k, v in self.session.released().items()}))

    def _round(self, grid: Grid) -> bool:
        """One attempt at the next round; whether it was committed."""
        s = self.session
        messages = list(self.configure_train(s.next_round + 1, ArrayRecord(), ConfigRecord(), grid))
        faults.point("strategy.sent")
        replies = replies_as_they_come(grid, messages, s.plan.run.round_timeout, s.heartbeat)
        arrays, _ = self.aggregate_train(s.next_round + 1, replies)
        return arrays is not None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Select the cohort, open the round in the ledger, and address the nodes that host it."""
        s = self.session
        cohort = self._cohort(grid)
        faults.point("strategy.selected")
        opened = s.account.open_round(cohort)
        log.debug("round %d open, attempt %d", opened.index, opened.attempt)
        occasion = Occasion(s.account.id, opened.index, opened.attempt)
        points, weights, shares, batches = s.points()
        # Encoded once, shared by all messages: a message costs one reference, not one model.
        point_arrays = tuple(s.schema.arrays(point) for point in points)
        encoded = write_points(point_arrays)
        total = s.aggregate(occasion, shares)
        self._attempt = _Attempt(opened, occasion, cohort, total, {}, [])
        batches = opened.index if batches is None else batches
        answering = cohort if s.crowd is None else s.crowd.answers(opened.index, cohort)
        for node, (indices, names) in self._roster.by_node(answering).items():
            instruction = TrainInstruction(
                occasion, point_arrays, weights, names, s.settings(), queries=len(shares), batches=batches
            )
            message = Message(
                instruction.write(encoded),
                node,
                TRAIN,
                group_id=f"{s.account.id}/{opened.index}",  # for the lines that a node logs
                ttl=s.plan.run.round_timeout + 60.0,
            )
            self._attempt.asked[str(node)] = (node, indices)
            yield message

    def _cohort(self, grid: Grid) -> Indices:
        """Select once enough users are there to make a round worth opening; wait for them up to the round's timeout."""
        s, run = self.session, self.session.plan.run
        needed = run.min_available if run.min_available is not None else (1 if s.plan.samples else run.cohort)
        deadline = time.monotonic() + run.round_timeout
        while True:
            self._roster.refresh(grid, run.round_timeout, s.heartbeat)
            available = self._roster.available()
            enough = available.size >= needed
            cohort = s.select(available) if enough else available[:0]
            if (enough and cohort.size >= s.plan.report_goal) or time.monotonic() >= deadline:
                return cohort
            s.heartbeat()
            time.sleep(NODE_POLL)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Sum what arrives, then privatise, step, checkpoint, commit and release - or void the round.

        Returns the released parameters, or None where too few users reported. Never returns metrics of clients.
        """
        s, attempt = self.session, self._attempt
        if attempt is None:
            raise RuntimeError("aggregate_train without configure_train")
        self._attempt = None
        self._sum(attempt, replies)
        faults.point("strategy.aggregated")
        if attempt.sum.users < s.plan.report_goal:
            s.account.void_round(
                attempt.opened,
                f"{attempt.sum.users} reports, {s.plan.report_goal} needed",
                reports=attempt.sum.users,
                rejects=dict(attempt.sum.rejects),
            )
            s.voids += 1
            # Under add_remove a count of reports is a count of users, and those are the secret.
            secret = s.plan.privacy.adjacency == "add_remove"
            log.warning("round %d void: %s reports", attempt.opened.index, "too few" if secret else attempt.sum.users)
            return None, None
        s.release(attempt.opened, attempt.sum, attempt.reported)
        self._on_round(self._report(attempt))
        return self._result().arrays, None

    def _report(self, attempt: _Attempt) -> RoundReport:
        s = self.session
        secret = s.plan.privacy.adjacency == "add_remove"
        return RoundReport(
            round=attempt.opened.index,
            rounds=s.plan.run.rounds,
            cohort=None if secret else int(attempt.cohort.size),
            reports=None if secret else attempt.sum.users,
            epsilon=s.epsilon(),
            epsilon_limit=s.cost.epsilon if s.cost else 0.0,
            score_name=s.task.score_name,
            score=s.score.get(s.task.score_name),
            noise_std=s.noise_std,
        )

    def _sum(self, attempt: _Attempt, replies: Iterable[Message]) -> None:
        waiting = dict(attempt.asked)
        for reply in replies:
            if reply.has_error():
                attempt.sum.reject("error reply")
                continue
            # By the node that answered, once: a second reply of the same node is a duplicate, another node's is stray.
            node = waiting.pop(str(reply.metadata.src_node_id), None)
            if node is None:
                attempt.sum.reject("duplicate or stray reply")
                continue
            if attempt.sum.add(reply.content, sent=int(node[1].size)):
                attempt.reported.append(node[1])
            if not self.session.plan.samples and attempt.sum.users >= self.session.plan.run.cohort:
                # Over-selection: who comes later is neither summed nor counted as a participant. A Poisson cohort is
                # never cut: one user's presence would then decide whether another one is summed.
                return

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No client is ever asked to evaluate: its answer would be users' data outside of the guarantee."""
        return ()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing: see `configure_evaluate`."""
        return None
