"""Words and masks: fixed vectors, so that a node, a blinder and a server of any make agree."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from fieldfare.errors import BadInput
from fieldfare.masking.words import RINGS, add_mask_, encode, read, sum_masks
from support.refusals import coded

G = 2.0**-20
SEEDS = [hashlib.sha256(f"node-{n}".encode()).digest() for n in (1, 2)]


def shown(words: object) -> str:
    return " ".join(f"{int(word):08x}" for word in np.asarray(words))


def test_v1_the_mask_of_a_seed() -> None:
    mask = sum_masks([bytes(range(32))], 10**6, 32)
    assert shown(mask[:8]) == "b60090f2 d09f492a 6a9af3a9 80772edd ae765df0 e59fb94a 319bf6a6 3d36c248"
    assert hashlib.sha256(mask.tobytes()).hexdigest() == (
        "a567e55199fd97f1079984e01c831cbce2f35dcba282b8e69052c75e4a0b8584"
    )


def test_v2_encoding() -> None:
    values = np.array([0, G, -G, G / 2, 3 * G / 2, -G / 2, 1, -1, 2048 - G, -2048])
    assert shown(encode([(values, 1.0)], G, 32)) == (
        "00000000 00000001 ffffffff 00000000 00000002 00000000 00100000 fff00000 7fffffff 80000000"
    )
    assert read(encode([(values, 1.0)], G, 32), G).tolist() == [0, G, -G, 0, 2 * G, 0, 1, -1, 2048 - G, -2048]


def test_v4_masking_opening_and_reading() -> None:
    replies = [np.array([5, 0xFFFFFFFD, 7], "<u4"), np.array([0x80000000, 4, 0xFFFFFFF9], "<u4")]
    masked = [add_mask_(words.copy(), seed) for words, seed in zip(replies, SEEDS, strict=True)]
    assert shown(masked[0]) == "8a46d5e5 77d3befd 14136617"
    assert shown(masked[1]) == "c8cbd0e9 44ab6524 5d4e8a88"
    masks = sum_masks(SEEDS, 3, 32)
    assert shown(masks) == "d312a6c9 bc7f2420 7161f09f"
    opened = masked[0] + masked[1] - masks
    assert shown(opened) == "80000005 00000001 00000000"
    assert read(opened, 1.0).tolist() == [-2147483643, 1, 0]


@given(st.lists(st.integers(-(2**51), 2**51), min_size=1, max_size=30), st.sampled_from([32, 64]))
def test_the_ring_is_the_integers_modulo_two_to_the_bits(cells: list[int], bits: int) -> None:
    words = encode([(np.array(cells, np.float64), 1.0)], 1.0, bits)
    assert words.dtype == RINGS[bits][0]
    assert [int(word) for word in words] == [cell % 2**bits for cell in cells]
    if bits == 64:
        assert read(words, 1.0).tolist() == cells


@given(st.lists(st.floats(-(2.0**51), 2.0**51), min_size=1, max_size=30), st.sampled_from([1.0, 2.0**-9, 2.0**40]))
def test_numbers_are_rounded_as_numpy_rounds_them(values: list[float], spacing: float) -> None:
    numbers = np.array(values) * spacing
    ties = np.floor(np.clip(numbers / spacing, -(2.0**50), 2.0**50)) + 0.5
    assert encode([(numbers, 1.0)], spacing, 64).view("<i8").tolist() == np.rint(numbers / spacing).astype(int).tolist()
    assert encode([(ties, 1.0)], 1.0, 64).view("<i8").tolist() == np.rint(ties).astype(int).tolist()


@given(st.integers(1, 70_000), st.sampled_from([32, 64]))
def test_a_mask_is_the_keystream_however_long(numel: int, bits: int) -> None:
    stream = Cipher(algorithms.AES(SEEDS[0]), modes.CTR(bytes(16))).encryptor().update(bytes(numel * bits // 8))
    assert sum_masks(SEEDS[:1], numel, bits).tobytes() == stream


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**51 + 0.5, -(2.0**70)])
def test_what_is_no_cell_is_refused(value: float) -> None:
    with pytest.raises(BadInput, check=coded("words-range")):
        encode([(np.array([0.0, value]), 1.0)], 1.0, 32)


@pytest.mark.parametrize("size", [0, 16, 24, 31, 33])
def test_a_mask_has_a_whole_seed(size: int) -> None:
    with pytest.raises(BadInput, check=coded("mask-seed")):
        add_mask_(np.zeros(4, "<u4"), bytes(size))
