"""What a refusal names can be taken literally: budgets, windows, charges, and users who have little left."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, Rectangle, Terms, default_leak, reserve
from fieldfare.accounting.gaussian import gaussian_mu
from fieldfare.accounting.individual import UNIT
from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.errors import BudgetRefused
from fieldfare.plan import Plan
from fieldfare_server.ledger.rules.charges import require_room
from fieldfare_server.ledger.state.admission import Position, admit
from fieldfare_server.ledger.state.windows import Window
from fieldfare_server.run.pricing import demand_of

NUMBER = r"([\d.]+(?:e-\d+)?)"
NAMED = re.compile(
    rf"(now |^)(?:a run of|this run with noise for) epsilon {NUMBER} at delta {NUMBER}(?: \(mu {NUMBER}\))?"
)


def plan(delta: float, epsilon: float, scheme: str, mechanism: str) -> Plan:
    poisson = scheme == "poisson"
    part = {"scheme": scheme} | ({"rate": 0.05} if poisson else {"separation": 2, "max_participations": 2})
    hides = {"adjacency": "add_remove" if poisson else "zero_out"}
    return Plan.parse(
        {
            "privacy": {"population": "p", "epsilon": epsilon, "delta": delta, **hides},
            "run": {"rounds": 4, "cohort": 6},
            "participation": part,
            "mechanism": {"kind": mechanism},
        }
    )


terms = st.builds(
    lambda epsilon, delta, adjacency: Terms(epsilon, delta, default_leak(adjacency, delta)),
    st.floats(0.05, 12.0) | st.sampled_from([0.5, 1.0, 2.0, 8.0]),
    st.floats(1e-9, 1e-4),
    st.sampled_from(["zero_out", "add_remove"]),
)
shares = st.sampled_from([0.0, 0.5]) | st.floats(0.0, 0.999999)


@settings(deadline=None)
@given(terms=terms, begun=shares, asked=st.floats(0.001, 10.0))
def test_a_window_and_a_budget_hold_what_they_name(terms: Terms, begun: float, asked: float) -> None:
    """A window named 2.092 where 2.0918 was left, and a charge half of the time a mu that was refused again."""
    whole = Rectangle.of(terms.epsilon, terms.delta, terms.leak).mu_squared
    held, price = Price(begun * whole), Price(asked * whole)
    assume(not terms.hold(held + price))
    window = Window(terms, "week", held, 0.0)
    with pytest.raises(BudgetRefused) as refused:
        window.require("a run", PrivacyLoss(price.mu_squared), price)
    later, _, now = refused.value.nearest.partition(" or now ")
    if "the same" in later:
        assert terms.hold(price)
    else:
        assert terms.hold(Price(_mu_squared(later, terms.delta)))
    assert bool(now) == (window.left > 0)
    if now:
        assert terms.hold(held + Price(_mu_squared(now, terms.delta)))
    with pytest.raises(BudgetRefused) as refused:
        require_room("p", price, held, terms, None)
    named = NAMED.search(refused.value.nearest)
    if named is not None:
        mu = float(named[4])
        assert terms.hold(held + Price(_mu_squared(named[0], terms.delta)))
        assert not terms.hold(held + Price((mu * (1 + 2e-5)) ** 2))


def _mu_squared(named: str, delta: float) -> float:
    """The larger mu^2 of what is named by its epsilon and by its mu."""
    found = NAMED.search(named)
    assert found is not None, named
    assert float(found[3]) == pytest.approx(delta, rel=1e-5)
    return max(gaussian_mu(float(found[2]), delta), float(found[4])) ** 2


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_plan_for_the_epsilon_that_is_named_is_admitted(data: st.DataObject) -> None:
    """Named as a plan takes it, and priced as a plan is: with odometers and a window, and sampled without."""
    scheme, mechanism = data.draw(
        st.sampled_from([("min-separation", "independent"), ("min-separation", "tree"), ("poisson", "independent")])
    )
    delta = data.draw(st.sampled_from([1e-5, 1.2367e-6]))
    limits = Terms(data.draw(st.sampled_from([0.7, 2.0, 5.0])), delta, default_leak("add_remove", delta))
    if scheme != "poisson":
        limits = Terms(limits.epsilon, delta, default_leak("zero_out", delta))
    whole = Rectangle.of(limits.epsilon, delta, limits.leak).mu_squared
    begun = Price(data.draw(shares) * whole)
    window = Window(limits, "week", begun, 0.0) if data.draw(st.booleans()) else None
    room = None
    if scheme != "poisson":
        left = data.draw(st.lists(st.floats(0.0, 1.0), min_size=12, max_size=16))
        room = np.array([int(share * whole / UNIT) for share in left], dtype=np.int64)
    alike = Price() if window or room is not None else begun
    at = Position("p", limits, alike, alike, room, int(whole / UNIT) if room is not None else 0, window)

    def asked(epsilon: float) -> Cost:
        cost = cost_of(plan(delta, epsilon, scheme, mechanism))
        leak = 0.25 * limits.leak if scheme == "poisson" else None
        admit(at, cost.loss, reserve(cost.loss, leak), demand_of(cost.plan, cost) if room is not None else None)
        return cost

    epsilon, codes = data.draw(st.floats(0.3, 9.0)), []
    while True:
        try:
            asked(epsilon)
            return
        except BudgetRefused as refused:
            codes.append(refused.code)
            found = NAMED.search(refused.nearest)
        # Each rule names what it would let pass itself: what the budget names may be too much for a window, or for
        # users who have less left than a new one, once.
        assert len(set(codes)) == len(codes), codes
        if found is None or float(found[2]) < 1e-3:
            return
        epsilon = float(found[2])
        assert float(found[3]) == pytest.approx(delta, rel=1e-5)
