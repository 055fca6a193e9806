"""A budget that belongs to a node's users: what the node refuses, whatever the coordinator says.

FIELDFARE_BUDGET names a TOML file of the node's own (`settings`). It lists the populations that the node's
users agreed to, each with its ledger, epsilon and delta. Before users train they are charged in a file of the
node's own (`charges`), durably, by the arithmetic of the ledger; what would exceed the budget is refused.
Without the variable nothing is charged here.

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
from fieldfare.signed_terms import NodeBudgetRefused, RunTerms, SignedTerms
from fieldfare_flower.messages import Occasion, asked_users, only, read_terms

if TYPE_CHECKING:  # with the accountant, which only a node that keeps a budget has
    from fieldfare_client.budget.charges import Charges
    from fieldfare_client.budget.settings import Agreed, NodeBudget

VARIABLE = "FIELDFARE_BUDGET"


def is_kept() -> bool:
    """Return whether this node keeps a budget of its own."""
    return bool(os.environ.get(VARIABLE))


def list_payable(message: Message, answer: RecordDict) -> RecordDict:
    """Reply to the query for users with those alone whose own budget has enough left for the run.

    Where all users of a run are charged alike, they are charged now: whom secret draws leave out pays too.
    Raises `NodeBudgetRefused`.
    """
    if not is_kept():
        return answer
    kept, agreed, terms = _open(message.content)
    names = asked_users(answer)
    payable = kept.admit(terms, agreed, names)
    return answer if payable.all() else only(names[payable], answer)


def charge(message: Message, names: NDArray[np.uint64] | None = None) -> None:
    """Charge the users whom an instruction asks for, durably, before any of them trains.

    names: those whom the node itself knows it is asked for, where the server names none.
    Raises `NodeBudgetRefused`: nobody is charged then, and nobody may train.
    """
    if not is_kept():
        return
    kept, agreed, terms = _open(message.content)
    occasion = Occasion.read(message.content)
    if occasion.run != terms.run:
        raise NodeBudgetRefused("an instruction", "its terms are another run's.", reason="another-plan")
    names = asked_users(message.content) if names is None else names
    kept.charge(terms, agreed, occasion.round, occasion.attempt, names)


def refuse_plain() -> None:
    """Raise `NodeBudgetRefused` for an instruction of Flower's own, which carries no charge, where a budget is kept."""
    if is_kept():
        raise _no_terms()


def _no_terms() -> NodeBudgetRefused:
    why = "it names no population and no price, and this node keeps a budget."
    near = "dialect = 'cohort', or charge_on_nodes = True, of a run that is charged to a ledger, from a server of today"
    return NodeBudgetRefused("an instruction", why, near, reason="no-terms")


def _open(content: RecordDict) -> tuple[Charges, Agreed, RunTerms]:
    try:
        from fieldfare_client.budget.charges import Charges
        from fieldfare_client.budget.settings import NodeBudget
    except ModuleNotFoundError as error:
        why = f"charges need {error.name!r}, which is not installed."
        nearest = "pip install 'fieldfare[node,accounting]'"
        raise NodeBudgetRefused(VARIABLE, why, nearest, reason="no-memory") from None
    try:
        settings = NodeBudget.read(Path(os.environ[VARIABLE]))
    except BadInput as error:
        raise NodeBudgetRefused(error.what, error.why, error.nearest, reason="no-memory") from None
    signed = read_terms(content)
    if signed is None:
        raise _no_terms()
    terms = signed.open()
    return Charges(settings), require_agreed(settings, signed, terms), terms


def require_agreed(settings: NodeBudget, signed: SignedTerms, terms: RunTerms) -> Agreed:
    """Return what the node's users agreed to for the population of `terms`. Raises `NodeBudgetRefused`."""
    agreed, what = settings.populations.get(terms.population), f"population {terms.population[:40]!r}"
    if agreed is None:
        why, near = "it is not one that the users of this node agreed to.", ", ".join(settings.populations)
        raise NodeBudgetRefused(what, why, near, reason="not-agreed")
    head = agreed.head
    if terms.ledger != head.ledger or not signed.signed_by(head.ledger, head.key):
        why = f"its ledger is {terms.ledger[:40]}, signed with key {signed.key[:16]}..., and not the one agreed to."
        near = f"ledger {head.ledger} with key {head.key[:16]}... or one that it names"
        raise NodeBudgetRefused(what, why, near, reason="another-ledger")
    if terms.row < head.count:
        why = f"it ends in row {terms.row}, before row {head.count}."
        raise NodeBudgetRefused(f"ledger {terms.ledger}", why, reason=f"older-log {head}")
    return agreed
