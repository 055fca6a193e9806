"""The nonces of a run's rounds, for those who check nonces and draw no noise: `fieldfare.noise.secure` makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, overload

# 128 bits: two rounds have the same by chance once in 2^64 rounds.
NONCE_BYTES: Final = 16


class Nonces(Sequence[bytes]):
    """The nonces of a run's rounds, in order. Its digest costs one hash of a nonce a round, however long the run is."""

    def __init__(self, nonces: Iterable[bytes] = ()) -> None:
        self._all: list[bytes] = []
        self._hash = hashlib.sha256()
        self.extend(nonces)

    def append(self, nonce: bytes) -> None:
        """Add the nonce of the next round."""
        self._all.append(nonce)
        self._hash.update(nonce)

    def extend(self, nonces: Iterable[bytes]) -> None:
        """Add the nonces of the next rounds."""
        for nonce in nonces:
            self.append(nonce)

    def cut(self, rounds: int) -> list[bytes]:
        """Keep the nonces of the first `rounds` rounds; return the others."""
        kept, later = self._all[:rounds], self._all[rounds:]
        # A hash cannot be wound back: what is kept is hashed again.
        self._all, self._hash = [], hashlib.sha256()
        self.extend(kept)
        return later

    def digest(self) -> str:
        """Return the SHA-256 of all of them, one after another, hex."""
        return self._hash.hexdigest()

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        return self._all[index]


def digest_of(nonces: Sequence[bytes]) -> str:
    """Return the SHA-256 of all `nonces`, one after another, hex."""
    return nonces.digest() if isinstance(nonces, Nonces) else Nonces(nonces).digest()
