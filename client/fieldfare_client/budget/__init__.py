"""A budget that belongs to a node's users: what the node refuses, whatever the coordinator says.

FIELDFARE_BUDGET names a TOML file of the node's own (`settings`). It lists the populations that the node's
users agreed to, each with its ledger, epsilon and delta. Before users train they are charged in a file of the
node's own (`charges`), durably, by the arithmetic of the ledger; what would exceed the budget is refused.
Without the variable nothing is charged here; what masks hide must be the plan's there too.

What it rests on: the noise that the signed terms name is added by who sums. A node cannot see that. What it
stops is a budget that begins anew: another ledger, population, name or plan, an older log, or messages that
carry no charge.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Message, RecordDict
from numpy.typing import NDArray

from fieldfare.errors import BadInput
from fieldfare.head_keys import successor
from fieldfare.names import LONGEST_NAME
from fieldfare.signed_head import SignedHead
from fieldfare.signed_terms import NodeBudgetRefused
from fieldfare_client.settings import TrainingSettings
from fieldfare_flower.masked import Masking
from fieldfare_flower.messages import MASKING, Occasion, asked_users, only, read_question, read_settings, read_terms

if TYPE_CHECKING:  # with the accountant, which only a node that keeps a budget has
    from fieldfare.cost import Cost
    from fieldfare.plan import Plan
    from fieldfare_client.budget.charges import Charges

VARIABLE = "FIELDFARE_BUDGET"


def is_kept() -> bool:
    """Return whether this node keeps a budget of its own."""
    return bool(os.environ.get(VARIABLE))


def list_payable(message: Message, answer: RecordDict) -> RecordDict:
    """Reply to the query for users with those alone whose own budget has enough left for the run.

    Where all users of a run are charged alike, they are charged now: whom secret draws leave out pays too.
    Raises `NodeBudgetRefused`.
    """
    return only(_open(message.content).admit(asked_users(answer)), answer) if is_kept() else answer


def charge(message: Message, names: NDArray[np.uint64] | None = None) -> Cost | None:
    """Charge the users whom an instruction asks for, durably, before any of them trains.

    names: those whom the node itself knows it is asked for, where the server names none.
    Returns the run's cost; None where no budget is kept and nothing is masked. Raises `NodeBudgetRefused`: nobody is
    charged, nor may train.
    """
    content = message.content
    kept = _open(content) if is_kept() else None
    if kept is None and MASKING not in content:
        return None
    # Where nobody is charged the blinder's noise hides what its plan asks, and no more.
    terms = read_terms(content).open() if kept is None else kept.terms
    occasion, cost = Occasion.read(content), terms.cost()
    if occasion.run != terms.run:
        raise NodeBudgetRefused("an instruction", reason="another-plan")
    require_planned(content, cost.plan)
    if kept is not None:
        kept.charge(occasion.round, occasion.attempt, asked_users(content) if names is None else names)
    elif not cost.participation.allows([occasion.round], cost.mechanism.rounds):
        raise NodeBudgetRefused(f"round {occasion.round + 1} of run {terms.run}", reason="out-of-turn")
    return cost


def require_planned(content: RecordDict, plan: Plan) -> None:
    """Raise `NodeBudgetRefused` where an instruction asks of users what `plan`, which is charged, does not say.

    What multiplies models and changes before they are clipped is free. A norm moves where the clipping is in its units.
    """
    settings, asked = read_settings(content), read_question(content)
    try:
        clipping = plan.clipping.at(TrainingSettings.parse(settings).clipping.norm)
        told = settings == plan.told(clipping) and clipping.bound == plan.clipping.bound
    except (ValueError, TypeError, KeyError, OverflowError):
        told = False
    if not told or asked not in (None, plan.task) or (MASKING in content) != bool(plan.aggregation.rings):
        raise NodeBudgetRefused("an instruction", reason="not-planned")


def require_ring(masking: Masking, cost: Cost | None, numel: int, users: int) -> None:
    """Raise `NodeBudgetRefused` where a sum of `numel` numbers would be of nobody, or in another ring than the plan's.

    cost: what `charge` returned. Cells that are finer than those of the blinder's noise would outweigh it. A node that
    sums nobody would count as one of those among whom another's update hides.
    """
    from fieldfare.costing import privatiser_of  # with the accountant

    if cost is not None and users:
        plan, ring = cost.plan, privatiser_of(cost.plan, cost, numel)
        said = masking.plan, masking.weights, masking.bits, masking.spacing_log2
        if ring.bits and said == (plan.digest(), plan.riders.weights, ring.bits, ring.spacing_log2):
            return
    raise NodeBudgetRefused("an instruction's masks", reason="not-planned")


def refuse_plain() -> None:
    """Raise `NodeBudgetRefused` for an instruction of Flower's own, which carries no charge, where a budget is kept."""
    if is_kept():
        _open(RecordDict())


def _open(content: RecordDict) -> Charges:
    """Return the file of charges, for the run of the terms in `content`, whose population users agreed to."""
    try:
        from fieldfare_client.budget.charges import Charges
        from fieldfare_client.budget.settings import NodeBudget

        settings = NodeBudget.read(Path(os.environ[VARIABLE]))
    except ModuleNotFoundError as error:
        why, near = f"charges need {error.name!r}, which is not installed.", "pip install 'fieldfare[node,accounting]'"
        raise NodeBudgetRefused(VARIABLE, why, near, reason="no-memory") from None
    except BadInput as error:
        raise NodeBudgetRefused(error.what, error.why, error.nearest, reason="no-memory") from None
    signed = read_terms(content)
    terms = signed.open()
    agreed, what = settings.populations.get(terms.population), f"population {terms.population[:LONGEST_NAME]!r}"
    if agreed is None:
        raise NodeBudgetRefused(what, "", ", ".join(settings.populations), reason="not-agreed")
    head = SignedHead.parse(agreed.head)
    if terms.ledger != head.ledger or signed.key not in (head.key, successor(head.ledger, head.key, signed.keys)[0]):
        why = f"its ledger is {terms.ledger[:40]}, signed with key {signed.key[:16]}..., and not the one agreed to."
        near = f"ledger {head.ledger} with key {head.key[:16]}... or one that it names"
        raise NodeBudgetRefused(what, why, near, reason="another-ledger")
    if terms.row < head.count:
        why = f"it ends in row {terms.row}, before row {head.count}."
        raise NodeBudgetRefused(f"ledger {terms.ledger}", why, reason=f"older-log {head}")
    cost = terms.cost()
    if cost.plan.run.noise_seed is not None:
        raise NodeBudgetRefused(f"run {terms.run[:40]!r}", reason="not-private")
    return Charges(settings, agreed, terms, cost)
