"""The noise source: right bits (against AES block by block), right floats, right distribution, and no other way in."""

from __future__ import annotations

import copy
import hashlib
import pickle
from typing import Any, get_args

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from fieldfare import mechanisms
from fieldfare.errors import BadInput
from fieldfare.noise import CHUNK, UNIT, Map, SecureNoise, Source
from support.refusals import coded

KEY = bytes(range(32))
FALSE_ALARM = 1e-9
"""Chance that a distribution test fails with a perfect source. The key is fixed, so it fails always or never."""


def subkey(purpose: str, stream: str) -> bytes:
    message = f"{len(purpose)}:{purpose}{stream}".encode()
    return hashlib.blake2b(message, key=KEY, digest_size=32, person=b"fieldfare.noise1").digest()


def keystream(key: bytes, row: int, first: int, blocks: int) -> bytes:
    """Counter mode spelled out: one ECB call a block."""
    ecb = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # the definition of CTR, not a use of ECB
    return b"".join(ecb.update(row.to_bytes(8, "big") + (first + i).to_bytes(8, "big")) for i in range(blocks))


def unit_by_definition(row: int, unit: int, dtype: type) -> np.ndarray:
    """One unit of stream "z" as the module's documentation states it, in float64 with math functions of scipy."""
    half = UNIT // 2
    key = subkey("normal", "z")
    words = np.frombuffer(keystream(key, row, unit * 3 * half // 4, 3 * half // 4), "<u4").reshape(3, half)
    fine = np.frombuffer(keystream(key, row, 2**62 + unit * half // 4, half // 4), "<u4").astype(np.float64)
    high, low = (words[:2] & 0x7FFFFFFF).astype(np.float64)
    uniform = (high + (low + 0.5) * 2.0**-31) * 2.0**-31
    angle = words[2].view("<i4").astype(np.float64) + (fine * 2.0**-32 if dtype is np.float64 else 0)
    radius = np.sqrt(-2 * np.log(uniform))
    turn = angle * 2.0**-31 * np.pi
    return np.concatenate([radius * np.cos(turn), radius * np.sin(turn)])


@pytest.mark.parametrize(("row", "unit"), [(0, 0), (1, 0), (7, 3), (2**40, 2**33)])
def test_normals_are_box_muller_on_aes_ctr_made_block_by_block(row: int, unit: int) -> None:
    double = SecureNoise(KEY, map=2).standard_normal(UNIT, row=row, offset=unit * UNIT, dtype=torch.float64).numpy()
    np.testing.assert_allclose(double, unit_by_definition(row, unit, np.float64), rtol=0, atol=1e-14)
    single = SecureNoise(KEY).standard_normal(UNIT, row=row, offset=unit * UNIT).numpy()
    assert np.array_equal(single, SecureNoise(KEY, map=2).standard_normal(UNIT, row=row, offset=unit * UNIT).numpy())
    np.testing.assert_allclose(single, unit_by_definition(row, unit, np.float32), rtol=0, atol=2e-4)
    assert np.median(np.abs(single - unit_by_definition(row, unit, np.float32))) < 2e-7


def test_bytes_are_the_keystream_of_their_own_domain() -> None:
    noise = SecureNoise(KEY)
    expected = keystream(subkey("bytes", "release"), 5, 0, 64)
    assert bytes(noise.bytes(1024, row=5, stream="release")) == expected
    assert bytes(noise.bytes(100, row=5, offset=333, stream="release")) == expected[333:433]


def test_golden_values() -> None:
    """Recorded once: a change here breaks every run that is resumed from its key, and needs another map."""
    noise = SecureNoise(KEY, map=2)
    assert bytes(noise.bytes(16, row=0, stream="golden")).hex() == GOLDEN_BYTES
    first = noise.standard_normal(4, row=3, offset=10, dtype=torch.float64).tolist()
    assert first == pytest.approx(GOLDEN_NORMALS, rel=1e-13)
    assert noise.fingerprint() == GOLDEN_FINGERPRINT
    stairs = SecureNoise(KEY)
    assert stairs.standard_normal(4, row=3, offset=10, dtype=torch.float64).tolist() == GOLDEN_STAIRS
    assert stairs.fingerprint() == GOLDEN_STAIRS_FINGERPRINT


GOLDEN_BYTES = "b0d8b11bdb9eb08a4d2e91ec8f6e9296"
GOLDEN_NORMALS = [1.6474352088020214, -0.37022916827614816, 0.6705444428610746, -0.46092137582390114]
GOLDEN_FINGERPRINT = "001c166f6a75fb22234e573c3e9482eb"
GOLDEN_STAIRS = [-1.6322142116706244, -0.6944057131228124, -0.290687861531214, -0.21867910505527116]
GOLDEN_STAIRS_FINGERPRINT = "a52789a4fcacf18d7ea6777932bf72c3"


@settings(max_examples=40, deadline=None)
@given(
    offset=st.integers(0, 3 * UNIT),
    n=st.integers(0, 5 * UNIT),
    cut=st.integers(0, 5 * UNIT),
    row=st.integers(0, 2**50),
    double=st.booleans(),
    map_=st.sampled_from(get_args(Map)),
)
def test_any_split_gives_the_same_floats(offset: int, n: int, cut: int, row: int, double: bool, map_: Map) -> None:
    dtype = torch.float64 if double else torch.float32
    noise = SecureNoise(KEY, map=map_)
    whole = noise.standard_normal(offset + n, row=row, dtype=dtype)
    cut = min(cut, n)
    parts = torch.empty(n, dtype=dtype)
    noise.normal_(parts[cut:], row=row, offset=offset + cut)
    noise.normal_(parts[:cut], row=row, offset=offset)
    assert torch.equal(whole[offset:], parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_and_chunk_phase_change_nothing(dtype: torch.dtype) -> None:
    n = 5 * CHUNK + 12345
    one = SecureNoise(KEY, threads=1).standard_normal(n, row=9, dtype=dtype)
    for threads in (2, 3, 5):
        assert torch.equal(one, SecureNoise(KEY, threads=threads).standard_normal(n, row=9, dtype=dtype))
    shifted = SecureNoise(KEY, threads=2).standard_normal(n - 777, row=9, offset=777, dtype=dtype)
    assert torch.equal(one[777:], shifted)


def test_both_dtypes_of_box_muller_are_the_same_number() -> None:
    noise = SecureNoise(KEY, map=2)
    single = noise.standard_normal(100_000, row=1).double()
    double = noise.standard_normal(100_000, row=1, dtype=torch.float64)
    assert float((single - double).abs().max()) < 3e-4  # next to the centre float32 radii are this coarse
    assert float((single - double).abs().median()) < 1e-7


def forced(monkeypatch: pytest.MonkeyPatch, words: tuple[int, int, int], dtype: torch.dtype) -> np.ndarray:
    """What comes out where every pair's words are these: the map from bits to numbers at its edges."""
    from fieldfare.noise.aes import AesDrawer

    def constant(self: AesDrawer, units: int, block: int, planes: int) -> np.ndarray:
        block_of = np.array(words[:planes] if planes == 3 else (0,), dtype=np.uint32)
        return np.broadcast_to(block_of[None, :, None], (units, planes, UNIT // 2)).copy()

    monkeypatch.setattr(AesDrawer, "_words", constant)
    return SecureNoise(KEY, map=2).standard_normal(UNIT, row=0, dtype=dtype).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_tail_reaches_past_nine_and_has_the_right_mass(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    largest = forced(monkeypatch, (0, 0, 0), dtype)
    assert largest[0] == pytest.approx(np.sqrt(2 * 63 * np.log(2)), rel=1e-6)  # 9.345
    assert np.isfinite(largest).all()
    # A radius of r has P(R > r) = exp(-r^2 / 2): the words for U = 1e-15 must give exactly that radius.
    cell = round(1e-15 * 2**62)
    high, low = divmod(cell, 2**31)
    u = (cell + 0.5) * 2.0**-62  # 1e-15 up to 0.02 %, the fineness of the grid out there
    radius = forced(monkeypatch, (high, low, 0), dtype)[0]
    assert radius == pytest.approx(np.sqrt(-2 * np.log(u)), rel=1e-6)  # 8.311
    assert radius > 7.9
    neighbour = forced(monkeypatch, (high, low + 1, 0), torch.float64)[0]
    step = np.exp(-(neighbour**2) / 2) / u - 1
    assert abs(step) < 1e-3  # the grid of probabilities is finer than 0.1 % even out here


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_other_edge_is_finite(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    smallest = forced(monkeypatch, (0xFFFFFFFF, 0xFFFFFFFF, 0x80000000), dtype)
    assert np.isfinite(smallest).all()
    assert np.abs(smallest).max() < 1e-3


@pytest.mark.parametrize(
    ("source", "dtype", "map_"),
    [
        ("aes-256-ctr", torch.float32, 3),
        ("aes-256-ctr", torch.float64, 2),
        ("aes-256-ctr", torch.float64, 3),
        ("philox-4x32-10", torch.float32, 3),
        ("philox-4x32-10", torch.float64, 3),
    ],
)
def test_distribution(source: Source, dtype: torch.dtype, map_: Map) -> None:
    """KS, moments, tail counts, quadrant counts and autocorrelation, each at a false alarm of 1e-9."""
    n = 1 << 20
    sample = SecureNoise(KEY, source=source, map=map_).standard_normal(n, row=11, dtype=dtype).double().numpy()
    bound = special.ndtri(1 - FALSE_ALARM / 2)
    assert stats.kstest(sample, "norm").pvalue > FALSE_ALARM
    assert abs(sample.mean()) * np.sqrt(n) < bound
    assert abs((sample**2).mean() - 1) * np.sqrt(n / 2) < bound
    assert abs((sample**4).mean() - 3) * np.sqrt(n / 96) < bound
    cells = np.histogram(special.ndtr(sample), bins=1024, range=(0, 1))[0]
    assert stats.chisquare(cells).pvalue > FALSE_ALARM
    for threshold in (3.0, 4.0, 4.5):
        expected = 2 * special.ndtr(-threshold) * n
        count = int((np.abs(sample) > threshold).sum())
        assert stats.binomtest(count, n, expected / n).pvalue > FALSE_ALARM
    for lag in (1, 2, 3, UNIT // 2 - 1, UNIT // 2, UNIT // 2 + 1, UNIT, CHUNK):
        assert abs((sample[:-lag] * sample[lag:]).mean()) * np.sqrt(n - lag) < bound
    # A pair's cosine and sine parts must be independent, not only uncorrelated: their squares too.
    pairs = sample.reshape(-1, 2, UNIT // 2)
    squares = (pairs[:, 0] ** 2 - 1) * (pairs[:, 1] ** 2 - 1) / 2
    assert abs(squares.mean()) * np.sqrt(squares.size) < bound


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_streams_keys_and_sub_keys_are_unrelated(dtype: torch.dtype) -> None:
    n = 1 << 16
    noise = SecureNoise(KEY)
    draws = {
        "z": noise.standard_normal(n, row=0, dtype=dtype),
        "next row": noise.standard_normal(n, row=1, dtype=dtype),
        "other stream": noise.standard_normal(n, row=0, dtype=dtype, stream="init"),
        "derived": noise.derive("init").standard_normal(n, row=0, dtype=dtype),
        "derived twice": noise.derive("init").derive("init").standard_normal(n, row=0, dtype=dtype),
        "other key": SecureNoise(KEY[::-1]).standard_normal(n, row=0, dtype=dtype),
        "philox": SecureNoise(KEY, source="philox-4x32-10").standard_normal(n, row=0, dtype=dtype),
    }
    bound = special.ndtri(1 - FALSE_ALARM / 2)
    names = list(draws)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert abs(float((draws[a].double() * draws[b].double()).mean())) * np.sqrt(n) < bound, (a, b)


@pytest.mark.parametrize("source", ["aes-256-ctr", "philox-4x32-10"])
def test_every_row_has_bits_of_its_own(source: Any) -> None:
    noise = SecureNoise(bytes(32), source=source)
    rows = torch.stack([noise.standard_normal(1000, row=row) for row in range(8)])
    assert (torch.corrcoef(rows) - torch.eye(8)).abs().max() < 0.2  # 6 standard errors


def test_a_view_from_a_row_is_the_same_matrix_further_down() -> None:
    noise = SecureNoise(KEY)
    view = noise.from_row(5).from_row(2)
    assert torch.equal(view.standard_normal(5000, row=3, offset=7), noise.standard_normal(5000, row=10, offset=7))
    same = {"row": 3, "stream": "init"}
    assert torch.equal(view.standard_normal(9, **same), noise.standard_normal(9, **same))
    assert view.bytes(9, row=3, stream="release") == noise.bytes(9, row=3, stream="release")
    assert view.fingerprint() == noise.fingerprint()
    assert torch.equal(view.derive("x").standard_normal(9, row=0), noise.derive("x").standard_normal(9, row=0))
    for first in (-1, 1 << 62):
        with pytest.raises(BadInput, check=coded("out-of-range", f"row = {first}")):
            noise.from_row(first)
    with pytest.raises(BadInput, check=coded("out-of-range", "row = -1")):
        view.standard_normal(1, row=-1)


def test_purposes_cannot_be_confused_by_their_names() -> None:
    noise = SecureNoise(KEY)
    keys = {
        noise._subkey(purpose, label)
        for purpose, label in [("normal", "z"), ("normalz", ""), ("bytes", "z"), ("derive", "z"), ("6:normal", "z")]
    }
    assert len(keys) == 5


def test_generator_is_fixed_by_key_stream_and_row() -> None:
    noise = SecureNoise(KEY)
    first = noise.generator("select", 4).integers(0, 1 << 62, 8)
    assert np.array_equal(first, noise.generator("select", 4).integers(0, 1 << 62, 8))
    assert not np.array_equal(first, noise.generator("select", 5).integers(0, 1 << 62, 8))
    assert not np.array_equal(first, noise.generator("init", 4).integers(0, 1 << 62, 8))
    uniform = noise.uniform(1 << 16, row=0, stream="select")
    assert 0 <= uniform.min() < uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > FALSE_ALARM


def test_the_key_is_never_shown() -> None:
    noise = SecureNoise(KEY)
    for text in (repr(noise), str(noise), noise.fingerprint()):
        assert KEY.hex()[:8] not in text
        assert "x01" not in text
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            leak(noise)


@pytest.mark.parametrize("key", [b"", b"k" * 31, b"k" * 33, "k" * 32, None])
def test_a_key_is_32_bytes(key: object) -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "noise key", "32")):
        SecureNoise(key)  # type: ignore[arg-type]


def test_bad_requests_say_what_and_why() -> None:
    noise = SecureNoise(KEY)
    with pytest.raises(BadInput, check=coded("out-of-range", "row = -1")):
        noise.standard_normal(3, row=-1)
    with pytest.raises(BadInput, check=coded("out-of-range", "elements")):
        noise.standard_normal(3, row=0, offset=2**48)
    with pytest.raises(BadInput, check=coded("wrong-form", "noise target of shape")):
        noise.normal_(torch.empty(4, 4), row=0)
    with pytest.raises(BadInput, check=coded("wrong-form", "noise target of shape")):
        noise.normal_(torch.empty(8)[::2], row=0)
    with pytest.raises(BadInput, check=coded("wrong-form", "noise target of shape")):
        noise.normal_(torch.empty(8, dtype=torch.float16), row=0)
    with pytest.raises(BadInput, check=coded("unknown", "noise source")):
        SecureNoise(KEY, source="mersenne")  # type: ignore[arg-type]
    with pytest.raises(BadInput, check=coded("out-of-range", "threads")):
        SecureNoise(KEY, threads=0)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    """The known-answer vectors of the Random123 distribution for philox4x32 with 10 rounds."""
    from fieldfare.noise.philox import philox4x32

    words = philox4x32(tuple(torch.tensor([c]) for c in counter), key)  # type: ignore[arg-type]
    assert tuple(int(word) for word in words) == expected


def test_philox_splits_like_aes() -> None:
    noise = SecureNoise(KEY, source="philox-4x32-10")
    whole = noise.standard_normal(3 * UNIT, row=2)
    assert torch.equal(whole[1000:9000], noise.standard_normal(8000, row=2, offset=1000))


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2)])
def test_a_state_made_by_another_map_from_bits_to_floats_is_refused(before: Map, after: Map) -> None:
    """A resumed run never goes on with other floats than it began with."""
    mechanism = mechanisms.build({"kind": "independent"}, 4)
    old = mechanism.stream(8, SecureNoise(KEY, map=before)).state_dict()
    with pytest.raises(BadInput, check=coded("differs", "noise state")):
        mechanism.stream(8, SecureNoise(KEY, map=after)).load_state_dict(old)


def test_every_view_keeps_the_map() -> None:
    old, new = (SecureNoise(KEY, map=map_) for map_ in get_args(Map))
    for view in (lambda n: n.derive("x"), lambda n: n.from_row(1), lambda n: n.with_nonces([bytes(16)], lambda row: 0)):
        assert (view(old).map, view(new).map) == (2, 3)
        rows = [view(noise).standard_normal(4, row=0, dtype=torch.float64) for noise in (old, new)]
        assert not torch.equal(*rows)
    with pytest.raises(BadInput, check=coded("unknown", "noise map")):
        SecureNoise(KEY, map=1)  # type: ignore[arg-type]
