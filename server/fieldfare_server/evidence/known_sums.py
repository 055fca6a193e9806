"""Drive a plan's real session with replies of known sums, and keep what leaves the private step.

The session is the one that trains: it reserves in a ledger, opens rounds, sums replies in an `Aggregate` that
snaps them, privatises, steps, writes checkpoints, commits, and resumes halfway from the disk. Only three
things differ from the run: a model of parameters without meaning in the place of the task's (the task's data
may not be at hand, and its model may be huge), a throwaway ledger and key, and the replies. These are long
vectors, clipped by the plan's clipping.

**Where the noise is read.** What `RunningNoise.privatise` returns is the output of the private step: in
float64, with every query and every count, before any post-processing. The optimizer runs too. What it
receives must be that output, divided as the plan says, and nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fieldfare import clipping
from fieldfare.aggregation import PLAIN
from fieldfare.cost import Cost
from fieldfare.costing import cost_at_noise
from fieldfare.lazily import torch
from fieldfare.metrics import Riders
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare.task import Task, Users
from fieldfare_flower.messages import Occasion, TrainReply
from fieldfare_server import optimizers
from fieldfare_server.files.home import StateDirectory, scratch_folder
from fieldfare_server.ledger import Ledger
from fieldfare_server.optimizers.base import ServerOptimizer, State, StepInfo, Tensor
from fieldfare_server.run.round.running_noise import RunningNoise
from fieldfare_server.run.session import Session

Float = NDArray[np.float64]
T = TypeVar("T")

# Users in one reply, if the plan's cohort has as many. Each takes part once, which every participation allows.
USERS = 3
# Epsilon of the throwaway population: room for any plan.
_BUDGET = 1e9


@dataclass(frozen=True, eq=False)
class Releases:
    """What a session made of known sums."""

    released: Float  # the outputs of the private step, shape (rounds, n): n = queries x d + counts
    known: Float  # the snapped sums that went in, (rounds, n)
    std: float  # the standard deviation of z that the plan promises, in the units of the sum
    fault: str = ""  # what is wrong besides the noise, in words


def release_known_sums(
    cost: Cost, decided: dict[str, bytes], noise_multiplier: float, rounds: int, numbers: int
) -> Releases:
    """Run the first `rounds` rounds of a run that costs `cost` on known replies, under a fresh key.

    Args:
        cost: the run's, with its mechanism and noise.
        decided: what optimisers decided for it.
        noise_multiplier: std of z in clip norms, as charged: what `Releases.std` is computed from.
        numbers: roughly how many noise values to draw.

    Raises:
        BadInput, LedgerError, CheckpointError: as the session does.
    """
    plan = cost.plan
    queries = optimizers.build(plan.server_optimizer).queries
    numel = max(64, -(-numbers // (rounds * queries)))
    plan = rehearsed(cost, task=f"{__name__}:{PARAMETERS}{numel}")
    seen, halfway = _Seen(), rounds // 2

    def run(session: Session, rounds: int) -> None:
        SeenNoise.watch(session, seen=seen.noised)
        session.rounds.optimizer = _SeenOptimizer(session.rounds.optimizer, seen.updates)  # type: ignore[assignment]
        for _ in range(rounds):
            _run_round(session, seen)

    def end(session: Session) -> float:
        run(session, rounds - halfway)
        std = promised_std(session, noise_multiplier)
        session.finish("stopped", "the residual test has what it needs")
        return std

    std = play_resumed(plan, decided, lambda session: run(session, halfway), end)
    return Releases(np.asarray(seen.noised), np.asarray(seen.known), std, seen.fault)


def play_resumed(
    plan: Plan, decided: dict[str, bytes], begin: Callable[[Session], object], end: Callable[[Session], T]
) -> T:
    """Begin a run on a throwaway ledger under a fresh key, and go on with it as it is resumed from the disk.

    Args:
        decided: what optimisers decided for the plan.
        begin, end: run the session's rounds, before and after it was resumed. Returns what `end` does.
    """
    with scratch_folder() as folder:
        state = StateDirectory.of(folder, f"sqlite:///{folder}/ledger.sqlite3")
        privacy = plan.privacy
        with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
            ledger.create_population(
                privacy.population, _BUDGET, privacy.delta, adjacency=privacy.adjacency, simulated=True, actor="audit"
            )
        # At the noise that was charged, not calibrated again: the run's own price is what is on trial.
        priced = cost_at_noise(plan, decided), decided
        with Session.begin(state, plan, identity_is_stable=True, actor="audit", priced=priced) as session:
            begin(session)
        with Session.resume(state, session.account.id, identity_is_stable=True, actor="audit") as session:
            return end(session)


def rehearsed(cost: Cost, **run: object) -> Plan:
    """Return the plan of `cost` at its noise, with these keys of `[run]`, without a fixed seed of the noise, and
    without masks: what is tested is the server's noise, and no node or blinder is there."""
    table = json.loads(cost.plan.to_json())
    target = {"epsilon": None, "noise_multiplier": cost.noise_multiplier}
    changes = {"run": {**table["run"], "noise_seed": None, **run}, "privacy": {**table["privacy"], **target}}
    return Plan.stored({**table, **changes, "task": {}, "aggregation": PLAIN.model_dump()})


@dataclass(eq=False)
class _Seen:
    """What came out of each round, and what went in."""

    known: list[Float] = field(default_factory=list)
    noised: list[Float] = field(default_factory=list)
    updates: list[torch.Tensor] = field(default_factory=list)  # what the optimizer received, float32
    fault: str = ""


@dataclass(frozen=True, eq=False)
class SeenNoise(RunningNoise):
    """A session's noise; copies what it returns."""

    seen: list[Float] = field(default_factory=list)

    @classmethod
    def watch(cls, session: Session, **copies: list[Float]) -> None:
        """Take the place of the noise of `session`. copies: the lists that copies go to, by their names here."""
        noise = session.rounds.running_noise
        facts: dict[str, Any] = {part.name: getattr(noise, part.name) for part in dataclasses.fields(RunningNoise)}
        session.rounds.running_noise = cls(**facts | copies)

    def privatise(self, total: torch.Tensor) -> torch.Tensor:
        noised = super().privatise(total)
        self.seen.append(noised.double().numpy().copy())
        return noised


class _SeenOptimizer:
    """The session's optimizer; copies what it receives."""

    def __init__(self, inner: ServerOptimizer, seen: list[torch.Tensor]) -> None:
        self._inner, self._seen = inner, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        self._seen.append(update.clone())
        return self._inner.step(state, params, update, info)


def _run_round(session: Session, seen: _Seen) -> None:
    """Run one round on a known reply of users who take part in this round only."""
    rounds, plan = session.rounds, session.plan
    index = session.next_round
    count = min(USERS, plan.run.cohort)
    users = session.account.register_users(np.arange(count, dtype=np.uint64) + np.uint64(USERS * index))
    opened = session.account.open_round(users)
    spec, shares = plan.clipping.at(session.released.clip), rounds.points().shares
    riders = plan.riders
    occasion = Occasion(session.account.id, opened.index, opened.attempt)
    total = rounds.empty_sum(occasion, shares)
    reply, known = _known_reply(session.schema, spec, riders, shares, count, index, occasion)
    if not total.add(reply.write(), count) or total.rejects:
        seen.fault = seen.fault or f"an honest reply was refused or cut ({dict(total.rejects)})"
    grid = total.grid
    if grid is not None:
        known = np.rint(known / grid.spacing) * grid.spacing
    seen.known.append(known)
    rounds.commit_round(opened, total, [users])
    released = seen.noised[-1]
    if grid is not None and not np.array_equal(released, np.rint(released / grid.spacing) * grid.spacing):
        seen.fault = seen.fault or f"round {index} released numbers that are not on the grid"
    expected = _post_processed(plan, spec, shares, released)
    if not np.allclose(seen.updates[-1].numpy(), expected, rtol=1e-5, atol=1e-6 * float(np.abs(expected).max())):
        seen.fault = seen.fault or f"round {index} gave the optimizer something else than the noised sum"


def _known_reply(
    schema: Schema,
    spec: clipping.ClippingSpec,
    riders: Riders,
    shares: tuple[float, ...],
    count: int,
    index: int,
    occasion: Occasion,
) -> tuple[TrainReply, Float]:
    """Return the reply of `count` users to round `index`, and what it adds to the sum before that is snapped, (n,)."""
    ramp = torch.linspace(-1.0, 1.0, schema.numel)
    sums, over = [], 0
    for query in range(len(shares)):
        # Users and queries differ, and the lengths are on both sides of the clip norm.
        lengths = torch.arange(1.0, count + 1)[:, None] * spec.norm * (1 + index % 3) / 4
        updates = (ramp.roll(query) / ramp.norm() * lengths).float()
        over += clipping.count_over(updates, spec) if spec.counts else 0
        clipping.clip_(updates, spec, schema.slices())
        sums.append(updates.double().sum(0).float())
    # Metrics at both ends of what users can add up to, and between.
    metrics = [count * math.cos(index + place) for place in range(riders.metrics)]
    counts = (*(float(over),) * spec.counts, *metrics)
    stacked = schema.stacked(len(shares))
    weighted = [part.double().numpy() * math.sqrt(share) for part, share in zip(sums, shares, strict=True)]
    known = np.concatenate([*weighted, np.asarray(counts) * riders.weights])
    return TrainReply(occasion, stacked.arrays(torch.cat(sums)), count, counts), known


def _post_processed(plan: Plan, spec: clipping.ClippingSpec, shares: tuple[float, ...], released: Float) -> Float:
    """Return the mean update of each query, from the output of the private step."""
    stacks = released[: released.size - len(plan.riders.weights)].reshape(len(shares), -1)
    factors = np.asarray([share**-0.5 if share else 0.0 for share in shares])
    mean: Float = (stacks * factors[:, None]).ravel() * plan.clipping.mean_scale(spec.norm) / plan.run.cohort
    return mean


def promised_std(session: Session, noise_multiplier: float) -> float:
    """Return noise_multiplier x what one user can change of the sum (`fieldfare.privatise`), from the plan
    and the grid alone.

    It is computed here a second time, so that an error in the session's own figure shows.
    """
    plan, grid = session.plan, session.rounds.running_noise.privatiser.grid
    spec = plan.clipping
    metrics = plan.metrics
    weights = [spec.indicator_weight] * spec.counts
    weights += [] if metrics is None else [metrics.weight * spec.bound] * len(metrics.show)
    bound = math.sqrt(spec.bound**2 + math.fsum(weight**2 for weight in weights))
    if grid is None:
        return noise_multiplier * bound
    users = plan.most_users
    numel = session.rounds.optimizer.queries * session.schema.numel + len(weights)
    changed = bound * (1 + users * (2.0**-23 + users * 2.0**-52)) + grid.spacing * math.sqrt(numel)
    std = noise_multiplier * changed
    return math.ceil(std / grid.spacing) * grid.spacing if plan.privacy.rounding == "discrete" else std


class Parameters(Task):
    """`numel` parameters in three layers, all 0. There are no users' data, and there is nothing to score."""

    name: ClassVar[str] = "parameters"
    score_name: ClassVar[str] = "nothing"
    held_out: ClassVar[str] = "Nothing is scored."

    def __init__(self, numel: int) -> None:
        self.numel = numel

    def build_model(self) -> torch.nn.Module:
        sizes = self.numel - self.numel // 3 - 5, self.numel // 3, 5
        return torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(size)) for size in sizes])

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("nothing is trained")

    def users(self) -> Users:
        raise NotImplementedError("there are no users")

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        return {self.score_name: 0.0}


PARAMETERS = "parameters_"


def __getattr__(name: str) -> Callable[[], Parameters]:
    """Make `parameters_N` for every N: plans name their task by module and attribute. Raises AttributeError."""
    size = name.removeprefix(PARAMETERS)
    if size == name or not size.isdecimal():
        raise AttributeError(name)
    return functools.partial(Parameters, int(size))
