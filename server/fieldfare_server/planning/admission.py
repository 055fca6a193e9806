"""May this run start, can it reach its end, and for how many users: the one question of every asker.

The page's what-if, `plan --users`, `simulate`, `run` and `ff.simulate` ask here, with a plan and what they
know of its users. The budget is judged by `ledger.state.admission`, which the transaction that starts a run
asks as well; whether so many users can fill the rounds at all, by `feasibility`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fieldfare.accounting.filter import Price
from fieldfare.accounting.foreign import Foreign
from fieldfare.cost import Cost
from fieldfare.errors import NotNow
from fieldfare.plan import Plan
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.rules.charges import require_room
from fieldfare_server.ledger.rules.runs import require_adjacency
from fieldfare_server.ledger.state import admission, budget
from fieldfare_server.ledger.state.admission import Admission, Position
from fieldfare_server.planning.feasibility import check_feasible, require_feasible
from fieldfare_server.run.pricing import demand_of

__all__ = ["Admission", "admit", "admit_charge"]

Users = NDArray[np.uint64] | int


def admit(
    plan: Plan,
    cost: Cost | None,
    ledger: Reader | None,
    users: Users | None = None,
    *,
    first: Iterable[tuple[Plan, Cost]] = (),
) -> Admission:
    """Return whether a run of `plan` may start now on its population, and can reach its end.

    Args:
        plan: what would run.
        cost: its price; None, together with no ledger: its budget is not judged.
        ledger: where its population is; None: only the users are judged.
        users: pseudonyms of all users whom the run will ever have, shape (n,), or how many there are; of a
            plan with a tuning share those whom it may ask are taken from them. None: those whom the
            population knows, and whoever may come.
        first: runs of the same population that would be started before, each of which takes all that it may.

    Returns:
        For how many users it may, with what margin, and warnings.

    Raises:
        BadInput: these users cannot fill the rounds, or the population is closed, not there or of
            another adjacency; names what would do.
        BudgetRefused: what is left, or the calendar window, does not hold the run; names the nearest that it
            holds.
    """
    known = ledger.population(plan.privacy.population) if ledger is not None else None
    if known is not None and known.state != "open":
        raise NotNow(f"a run on population {known.name!r}", f"the population is {known.state}.", "another population")
    if known is not None:
        require_adjacency(known, plan.privacy.adjacency)
    warnings: list[str] = []
    if users is not None:
        users = plan.asks(users)
        warnings = check_feasible(plan, users)
    # Where presence is secret their number is secret, and any number will do.
    elif known is not None and known.users and plan.tuning is None:
        require_feasible(plan, known.users)
    if ledger is None or cost is None:
        there = users if users is None or isinstance(users, int) else int(users.size)
        return Admission(np.inf, users=there, warnings=tuple(warnings))
    names = users if isinstance(users, np.ndarray) else None
    position, newcomers = ledger.position(plan.privacy.population, names)
    demand = demand_of(plan, cost)
    for other, priced in first:
        position = position.after(_quote(position, priced), demand_of(other, priced))
    if demand is not None and names is not None:
        demand = replace(demand, newcomers=newcomers, closed=True, some=False)
    made = admission.admit(position, cost.loss, _quote(position, cost), demand)
    return replace(made, warnings=tuple(warnings))


def admit_charge(population: str, loss: Foreign, ledger: Reader) -> None:
    """Raise `BadInput` or `BudgetRefused` unless a charge of `loss` beside runs would be reserved now."""
    position, _ = ledger.position(population)
    left = max(0.0, position.terms.leak - position.alike.leak)
    price = loss.price(ledger.population(population).adjacency, left)
    require_room(population, price, position.committed, position.terms, position.window)


def _quote(position: Position, cost: Cost) -> Price:
    return budget.quote(cost.loss, position.alike, position.terms, cost.leak)
