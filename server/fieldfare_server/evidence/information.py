"""Bounds that are shown next to a charge and never charged: what papers would print for the same run."""

from __future__ import annotations

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.informational import Informational, last_iterate, simple_zcdp_epsilon
from fieldfare.errors import BadInput, Unsupported
from fieldfare.names import QUESTION
from fieldfare.plan import Plan
from fieldfare.text import up
from fieldfare_server.optimizers.sgd import SGD

TITLE = "Information, not charged"


def information(plan: Plan, noise_multiplier: float, most: int, loss: PrivacyLoss) -> list[tuple[str, str]]:
    """Return rows (name, value) of bounds that hold for less than is released, or are looser than its charge.

    Args:
        plan: the run's plan.
        noise_multiplier: sigma, in clip norms.
        most: the most rounds in which one user may take part.
        loss: the charge of the whole run.
    """
    delta, rows = plan.privacy.delta, []
    rho = loss.zcdp
    if rho is not None:
        looser = f"{up(simple_zcdp_epsilon(rho, delta), 6):g} (looser; papers)"
        rows.append(("epsilon as rho + 2 sqrt(rho log 1/delta)", looser))
    if plan.run.task == QUESTION:
        return rows  # it releases no model
    try:
        bound = last_iterate_of(plan, noise_multiplier, most)
    except BadInput as refusal:
        rows.append(("epsilon of the last model alone", f"no bound: {refusal.why}"))
    else:
        rows.append(
            (
                "epsilon of the last model alone",
                f"{up(bound.epsilon(delta), 6):g}, replace_one, by {bound.source}; if {'; '.join(bound.assumptions)}. "
                "Not so here: every round's model is released",
            )
        )
    return rows


def last_iterate_of(plan: Plan, noise_multiplier: float, most: int) -> Informational:
    """Return what releasing the last model alone would cost, under assumptions that a plan cannot show:
    convex, smooth losses.

    Round k moves the model by eta_k times a noised mean: its noise has std eta_k sigma C / cohort, which the
    theorem writes 2 C sigma_k / cohort, so that sigma_k = eta_k sigma / 2. Raises `BadInput` where the plan
    does not fit.
    """
    optimizer = plan.server_optimizer
    reasons = (
        (plan.samples, "users are sampled"),
        (plan.mechanism.kind != "independent", "the noise of rounds is correlated"),
        (most != 1, f"a user takes part {most} times"),
        (
            not isinstance(optimizer, SGD) or optimizer.momentum > 0 or optimizer.weight_decay > 0,
            "the server's optimizer is not plain SGD",
        ),
        (plan.clipping.kind not in ("flat", "per-layer"), "the clipping scales short updates"),
    )
    for fails, why in reasons:
        if fails:
            raise Unsupported("the last-iterate bound", f"{why}.")
    assert isinstance(optimizer, SGD)
    rounds = plan.run.rounds
    steps = [optimizer.learning_rate * optimizer.schedule.factor(round, rounds) for round in range(rounds)]
    noise = [step * noise_multiplier / 2 for step in steps]
    return last_iterate(steps, noise, only_last_released=True, convex=True, smoothness=0.0, participations=1)
