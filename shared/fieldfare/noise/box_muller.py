"""From random bits to standard normals: Box and Muller (1958), in passes over cache-sized arrays.

Why this is own code
    A generator of normals out of a library (numpy's ziggurat, torch's `randn`) takes its bits from its own
    generator, which is neither cryptographic nor seekable to an element. Box-Muller takes a fixed number of
    bits for each pair, so element [i] of a row can be drawn without those before it. Its float64 cosine and
    sine are own code too: numpy's were two thirds of a draw. A table and a short series in place of them made
    the whole draw 2.5 times as fast, with a smaller error (benchmarks/results/mechanisms.md has what a round
    costs now).

The map
    A pair of normals is sqrt(-2 ln U) (cos theta, sin theta).

    U = 2^-31 (high + 2^-31 (low + 1/2)) in (0, 1], from two words of 31 bits: relative precision next to 0 is
    full. (In float32 the low word may itself be 0; then the half keeps U positive: the smallest U is 2^-63.)

    In float32 theta = 2 pi word / 2^32. In float64 theta = 2 pi (word + fine / 2^32) / 2^32 = phi + d, where
    phi is the nearest of 1 024 points on the circle, whose cosines and sines come from a table. A turn by d
    is a multiplication by (1 + i tan d) / sqrt(1 + tan^2 d), and the square root is taken together with the
    radius' own.

Its error
    In float64 each number is within 5 units in its last place of sqrt(2 x) cos theta, or sin theta, for the x
    = -ln U that numpy's logarithm gave: next to 0 too, and never off by more than 2^-51 of the radius. (Found
    in 2.6e8 pairs, most of them where it is worst: 4.1, and 0.91 2^-51.) Table and passes, except the
    logarithm, give the same bits on any machine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Scratch vectors that `pairs` needs, each half as long as its result.
PLANES: Final = 4


def pairs(
    out: NDArray[np.generic], words: NDArray[np.uint32], fine: NDArray[np.uint32] | None, planes: NDArray[np.generic]
) -> None:
    """Fill `out`: cosines first, then sines.

    Args:
        out: shape (units, 2, m), contiguous, float32 or float64.
        words: shape (units, 3, m): high, low and angle. Overwritten.
        fine: shape (units, m), the lower half of the angle, for a float64 `out`; None for float32.
            Overwritten.
        planes: scratch of out's dtype, shape (`PLANES`, units, m).
    """
    square, low = planes[:2]
    cosine, sine = planes[1:3]
    # Several planes go through one numpy call: threads contend for Python's lock between calls only.
    real = 3 if fine is None else 2
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
    np.copyto(out, planes[1:3].swapaxes(0, 1))  # whole planes are fastest to compute on; only this copy goes by unit


def _turn_finely(
    square: NDArray[np.generic],
    word: NDArray[np.uint32],
    fine: NDArray[np.uint32],
    planes: NDArray[np.generic],
    spare: NDArray[np.generic],
) -> None:
    """Turn by the fine angle: square <- radius cos d, from -2 ln U; the first two `planes` <- cosine and sine
    of theta, over cos d.

    All have shape (units, m). The third plane and the two of `spare` are scratch; the words are overwritten.
    """
    cosine, sine, tan = planes
    index = spare[0].view(np.int64)  # phi: the word rounded to its upper ten bits; 1 024 wraps to 0 in `take`
    np.copyto(index, word)
    np.add(index, 1 << 21, out=index)
    np.right_shift(index, 22, out=index)

    rest, power = cosine, sine  # d: the 22 bits below as a signed number, and `fine`
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
    np.multiply(tan, tan, out=power)  # cos^2 d = 1 / (1 + tan^2 d)
    np.add(power, 1.0, out=power)
    np.divide(square, power, out=square)
    np.sqrt(square, out=square)

    np.take(_CIRCLE[0], index, out=cosine, mode="wrap")
    np.take(_CIRCLE[1], index, out=sine, mode="wrap")
    np.multiply(tan, sine, out=spare[1])  # (cos phi + i sin phi) (1 + i tan d)
    np.multiply(tan, cosine, out=tan)
    np.subtract(cosine, spare[1], out=cosine)
    np.add(sine, tan, out=sine)


def circle(points: int) -> NDArray[np.float64]:
    """Return the cosines and sines of the multiples of 2 pi / `points`, a power of two, shape (2, points),
    right to half an ulp.

    Computed in whole numbers, in units of 2^-128: half-angle formulas down from a quarter turn, then turn
    after turn.
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


# The units of high, low and angle.
_UNITS: Final = np.array([2.0**-31, 2.0**-62, math.pi * 2.0**-31]).reshape(3, 1, 1)
_CIRCLE: Final = circle(1024)
# The unit of the rest d.
_STEP: Final = math.pi * 2.0**-41
# tan d = d + d^3 / 3 + 2 d^5 / 15 for |d| <= pi / 1 024: off by less than 2^-54 of itself.
_TAN: Final = (_STEP, _STEP**3 / 3, _STEP**5 * 2 / 15)
