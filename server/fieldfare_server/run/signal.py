"""How much a plan's noise weighs against what its users' updates can add up to: the one measure that compares plans."""

from __future__ import annotations

import logging
import math

import numpy as np

from fieldfare.cost import Cost
from fieldfare.errors import BadInput
from fieldfare.lazily import torch
from fieldfare.plan import Plan
from fieldfare_server import optimizers
from fieldfare_server.optimizers.base import StepInfo
from fieldfare_server.run.pricing import size_of_model

FOLLOWED = 2048  # most rounds whose steps are followed one by one
LEAST_REACH = 0.1  # of one user's update: a run that cannot move the model farther shows the initial one
DROWNED, FAINT = 1.0, 0.3
"""Length of the noise, in that of all updates together, above which a plan is refused, and warned of: above 1
measured plans keep a tenth to two fifths of what they can learn (docs/evidence/defaults.md)."""
WIDE = 2.0  # a clip norm of more than so many typical updates is pointed out


def clipped_length(plan: Plan, update_norm: float | None = None) -> float:
    """Return the length that an update of norm `update_norm` has in the sum, in the units of the noise.

    Args:
        update_norm: None, or under a norm that follows the updates: as long as clipping lets it be.
    """
    clipping = plan.clipping
    if update_norm is None or clipping.counts:
        return clipping.bound
    return update_norm * float(clipping.factors(np.array([update_norm]))[0])


def noise_share(cost: Cost, update_norm: float | None = None) -> float:
    """Return noise in a coordinate of the sum of all mean updates, over its length if all users agreed.

    Root mean square over the run's prefixes, which is what `fieldfare plan` shows, after rounds x cohort
    visits. It does not change with the unit of the updates, and a clip norm above them only adds noise. Times
    the root of the model's size it compares whole vectors: above 1, noise is longer than what users who agree
    add up to.
    """
    run = cost.plan.run
    sum_of_updates = run.rounds * run.cohort * clipped_length(cost.plan, update_norm)
    return cost.prefix_noise_rms * cost.plan.riders.joint_bound / sum_of_updates


def noise_in_model(cost: Cost, numel: int) -> float | None:
    """Return the norm that noise alone has in a run's last model: the root of its mean square.

    It follows from the plan: the server's steps are linear in the noised sums, so the model is a weighted sum
    of them. How noise comes back in what later users train from is no part of it.

    Args:
        numel: trained parameters.

    Returns:
        None where the steps are not linear, rescale by a norm that moves, or are more than `FOLLOWED`.
    """
    plan = cost.plan
    rounds, clipping = plan.run.rounds, plan.clipping
    # A norm that follows the updates changes the scale from round to round: no weights stand for that.
    if rounds > FOLLOWED or clipping.mean_scale(2.0) != clipping.mean_scale(1.0):
        return None
    optimizer = optimizers.build(plan.server_optimizer)
    if optimizer.queries != 1:
        return None
    # One coordinate a round, moved by that round's update alone: the last model is the weights.
    pulses = torch.eye(rounds)
    weights, twice = (_last_model(plan, factor * pulses).double().numpy() for factor in (1.0, 2.0))
    if not np.allclose(twice, 2.0 * weights, rtol=1e-4, atol=1e-6 * float(np.abs(weights).max())):
        return None
    multiplier = cost.noise_multiplier * plan.aggregation.widening
    std = multiplier * plan.riders.joint_bound * clipping.mean_scale(1.0) / plan.run.cohort
    # The model is w^T B z: each coordinate of z counts with its own entry of B^T w.
    per_coordinate = std * np.linalg.norm(cost.mechanism.noising_matrix(rounds).T @ weights)
    return float(per_coordinate * math.sqrt(numel))


def reach(plan: Plan, numel: int) -> float:
    """Return the farthest that the whole run moves the model: all updates agree, and are as long as they may.

    Of longer runs `FOLLOWED` rounds stand for all.
    """
    clipping, rounds = plan.clipping, min(plan.run.rounds, FOLLOWED)
    length = clipped_length(plan) * clipping.mean_scale(clipping.norm)
    queries = optimizers.build(plan.server_optimizer).queries
    steady = torch.full((rounds, queries), length / math.sqrt(numel))
    return abs(float(_last_model(plan, steady))) * math.sqrt(numel) * plan.run.rounds / rounds


def _last_model(plan: Plan, updates: torch.Tensor) -> torch.Tensor:
    """Return the model after one step for each row of `updates`, from zero and without noise."""
    optimizer = optimizers.build(plan.server_optimizer)
    params = torch.zeros(updates.shape[1] // optimizer.queries)
    state = optimizer.init(params)
    for round, update in enumerate(updates):
        params, state = optimizer.step(state, params, update, StepInfo(round, len(updates), 0.0))
    return params


def log_signal(cost: Cost | None, numel: int, log: logging.Logger) -> None:
    """Log what `require_signal` says of a run that begins. Refuses nothing: apps that run must go on running."""
    for warning in require_signal(cost, numel, accepted=True) if cost else ():
        log.warning("%s", warning)


def require_signal(
    cost: Cost, numel: int | None = None, update_norm: float | None = None, *, accepted: bool = False
) -> list[str]:
    """Return warnings about a plan that may not learn. If that is accepted, or `run.accept_noise`, it is never refused.

    Args:
        numel: trained parameters; None: of the model of the plan's task; where that is not here, nothing is judged.
        update_norm: of a typical update. Only of public or made-up data: a look at people's updates that
            nothing charges must decide nothing. None: the plan is judged by its own numbers, whatever the
            data.

    Raises:
        BadInput: noise is expected to be `DROWNED` times as long as what all updates add up to, or the whole
            run cannot move the model by `LEAST_REACH` of one user's update.
    """
    if (numel := numel or size_of_model(cost.plan)) is None:
        return []
    drowned = noise_share(cost, update_norm) * math.sqrt(numel)
    norm, found, anyway = cost.plan.clipping.norm, list[BadInput](), "or run.accept_noise = true"
    moves, faster = not cost.plan.clipping.counts, "a larger server_optimizer.learning_rate"
    lower = moves and update_norm is not None and norm > WIDE * update_norm
    farthest = reach(cost.plan, numel) if update_norm is not None and moves else math.inf
    slow = farthest < LEAST_REACH * norm  # whatever the norm, for steps are scaled by it
    if drowned > DROWNED:
        near = [f"clipping.norm = {update_norm:.3g}"] if lower else []
        if not lower or drowned * (update_norm or norm) > DROWNED * norm:
            near.append("more users a round, more rounds, a larger epsilon")
        near += [faster] if lower and slow else []
        why = f"noise is {drowned:.3g} times as long as all updates together if users agree: little would be learned."
        told = f"{' and '.join(near)}, {anyway}"
        found.append(BadInput("signal below noise", why, told, code="signal-below-noise"))
    if farthest < LEAST_REACH * (update_norm or 0.0):
        why = f"the run moves the model by at most {farthest:.3g}, and one user's update is {update_norm:.3g} long."
        told = f"{faster}, {anyway}" if slow else f"clipping.norm = {update_norm:.3g}, or {faster}, {anyway}"
        found.append(BadInput(f"clipping.norm = {norm:g}", why, told, code="model-cannot-move"))
    for each in found:
        if not (accepted or cost.plan.run.accept_noise):
            raise each
    warnings = [f"{each.what}: {each.why}" for each in found]
    if FAINT < drowned <= DROWNED:
        warnings.append(f"noise is {drowned:.3g} times as long as all updates together if users agree: expect little")
    if lower and not found:
        wide = f"clipping.norm = {norm:g} is {norm / (update_norm or norm):.3g} times a typical update"
        warnings.append(f"{wide}: noise is scaled by it and nothing is gained. Better: {update_norm:.2g}.")
    return warnings
