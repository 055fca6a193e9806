"""The log as a Merkle tree (RFC 6962, section 2.1), and its signed checkpoint in the form of transparency logs.

A leaf is the hash of one journal row, 32 bytes. Some nodes (`Tree.others`) show that a certificate's rows stand in the
tree of a checkpoint, and nothing else of the log. The checkpoint is a signed note
(C2SP tlog-checkpoint and signed-note), so other people's witnesses can cosign it:

    fieldfare.ledger/LEDGER
    ROWS
    BASE64 OF THE ROOT
    [further lines that the signer vouches for]

    — fieldfare.ledger/LEDGER BASE64 OF (4 BYTES OF THE KEY'S HASH, ED25519 SIGNATURE OF THE LINES ABOVE)
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left
from collections.abc import Sequence

from fieldfare.signatures import public_key, sign

# Ed25519, in a signed note.
KEY_KIND = b"\x01"


def leaf(row_hash: bytes) -> bytes:
    """Hash one leaf. row_hash: 32 bytes."""
    return hashlib.sha256(b"\0" + row_hash).digest()


def parent(left: bytes, right: bytes) -> bytes:
    """Hash two neighbours of one level."""
    return hashlib.sha256(b"\1" + left + right).digest()


class Tree:
    """All levels of the tree over some leaves: 64 bytes a leaf.

    Args:
        row_hashes: hashes of the rows, 32 bytes each, in order.
    """

    def __init__(self, row_hashes: Sequence[bytes]) -> None:
        level = [leaf(each) for each in row_hashes]
        self._levels = [level]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            # The last node of an odd level has no neighbour and rises as it is.
            level = [parent(left, right) for left, right in pairs] + level[len(level) & ~1 :]
            self._levels.append(level)

    @property
    def root(self) -> bytes:
        """The tree's root, 32 bytes; of no row: the hash of nothing."""
        return self._levels[-1][0] if self._levels[0] else hashlib.sha256(b"").digest()

    def others(self, rows: Sequence[int]) -> list[bytes]:
        """Return the nodes from which, with `rows` (sorted, from 0), the root follows: those over none of the rows.

        In the order in which RFC 6962's recursion from the root meets them, the left half first.
        """
        found = []

        def visit(first: int, count: int, inside: Sequence[int]) -> None:
            if not inside:
                height = (count - 1).bit_length()
                found.append(self._levels[height][first >> height])
            elif count > 1:
                left = 1 << (count - 1).bit_length() - 1
                middle = bisect_left(inside, first + left)
                visit(first, left, inside[:middle])
                visit(first + left, count - left, inside[middle:])

        visit(0, len(self._levels[0]), rows)
        return found


def origin(ledger: str) -> str:
    """Return the name under which the log of `ledger` signs, which is also its key's name."""
    return f"fieldfare.ledger/{ledger}"


def key_hash(name: str, public_key: bytes) -> bytes:
    """Return the 4 bytes by which a signed note names a key."""
    return hashlib.sha256(name.encode() + b"\n" + KEY_KIND + public_key).digest()[:4]


def checkpoint(ledger: str, rows: int, root: bytes, private_key: bytes, further: Sequence[str] = ()) -> str:
    """Sign the tree of the first `rows` rows.

    Args:
        ledger: its id, 32 hex digits.
        root: 32 bytes.
        private_key: the 32 bytes of an Ed25519 private key.
        further: lines that the signature covers too, without line breaks.
    """
    name = origin(ledger)
    text = "".join(f"{line}\n" for line in (name, rows, base64.b64encode(root).decode(), *further))
    signature = key_hash(name, bytes.fromhex(public_key(private_key))) + sign(private_key, text.encode())
    return f"{text}\n\u2014 {name} {base64.b64encode(signature).decode()}\n"
