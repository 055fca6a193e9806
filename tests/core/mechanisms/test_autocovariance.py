"""The autocovariance that optimizers are told is that of the noise that streams apply."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fieldfare.mechanisms import build


def test_independent_noise_has_none() -> None:
    assert build({"kind": "independent"}, 50).autocovariance() == (1.0,)


@pytest.mark.parametrize(
    "table", [{"kind": "nu", "nu": 0.1, "engine": "exact"}, {"kind": "anti-pgd", "nu": 0.2}], ids=str
)
def test_toeplitz_noise_at_the_end_of_the_horizon(table: dict[str, Any]) -> None:
    b = build(table, 60).noising_matrix(60)
    direct = np.array([b[-1] @ b[-1 - j] for j in range(5)])
    # The last rows have seen 60 and 60 - j coefficients; the tail that differs is below 1e-3 here.
    np.testing.assert_allclose(build(table, 60).autocovariance()[:2], (direct / direct[0])[:2], atol=5e-3)
    assert build(table, 60).autocovariance()[1] < 0


def test_tree_noise_is_averaged_over_rounds() -> None:
    mechanism = build({"kind": "tree"}, 40)
    b = mechanism.noising_matrix(40)
    direct = np.array([sum(b[t] @ b[t - j] for t in range(j, 40)) for j in range(40)])
    found = mechanism.autocovariance(lags=6)
    assert len(found) <= 6
    np.testing.assert_allclose(found, (direct / direct[0])[: len(found)], atol=1e-12)
