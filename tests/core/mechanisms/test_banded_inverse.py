"""Optimised banded B: no worse than the reference's optimum, at the sensitivity that is really charged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.factorization.objective import PrefixLoss
from fieldfare.mechanisms import banded_inverse
from fieldfare.participation import MinSeparation
from support.refusals import coded

ROWS = json.loads((Path(__file__).parents[2] / "reference" / "banded_inverse.json").read_text())["rows"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_never_worse_than_jax_privacy(row: dict[str, Any]) -> None:
    n, bands, participation = (
        row["params"]["n"],
        row["params"]["p"],
        MinSeparation(row["params"]["b"], row["params"]["k"]),
    )
    mechanism = mechanisms.build({"kind": "banded-inverse", "bands": bands}, n, participation)
    assert mechanism.mean_error(n, participation) ** 2 <= row["value"]
    assert mechanism.buffers == bands - 1
    cut = mechanisms.build({"kind": "optimal-cc", "window": bands}, n, participation)
    assert mechanism.mean_error(n, participation) <= cut.mean_error(n, participation)


@pytest.mark.parametrize("objective", ["mean", "max"])
@pytest.mark.parametrize(("separation", "count"), [(4, 3), (2, 5), (12, 1)])
def test_charged_at_least_what_any_pattern_costs(objective: str, separation: int, count: int) -> None:
    n, participation = 12, MinSeparation(separation, count)
    spec = {"kind": "banded-inverse", "bands": 4, "objective": objective}
    mechanism = mechanisms.build(spec, n, participation)
    worst = mechanism.pattern_norms(list(participation.patterns(n))).max()
    charged = mechanism.sensitivity(participation)
    assert charged >= worst * (1 - 1e-12)
    if charged.bound == "exact":
        assert charged == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize("objective", ["mean", "max"])
def test_gradient(objective: Any) -> None:
    loss = PrefixLoss.of(40, MinSeparation(9, 3), objective)
    at = np.array([-0.4, -0.2, -0.1])
    error = check_grad(
        lambda x: banded_inverse._log_loss(x, loss)[0], lambda x: banded_inverse._log_loss(x, loss)[1], at
    )
    assert error < 1e-5
    assert banded_inverse._log_loss(np.array([-50.0, 0.0, 0.0]), loss)[0] == banded_inverse._REFUSED_STEP


def test_bands_beyond_the_rounds_are_refused() -> None:
    with pytest.raises(BadInput, check=coded("out-of-range", "mechanism.bands", "11")):
        mechanisms.build({"kind": "banded-inverse", "bands": 11}, 10)
    assert mechanisms.build({"kind": "banded-inverse", "bands": 1}, 10).noising_matrix(3).tolist() == np.eye(3).tolist()
