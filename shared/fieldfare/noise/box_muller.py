"""From random bits to standard normals: Box and Muller (1958), in passes over cache-sized arrays.

A pair of normals is sqrt(-2 ln U) (cos theta, sin theta). U = 2^-31 (high + 2^-31 (low + 1/2)) in (0, 1] from two words
of 31 bits: relative precision next to 0 is full. (In float32 the low word may itself be 0, and then the half keeps U
positive: the smallest U is 2^-63.) theta = 2 pi word / 2^32; in float64, where numpy's `cos` and `sin` would cost
more than all the rest, theta = 2 pi (word + fine / 2^32) / 2^32 = phi + d for the nearest phi of 1 024 points on the
circle, whose cosines and sines stand in a table. To turn by d is to multiply by (1 + i tan d) / sqrt(1 + tan^2 d): the
radius' own square root takes that one along.

In float64 each number is within 5 units in its last place of sqrt(2 x) cos theta, or sin theta, for the x = -ln U that
numpy's logarithm gave: next to 0 too, and never off by more than 2^-51 of the radius. (Found in 2.6e8 pairs, most of
them where it is worst: 4.1, and 0.91 2^-51.) Table and passes but for the logarithm are the same bits on any machine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLANES: Final = 4
"""Scratch vectors that `pairs` needs, each half as long as its result."""


def pairs(out: NDArray[Any], words: NDArray[np.uint32], fine: NDArray[np.uint32] | None, planes: NDArray[Any]) -> None:
    """Fill `out`, shape (units, 2, m), contiguous: cosines first, then sines.

    `words`, shape (units, 3, m), are high, low and angle, `fine`, shape (units, m), the angle's lower half: for a
    float64 `out`, None for float32. `planes`, shape (`PLANES`, units, m) and of out's dtype, is scratch. All are
    overwritten.
    """
    square, low = planes[:2]
    cosine, sine = planes[1:3]
    real = 3 if fine is None else 2  # one call for several planes: threads wait for one another between calls only
    np.bitwise_and(words[:, :2], np.uint32(0x7FFFFFFF), out=words[:, :2])
    np.copyto(planes[:real], words[:, :real].view(np.int32).swapaxes(0, 1), casting="unsafe")
    np.multiply(planes[:real], _UNITS[:real].astype(out.dtype), out=planes[:real])
    np.add(low, 2.0**-63, out=low)
    np.add(square, low, out=square)
    np.log(square, out=square)
    np.multiply(square, -2.0, out=square)
    if fine is None:
        angle = sine
        np.cos(angle, out=cosine)
        np.sin(angle, out=sine)
        np.sqrt(square, out=square)
    else:
        _turn_finely(square, words[:, 2], fine, planes[1:], out.reshape(2, *square.shape))
    np.multiply(planes[1:3], square, out=planes[1:3])
    np.copyto(out, planes[1:3].swapaxes(0, 1))  # whole planes are fastest to work on: only this copy goes unit by unit


def _turn_finely(
    square: NDArray[Any], word: NDArray[np.uint32], fine: NDArray[np.uint32], planes: NDArray[Any], spare: NDArray[Any]
) -> None:
    """square <- radius cos d, and the first two planes <- cosine and sine over cos d. `spare`: two planes."""
    cosine, sine, tan = planes
    index = spare[0].view(np.int64)
    np.copyto(index, word)
    np.add(index, 1 << 21, out=index)
    np.right_shift(index, 22, out=index)

    rest, power = cosine, sine
    np.left_shift(word, 10, out=word)
    np.copyto(rest, word.view(np.int32))
    np.multiply(fine, 2.0**-22, out=power)
    np.add(rest, power, out=rest)
    np.multiply(rest, rest, out=power)
    np.multiply(power, _TAN[2], out=tan)
    np.add(tan, _TAN[1], out=tan)
    np.multiply(tan, power, out=tan)
    np.add(tan, _TAN[0], out=tan)
    np.multiply(tan, rest, out=tan)
    np.multiply(tan, tan, out=power)
    np.add(power, 1.0, out=power)
    np.divide(square, power, out=square)
    np.sqrt(square, out=square)

    np.take(_CIRCLE[0], index, out=cosine, mode="wrap")
    np.take(_CIRCLE[1], index, out=sine, mode="wrap")
    np.multiply(tan, sine, out=spare[1])
    np.multiply(tan, cosine, out=tan)
    np.subtract(cosine, spare[1], out=cosine)
    np.add(sine, tan, out=sine)


def circle(points: int) -> NDArray[np.float64]:
    """Cosines and sines of the multiples of 2 pi / `points`, a power of two, shape (2, points), right to half an ulp.

    In whole numbers, units of 2^-128: half-angle formulas from a quarter turn on, then turn after turn.
    """
    one = 1 << 128
    cos, sin = 0, one
    for _ in range(points.bit_length() - 3):
        cos = math.isqrt(one * (one + cos) // 2)
        sin = math.isqrt(one * one - cos * cos)
    x, y = one, 0
    quarter = np.empty((2, points // 4))
    for i in range(points // 4):
        quarter[:, i] = x / one, y / one
        x, y = (x * cos - y * sin) // one, (x * sin + y * cos) // one
    cosines, sines = quarter
    return np.array([[cosines, -sines, -cosines, sines], [sines, cosines, -sines, -cosines]]).reshape(2, points)


_UNITS: Final = np.array([2.0**-31, 2.0**-62, math.pi * 2.0**-31]).reshape(3, 1, 1)
"""What high, low and angle are counted in."""
_CIRCLE: Final = circle(1024)
_STEP: Final = math.pi * 2.0**-41
"""What the rest d is counted in."""
_TAN: Final = (_STEP, _STEP**3 / 3, _STEP**5 * 2 / 15)
"""tan d = d + d^3 / 3 + 2 d^5 / 15 for |d| <= pi / 1 024: off by less than 2^-54 of itself."""
