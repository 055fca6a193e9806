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

PARTICIPATION = MinSeparation(9, 3)
PLANS: dict[str, dict[str, Any]] = {
    "independent": {},
    "banded": {"bands": 5},
    "banded-inverse": {"bands": 5},
    "blt": {"buffers": 3},
    "nu": {"nu": 0.02},
    "optimal-cc": {"window": 6},
    "anti-pgd": {"nu": 0.1},
    "tree": {"estimator": "online"},
    "fft": {},
    "dense": {},
    "momentum-tree": {"momentum": 0.5},
    "spectral": {"eigenvalues": (1.0, 0.1), "learning_rate": 0.1},
}


class _UnitRow(Drawer):
    """Row r of the identity matrix."""

    def __init__(self, row: int) -> None:
        self._row = row

    def into(self, out: NDArray[Any], offset: int) -> None:
        out[:] = np.arange(offset, offset + len(out)) == self._row


@pytest.mark.parametrize("restart", [None, 11])
@pytest.mark.parametrize("kind", sorted(PLANS))
def test_the_stream_applies_the_noising_matrix(kind: str, restart: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """z = I, so that B z = B."""
    monkeypatch.setattr(SecureNoise, "drawer", lambda self, stream, row, offset, n: _UnitRow(self._first + row))
    n = 31
    plan = {"kind": kind, **PLANS[kind], **({} if restart is None else {"restart_every": restart})}
    m = mechanisms.build(plan, n, PARTICIPATION)
    b = m.noising_matrix(n)
    stream = m.stream(b.shape[1], SecureNoise(bytes(32)), dtype=torch.float64)
    drawn = np.stack([stream.next().numpy() for _ in range(n)])
    scale = np.abs(b).max()
    np.testing.assert_allclose(drawn, b, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(drawn @ drawn.T, b @ b.T, rtol=0, atol=1e-11 * scale**2)


def test_no_kind_is_forgotten() -> None:
    assert set(mechanisms.kinds()) == set(PLANS)
