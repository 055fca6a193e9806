"""Independent noise: C = B = I, sqrt(k), and nothing to forget."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.noise import SecureNoise
from fieldfare.participation import FixedOrder, MinSeparation, Single
from fieldfare.streams.base import HorizonError
from support.refusals import coded

KEY = b"a fixed key for tests, 32 bytes!"


def test_matrices_norms_and_errors() -> None:
    m = mechanisms.build({"kind": "independent"}, rounds=9)
    assert np.array_equal(m.strategy_matrix(4), np.eye(4))
    assert np.array_equal(m.noising_matrix(9), np.eye(9))
    assert np.array_equal(m.row_norms(), np.ones(9))
    np.testing.assert_allclose(m.prefix_row_norms(), np.linalg.norm(np.tril(np.ones((9, 9))), axis=1))
    assert m.buffers == 0
    assert m.max_error(9, Single()) == 3.0
    assert m.mean_error(9, MinSeparation(3)) == pytest.approx(np.sqrt(3 * 5.0))  # sqrt(k (n + 1) / 2)


@pytest.mark.parametrize(
    "participation", [Single(), MinSeparation(3, 2), MinSeparation(2), FixedOrder(4), FixedOrder(3, 2)]
)
def test_sensitivity_is_exact_and_grows_with_the_rounds(participation: object) -> None:
    m = mechanisms.build({"kind": "independent"}, rounds=10)
    for n in range(1, 11):
        largest = max(len([t for t in p if t < n]) for p in participation.patterns(10))
        assert m.sensitivity(participation, n) == pytest.approx(np.sqrt(largest))
        assert m.sensitivity(participation, n).bound == "exact"


def test_realised_patterns() -> None:
    m = mechanisms.build({"kind": "independent"}, rounds=10)
    assert m.pattern_norms([(), (1,), (0, 4, 9)]).tolist() == [0.0, 1.0, pytest.approx(np.sqrt(3))]
    assert m.pattern_norms([(0, 4, 9)], 5).tolist() == [pytest.approx(np.sqrt(2))]


def test_stream_is_z_itself() -> None:
    noise = SecureNoise(KEY)
    stream = mechanisms.build({"kind": "independent", "restart_every": 2}, rounds=5).stream(1000, noise)
    for t in range(5):
        assert torch.equal(stream.next(), noise.standard_normal(1000, row=t))
    with pytest.raises(HorizonError):
        stream.next()


def test_out_of_range_is_refused() -> None:
    m = mechanisms.build({"kind": "independent"}, rounds=10)
    with pytest.raises(BadInput, check=coded("out-of-range", "rounds = 11")):
        m.row_norms(11)
    with pytest.raises(BadInput, check=coded("key-unknown")):
        mechanisms.build({"kind": "independent", "bands": 3}, rounds=10)
