"""Balls in bins and Poisson rounds against other people's accountants: jax-privacy's Monte Carlo and dp-accounting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldfare.accounting import PrivacyLoss, SampledGaussian
from fieldfare.accounting.balls_in_bins import law_of
from fieldfare.accounting.certification import certify
from fieldfare.factorization.toeplitz import matrix
from fieldfare.mechanisms.triangular import TriangularMechanism

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
    loss = PrivacyLoss(sampled=(SampledGaussian(row["rate"], row["noise_multiplier"], row["count"]),))
    ours = loss.epsilon(row["delta"])
    assert ours == pytest.approx(row["epsilon"], rel=2e-3)
