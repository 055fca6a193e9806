"""Each row of z is born in one round, and the noise of every kind is fresh: spec/budgets.md 4.1.

With B B^T = L L^T and R = L^-1, row t of R B must use rows of z only that are born in round t. Then two branches of a
run that part in round t share nothing from t on but what they share by data, and cost at most both charges.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import solve_triangular

from fieldfare import mechanisms
from fieldfare.factorization.dyadic import closing_round, node_count
from fieldfare.participation import MinSeparation
from support.kinds import SPECS, Spec, fitting

N = 24


def test_no_kind_is_left_out() -> None:
    assert {spec["kind"] for spec in SPECS} == set(mechanisms.kinds())


@pytest.mark.parametrize("restart", [None, 7, 8])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_kind_is_fresh(spec: Spec, restart: int | None) -> None:
    m = mechanisms.build({**fitting(spec, restart or N), "restart_every": restart}, N, MinSeparation(6, 3))
    b = m.noising_matrix(N)
    births = np.array([m.birth(row) for row in range(b.shape[1])])
    for row, born in enumerate(births):
        used = np.flatnonzero(b[:, row])
        assert not used.size or used[0] == born
    innovations = solve_triangular(np.linalg.cholesky(b @ b.T), b, lower=True)
    stale = births[None, :] != np.arange(N)[:, None]
    assert np.abs(innovations[stale]).max(initial=0.0) <= 1e-12
    # What is left is all of it: the innovations are unit Gaussians.
    np.testing.assert_allclose(np.sum(innovations**2, axis=1), 1.0, atol=1e-12)


def test_a_matrix_that_is_not_fresh_is_told_from_one_that_is() -> None:
    """The example of spec/budgets.md 4.4: the third row of z is born in round 0 and used again in round 1's noise."""
    b = np.array([[1.0, 0.0, 0.01], [0.0, 0.1, 1.0]])
    innovations = solve_triangular(np.linalg.cholesky(b @ b.T), b, lower=True)
    assert np.abs(innovations[1, [0, 2]]).max() > 0.5


def test_a_node_is_born_in_the_round_in_which_it_closes() -> None:
    rounds = 130
    expected = [t for t in range(rounds) for _ in range(node_count(t), node_count(t + 1))]
    assert [closing_round(node) for node in range(len(expected))] == expected
    far = 10**12
    assert closing_round(node_count(far)) == far
    assert closing_round(node_count(far) - 1) == far - 1
