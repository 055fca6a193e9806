"""Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw (SC 2011), in tensor operations.

Statistically strong and computed where the model lives, but *not* cryptographic: its 64-bit key can be
searched, and no security reduction is known. A named alternative for accelerators
(`source="philox-4x32-10"`).
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from fieldfare.lazily import torch
from fieldfare.noise.drawer import UNIT, Drawer

# The paper's constants. The Weyl steps are the golden ratio and sqrt(3) - 1, 32 bits behind the point of each.
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_LOW: Final = 0xFFFFFFFF
_HALF: Final = UNIT // 2
# Elements made at a time: bounds the scratch at eight int64 vectors of half this length.
_PIECE: Final = 1 << 22

Words: TypeAlias = "tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]"


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Return four 32-bit words for each counter: int64 tensors of one shape, values in [0, 2^32)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # An int64 product wraps to the same 64 bits as the unsigned one; the mask undoes the shifted sign.
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> 32 & _LOW) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32 & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


class PhiloxDrawer(Drawer):
    """Box-Muller on Philox words: pair p of row r is counter (p, r), 64 bits each; units are laid out as for AES."""

    __slots__ = ("_key", "_row")

    def __init__(self, subkey: bytes, row: int) -> None:
        self._key = (int.from_bytes(subkey[:4], "little"), int.from_bytes(subkey[4:8], "little"))
        self._row = row

    def into(self, out: np.ndarray[Any, Any], offset: int) -> None:
        self.to_device(torch.from_numpy(out), offset)

    def to_device(self, out: torch.Tensor, offset: int) -> None:
        lo, end = offset, offset + out.numel()
        while lo < end:
            first = lo // UNIT
            hi = min(end, (first + _PIECE // UNIT) * UNIT)
            last = -(-hi // UNIT)
            whole = self._units(first, last, out.dtype, out.device)
            out[lo - offset : hi - offset].copy_(whole[lo - first * UNIT : hi - first * UNIT])
            lo = hi

    def _units(self, first: int, last: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return units [first, last) as one vector."""
        pair = torch.arange(first * _HALF, last * _HALF, dtype=torch.int64, device=device)
        row_low, row_high = (torch.full_like(pair, value) for value in (self._row & _LOW, self._row >> 32))
        high, low, angle, fine = philox4x32((pair & _LOW, pair >> 32, row_low, row_high), self._key)
        # As in box_muller.py: U = 2^-31 high + 2^-62 (low + 1/2) keeps full relative precision next to 0.
        uniform = (high >> 1).to(dtype).mul_(2.0**-31).add_((low >> 1).to(dtype).mul_(2.0**-62).add_(2.0**-63))
        radius = uniform.log_().mul_(-2.0).sqrt_()
        theta = (angle - 2**31).to(dtype)
        if dtype == torch.float64:
            # float32 has no room for the angle's lower bits.
            theta.add_(fine.to(dtype).mul_(2.0**-32))
        theta.mul_(np.pi * 2.0**-31)
        out = torch.empty(last - first, 2, _HALF, dtype=dtype, device=device)
        torch.mul(radius.view(-1, _HALF), theta.cos().view(-1, _HALF), out=out[:, 0])
        torch.mul(radius.view(-1, _HALF), theta.sin_().view(-1, _HALF), out=out[:, 1])
        return out.view(-1)
