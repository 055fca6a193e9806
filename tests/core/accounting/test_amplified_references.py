"""Balls in bins, b-min-sep and Poisson rounds by other accountants: jax-privacy's Monte Carlo and dp-accounting."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldfare.accounting import PoissonGaussian, PrivacyLoss
from fieldfare.accounting.balls_in_bins import law_of
from fieldfare.accounting.certification import certify
from fieldfare.accounting.chained import Chain, of_matrix
from fieldfare.accounting.importance import Pair
from fieldfare.factorization.toeplitz import matrix
from fieldfare.mechanisms.triangular import TriangularMechanism
from fieldfare.participation import BMinSep

STORED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "reference/amplified.json").read_text())


@pytest.mark.parametrize("case", STORED["cases"])
def test_a_certificate_is_within_three_percent_of_jax_privacy(case: str) -> None:
    """The worse order of each epsilon. Both sides are fixed; five standard errors are the peer's own doubt."""
    rows = [row for row in STORED["balls_in_bins"] if row["case"] == case]
    setting, epsilons = STORED["cases"][case], tuple(sorted({row["epsilon"] for row in rows}))
    c = matrix(np.array(setting["c_col"]), setting["rounds"])
    law = law_of(TriangularMechanism("dense", c), setting["bins"])
    samples = (1 << 18, 1 << 18)
    curve = certify(
        law, setting["noise_multiplier"], (0.0, *epsilons), target=epsilons[-1], seed=bytes(16), samples=samples
    )
    for epsilon, bound in curve.points[1:]:
        at = max((row for row in rows if row["epsilon"] == epsilon), key=lambda row: float(row["delta"]))
        assert bound > at["delta"] - 5 * at["standard_error"]
        assert bound < 1.03 * at["delta"]


@pytest.mark.parametrize("row", STORED["poisson"], ids=lambda row: f"{row['row']}-{row['epsilon']:.3g}")
def test_poisson_rounds_cost_what_dp_accounting_says(row: dict[str, Any]) -> None:
    """Its grid of losses is pessimistic, so that ours may be a little less, and never more than its figure."""
    loss = PrivacyLoss(sampled=(PoissonGaussian(row["rate"], row["noise_multiplier"], row["count"]),))
    ours = loss.epsilon(row["delta"])
    assert ours == pytest.approx(row["epsilon"], rel=2e-3)


def b_min_sep() -> Chain:
    """The law of the stored case at noise multiplier 1."""
    stored = STORED["b_min_sep"]
    c = np.zeros(stored["rounds"])
    c[: len(stored["c_col"])] = stored["c_col"]
    return of_matrix(matrix(c, len(c)), BMinSep(stored["separation"], stored["rate"]))


@pytest.mark.parametrize("order", ["remove", "add"])
def test_samples_of_b_min_sep_have_the_mean_of_jax_privacy_down_to_a_delta_of_6e_5(order: str) -> None:
    """Its own program for the ratios, its own samples. Both sides are fixed; five standard errors of both together."""
    stored = STORED["b_min_sep"]
    rows = [row for row in stored["deltas"] if row["order"] == order]
    draws = Pair(b_min_sep().at(stored["noise_multiplier"]), 0.8).draw(bytes(16), 0, 1 << 17, order == "add")
    for row in rows:
        x = draws.values(row["epsilon"])
        error = math.hypot(row["standard_error"], float(x.std()) / math.sqrt(x.size))
        assert error < 0.025 * row["delta"]
        assert abs(x.mean() - row["delta"]) < 5 * error


@pytest.mark.slow
def test_a_certificate_of_b_min_sep_is_within_three_percent_of_jax_privacy() -> None:
    """With the samples of a run, from delta 8e-3 to 1.3e-4; the worse order of each epsilon, and the peer's doubt."""
    stored, law = STORED["b_min_sep"], b_min_sep()
    worse = [row for row in stored["deltas"] if row["order"] == "remove"]
    epsilons = tuple(row["epsilon"] for row in worse)
    curve = certify(law, stored["noise_multiplier"], (0.0, *epsilons), target=epsilons[-1], seed=bytes(16))
    assert worse[-1]["delta"] < 1.5e-4
    for (_, bound), at in zip(curve.points[1:], worse, strict=True):
        assert at["delta"] - 5 * at["standard_error"] < bound < 1.03 * at["delta"] + 5 * at["standard_error"]
