"""A seed in a box that only the blinder opens, and only for the reply that it was made for.

HPKE (RFC 9180) in base mode: X25519, HKDF-SHA256, AES-256-GCM; the `info` of a box names run, round, attempt, node,
length and plan, so a box that is moved elsewhere does not open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from fieldfare.errors import BadInput
from fieldfare.masking.masks import SEED_BYTES

SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
BOX_BYTES: Final = 32 + SEED_BYTES + 16
"""The sender's half of the key agreement, the seed, the tag."""
_PREFIX: Final = "ffb1:"
_KEY_BYTES: Final = 32


@dataclass(frozen=True)
class Purpose:
    """The one reply that a box is for.

    Args:
        run: the run's id.
        round, attempt, node: whole numbers below 2^64.
        numel: how many words the mask has.
        plan: SHA-256 of the plan, hex.
    """

    run: str
    round: int
    attempt: int
    node: int
    numel: int
    plan: str

    def info(self) -> bytes:
        """The bytes that the box is bound to. No two purposes have the same. Raises `BadInput` for no purpose."""
        numbers = (self.round, self.attempt, self.node, self.numel)
        try:
            plan = bytes.fromhex(self.plan)
        except ValueError:
            plan = b""
        if "\0" in self.run or len(plan) != 32 or not all(0 <= number < 1 << 64 for number in numbers):
            raise BadInput("the purpose of a box", "is no reply of a run.", code="box-purpose")
        packed = b"".join(number.to_bytes(8, "big") for number in numbers)
        return b"fieldfare.seed.v1\0" + self.run.encode() + b"\0" + packed + plan


def seal(blinder: X25519PublicKey, seed: bytes, purpose: Purpose) -> bytes:
    """`seed` in a box of `BOX_BYTES` bytes for `blinder`."""
    return SUITE.encrypt(seed, blinder, purpose.info())


def unseal(key: X25519PrivateKey, box: bytes, purpose: Purpose) -> bytes:
    """The seed of a box that was made for `purpose`. Raises `BadInput` for any other box."""
    try:
        seed = SUITE.decrypt(box, key, purpose.info()) if len(box) == BOX_BYTES else b""
    except (InvalidTag, ValueError):
        seed = b""
    if len(seed) != SEED_BYTES:
        raise BadInput(
            "a box", "it was not made for this blinder, run, round, attempt, node and plan.", code="box-closed"
        )
    return seed


def write_key(key: X25519PublicKey) -> str:
    """A blinder's public key as operators pin it: "ffb1:" and 64 hex digits."""
    return _PREFIX + key.public_bytes_raw().hex()


def read_key(text: str) -> X25519PublicKey:
    """What `write_key` wrote. Raises `BadInput`."""
    digits = text.removeprefix(_PREFIX)
    try:
        raw = bytes.fromhex(digits) if text.startswith(_PREFIX) and digits.isalnum() else b""
    except ValueError:
        raw = b""
    if len(raw) != _KEY_BYTES:
        raise BadInput(
            f"blinder = {text[:80]!r}", "is no blinder's key.", f"{_PREFIX} and 64 hex digits", code="blinder-key"
        )
    return X25519PublicKey.from_public_bytes(raw)
