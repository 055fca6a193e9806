"""What the tests of secret samplers share: draws from a known key, and checks that every sampler's run has to pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fieldfare.cost import Cost
from fieldfare.errors import BadInput
from fieldfare.noise import SecureNoise
from fieldfare.participation import Participation
from fieldfare.plan import Plan
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence.selection import Selector
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid
from support.refusals import coded


def words_of(key: int) -> Any:
    """Secret words, as a run with such a key would draw them."""
    return lambda count, attempt, draw: np.frombuffer(
        SecureNoise(bytes([key] * 32)).bytes(8 * count, row=attempt, stream=draw), "<u8"
    )


def never(users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The realised participation of users who have taken part in no round."""
    return np.full(users.shape, -1, np.int32), np.zeros(users.shape, np.int32)


def cohorts_of(participation: Participation, rounds: int, users: np.ndarray, key: int = 1) -> list[np.ndarray]:
    """The cohort of every round."""
    selector = Selector(participation, rounds, 1, words=words_of(key))
    noise, rng = SecureNoise(bytes([2] * 32)), np.random.default_rng(0)
    return [
        selector.select(t, users, never, rng, lambda count, t=t: noise.uniform(count, row=t, stream="select"))
        for t in range(rounds)
    ]


def require_same_draws_after_a_crash(state: StateDirectory, plan: Plan) -> tuple[Cost, Cost]:
    """A run that is resumed after one round draws the cohorts that it would have drawn, ends and is verified; its costs
    before and after."""
    with Session.begin(state, plan, True) as session:
        FieldfareStrategy(session).run_round(LyingGrid(3))
        run_id, before = session.account.id, session.cost
        users = session.cohorts.roster.available()
        chosen = [session.cohorts.select(t, users).tolist() for t in range(1, 6)]
    with Session.resume(state, run_id, True) as session:
        after = session.cost
        strategy, grid = FieldfareStrategy(session), LyingGrid(3)
        strategy.run_round(grid)
        assert [session.cohorts.select(t, users).tolist() for t in range(1, 6)] == chosen
        strategy.take_to_end(grid)
    with Ledger.open(state.ledger) as ledger:
        assert verify(ledger, state.root, recompute=recharge).ok
    assert before is not None
    assert after is not None
    return before, after


def require_callable(state: StateDirectory, participation: dict[str, Any], plan_with: Callable[..., Plan]) -> None:
    """Real people are trained only where the plan states that they can be called. plan_with: (participation, **changes)
    -> plan."""
    timed = {"run__round_seconds": 60.0}
    with pytest.raises(BadInput, check=coded("conflict", "participation.callable", f"'{participation['scheme']}'")):
        Session.begin(state, plan_with(participation, **timed), True)
    with Session.begin(state, plan_with({**participation, "callable": True}, **timed), True) as session:
        session.finish("stopped", "enough")


def require_callable_nodes(state: StateDirectory, plan: Plan) -> None:
    """A run that began as a simulation goes on with no real node."""

    class Real(LyingGrid):
        simulated = False

    with (
        Session.begin(state, plan, True) as session,
        pytest.raises(BadInput, check=coded("conflict", "participation.callable")),
    ):
        FieldfareStrategy(session).take_to_end(Real(3))
