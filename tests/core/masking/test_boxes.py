"""Boxes are HPKE as RFC 9180 has it, and open for the one reply that they were made for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fieldfare.errors import BadInput
from fieldfare.masking.boxes import (
    BOX_BYTES,
    Purpose,
    read_key,
    read_node_key,
    receipt_key,
    seal,
    signed_box,
    unseal,
    write_key,
    write_node_key,
)
from fieldfare.signatures import is_signed, sign
from oracles import hpke
from support.refusals import coded

SECRET = bytes(range(32))
KEY = X25519PrivateKey.from_private_bytes(SECRET)
SEED = bytes(range(32, 64))
PURPOSE = Purpose("run-1", 3, 1, 2**63 + 5, 1_000, "ab" * 32, "cd" * 32)


def test_the_oracle_has_the_vectors_of_the_rfc() -> None:
    """RFC 9180, A.1.1 and A.1.1.1, sequence number 0."""
    private = bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8")
    public = bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d")
    ephemeral = bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736")
    enc = "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
    ct = "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a"
    info, aad, text = b"Ode on a Grecian Urn", b"Count-0", b"Beauty is truth, truth beauty"
    box = hpke.seal(public, text, info, ephemeral, aad=aad, key_bytes=16)
    assert box.hex() == enc + ct
    assert hpke.unseal(private, box, info, aad=aad, key_bytes=16) == text


def test_a_box_is_that_of_the_rfc_in_both_directions() -> None:
    public, info = KEY.public_key(), PURPOSE.info()
    box = seal(public, SEED, PURPOSE)
    assert len(box) == BOX_BYTES == 80
    assert hpke.unseal(KEY.private_bytes_raw(), box, info) == SEED
    foreign = hpke.seal(public.public_bytes_raw(), SEED, info, bytes(range(64, 96)))
    assert unseal(KEY, foreign, PURPOSE) == SEED


def test_the_purpose_in_bytes() -> None:
    numbers = b"".join(n.to_bytes(8, "big") for n in (3, 1, 2**63 + 5, 1_000))
    assert PURPOSE.info() == b"fieldfare.seed.v2\0run-1\0" + numbers + b"\xab" * 32 + b"\xcd" * 32


@pytest.mark.parametrize(
    "other",
    [
        *({"run": "run-2"}, {"round": 2}, {"attempt": 0}, {"node": 5}, {"numel": 999}, {"plan": "ac" * 32}),
        {"instruction": "ce" * 32},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_box_opens_for_nothing_else(other: dict[str, Any]) -> None:
    box = seal(KEY.public_key(), SEED, PURPOSE)
    assert unseal(KEY, box, PURPOSE) == SEED
    with pytest.raises(BadInput, check=coded("box-closed")):
        unseal(KEY, box, replace(PURPOSE, **other))
    with pytest.raises(BadInput, check=coded("box-closed")):
        unseal(X25519PrivateKey.from_private_bytes(SEED), box, PURPOSE)


@given(box=st.binary(max_size=120) | st.binary(min_size=80, max_size=80))
def test_no_bytes_but_a_box_open(box: bytes) -> None:
    with pytest.raises(BadInput, check=coded("box-closed")):
        unseal(KEY, box, PURPOSE)


def test_a_seed_of_another_length_is_none() -> None:
    box = hpke.seal(KEY.public_key().public_bytes_raw(), SEED[:16], PURPOSE.info(), bytes(range(64, 96)))
    with pytest.raises(BadInput, check=coded("box-closed")):
        unseal(KEY, box, PURPOSE)


@pytest.mark.parametrize(
    "other",
    [
        *({"run": "a\0b"}, {"round": -1}, {"node": 2**64}, {"plan": "ab"}, {"plan": "x" * 64}, {"instruction": ""}),
        {"plan": "ab" * 31, "instruction": "cd" * 33},
    ],
)
def test_no_two_purposes_have_the_same_bytes(other: dict[str, Any]) -> None:
    with pytest.raises(BadInput, check=coded("box-purpose")):
        replace(PURPOSE, **other).info()


def test_a_key_is_pinned_as_text() -> None:
    text = write_key(SECRET)
    box, signer = read_key(text)
    assert len(text) == 133
    assert box.public_bytes_raw() == KEY.public_key().public_bytes_raw()
    assert is_signed(signer, sign(receipt_key(SECRET), b"text"), b"text")
    assert not is_signed(signer, sign(SECRET, b"text"), b"text")
    for wrong in ("", text[:-1], text[5:], "ffb2:" + text[5:], text + "00", "ffb1: " + text[6:]):
        with pytest.raises(BadInput, check=coded("blinder-key")):
            read_key(wrong)
    node = write_node_key(SECRET)
    assert is_signed(read_node_key(node), sign(SECRET, b"text"), b"text")
    assert not is_signed(read_node_key(node), sign(SECRET, b"text"), b"texts")
    for wrong in ("", node[:-1], text, "ffn1:" + "x" * 64):
        with pytest.raises(BadInput, check=coded("node-key")):
            read_node_key(wrong)


def test_a_node_signs_the_reply_that_its_box_is_for() -> None:
    box = seal(KEY.public_key(), SEED, PURPOSE)
    texts = {signed_box(box, PURPOSE, 32), signed_box(box, PURPOSE, 64), signed_box(SEED, PURPOSE, 32)}
    assert len(texts | {signed_box(box, replace(PURPOSE, round=4), 32)}) == 4
