"""What a plan costs with the model that its task trains: the size of the model decides the resolution of the noise."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import replace
from typing import overload

import numpy as np

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.individual import UNIT, Demand
from fieldfare.aggregation import NO_MASKS
from fieldfare.blinder_noise import BlinderNoise
from fieldfare.cost import Cost, Ring
from fieldfare.costing import Draw, cost_of, cost_with_resolution, privatiser_of
from fieldfare.errors import BadInput, Unsupported, WrongForm
from fieldfare.names import mechanism_word
from fieldfare.plan import Plan
from fieldfare.schema import Schema
from fieldfare.task import Task, UnknownTask, find_task, load_task, stated_schema
from fieldfare_server import optimizers


def numbers_released(plan: Plan, schema: Schema | None = None) -> int:
    """Return numbers that a round releases: the queries' updates, and what rides beside them. schema: None: that of
    the plan's task, which is asked."""
    schema = schema or _schema_of(_task_of(plan))
    return optimizers.build(plan.server_optimizer).queries * schema.numel + len(plan.riders.weights)


def stated_noise(plan: Plan, cost: Cost, schema: Schema) -> dict[str, float]:
    """Return what the log says of a run's noise: `multiplier`, in clip norms; of discrete noise also its
    `scale` in cells of the grid, and how many `values` have it in all rounds."""
    stated: dict[str, float] = {"multiplier": cost.noise_multiplier}
    numel = numbers_released(plan, schema)
    if cells := privatiser_of(plan, cost, numel).cells:
        stated |= {"scale": cells, "values": numel * plan.run.rounds}
    return stated


def resolution_of(cost: Cost) -> Callable[[int], float]:
    """Return, by numbers of a sum, what a run at `cost` is charged for the resolution of floats, as in `costing`."""
    norms, sampled = cost.mechanism.row_norms(), cost.sampling
    span = np.full(sampled.groups, norms.max()) if sampled.holds else norms
    mu = math.sqrt(max(0.0, cost.loss.mu_squared - cost.resolution))  # of the noise; 0 of sampled and certified rounds

    def taken(numel: int) -> float:
        r = privatiser_of(cost.plan, cost, numel).resolution(numel, span)
        return (2 * mu + r) * r

    return taken


def demand_of(plan: Plan, cost: Cost) -> Demand | None:
    """Return what a run of `plan` asks of single users' odometers; None under worst-case accounting."""
    if plan.privacy.accounting == "worst-case":
        return None
    separation, _ = cost.participation.separation_and_count(plan.run.rounds)
    some = plan.tuning is not None
    return Demand(cost.most_units(), cost.tight_units(), plan.run.rounds, plan.report_goal, separation, some=some)


def roughly_asked(plan: Plan, planned: PrivacyLoss) -> Demand:
    """Return `demand_of` from what the ledger keeps of a run: each round at its share of the most.

    A round costs more with every round before it, so that is never less than what the rounds so far cost.
    """
    separation, count = plan.participation.build().separation_and_count(plan.run.rounds)
    most = math.ceil(planned.mu_squared / UNIT)
    costs = tuple(-(-most * j // count) for j in range(1, count + 1))
    return Demand(most, costs, plan.run.rounds, plan.report_goal, separation)


def price_with_model(
    plan: Plan,
    cache: MutableMapping[str, bytes] | None = None,
    *,
    schema: Schema | None = None,
    draw: Draw | None = None,
) -> Cost:
    """Return the cost of a new run of `plan`. Builds the task's model, reads no data.

    Args:
        schema: of the model that is trained; None: that of the plan's task.
        draw: of a certificate's seed, where the charge rests on one; None: a preview.

    Raises `BadInput` as `cost_of` and `with_resolution`, and where there is no such task.
    """
    try:
        schema = schema or _schema_of(_task_of(plan))
    except BadInput:
        raise  # it names what is wrong, and has a code
    except ValueError as error:
        raise BadInput(f"run.task = {plan.run.task!r}", str(error), code="task-raises") from None
    bound, numel, users = plan.riders.joint_bound, numbers_released(plan, schema), plan.most_users
    cost = cost_with_resolution(plan, cache, bound, numel, users, draw)
    privatiser = privatiser_of(plan, cost, numel)
    if not privatiser.bits or privatiser.grid is None:
        return cost
    if (word := mechanism_word(plan.model_dump(mode="json"))) in ("exponential", "threshold"):
        why = "masks make a noised sum, and this question's answer is none: a sum would tell more than is said."
        raise Unsupported(f"aggregation.kind = {plan.aggregation.kind!r} of mechanism {word!r}", why, NO_MASKS)
    wider = privatiser.grid.charged_clip(bound, numel, users) / bound - 1
    return replace(cost, ring=Ring(privatiser.bits, privatiser.grid.spacing, wider))


def blinder_noise_of(plan: Plan, numel: int) -> BlinderNoise | None:
    """Return what a blinder adds to sums of `numel` numbers; None where the plan says none. Searches as `price` does.

    Raises `BadInput` as `price_with_model`.
    """
    if not plan.aggregation.noise_ratio:
        return None
    decided: dict[str, bytes] = {}
    cost = cost_with_resolution(plan, decided, plan.riders.joint_bound, numel, plan.most_users)
    return BlinderNoise.of(cost, privatiser_of(plan, cost, numel), decided)


def _schema_of(task: Task) -> Schema:
    """Return the schema of the task's model; built with PyTorch unless the task's own class states it."""
    return stated_schema(task) or Schema.of(task.build_model())


def _task_of(plan: Plan) -> Task:
    """Return the plan's task. Raises `BadInput` where there is none, or none that measures what the plan shows."""
    task = load_task(plan.task_reference)
    if plan.metrics is not None:
        plan.metrics.require(task.name, task.measures)
    return task


@overload
def price(plan: Plan, /) -> Cost: ...


@overload
def price(plan: Plan, /, *more: Plan) -> list[Cost]: ...


def price(plan: Plan, /, *more: Plan) -> Cost | list[Cost]:
    """Return what a run of `plan` will cost and how much noise it adds. Runs, reads and charges nothing.

    Of several plans, a list of their costs, each by itself.

    With the resolution of the noise for the task's model, where PyTorch and the task are installed here, else
    without.

    Example:
        >>> import fieldfare as ff
        >>> plan = ff.Plan(task="digits", epsilon=8, delta=1e-5, rounds=4, cohort=20, mechanism="nu", population="demo")
        >>> cost = ff.price(plan)
        >>> print(f"{cost.noise_multiplier:.3f} clip norms of noise, epsilon {cost.epsilon:.3f}")
        0.667 clip norms of noise, epsilon 8.000

    Raises:
        BadInput: the plan cannot be met; names the nearest that can.
    """
    require_plans("ff.price", (plan, *more))
    return [_price(each) for each in (plan, *more)] if more else _price(plan)


def require_plans(what: str, plans: Iterable[object]) -> None:
    """Raise `BadInput` for what is no `Plan`; `what` was asked of it."""
    for plan in plans:
        if not isinstance(plan, Plan):
            of_text = "ff.Plan.from_toml(text), or ff.Plan(epsilon=..., ...)"
            near = of_text if isinstance(plan, str | dict) else "ff.Plan(...)"
            raise WrongForm(f"{what}({plan!r})"[:200], f"takes plans, not a {type(plan).__name__}.", near)


def _price(plan: Plan) -> Cost:
    return price_with_model(plan) if _is_here(plan) else cost_of(plan)


def size_of_model(plan: Plan) -> int | None:
    """Count the trained parameters of the plan's model; None where PyTorch or the task are not here."""
    return _schema_of(_task_of(plan)).numel if _is_here(plan) else None


def _is_here(plan: Plan) -> bool:
    if not plan.run.task or importlib.util.find_spec("torch") is None:
        return False
    try:
        find_task(plan.run.task)
    except UnknownTask:
        return False
    return True
