"""Streams fed unit vectors instead of noise give the rows of B themselves: an exact covariance, without sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fieldfare import mechanisms
from fieldfare.noise import Drawer, SecureNoise
from fieldfare.participation import MinSeparation
from support.kinds import SPECS, fitting

PARTICIPATION = MinSeparation(9, 3)


class _UnitRow(Drawer):
    """Row r of the identity matrix."""

    def __init__(self, row: int) -> None:
        self._row = row

    def into(self, out: NDArray[Any], offset: int) -> None:
        out[:] = np.arange(offset, offset + len(out)) == self._row


@pytest.mark.parametrize("restart", [None, 11])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_stream_applies_the_noising_matrix(
    spec: dict[str, Any], restart: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """z = I, so that B z = B."""
    monkeypatch.setattr(SecureNoise, "drawer", lambda self, stream, row, offset, n: _UnitRow(self._first + row))
    n = 31
    m = mechanisms.build({**spec, "restart_every": restart}, n, PARTICIPATION)
    b = m.noising_matrix(n)
    stream = m.stream(b.shape[1], SecureNoise(bytes(32)), dtype=torch.float64)
    drawn = np.stack([stream.next().numpy() for _ in range(n)])
    scale = np.abs(b).max()
    np.testing.assert_allclose(drawn, b, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(drawn @ drawn.T, b @ b.T, rtol=0, atol=1e-11 * scale**2)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_sampled_covariance(spec: dict[str, Any]) -> None:
    """20 000 elements of 7 rounds against B B^T, 28 entries within 6.5 standard errors: false alarm below 3e-9."""
    n, numel = 7, 20_000
    m = mechanisms.build({**fitting(spec, 4), "restart_every": 4}, n, PARTICIPATION)
    stream = m.stream(numel, SecureNoise(b"a fixed key for tests, 32 bytes!"))
    sample = np.stack([stream.next().numpy() for _ in range(n)]).astype(np.float64)
    b = m.noising_matrix(n)
    true = b @ b.T
    error = np.sqrt((true**2 + np.outer(np.diag(true), np.diag(true))) / numel)
    assert (np.abs(sample @ sample.T / numel - true) < 6.5 * error).all()
