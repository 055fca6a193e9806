"""What the size of a model adds to the charge, and by which rule a stored run is charged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from fieldfare.accounting import PrivacyLoss
from fieldfare.costing import cost_of, with_resolution
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.privatise import Privatiser
from fieldfare_server.files.strategies import StoredStrategy, settle
from support.refusals import coded

TREE = {
    "privacy": {"population": "p", "noise_multiplier": 7.0, "delta": 1e-10},
    "run": {"task": "digits", "rounds": 2000, "cohort": 10},
    "participation": {"scheme": "min-separation", "separation": 314, "max_participations": 6},
    "mechanism": {"kind": "tree", "estimator": "online"},
}


def plan(privacy: dict[str, object] | None = None, **tables: object) -> Plan:
    return Plan.parse({**TREE, "privacy": {**TREE["privacy"], **(privacy or {})}, **tables})


def targeted(epsilon: float, delta: float = 1e-5) -> Plan:
    return Plan.parse({**TREE, "privacy": {"population": "p", "epsilon": epsilon, "delta": delta}})


@pytest.mark.parametrize("eta", [1e-9, 1e-4, 0.03])
def test_the_price_of_one_numbers_error(eta: float) -> None:
    exact = -2 * norm.ppf(1 / (1 + math.exp(eta)))
    assert exact**2 <= math.pi / 2 * eta**2 * (1 + 1e-6)
    assert exact**2 == pytest.approx(math.pi / 2 * eta**2, rel=1e-3)


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("eta", [1e-3, 0.03])
def test_an_error_that_follows_the_signal_costs_more_than_an_independent_one(mu: float, eta: float) -> None:
    """The worst error of one number, exactly: each world's probabilities are moved towards telling the worlds apart.

    Any test of the two worlds has what the charge allows, and some have more than mu^2 + r^2 would.
    """
    r = math.sqrt(2 * math.pi) * eta
    worst = 0.0
    for threshold in np.linspace(mu / 2 - 3, mu / 2 + 3, 601):
        # As much as the bound allows, where all probabilities still add up to 1.
        no, yes = norm.sf(threshold), norm.sf(threshold, loc=mu)
        power = min(math.exp(eta) * yes, 1 - math.exp(-eta) * (1 - yes))
        error = max(math.exp(-eta) * no, 1 - math.exp(eta) * (1 - no))
        worst = max(worst, norm.ppf(power) - norm.ppf(error))
    assert math.sqrt(mu**2 + r**2) < worst <= mu + r


def test_the_resolution_is_that_of_the_grid_that_is_used() -> None:
    norms = np.array([1.0, 2.0, 0.5])
    privatiser = Privatiser.of("grid", 3.0, 0.7, 5000, 0, 2.0)
    assert privatiser.grid is not None
    eta = 2.0**-51 * 16 * privatiser.std * norms / privatiser.grid.spacing
    squared = privatiser.resolution(5000, norms) ** 2
    assert squared == pytest.approx(2 * math.pi * 5000 * float((eta**2).sum()), rel=1e-12)
    assert Privatiser.of("none", 3.0, 0.7, 5000, 0, 2.0).resolution(5000, norms) == 0.0
    assert Privatiser.of("discrete", 3.0, 0.7, 5000, 0, 2.0).resolution(5000, norms) == 0.0


def test_large_models_are_charged_for_the_resolution_of_floats() -> None:
    base = cost_of(plan())
    seen = []
    for numel, most in ((10**3, 2e-5), (10**6, 0.016), (10**7, 0.21), (10**8, 1.6)):
        cost = with_resolution(base, 1.0, numel, 1)
        assert 0 < cost.resolution < most
        assert cost.noise_multiplier == base.noise_multiplier
        assert cost.loss.mu_squared == base.loss.mu_squared + cost.resolution
        grid = Privatiser.of("grid", cost.noise_multiplier, 1.0, numel, 1, float(cost.mechanism.row_norms().max()))
        r = grid.resolution(numel, cost.mechanism.row_norms())
        assert cost.loss.mu == pytest.approx(base.loss.mu + r, rel=1e-11)
        # From the first released round on.
        first = cost.charged(cost.realised().add(0, np.array([0])))
        assert first.mu_squared >= cost.resolution
        seen.append(cost.resolution)
    assert seen == sorted(seen)
    assert seen[-1] > 0.01


def test_an_epsilon_is_kept_with_the_resolution_in_it() -> None:
    cost = with_resolution(cost_of(targeted(8.0)), 1.0, 10**8, 1)
    assert cost.resolution > 0.1
    assert cost.epsilon <= 8.0
    assert cost.epsilon == pytest.approx(8.0, rel=1e-6)
    assert cost.noise_multiplier > 1.05 * cost_of(targeted(8.0)).noise_multiplier
    grid = Privatiser.of("grid", cost.noise_multiplier, 1.0, 10**8, 1, float(cost.mechanism.row_norms().max()))
    r, mu = grid.resolution(10**8, cost.mechanism.row_norms()), cost.sensitivity / cost.noise_multiplier
    assert 2 * mu * r + r * r <= cost.resolution
    with pytest.raises(BadInput, check=coded("out-of-range", "privacy.epsilon")):
        with_resolution(cost_of(targeted(0.1)), 1.0, 10**9, 1)


def test_a_stored_run_is_priced_again_as_it_was_begun(tmp_path: Path) -> None:
    cost, content = settle(with_resolution(cost_of(targeted(4.0)), 1.0, 10**7, 1), {})
    table = json.loads(cost.plan.run_json(cost.resolution))
    (tmp_path / "run").mkdir()
    stored = StoredStrategy(tmp_path, "run", cost.strategy, cost.loss)
    stored.write(content)
    again = stored.cost(table)
    assert again.loss == cost.loss
    assert again.noise_multiplier == pytest.approx(cost.noise_multiplier, rel=1e-12)
    assert Plan.stored(table).digest() == cost.plan.digest()


def test_sampled_runs_are_charged_for_it_too() -> None:
    sampled = Plan.parse(
        {
            **TREE,
            "privacy": {"population": "p", "epsilon": 2.0, "delta": 1e-5, "adjacency": "add_remove"},
            "run": {"task": "digits", "rounds": 20, "cohort": 10},
            "participation": {"scheme": "poisson", "rate": 0.1},
            "mechanism": {"kind": "independent"},
        }
    )
    base = cost_of(sampled)
    cost = with_resolution(base, 1.0, 10**8, 40)
    grid = Privatiser.of("grid", cost.noise_multiplier, 1.0, 10**8, 40, 1.0)
    r = grid.resolution(10**8, np.ones(1))  # every round is one event
    ((rate, charged, count),) = [(e.rate, e.noise_multiplier, e.count) for e in cost.loss.sampled]
    assert (rate, count) == (0.1, 20)
    assert 1 / charged == pytest.approx(1 / cost.noise_multiplier + r, rel=1e-5)
    assert 1 / charged >= 1 / cost.noise_multiplier + r
    assert cost.noise_multiplier > 1.001 * base.noise_multiplier
    assert 1.9999 < cost.epsilon <= 2.0
    assert cost.charged(PrivacyLoss()) == PrivacyLoss()
    assert cost.charged(cost.realised().add(0, np.arange(3))).sampled[0].noise_multiplier == charged
