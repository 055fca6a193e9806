"""The staircase map of float64 noise: right words, stairs that lie under the density, and a residual that fills it."""

from __future__ import annotations

import hashlib
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import special, stats

from fieldfare.noise import CHUNK, SecureNoise, staircase

KEY = bytes(range(32))
FALSE_ALARM = 1e-9
"""Chance that a distribution test fails with a perfect map. Keys and seeds are fixed, so it fails always or never."""
STAIRS = staircase.half_widths()


def words(row: int, block: int, blocks: int) -> np.ndarray:
    """Counter mode spelled out, in words of 64 bits; the key is that of stream "z"."""
    message = b"9:staircasez"
    key = hashlib.blake2b(message, key=KEY, digest_size=32, person=b"fieldfare.noise1").digest()
    ecb = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # the definition of CTR, not a use of ECB
    stream = b"".join(ecb.update(row.to_bytes(8, "big") + (block + i).to_bytes(8, "big")) for i in range(blocks))
    return np.frombuffer(stream, "<u8")


@pytest.mark.parametrize(("row", "offset"), [(0, 0), (7, 3), (2**40, 2**47 - 1)])
def test_each_number_is_its_word_times_its_stair(row: int, offset: int) -> None:
    n = 5000
    drawn = SecureNoise(KEY).standard_normal(n, row=row, offset=offset, dtype=torch.float64).numpy()
    own = words(row, offset // 2, n // 2 + 1)[offset % 2 :][:n]
    residual = 0
    for element, word, number in zip(range(offset, offset + n), own.tolist(), drawn.tolist(), strict=True):
        part = word % staircase.PARTS
        if part < len(STAIRS):
            signed = word - 2**64 * (word >= 2**63)
            assert number == float(signed) * (float(STAIRS[part]) * 2.0**-63)
            continue
        residual += 1
        tries = words(row, 2**63 + 2**12 * element, 16).reshape(-1, 4)
        numbers, accepted = staircase.try_residual(tries)
        assert number == numbers[accepted.argmax()]
    assert 0 < residual < 30  # 7.3 are expected


def test_a_number_of_the_residual_is_its_first_accepted_try() -> None:
    """However many tries are made at a time: one element in 200 needs a third one."""
    elements = 7 * np.arange(3000)
    drawer = SecureNoise(KEY).drawer("z", 5, 0, int(elements[-1]) + 1)
    assert isinstance(drawer, staircase.StaircaseDrawer)
    tries = np.concatenate([words(5, 2**63 + 2**12 * int(element), 16) for element in elements]).reshape(-1, 4)
    numbers, accepted = (result.reshape(-1, 8) for result in staircase.try_residual(tries))
    first = accepted.argmax(axis=1)
    assert accepted.any(axis=1).all()
    assert 2 < (first > 1).sum() < 40
    assert np.array_equal(drawer._draw_residual(elements), numbers[np.arange(len(elements)), first])


def test_the_stairs_are_right_on_any_machine() -> None:
    """Their digest is recorded, and no other last bit of an exponential would round one of them elsewhere."""
    assert hashlib.sha256(STAIRS.astype("<f8").tobytes()).hexdigest() == DIGEST
    assert np.array_equal(STAIRS * 2.0**26, np.rint(STAIRS * 2.0**26))
    assert np.all(np.diff(STAIRS) < 0)


DIGEST = "3587bae2e996fc8579e1be2460e0e1f6e6799fde4dc0175a2264a6b7695a5bc6"


def test_the_stairs_lie_under_the_density_in_exact_arithmetic() -> None:
    getcontext().prec = 40
    root = 1 / (2 * Decimal("3.141592653589793238462643383279502884197169")).sqrt()
    below = Fraction(0)
    slack = []
    for stair in STAIRS.tolist():
        below += 1 / (2 * Fraction(stair) * staircase.PARTS)
        density = Fraction(root * (-(Decimal(stair) ** 2) / 2).exp())
        slack.append(float(density - below))
    # Never above f, and never further below it than 2^-26 of width is worth.
    assert min(slack) > 0
    assert max(slack) < 0.25 * 2.0**-26
    # No further rectangle fits under the peak: the largest one has area 2 a (f(a) - below).
    a = np.linspace(0, STAIRS[-1], 100_001)
    assert (2 * a * (staircase.density(a) - float(below))).max() < 1 / staircase.PARTS
    assert len(STAIRS) == staircase.PARTS - staircase.RESIDUAL


def test_the_pieces_cover_the_residual() -> None:
    start, end, span, peak, base = staircase._table().pieces[1:].T
    for share in np.linspace(0, 1, 33):
        x = start + share * (end - start)
        line = peak * (1 - (x - start) / span)
        left = staircase.density(x) - base
        assert np.all(left >= -1e-16)
        assert np.all(left <= line)


def below_residual(x: np.ndarray) -> np.ndarray:
    """P(|X| < x) for X from the residual."""
    under_stairs = (np.minimum(x[:, None], STAIRS) / STAIRS).sum(axis=1) / staircase.PARTS
    return (special.erf(x / np.sqrt(2)) - under_stairs) * staircase.PARTS / staircase.RESIDUAL


def test_the_residual_has_its_law() -> None:
    n = 1 << 17
    rng = np.random.default_rng(5)
    numbers, accepted = staircase.try_residual(rng.integers(0, 2**64, (n, 4), dtype=np.uint64))
    x = numbers[accepted]
    grid = np.concatenate([np.linspace(0, STAIRS[0], 3001), [4.4, 4.8, 5.4, 16.0]])
    law = below_residual(grid)
    assert law[-1] == pytest.approx(1, abs=1e-12)
    counts = np.histogram(np.abs(x), bins=grid)[0]
    expected = np.diff(law) * len(x)
    keep = expected > 5
    left = [counts[~keep].sum()], [expected[~keep].sum()]
    observed, wanted = np.append(counts[keep], left[0]), np.append(expected[keep], left[1])
    assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > FALSE_ALARM
    assert stats.binomtest(int((x > 0).sum()), len(x), 0.5).pvalue > FALSE_ALARM
    beyond = 2 * special.ndtr(-STAIRS[0]) * staircase.PARTS / staircase.RESIDUAL  # the tails
    assert stats.binomtest(int((np.abs(x) > STAIRS[0]).sum()), len(x), beyond).pvalue > FALSE_ALARM
    assert accepted.mean() > 0.9


def test_the_tail_is_a_normals_far_out() -> None:
    """Given that a number is beyond a_0, it has the law of a normal out there."""
    n = 1 << 18
    rng = np.random.default_rng(6)
    tries = rng.integers(0, 2**64, (n, 4), dtype=np.uint64)
    tries[:, 0] &= np.uint64(1)  # the first piece
    numbers, accepted = staircase.try_residual(tries)
    x = np.abs(numbers[accepted])
    assert x.min() > STAIRS[0]
    tail = special.ndtr(-STAIRS[0])
    assert stats.kstest(x, lambda values: 1 - special.ndtr(-values) / tail).pvalue > FALSE_ALARM
    assert 0.93 < accepted.mean() < 0.97


def test_the_furthest_number_is_past_thirteen() -> None:
    words_of_tries = [[0, 127, 0, 0], [1, 127, 0, 0], [0, 2**64 - 1, 0, 0], [0, 0, 0, 0], [2**64 - 1] * 4]
    numbers, accepted = staircase.try_residual(np.array(words_of_tries, dtype=np.uint64))
    assert np.isfinite(numbers).all()
    assert accepted.tolist() == [True, True, True, False, False]
    far = STAIRS[0] - np.log(127.5 * 2.0**-64) / STAIRS[0]
    assert numbers[:2].tolist() == pytest.approx([far, -far], rel=1e-15)
    assert 13.5 < far < 13.7
    assert numbers[2] == STAIRS[0]  # the nearest of the tail


def test_no_number_comes_twice_and_the_middle_is_fine() -> None:
    """Two equal ones of 2^20 numbers of 53 bits have a chance of 10^-4; with this key there are none."""
    drawn = SecureNoise(KEY).standard_normal(1 << 20, row=2, dtype=torch.float64).numpy()
    assert len(np.unique(drawn)) == len(drawn)
    for width in (1e-2, 1e-4):
        inside = int((np.abs(drawn) < width).sum())
        assert stats.binomtest(inside, len(drawn), float(special.erf(width / np.sqrt(2)))).pvalue > FALSE_ALARM
    fine = np.floor(drawn * 2.0**38).astype(np.int64) & 255  # and where they lie in a cell of 2^-30 is open
    assert stats.chisquare(np.bincount(fine, minlength=256)).pvalue > FALSE_ALARM


def test_a_stair_is_filled_evenly() -> None:
    """The numbers of each stair fill it evenly."""
    n = CHUNK
    own = words(4, 0, n // 2)
    part = (own % staircase.PARTS).astype(np.int64)
    drawn = SecureNoise(KEY).standard_normal(n, row=4, dtype=torch.float64).numpy()
    inside = part < len(STAIRS)
    share = drawn[inside] / STAIRS[part[inside]]
    assert np.abs(share).max() <= 1
    assert stats.kstest(share, "uniform", args=(-1, 2)).pvalue > FALSE_ALARM


@pytest.mark.slow
def test_distribution_of_many() -> None:
    """2^26 numbers in 2^14 cells of equal probability, and tails: a false alarm of 1e-9 each."""
    noise, n, rows = SecureNoise(KEY), 1 << 22, 16
    cells, tails, thresholds = np.zeros(1 << 14, dtype=np.int64), np.zeros(4, dtype=np.int64), [4.0, 4.5, 5.0, 5.3]
    edges = special.ndtri(np.linspace(0, 1, len(cells) + 1))
    for row in range(rows):
        sample = np.sort(noise.standard_normal(n, row=row, dtype=torch.float64).numpy())
        cells += np.diff(np.searchsorted(sample, edges))
        tails += [n - np.searchsorted(sample, t) + np.searchsorted(sample, -t) for t in thresholds]
    assert stats.chisquare(cells).pvalue > FALSE_ALARM
    for count, threshold in zip(tails.tolist(), thresholds, strict=True):
        assert stats.binomtest(count, n * rows, 2 * float(special.ndtr(-threshold))).pvalue > FALSE_ALARM
