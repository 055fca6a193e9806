"""HPKE in base mode, one message, written from RFC 9180 alone: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-GCM."""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def _extract(suite: bytes, salt: bytes, label: bytes, key: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + key, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    labelled = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    out, block = b"", b""
    for number in range(1, -(-size // hashlib.sha256().digest_size) + 1):
        block = hmac.digest(key, block + labelled + bytes([number]), "sha256")
        out += block
    return out[:size]


def _aead(dh: bytes, sent: bytes, recipient: bytes, info: bytes, key_bytes: int) -> tuple[AESGCM, bytes]:
    kem = b"KEM\x00\x20"
    suite = b"HPKE\x00\x20\x00\x01\x00" + bytes([{16: 1, 32: 2}[key_bytes]])
    shared = _expand(kem, _extract(kem, b"", b"eae_prk", dh), b"shared_secret", sent + recipient, 32)
    context = b"\0" + _extract(suite, b"", b"psk_id_hash", b"") + _extract(suite, b"", b"info_hash", info)
    secret = _extract(suite, shared, b"secret", b"")
    key = _expand(suite, secret, b"key", context, key_bytes)
    return AESGCM(key), _expand(suite, secret, b"base_nonce", context, 12)


def seal(
    recipient: bytes, text: bytes, info: bytes, ephemeral: bytes, *, aad: bytes = b"", key_bytes: int = 32
) -> bytes:
    """enc || ct for the public key `recipient`. ephemeral: the sender's private key."""
    own = X25519PrivateKey.from_private_bytes(ephemeral)
    sent = own.public_key().public_bytes_raw()
    aead, nonce = _aead(own.exchange(X25519PublicKey.from_public_bytes(recipient)), sent, recipient, info, key_bytes)
    return sent + aead.encrypt(nonce, text, aad)


def unseal(private: bytes, box: bytes, info: bytes, *, aad: bytes = b"", key_bytes: int = 32) -> bytes:
    """The text of `box`. Raises `InvalidTag`."""
    own = X25519PrivateKey.from_private_bytes(private)
    dh = own.exchange(X25519PublicKey.from_public_bytes(box[:32]))
    aead, nonce = _aead(dh, box[:32], own.public_key().public_bytes_raw(), info, key_bytes)
    return aead.decrypt(nonce, box[32:], aad)
