"""The log's tree is that of RFC 6962, and its checkpoint is a signed note that any witness reads."""

from __future__ import annotations

import base64
import hashlib

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from fieldfare.signatures import public_key
from fieldfare_server.ledger import merkle

# Test vectors of the certificate-transparency project: leaves, and the root of the first n of them.
LEAVES = [bytes.fromhex(x) for x in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"
)]  # fmt: skip
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


@pytest.mark.parametrize("rows", range(1, 9))
def test_roots_are_the_published_ones(rows: int) -> None:
    assert merkle.Tree(LEAVES[:rows]).root.hex() == ROOTS[rows - 1]


def test_the_root_of_no_row_is_the_hash_of_nothing() -> None:
    assert merkle.Tree([]).root == hashlib.sha256(b"").digest()


def climb(row_hashes: dict[int, bytes], others: list[bytes], first: int, count: int) -> bytes:
    """RFC 6962's recursion, as a reader writes it who has some rows and the other nodes."""
    if not any(first <= number < first + count for number in row_hashes):
        return others.pop(0)
    if count == 1:
        return hashlib.sha256(b"\0" + row_hashes[first]).digest()
    left = 1
    while 2 * left < count:
        left *= 2
    halves = climb(row_hashes, others, first, left) + climb(row_hashes, others, first + left, count - left)
    return hashlib.sha256(b"\1" + halves).digest()


@given(st.integers(1, 70).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_some_rows_and_the_other_nodes_give_the_root_and_other_rows_do_not(case: tuple[int, set[int]]) -> None:
    rows, chosen = case
    hashes = [hashlib.sha256(bytes([i])).digest() for i in range(rows)]
    tree = merkle.Tree(hashes)
    others, shown = tree.others(sorted(chosen)), {number: hashes[number] for number in chosen}
    assert len(others) <= len(chosen) * rows.bit_length()
    left = list(others)
    assert climb(shown, left, 0, rows) == tree.root
    assert not left
    changed = shown | {min(chosen): bytes(32)}
    assert climb(changed, list(others), 0, rows) != tree.root


def test_a_checkpoint_is_a_signed_note() -> None:
    key, root = bytes(range(32)), merkle.Tree(LEAVES).root
    note = merkle.checkpoint("ab" * 16, 8, root, key, ["one more line"])
    text, _, lines = note.rpartition("\n\n")
    assert text.splitlines() == ["fieldfare.ledger/" + "ab" * 16, "8", base64.b64encode(root).decode(), "one more line"]
    dash, name, signed = lines.rstrip("\n").split(" ")
    known, raw = bytes.fromhex(public_key(key)), base64.b64decode(signed)
    assert (dash, name) == ("\u2014", "fieldfare.ledger/" + "ab" * 16)
    assert raw[:4] == hashlib.sha256(name.encode() + b"\n\x01" + known).digest()[:4]
    Ed25519PublicKey.from_public_bytes(known).verify(raw[4:], f"{text}\n".encode())
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(known).verify(raw[4:], f"{text.replace('8', '9')}\n".encode())
