"""Ed25519 (RFC 8032): the one way in which heads, keys, terms, boxes, receipts and checkpoints are signed.

Private keys are 32 bytes; public keys are 64 hex digits. `cryptography` is imported when a key is first used.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@lru_cache(maxsize=4)  # a ledger asks for the same two, several times a commit, and each takes longer than to sign
def _private(key: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(key)


def public_key(private_key: bytes) -> str:
    """Return the public key, in hex, of the 32 bytes of an Ed25519 private key."""
    return _private(private_key).public_key().public_bytes_raw().hex()


def sign(private_key: bytes, text: bytes) -> bytes:
    """Return the signature of `text`, 64 bytes. private_key: 32 bytes."""
    return _private(private_key).sign(text)


def is_signed(key: str, signature: bytes, text: bytes) -> bool:
    """Return whether the holder of the public `key`, 64 hex digits, signed `text`. False for what is no key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
