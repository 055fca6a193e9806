"""What a round's nonce is, for those who check nonces and draw no noise: `fieldfare.noise.secure` makes them."""

from __future__ import annotations

from typing import Final

NONCE_BYTES: Final = 16
"""128 bits: two rounds have the same by chance once in 2^64 rounds."""
