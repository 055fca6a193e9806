"""Noise joins the words before they are read: the same floats where nothing wraps, and private where a liar wraps."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.masking.words import encode, read
from fieldfare.noise import SecureNoise
from fieldfare.privatise import RING_COST, Grid, Privatiser
from support.refusals import coded

KEY = b"a fixed key for tests, 32 bytes!"


def test_v5_noise_beyond_the_edge() -> None:
    words = np.array([0x80000005, 1, 0], "<u4")
    cells = torch.tensor([2147483648.0, -1.0, -8589934597.0], dtype=torch.float64)
    noised = Grid(1.0).add_noise_to_words_(words, cells, 1.0, whole=True)
    assert noised.tolist() == [5, 0, 0xFFFFFFFB]
    assert read(noised, 1.0).tolist() == [5, 0, -5]


@pytest.mark.parametrize("rounding", ["grid", "discrete"])
@pytest.mark.parametrize("bits", [32, 64])
def test_masked_and_plain_sums_release_the_same_floats(rounding: str, bits: int) -> None:
    d, users = 100_003, 20
    mechanism = mechanisms.build({"kind": "independent"}, 2)
    privatiser = Privatiser.of(rounding, 3.0, 1.0, d, users, 1.0, (bits,))  # type: ignore[arg-type]
    assert (privatiser.bits, privatiser.grid is not None) == (bits, True)
    assert privatiser.grid is not None
    generator = np.random.default_rng(7)
    sums = generator.normal(0, 1 / math.sqrt(d), (users, d)).astype(np.float32).astype(np.float64)
    total = sum(privatiser.grid.snap_(torch.from_numpy(each.copy())) for each in sums)
    words = sum(encode([(each, 1.0)], privatiser.grid.spacing, bits) for each in sums)
    streams = [privatiser.stream(mechanism, d, SecureNoise(KEY)) for _ in range(2)]
    for _ in range(2):
        plain = privatiser.privatise(torch.clone(total), streams[0])  # type: ignore[arg-type]
        masked = privatiser.privatise_words(words.copy(), streams[1])  # type: ignore[attr-defined]
        assert masked.numpy().tobytes() == plain.numpy().tobytes()


def test_a_liar_at_the_edge_earns_nothing() -> None:
    """Exact: every value of the noise goes through the code, with its probability. Noise multiplier 2, one number.

    A liar brings the sum next to the edge of the ring; one user adds its clip norm or not. Gaussian noise allows an
    advantage of 2 Phi(1 / 4) - 1 in telling which. Read first and noised then, the two worlds share no release at all.
    """
    grid, cells_of_clip = Grid(2.0**-8), 256
    std = 2.0
    law = np.arange(-5 * 1024, 5 * 1024 + 1, dtype=np.float64)
    edges = (np.arange(law.size + 1) - 5 * 1024 - 0.5) * grid.spacing / (std * math.sqrt(2))
    weights = np.diff(torch.erf(torch.from_numpy(edges)).numpy()) / 2
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    noise = torch.from_numpy(law * grid.spacing / std)

    def release(user: bool, noise_first: bool) -> dict[float, float]:
        words = np.full(law.size, 2**31 - 100 + cells_of_clip * user, "<u4")
        if noise_first:
            seen = read(grid.add_noise_to_words_(words, noise, std), grid.spacing)
        else:
            seen = read(words, grid.spacing) + law * grid.spacing
        chances: dict[float, float] = {}
        for value, weight in zip(seen.tolist(), weights.tolist(), strict=True):
            chances[value] = chances.get(value, 0.0) + weight
        return chances

    def advantage(noise_first: bool) -> float:
        there, absent = release(True, noise_first), release(False, noise_first)
        return sum(abs(there.get(value, 0.0) - absent.get(value, 0.0)) for value in there | absent) / 2

    allowed = math.erf(1 / (4 * math.sqrt(2)))
    assert allowed == pytest.approx(0.1974, abs=5e-5)
    assert 0.196 < advantage(True) <= allowed + 1e-12
    assert advantage(False) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("users", "bits", "cost"), [(2_000, 32, 0.0060), (20_000, 64, 0.0010)])
def test_words_are_as_wide_as_they_must_be(users: int, bits: int, cost: float) -> None:
    """1e7 parameters, noise multiplier 10, rows of norm 3: 20 000 users would cost 4.8 % more noise in 32 bits."""
    d = 10**7
    found = Privatiser.of("grid", 10.0, 1.0, d, users, 3.0, (32, 64))
    assert found.grid is not None
    assert found.bits == bits
    assert found.std / 10 - 1 - users * 2.0**-23 == pytest.approx(cost, rel=0.25)
    # Honest sums and 16 standard deviations fit in the ring.
    cells = users * found.std / 10 / found.grid.spacing + 16 * found.std * 3 / found.grid.spacing
    assert cells < 2 ** (bits - 1)
    assert Privatiser.of("grid", 10.0, 1.0, d, users, 3.0).std * (1 + RING_COST) >= found.std


def test_a_small_run_has_the_grid_of_a_plain_one() -> None:
    setting = ("grid", 1.0, 1.0, 10_000, 100, 2.0)
    plain, masked = Privatiser.of(*setting), Privatiser.of(*setting, (32, 64))  # type: ignore[arg-type]
    assert (plain.bits, masked.bits) == (0, 32)
    assert (plain.std, plain.grid) == (masked.std, masked.grid)


def test_what_does_not_fit_is_refused_before_anything_is_drawn() -> None:
    privatiser = Privatiser.of("grid", 1.0, 1.0, 8, 4, 1.0, (32,))
    stream = privatiser.stream(mechanisms.build({"kind": "independent"}, 2), 8, SecureNoise(KEY))
    for words in (np.zeros(7, "<u4"), np.zeros(8, "<u8"), np.zeros((2, 4), "<u4")):
        with pytest.raises(BadInput, check=coded("sum-shape")):
            privatiser.privatise_words(words, stream)
    assert stream.round == 0
    grid, zeros = Grid(2.0**-10), np.zeros(4, "<u4")
    for noise, std, whole, code in [
        (torch.zeros(3, dtype=torch.float64), 1.0, False, "sum-shape"),
        (torch.zeros(4), 1.0, False, "sum-shape"),
        (torch.zeros(4, dtype=torch.float64), math.nan, False, "noise-std"),
        (torch.zeros(4, dtype=torch.float64), 0.0, False, "noise-std"),
        (torch.full((4,), math.nan, dtype=torch.float64), 1.0, False, "noise-too-coarse"),
        (torch.full((4,), 2.0**30, dtype=torch.float64), 1.0, False, "noise-too-coarse"),
        (torch.full((4,), 0.5, dtype=torch.float64), 1.0, True, "noise-not-whole"),
        (torch.full((4,), math.inf, dtype=torch.float64), 1.0, True, "words-range"),
    ]:
        with pytest.raises(BadInput, check=coded(code)):
            grid.add_noise_to_words_(zeros, noise, std, whole=whole)
    assert not zeros.any()
