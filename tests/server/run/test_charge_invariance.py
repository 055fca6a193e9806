"""No optimizer and no clipping rule moves the charge by one byte: what the ledger holds, after real rounds.

Everything behind the privatised sum is post-processing, and every clipping rule bounds the same contribution that the
noise is scaled to. The reference is plain SGD behind flat clipping; each case runs the whole stack.
"""

from __future__ import annotations

from typing import Any

import pytest

from fieldfare.accounting import PrivacyLoss
from fieldfare.clipping import clippings
from fieldfare.names import RESOLUTION
from fieldfare.plan import Plan
from fieldfare_server import optimizers
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan

SGD = {"kind": "sgd", "learning_rate": 0.3}

OPTIMIZERS: list[dict[str, Any]] = [
    {"kind": "sgd", "learning_rate": 0.3, "momentum": 0.9, "nesterov": True},
    {"kind": "fedadam", "learning_rate": 0.01},
    {"kind": "fedadagrad", "learning_rate": 0.1},
    {"kind": "fedyogi", "learning_rate": 0.01},
    {"kind": "adamw", "learning_rate": 0.01, "weight_decay": 0.01},
    {"kind": "ftrl", "learning_rate": 0.3},
    {"kind": "ftrl", "p": 1.3, "radius": 2.0, "steps": "anytime"},
    {"kind": "normalised-momentum", "learning_rate": 0.1},
    *({"kind": "disk", "mode": mode} for mode in ("one-point", "two-point", "storm", "doppler")),
    {"kind": "disk", "kappa": "auto", "base": {"kind": "fedadam", "learning_rate": 0.01}},
    {"kind": "disk", "mode": "two-point", "gamma": 0.1, "kappa": 0.3},
    {"kind": "disk", "kappa": "adaptive", "start": "zero"},
]

QUERIES: list[dict[str, Any]] = [
    {"kind": "three-query", "period": 3},
    {"kind": "three-query", "period": 3, "mixing": 1.0, "change": 5.0, "drift": 1e-3, "base": SGD},
]
IN_ORDER: dict[str, Any] = {"participation": {"scheme": "fixed-order", "period": 3}}
FOR_DIFFERENCES = [{"kind": "flat", "linf_filter": 1.0}, {"kind": "normalised", "norm": 0.1}, {"kind": "per-layer"}]
"""What three queries ask for, and how they may be clipped."""

CLIPPINGS: list[dict[str, Any]] = [
    {"kind": "flat", "norm": 0.05},
    {"kind": "flat", "norm": 1.0, "linf_filter": 0.5},
    {"kind": "automatic"},
    {"kind": "normalised", "norm": 0.1},
    {"kind": "per-layer", "weighting": "equal"},
    {"kind": "per-layer", "weighting": "size"},
    {"kind": "adaptive-quantile", "norm": 0.3},
    {"kind": "adaptive-quantile", "norm": 0.3, "count_weight": 1.0, "rescale": True, "rate": 1.0},
]

MECHANISMS: list[dict[str, Any]] = [{"kind": "nu", "nu": 0.1}, {"kind": "momentum-tree", "momentum": 0.9}]


def name(case: dict[str, Any]) -> str:
    return "-".join(str(v["kind"] if isinstance(v, dict) else v) for v in case.values())


def charges(state_dir: StateDirectory, a_plan: Plan) -> tuple[str, ...]:
    """The loss after every round and of the whole run, as the ledger keeps them, without the charge for the model's
    size: a sum of more numbers resolves its noise less finely.
    """
    after_each: list[PrivacyLoss] = []
    session = Session.begin(state_dir, a_plan, identity_is_stable=True)
    with session:
        FieldfareStrategy(session, lambda report: after_each.append(session.released.spent)).start(LyingGrid(2))
    with Ledger.open(state_dir.ledger) as ledger:
        row = ledger.run(session.account.id)
    assert (row.state, row.next_round) == ("done", a_plan.run.rounds)
    resolution = float(row.plan.get(RESOLUTION, 0.0))
    losses = (*after_each, row.spent, row.planned)
    return tuple(f"{loss.mu_squared - resolution:.12g} {loss.sampled} {loss.concentrated}" for loss in losses)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> StateDirectory:
    return home(tmp_path_factory.mktemp("charges"), epsilon=500.0)


@pytest.fixture(scope="module", params=MECHANISMS, ids=lambda spec: spec["kind"])
def mechanism(request: pytest.FixtureRequest) -> dict[str, Any]:
    spec: dict[str, Any] = request.param
    return spec


@pytest.fixture(scope="module")
def reference(state_dir: StateDirectory, mechanism: dict[str, Any]) -> tuple[str, ...]:
    found = charges(state_dir, plan(mechanism=mechanism, server_optimizer=SGD))
    assert len(set(found)) > 1  # it grows, and what was planned is more than the first round's
    return found


def test_no_kind_is_left_out() -> None:
    assert {case["kind"] for case in [*OPTIMIZERS, *QUERIES]} == set(optimizers.kinds())
    assert {case["kind"] for case in CLIPPINGS} == set(clippings.kinds())


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=name)
def test_the_charge_with_every_optimizer(
    optimizer: dict[str, Any], mechanism: dict[str, Any], reference: tuple[str, ...], state_dir: StateDirectory
) -> None:
    assert charges(state_dir, plan(mechanism=mechanism, server_optimizer=optimizer)) == reference


@pytest.mark.parametrize("clipping", FOR_DIFFERENCES, ids=name)
def test_the_charge_of_three_queries_is_that_of_one(
    clipping: dict[str, Any], mechanism: dict[str, Any], state_dir: StateDirectory
) -> None:
    """Three clipped vectors a user and round, in the place of one: neither their clipping nor their shares matter."""
    one = charges(state_dir, plan(mechanism=mechanism, server_optimizer=SGD, **IN_ORDER))
    for optimizer in QUERIES:
        three = plan(mechanism=mechanism, server_optimizer=optimizer, clipping=clipping, **IN_ORDER)
        assert charges(state_dir, three) == one


@pytest.mark.parametrize("clipping", CLIPPINGS, ids=name)
def test_the_charge_with_every_clipping(
    clipping: dict[str, Any], mechanism: dict[str, Any], reference: tuple[str, ...], state_dir: StateDirectory
) -> None:
    assert charges(state_dir, plan(mechanism=mechanism, server_optimizer=SGD, clipping=clipping)) == reference


@pytest.mark.parametrize("clipping", CLIPPINGS, ids=name)
def test_two_points_are_clipped_as_one(
    clipping: dict[str, Any], mechanism: dict[str, Any], reference: tuple[str, ...], state_dir: StateDirectory
) -> None:
    """The mode that asks most of clipping: weights far outside of [0, 1], by every rule."""
    storm = {"kind": "disk", "mode": "storm", "kappa": 0.3}
    assert charges(state_dir, plan(mechanism=mechanism, server_optimizer=storm, clipping=clipping)) == reference
