"""AES-256 in counter mode (NIST SP 800-38A): the keystream of a row, and Box-Muller normals drawn from it."""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from fieldfare.noise import box_muller
from fieldfare.noise.chunks import CHUNK, scratch
from fieldfare.noise.drawer import UNIT, Drawer

_HALF: Final = UNIT // 2
# Words of 32 bits that a unit takes from the first plane of its row: high, low and angle.
_WORDS: Final = 3 * _HALF
_BLOCKS: Final = _WORDS * 4 // 16
_FINE_BLOCKS: Final = _HALF * 4 // 16
# First AES block of a row's second plane: the lower halves of float64 angles.
_FINE_PLANE: Final = 1 << 62
_ZEROS: Final = memoryview(bytes(CHUNK // UNIT * _WORDS * 4))


def keystream(key: bytes, row: int, offset: int, n: int) -> memoryview:
    """Return `n` bytes from byte `offset` of row `row` of the keystream of `key` (32 bytes)."""
    first, skip = divmod(offset, 16)
    size = skip + n
    return memoryview(encryptor(key, row, first).update(zeros(size)))[skip:]


class AesDrawer(Drawer):
    """Box-Muller on the AES-256-CTR keystream.

    Args:
        key: 32 bytes, the AES key of the stream.
        row: in [0, 2^62).
    """

    __slots__ = ("_key", "_row")

    def __init__(self, key: bytes, row: int) -> None:
        self._key = key
        self._row = row

    def into(self, out: NDArray[np.generic], offset: int) -> None:
        lo, end = offset, offset + len(out)
        while lo < end:
            first = lo // UNIT
            hi = min(end, (first + CHUNK // UNIT) * UNIT)
            last = -(-hi // UNIT)
            span = out[lo - offset : hi - offset]
            if lo == first * UNIT and hi == last * UNIT:
                self._units(span.reshape(last - first, 2, _HALF), first)
            else:  # `out` begins or ends inside a unit: draw whole units and copy the part that is wanted
                whole = scratch("whole", (last - first) * UNIT, out.dtype)
                self._units(whole.reshape(last - first, 2, _HALF), first)
                span[:] = whole[lo - first * UNIT : hi - first * UNIT]
            lo = hi

    def _units(self, out: NDArray[np.generic], first: int) -> None:
        """Fill `out`, shape (units, 2, UNIT / 2), with units `first`, `first` + 1, ..."""
        units = len(out)
        words = self._words(units, first * _BLOCKS, 3)
        fine = None
        if out.dtype == np.float64:
            fine = self._words(units, _FINE_PLANE + first * _FINE_BLOCKS, 1).reshape(units, _HALF)
        planes = scratch("planes", box_muller.PLANES * units * _HALF, out.dtype)
        box_muller.pairs(out, words, fine, planes.reshape(box_muller.PLANES, units, _HALF))

    def _words(self, units: int, block: int, planes: int) -> NDArray[np.uint32]:
        """Return the keystream as little-endian words, shape (units, planes, UNIT / 2), from AES block
        `block` of this row.
        """
        size = units * planes * _HALF * 4
        # `update_into` asks for a block more than it writes.
        buffer = scratch("words" if planes == 3 else "fine", size + 16, np.dtype(np.uint8))
        encryptor(self._key, self._row, block).update_into(_ZEROS[:size], buffer.data)
        return buffer[:size].view("<u4").reshape(units, planes, _HALF)


def zeros(size: int) -> memoryview | bytes:
    """Return `size` zero bytes, to encrypt: the keystream itself."""
    return _ZEROS[:size] if size <= len(_ZEROS) else bytes(size)


def encryptor(key: bytes, row: int, block: int) -> CipherContext:
    """Encrypt in counter mode from counter (row, block) on: 64 bits each, big-endian, so rows never overlap."""
    counter = ((row << 64) | block).to_bytes(16, "big")
    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()
