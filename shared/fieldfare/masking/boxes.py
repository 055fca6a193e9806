"""A seed in a box that only the blinder opens, and only for the reply that it was made for; and who signs what.

HPKE (RFC 9180) in base mode: X25519, HKDF-SHA256, AES-256-GCM; the `info` of a box names run, round, attempt, node,
length, plan and instruction, so a box that is moved elsewhere does not open. All boxes of a sum have one instruction:
nodes that are told to contribute nothing would else leave one node's update. The node signs its box (Ed25519, RFC
8032), and the blinder its receipts.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from fieldfare.errors import BadInput
from fieldfare.masking.words import SEED_BYTES
from fieldfare.signatures import public_key

SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
BOX_BYTES: Final = 32 + SEED_BYTES + 16  # the sender's half of the key agreement, the seed, the tag
_PREFIXES: Final = {"blinder": "ffb1:", "node": "ffn1:"}


@dataclass(frozen=True)
class Purpose:
    """The one reply that a box is for. Its numbers are below 2^64."""

    run: str
    round: int
    attempt: int
    node: int
    numel: int  # how many words the mask has
    plan: str  # SHA-256, hex
    instruction: str  # SHA-256, hex, of what the node was told, as all nodes of the round

    def info(self) -> bytes:
        """The bytes that the box is bound to. No two purposes have the same. Raises `BadInput` for no purpose."""
        numbers = (self.round, self.attempt, self.node, self.numel)
        fits = all(0 <= number < 1 << 64 for number in numbers)
        digests = f"{self.plan} {self.instruction}"
        if "\0" in self.run or not re.fullmatch("[0-9a-f]{64} [0-9a-f]{64}", digests) or not fits:
            raise BadInput("the purpose of a box", "is no reply of a run.", code="box-purpose")
        packed = b"".join(number.to_bytes(8, "big") for number in numbers)
        return b"fieldfare.seed.v2\0" + self.run.encode() + b"\0" + packed + bytes.fromhex(digests)


def seal(blinder: X25519PublicKey, seed: bytes, purpose: Purpose) -> bytes:
    """`seed` in a box of `BOX_BYTES` bytes for `blinder`."""
    return SUITE.encrypt(seed, blinder, purpose.info())


def unseal(key: X25519PrivateKey, box: bytes, purpose: Purpose) -> bytes:
    """The seed of a box that was made for `purpose`. Raises `BadInput` for any other box."""
    with suppress(InvalidTag, ValueError):
        if len(box) == BOX_BYTES:  # so that what is in it has the length of a seed
            return SUITE.decrypt(box, key, purpose.info())
    why = "it was not made for this blinder, run, round, attempt, node, plan and instruction."
    raise BadInput("a box", why, code="box-closed")


def signed_box(box: bytes, purpose: Purpose, bits: int) -> bytes:
    """What a node signs of a `box` for `purpose`, whose mask has words of `bits` bits."""
    return b"fieldfare.box.v1\0" + bits.to_bytes(1, "big") + purpose.info() + box


def receipt_key(secret: bytes) -> bytes:
    """The Ed25519 private key by which the blinder of `secret`, 32 bytes, signs."""
    return hashlib.sha256(b"fieldfare.receipt.key\0" + secret).digest()


def write_key(secret: bytes) -> str:
    """A blinder's public keys as operators pin them: "ffb1:" and 128 hex digits, for boxes and for receipts.

    secret: 32 bytes, its X25519 private key.
    """
    box = X25519PrivateKey.from_private_bytes(secret).public_key()
    return _PREFIXES["blinder"] + box.public_bytes_raw().hex() + public_key(receipt_key(secret))


def read_key(text: str) -> tuple[X25519PublicKey, str]:
    """What `write_key` wrote: the key that boxes are made for, and in hex the one that signs. Raises `BadInput`."""
    raw = _key_bytes(text, "blinder", 64)
    return X25519PublicKey.from_public_bytes(raw[:32]), raw[32:].hex()


def write_node_key(private: bytes) -> str:
    """A node's public key as blinders admit it: "ffn1:" and 64 hex digits. private: 32 bytes, Ed25519."""
    return _PREFIXES["node"] + public_key(private)


def read_node_key(text: str) -> str:
    """What `write_node_key` wrote, 64 hex digits. Raises `BadInput`."""
    return _key_bytes(text, "node", 32).hex()


def _key_bytes(text: str, whose: str, size: int) -> bytes:
    prefix = _PREFIXES[whose]
    if not re.fullmatch(f"{prefix}[0-9a-fA-F]{{{2 * size}}}", text):
        near = f"{prefix} and {2 * size} hex digits"
        raise BadInput(f"{text[:80]!r}", f"is no {whose}'s key.", near, code=f"{whose}-key")
    return bytes.fromhex(text.removeprefix(prefix))
