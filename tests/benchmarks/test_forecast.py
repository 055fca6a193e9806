"""The forecast: from the plan and stated guesses alone; ordered as simulation orders; premises stated."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fieldfare.cost import Cost
from fieldfare.costing import cost_of
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare_research.forecast.clipped_regression import ClippedRegression
from fieldfare_research.forecast.forecast import predict
from fieldfare_research.forecast.search import Assumed
from fieldfare_research.forecast.suggestions import best_nu
from fieldfare_server.optimizers import parse as parse_optimizer
from support.refusals import coded


def planned(mechanism: dict[str, Any], rounds: int = 128, epsilon: float = 2.0, **more: Any) -> Cost:
    table: dict[str, Any] = {
        "privacy": {"population": "p", "epsilon": epsilon, "delta": 1e-5},
        "run": {"task": "flights", "rounds": rounds, "cohort": 100},
        "mechanism": mechanism,
    }
    return cost_of(Plan.parse(table | more))


ROOT = Path(__file__).parents[2]
INDEPENDENT = {"kind": "independent"}
NU = {"kind": "nu", "nu": 0.01}


def test_mechanisms_are_ordered_as_simulation_orders_them() -> None:
    """spec/clipping, section 5: many rounds of one pass favour the tree; correlated noise beats both."""
    risk = {
        kind: predict(planned({"kind": kind} | more, rounds=256), Assumed(200.0)).best.risk
        for kind, more in [("independent", {}), ("tree", {}), ("nu", {"nu": 0.01})]
    }
    assert risk["nu"] < risk["tree"] < risk["independent"]


def test_more_budget_and_less_noise_help() -> None:
    risks = [predict(planned(NU, epsilon=epsilon), Assumed(200.0)).best.risk for epsilon in (0.5, 2.0, 8.0)]
    assert risks == sorted(risks, reverse=True)
    assert predict(planned(NU), Assumed(200.0)).noiseless < risks[-1]


def test_scarcer_users_ask_for_less_decay() -> None:
    def power(dimension: float) -> float:
        return predict(planned(NU, rounds=64), Assumed(dimension)).best.power

    assert power(6400 * 0.5) <= power(6400 * 0.05) <= power(6400 * 0.005)
    assert power(6400 * 0.5) < power(6400 * 0.005)


def test_every_suggestion_says_what_it_rests_on_and_is_settable() -> None:
    found = predict(planned(NU), Assumed(100.0, condition=5.0))
    names = [suggestion.setting for suggestion in found.suggestions]
    assert {"clipping.norm", "clipping.quantile", "server_optimizer.learning_rate", "server_optimizer.kappa"} <= set(
        names
    )
    assert all(suggestion.assumes and suggestion.because for suggestion in found.suggestions)
    values = {suggestion.setting: suggestion.value for suggestion in found.suggestions}
    parse_optimizer({"kind": "disk", "kappa": values["server_optimizer.kappa"]})
    assert 0.05 <= float(values["clipping.quantile"]) <= 0.95
    assert json.loads(json.dumps(found.to_json()))["best"]["risk"] == found.best.risk


def test_the_learning_rate_is_in_the_plans_units() -> None:
    client, optimizer = {"learning_rate": 0.5, "steps": 4}, {"kind": "sgd", "momentum": 0.75}
    found = predict(planned(NU, client=client, server_optimizer=optimizer), Assumed(100.0))
    (rate,) = (s for s in found.suggestions if s.setting == "server_optimizer.learning_rate")
    # rate / (1 - momentum) x local rate x steps x curvature 1 is the progress of a round.
    assert float(rate.value) / 0.25 * 0.5 * 4 == pytest.approx(found.best.progress)
    assert "4 local steps at 0.5 and momentum 0.75" in rate.because


def test_values_at_the_forecasts_own_limits_are_marked() -> None:
    def marked(cost: Cost, assumed: Assumed) -> tuple[set[str], set[str]]:
        suggestions = predict(cost, assumed).suggestions
        return {s.setting for s in suggestions if s.at_limit}, {s.setting for s in suggestions}

    # Hardly any budget: everything is at an end of the search.
    at_limit, names = marked(planned(NU, rounds=8, epsilon=0.01), Assumed(400.0, condition=50.0))
    assert {"clipping.norm", "clipping.quantile"} <= at_limit
    # Few rounds and no noise to speak of: steps so long that the quadratic does not settle.
    at_limit, names = marked(planned(INDEPENDENT, rounds=2, epsilon=500.0), Assumed(20.0, condition=50.0))
    assert "mechanism.nu" in names & at_limit
    calm, _ = marked(planned(NU), Assumed(100.0))
    assert "clipping.norm" not in calm


def test_white_noise_keeps_the_published_gain_and_correlated_noise_does_not() -> None:
    def kappa(mechanism: dict[str, Any]) -> float:
        found = predict(planned(mechanism), Assumed(100.0))
        return next(float(s.value) for s in found.suggestions if s.setting == "server_optimizer.kappa")

    assert kappa(INDEPENDENT) == pytest.approx(0.7)
    assert kappa(NU) != pytest.approx(0.7, abs=5e-3)


def test_no_nu_is_suggested_that_the_plan_itself_prices_worse() -> None:
    flights = cost_of(Plan.parse(tomllib.loads((ROOT / "deploy/plans/flights.toml").read_text())))

    def with_nu(cost: Cost, nu: float) -> Cost:
        table = cost.plan.model_dump(mode="json", exclude_none=True)
        return cost_of(Plan.parse(table | {"mechanism": {"kind": "nu", "nu": nu}}))

    suggested = []
    for cost in (flights, planned(NU), planned(INDEPENDENT), planned(NU, rounds=16)):
        for dimension in (5.0, 60.0, 400.0):
            for suggestion in predict(cost, Assumed(dimension)).suggestions:
                if suggestion.setting == "mechanism.nu":
                    suggested.append(cost is flights)
                    assert with_nu(cost, float(suggestion.value)).prefix_noise_rms <= cost.prefix_noise_rms
    assert suggested
    # Its theory says .75 for sixty directions, and the plan's noise would double: 18.9 -> 37.4.
    names = {suggestion.setting for suggestion in predict(flights, Assumed(60.0)).suggestions}
    assert "mechanism.nu" not in names
    assert with_nu(flights, 0.7507).prefix_noise_rms > 1.9 * flights.prefix_noise_rms


def test_nu_is_the_least_of_the_exact_theory() -> None:
    """correlated-noise.md 5.1, the setting of figure 2 (d = 128, lambda_k = 1/k, eta = .02): least at nu = 5e-4."""
    spectrum = [1.0 / k for k in range(1, 129)]
    mean = sum(spectrum) / 128
    problem = ClippedRegression(0.1, eigenvalues=tuple(value / mean for value in spectrum))
    assert 3e-4 < best_nu(problem, 0.02 * mean) < 9e-4


def test_cohorts_are_compared_at_equal_visits_and_epsilon() -> None:
    separated = {"participation": {"scheme": "min-separation", "separation": 32, "max_participations": 4}}
    cost = planned(NU, **separated)
    found = predict(cost, Assumed(100.0), cohorts=(0.5, 1.0, 2.0))
    assert [(o.cohort, o.rounds) for o in found.cohorts] == [(50, 256), (100, 128), (200, 64)]
    assert found.cohorts[1].noise_multiplier == pytest.approx(cost.noise_multiplier, rel=1e-6)
    assert found.cohorts[1].risk == pytest.approx(found.best.risk, rel=1e-4)
    assert any(suggestion.setting == "run.cohort" for suggestion in found.suggestions)


def test_large_cohorts_win_where_noise_is_independent() -> None:
    """At equal epsilon every round's noise is the same, so fewer rounds carry less."""
    found = predict(planned(INDEPENDENT), Assumed(200.0), cohorts=(0.5, 1.0, 2.0))
    risks = [option.risk for option in found.cohorts]
    assert risks == sorted(risks, reverse=True)


def test_cohorts_that_the_plan_cannot_have_are_left_out() -> None:
    poisson = {"participation": {"scheme": "poisson", "rate": 0.6}}
    found = predict(planned(INDEPENDENT, rounds=16, **poisson), Assumed(50.0), cohorts=(1.0, 2.0))
    assert [option.cohort for option in found.cohorts] == [100]


def test_it_is_deterministic() -> None:
    assert predict(planned(NU), Assumed(100.0)) == predict(planned(NU), Assumed(100.0))


def test_too_many_rounds_are_refused_with_the_most() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "run.rounds", "4096")):
        predict(planned(INDEPENDENT, rounds=5000), Assumed(100.0))


@pytest.mark.parametrize(
    "bad",
    [{"effective_dimension": 0.5}, {"effective_dimension": math.nan}, {"effective_dimension": 2.0, "condition": 0.5}],
)
def test_refusals(bad: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        Assumed(**bad)
