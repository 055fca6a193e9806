"""Sets of users as small blobs: sorted indices, differences, LEB128 varints, deflate.

A cohort of 1 000 among 1 000 000 users takes about two bytes a user. Format: one version byte (1), then zlib data.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

_VERSION = b"\x01"
_SHIFTS = np.arange(5, dtype=np.uint64) * np.uint64(7)


def encode(users: ArrayLike) -> bytes:
    """The blob of a set of user indices (any order, no repeats, each in [0, 2**32)).

    Raises ValueError on a repeated or impossible index.
    """
    raw = np.asarray(users)
    if raw.ndim != 1 or (raw.size and raw.dtype.kind not in "iu"):
        raise ValueError("user indices are a one-dimensional integer array")
    if raw.size and (raw.min() < 0 or raw.max() >= 2**32):
        raise ValueError("user indices lie in [0, 2**32)")
    ordered = np.sort(raw.astype(np.uint64))
    steps = np.concatenate((ordered[:1], ordered[1:] - ordered[:-1]))  # the first is the index itself, and may be 0
    if (steps[1:] == 0).any():
        raise ValueError("a user index is repeated")
    # LEB128: seven bits a byte, low bits first; the high bit says that another byte follows. Five bytes hold 32 bits.
    groups = (steps[:, None] >> _SHIFTS) & np.uint64(0x7F)
    more = np.zeros(groups.shape, dtype=bool)
    more[:, :4] = (steps[:, None] >> _SHIFTS[1:]) > 0
    present = np.ones(groups.shape, dtype=bool)
    present[:, 1:] = more[:, :4]
    data = (groups.astype(np.uint8) | (more.astype(np.uint8) << np.uint8(7)))[present]
    return _VERSION + zlib.compress(data.tobytes(), 9)


def decode(blob: bytes, count: int) -> NDArray[np.int64]:
    """The `count` sorted user indices in `blob`, int64.

    Raises ValueError if the blob is not what `encode` makes for `count` users. Never inflates beyond 5 bytes a user.
    """
    if blob[:1] != _VERSION:
        raise ValueError("not a blob of user indices")
    inflater = zlib.decompressobj()
    try:
        data = np.frombuffer(inflater.decompress(blob[1:], 5 * count + 1), dtype=np.uint8)
    except zlib.error as error:
        raise ValueError(f"the blob does not inflate: {error}") from None
    last = data < 0x80
    if not inflater.eof or inflater.unused_data or int(last.sum()) != count or (data.size and not last[-1]):
        raise ValueError(f"the blob does not hold {count} user indices")
    if count == 0:
        return np.empty(0, dtype=np.int64)
    ends = last.nonzero()[0]
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1] + 1
    extra = ends - starts
    if int(extra.max()) > 4:
        raise ValueError("an index in the blob is too long")
    low = (data & np.uint8(0x7F)).astype(np.int64)
    steps = low[starts]
    for byte in range(1, int(extra.max()) + 1):
        longer = (extra >= byte).nonzero()[0]
        steps[longer] |= low[starts[longer] + byte] << (7 * byte)
    if (steps[1:] == 0).any():
        raise ValueError("a user index in the blob is repeated")
    users: NDArray[np.int64] = np.cumsum(steps)
    if int(users[-1]) >= 2**32:
        raise ValueError("a user index in the blob is out of range")
    return users
