"""What a float32 stream multiplies by is what the charge was computed from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fieldfare import mechanisms
from fieldfare.factorization import toeplitz
from fieldfare.factorization.objective import PrefixLoss
from fieldfare.mechanisms import blt
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism
from fieldfare.noise import Drawer, SecureNoise
from fieldfare.participation import MinSeparation
from fieldfare.streams.banded import InverseBandStream, WindowStream
from fieldfare.streams.buffers import BufferStream
from fieldfare.streams.tree import own_weight

KEY = b"a fixed key for tests, 32 bytes!"
RECURSIONS: list[dict[str, Any]] = [
    {"kind": "blt", "buffers": 1},
    {"kind": "blt", "buffers": 4},
    {"kind": "blt", "buffers": 3, "objective": "max"},
    {"kind": "nu", "nu": 1e-5},
    {"kind": "optimal-cc"},
    {"kind": "spectral", "eigenvalues": [1.0, 1e-4], "learning_rate": 0.1},
]
WINDOWS: list[dict[str, Any]] = [
    {"kind": "anti-pgd", "nu": 1e-4},
    {"kind": "nu", "nu": 1e-3, "window": 20},
    {"kind": "optimal-cc", "window": 3},
]


def single(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32).astype(np.float64)


def built(spec: dict[str, Any]) -> ToeplitzMechanism:
    made = mechanisms.build(spec, 2000, MinSeparation(314, 6))
    assert isinstance(made, ToeplitzMechanism)
    return made


def exact_b(omega: np.ndarray, theta: np.ndarray, n: int) -> np.ndarray:
    """beta from the recursion that the stream runs, in long doubles."""
    state, beta = np.ones(len(omega), np.longdouble), [np.longdouble(1)]
    for _ in range(n - 1):
        beta.append(omega @ state)
        state = theta * state
    return np.array(beta)


@pytest.mark.parametrize("spec", RECURSIONS, ids=str)
def test_recursions_apply_float32_numbers_and_are_charged_for_those(spec: dict[str, Any]) -> None:
    mechanism = built(spec)
    stream = mechanism.stream(1, SecureNoise(KEY))
    assert isinstance(stream, BufferStream)
    omega, theta = single(stream._omega), single(stream._theta)
    np.testing.assert_array_equal(omega, stream._omega)
    np.testing.assert_array_equal(theta, stream._theta)
    beta = exact_b(omega, theta, mechanism.rounds)
    np.testing.assert_allclose(mechanism.noising_coefs, beta.astype(np.float64), rtol=1e-10, atol=1e-16)
    # C again, by the recursion for the inverse instead of the eigenvalues that the mechanism used.
    np.testing.assert_allclose(mechanism.strategy_coefs, toeplitz.inverse(beta, mechanism.rounds), rtol=1e-9)
    assert mechanism.monotone


@pytest.mark.parametrize("spec", WINDOWS, ids=str)
def test_windows_too(spec: dict[str, Any]) -> None:
    mechanism = built(spec)
    stream = mechanism.stream(1, SecureNoise(KEY))
    assert isinstance(stream, WindowStream)
    np.testing.assert_array_equal(single(stream._beta), stream._beta)
    np.testing.assert_array_equal(mechanism.noising_coefs[: len(stream._beta)], stream._beta)
    np.testing.assert_allclose(mechanism.strategy_coefs, toeplitz.inverse(stream._beta, 2000), rtol=1e-9)


@pytest.mark.parametrize("buffers", [1, 2, 5, 8])
def test_rounding_costs_next_to_nothing(buffers: int) -> None:
    participation = MinSeparation(314, 6)
    goal = PrefixLoss.of(2000, participation, "mean")
    best = blt.optimise(goal, buffers)
    assert blt.mechanism(best, 2000).mean_error(2000, participation) ** 2 <= best.loss(goal) * (1 + 1e-6)


def test_rounding_drops_what_float32_cannot_tell_apart() -> None:
    """Two decays of B that differ by 1e-9, and a pair whose decays cancel to 1e-12."""
    given = blt.Blt(np.array([1e-3, 0.3]), np.array([1e-3 + 1e-12, 0.5]))
    run = given.rounded()
    assert (run.omega < 0).all()
    assert toeplitz.is_monotone(run.strategy(5000))
    mechanism = blt.mechanism(given, 300)
    assert mechanism.sensitivity(MinSeparation(50, 6)).bound == "exact"
    assert mechanism.buffers == len(run.theta)


@pytest.mark.slow
def test_a_long_float32_recursion_stays_at_the_charged_one() -> None:
    """10 000 rounds: the float32 stream against B z in float64, by round-off only. Rounding a decay late would not."""
    n = 10_000
    mechanism = mechanisms.build({"kind": "blt", "buffers": 3}, n)
    total = np.zeros(64)
    exact = np.zeros(64)
    noise = SecureNoise(KEY, map=2)  # in map 3 a float64 number is another one, and not the same with more digits
    one, two = mechanism.stream(64, noise), mechanism.stream(64, noise, dtype=torch.float64)
    for _ in range(n):
        total += one.next().numpy()
        exact += two.next().numpy()
    std = float(mechanism.prefix_row_norms()[-1])
    assert np.abs(total - exact).max() < 1e-2 * std


ROWS: list[dict[str, Any]] = [
    {"kind": "nu", "nu": 1e-3, "engine": "memory"},
    {"kind": "nu", "nu": 0.3, "engine": "replay"},
    {"kind": "optimal-cc", "engine": "exact"},
    {"kind": "optimal-cc", "engine": "memory", "restart_every": 150},
    {"kind": "spectral", "eigenvalues": [1.0, 1e-4], "learning_rate": 0.1, "engine": "replay"},
    {"kind": "spectral", "eigenvalues": [1.0, 1e-4], "learning_rate": 0.1, "window": 9},
    {"kind": "dense"},
    {"kind": "fft"},
    {"kind": "fft", "engine": "memory"},
    {"kind": "tree", "estimator": "full"},
    {"kind": "tree", "estimator": "online"},
    {"kind": "momentum-tree", "momentum": 0.9, "variant": "proportional"},
    {"kind": "banded", "bands": 7},
    {"kind": "banded", "bands": 7, "column_normalised": True},
]


VALUE = float(np.float32(np.pi))
"""A float32 with all of its bits in use: its product with a rounded coefficient is another one, nearly always."""


class _OneRow(Drawer):
    """Row r of VALUE times the identity matrix."""

    def __init__(self, row: int) -> None:
        self._row = row

    def into(self, out: NDArray[Any], offset: int) -> None:
        out[:] = VALUE * (np.arange(offset, offset + len(out)) == self._row)


@pytest.mark.parametrize("spec", ROWS, ids=str)
def test_a_float32_stream_applies_b_itself_and_c_is_its_inverse(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """z = VALUE I: a float32 stream gives VALUE B, rounded once, exactly where no sum rounds; and C inverts B."""
    monkeypatch.setattr(SecureNoise, "drawer", lambda self, stream, row, offset, n: _OneRow(self._first + row))
    n = 300
    mechanism = mechanisms.build(spec, n, MinSeparation(50, 6))
    b, c = mechanism.noising_matrix(n), mechanism.strategy_matrix(n)
    stream = mechanism.stream(b.shape[1], SecureNoise(KEY))
    applied = np.stack([stream.next().numpy() for _ in range(n)]).astype(np.float64)
    np.testing.assert_allclose(b @ c, np.eye(n), atol=1e-9 * np.abs(b).sum(axis=1).max() * np.abs(c).max())
    if spec["kind"] == "banded" or spec.get("estimator") == "online":  # recursions: sums and products round
        np.testing.assert_allclose(applied, VALUE * b, rtol=0, atol=2e-6 * np.abs(b).max())
    else:
        np.testing.assert_array_equal(applied, (VALUE * b).astype(np.float32))


def test_recursions_over_bands_and_nodes_multiply_by_float32_numbers() -> None:
    for normalised in (False, True):
        spec = {"kind": "banded", "bands": 40, "column_normalised": normalised}
        stream = mechanisms.build(spec, 500, MinSeparation(100, 5)).stream(1, SecureNoise(KEY))
        assert isinstance(stream, InverseBandStream)
        np.testing.assert_array_equal(single(stream._c), stream._c)
    for height in range(30):
        weight = own_weight(height)
        assert abs(weight * (2 - 2.0**-height) - 1) < 1e-7
        assert float(np.float32(weight)) + float(np.float32(1 - weight)) == 1
