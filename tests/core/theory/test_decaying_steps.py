"""Closed forms of the comparison equations: reference values, a solver, and the bound on the last iterate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from fieldfare.errors import BadInput
from oracles.decaying_steps import DecayingSteps, exponential_integral

POWERS = [0.5, 0.75, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("beta", "x", "value"), [(1 / 3, 1.0, 0.3044294478), (-1 / 3, 1.0, 0.4533477706), (-1 / 3, 4.0, 0.0049136383)]
)
def test_exponential_integral(beta: float, x: float, value: float) -> None:
    assert exponential_integral(beta, x) == pytest.approx(value, rel=1e-9)
    assert quad(lambda t: np.exp(-x * t) * t**-beta, 1, np.inf)[0] == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("beta", [-1.0, -1 / 3, 0.0, 1 / 3, 0.9])
def test_its_bounds(beta: float) -> None:
    from scipy.special import gamma

    x = np.geomspace(2 * max(-beta, 1e-6) + 1e-9, 50, 40)
    assert (exponential_integral(beta, x) <= gamma(1 - beta) * x ** (beta - 1) * (1 + 1e-12)).all()
    assert (exponential_integral(beta, x) <= 2 * np.exp(-x) / x * (1 + 1e-12)).all()
    assert float(1e-9 ** (1 - beta) * exponential_integral(beta, 1e-9)) == pytest.approx(gamma(1 - beta), rel=0.2)


@pytest.mark.parametrize(
    ("power", "middle", "last"),
    [
        (0.5, 0.2585218647, 0.2773391351),
        (1.0, 0.2302720232, 0.1798373605),
        (2.0, 0.2148662042, 0.1794827878),
        (3.0, 0.2252697998, 0.2073934428),
    ],
)
def test_reference_values(power: float, middle: float, last: float) -> None:
    found = DecayingSteps(0.5, 6.0, 1.0, 0.5, power).risk([0.5, 1.0])
    assert found == pytest.approx([middle, last], abs=1e-10)


@pytest.mark.parametrize("power", [0.0, *POWERS])
def test_it_solves_its_equation(power: float) -> None:
    private = 0.5 if power else 0.0

    def slope(t: float, r: np.ndarray) -> np.ndarray:
        u = max(0.0, 1 - t)
        return -6 * u**power * r + u ** (2 * power) + (private * u ** (2 * power - 1) if power else 0.0)

    times = np.linspace(0, 1, 11)
    solved = solve_ivp(slope, (0, 1), [0.5], t_eval=times, rtol=1e-10, atol=1e-13, method="LSODA").y[0]
    assert DecayingSteps(0.5, 6.0, 1.0, private, power).risk(times) == pytest.approx(solved, abs=2e-8)


def test_the_bound_on_the_last_iterate() -> None:
    assert DecayingSteps(0.5, 6.0, 1.0, 0.5, 0.5).last_at_most() == pytest.approx(0.2820421465, abs=1e-10)
    for power in (0.0, *POWERS):
        for pull in (0.5, 6.0, 60.0):
            equation = DecayingSteps(0.5, pull, 1.0, 0.5 if power else 0.0, power)
            slack = equation.last_at_most() - float(equation.risk(1.0))
            assert slack >= -1e-15
            assert pull < 60 or slack < 1e-6


@pytest.mark.parametrize(
    "bad", [{"power": 0.25}, {"pull": 0.0}, {"power": 0.0}, {"power": float("nan")}, {"pull": float("inf")}]
)
def test_refusals(bad: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        DecayingSteps(**{"start": 0.5, "pull": 6.0, "spread": 1.0, "private": 0.5, "power": 1.0, **bad})
