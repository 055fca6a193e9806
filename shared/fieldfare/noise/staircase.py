"""From random bits to standard normals in float64: a staircase under the density, and what is left above it.

Why this is own code
    Box-Muller (`fieldfare.noise.box_muller`) passes some twenty times over its vectors, numpy's logarithm
    among them. Here 998.5 of 1 000 numbers are one product: a random 64-bit word times an entry of a table of
    16 KB.

The map
    The standard normal density f is a mixture of 2 048 parts of equal weight. 2 045 of them are uniform on
    [-a_i, a_i]: rectangles of area 1 / 2 048, stacked from the tail to the peak, so that all of them lie
    under f. The staircase that they form is g. The last three parts together are the residual (f - g) / (3 /
    2 048): thin wedges between curve and stairs, a cap, and the tails beyond a_0 = 4.2. (Ziggurats, Marsaglia
    and Tsang 2000, cut f in the same way, but they reject: how many bits a number takes, and so where the
    next one begins, is open. Here number p takes word p.)

    Element p of a row has word p of the row's keystream. Its low 11 bits choose the part. The word as a
    signed number, times a_i 2^-63, is the uniform: 53 bits of it count, and what the low 11 bits do to it is
    below half a unit of the last. An element of the residual is drawn by rejection from further words
    (`_KEPT_APART`), each try from four: which piece, where along it (two), and how high. The pieces are boxes
    and triangles that cover the residual: over 90 % of the tries are accepted. A tail is Marsaglia's (1964):
    a_0 + E / a_0 for an exponential E, accepted with probability exp(-(E / a_0)^2 / 2).

Its error
    Each a_i is a multiple of 2^-26, rounded down, so the stairs are an exact part of f, whatever the last
    bits of their computation were. In part i the numbers are spaced evenly, by a_i 2^-52 or less, and each is
    rounded to float64 once: on an interval of length g the probability of the part is right to a factor 1 +-
    2^-50 a_i / g, with a_i < 4.21. The residual is right to some 2^-45 of f where f is smallest under the
    stairs, as far as exp is right to its last bits. The uniforms of a try lie on a grid of 2^-64, the lowest
    at 2^-65: no number is beyond 13.7, and at probability p the tail is right to a factor 1 +- 2^-79 / p,
    which at p = 10^-20 is 1.7 in 10 000.

    Products and sums give the same bits on any machine. A last bit of numpy's exponential or logarithm can
    show in the tails (one number in 38 000), or turn a decision, which it does in one of 10^14 numbers.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from fieldfare.noise.aes import AesDrawer, encryptor, zeros
from fieldfare.noise.chunks import CHUNK, scratch
from fieldfare.noise.compiled import Pass
from fieldfare.noise.drawer import Drawer

PARTS: Final = 1 << 11
# Parts that are not uniform: as many as no further rectangle fits under the peak.
RESIDUAL: Final = 3
# Numbers made at a time: word, index and product stay in the second-level cache. Fewer would make two threads
# wait for Python's lock: they get it between calls of numpy.
_BLOCK: Final = 1 << 15
# First AES block of a row's second plane: element p's tries take up to 2^12 blocks from 2^12 p on. (A run of
# tries that needs more has a probability below 2^-3000.)
_KEPT_APART: Final = 1 << 63
# Tries that are made at a time for an element of the residual; each takes two AES blocks.
_TRIES: Final = 2
_PEAK: Final = 1 / math.sqrt(2 * math.pi)
Float = NDArray[np.float64]


class StaircaseDrawer(Drawer):
    """Float64 by the staircase; float32 by Box and Muller, as in the map before.

    Args:
        key: 32 bytes, the AES key of the stream's float64 numbers.
        row: in [0, 2^62).
        single: draws the float32 numbers of the row, from another key.
    """

    __slots__ = ("_key", "_row", "_single")

    def __init__(self, key: bytes, row: int, single: AesDrawer) -> None:
        self._key, self._row, self._single = key, row, single

    def into(self, out: NDArray[Any], offset: int) -> None:
        if out.dtype == np.float32:
            self._single.into(out, offset)
            return
        for lo in range(0, len(out), CHUNK):
            self._fill(out[lo : lo + CHUNK], offset + lo)

    def _fill(self, out: Float, offset: int) -> None:
        table = _table().uniforms
        stream = encryptor(self._key, self._row, offset // 2)
        if offset % 2:  # an AES block holds two words
            stream.update(zeros(8))
        # `update_into` asks for a block more than it writes.
        size = min(_BLOCK, len(out))
        buffer = scratch("stair words", 8 * size + 16, np.dtype(np.uint8))
        for lo in range(0, len(out), _BLOCK):
            part = out[lo : lo + _BLOCK]
            n = len(part)
            stream.update_into(zeros(8 * n), buffer.data)
            _climb(part, buffer[: 8 * n].view("<i8"), table)
        missing = np.flatnonzero(np.isnan(out))
        if len(missing):
            out[missing] = self._draw_residual(missing + offset)

    def _draw_residual(self, elements: NDArray[np.int64]) -> Float:
        """Return numbers of the residual for `elements` of the row, shape (m,)."""
        # Counter mode is the cipher of each counter alone. These counters do not follow each other.
        cipher = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()  # noqa: S305
        out = np.empty(len(elements))
        left = np.arange(len(elements))
        first = 0
        while len(left):
            blocks = np.empty((len(left), 2 * _TRIES, 2), ">u8")
            blocks[:, :, 0] = self._row
            starts = (elements[left] << 12).astype(np.uint64)[:, None]
            blocks[:, :, 1] = starts + np.arange(_KEPT_APART + first, _KEPT_APART + first + 2 * _TRIES, dtype=np.uint64)
            words = np.frombuffer(cipher.update(blocks.tobytes()), "<u8")
            numbers, accepted = try_residual(words.reshape(len(left) * _TRIES, 4))
            # The first accepted one of each element; where there is none, the first, which is overwritten.
            chosen = accepted.reshape(-1, _TRIES).argmax(axis=1) + np.arange(0, len(numbers), _TRIES)
            out[left] = numbers[chosen]
            left = left[~accepted[chosen]]
            first += 2 * _TRIES
        return out


def _climb_in_passes(out: Float, words: NDArray[np.int64], table: Float) -> None:
    stair = scratch("stair", len(out), out.dtype)
    np.copyto(out, words)
    np.bitwise_and(words, PARTS - 1, out=words)  # in place: fewer vectors compete for the cache
    np.take(table, words, out=stair, mode="wrap")
    np.multiply(out, stair, out=out)


def _climb_in_a_loop(out: Float, words: NDArray[np.int64], table: Float) -> None:
    for i in range(out.size):
        out[i] = np.float64(words[i]) * table[words[i] & (PARTS - 1)]


# Makes numbers of words: word x width of the part that its low bits choose; NaN for the residual.
_climb = Pass(_climb_in_passes, _climb_in_a_loop, "void(float64[::1], int64[::1], float64[::1])")


def try_residual(words: NDArray[np.uint64]) -> tuple[Float, NDArray[np.bool_]]:
    """Try once for each row of `words`, shape (m, 4): the numbers, shape (m,), and which of them are accepted."""
    table = _table()
    which, along, other, height = ((words * 2.0**-64) + 2.0**-65).T  # in (0, 1], fine next to 0
    piece = np.searchsorted(table.cumulated, which)
    start, end, span, peak, base = table.pieces.take(piece, axis=0).T
    position = np.minimum(along, other)  # the density of the smaller of two is a triangle
    x = start + span * position
    accepted = height * peak * (1.0 - position) < density(x) - base
    accepted &= x <= end
    (tail,) = (piece == 0).nonzero()
    if len(tail):
        beyond = -np.log(along[tail]) / start[tail]
        x[tail] = start[tail] + beyond
        accepted[tail] = height[tail] < np.exp(-0.5 * beyond * beyond)
    x *= 1.0 - 2.0 * (words[:, 0] & np.uint64(1))
    return x, accepted


class _Table(NamedTuple):
    uniforms: Float  # a_i 2^-63 of each part, shape (`PARTS`,); NaN for the residual
    cumulated: Float  # areas of the pieces, one after another, as shares of all
    pieces: Float  # start, end, span, peak and base of each piece, shape (pieces, 5); the first is the tail


@functools.cache
def _table() -> _Table:
    stairs = half_widths()
    uniforms = np.full(PARTS, np.nan)
    uniforms[: len(stairs)] = stairs * 2.0**-63
    # Piece i lies over [a_(i + 1), a_i], where g has the height of the first i stairs; the last one is the cap.
    start, end, base = np.append(stairs[1:], 0.0), stairs, np.cumsum(0.5 / PARTS / stairs)
    width = end - start
    # A line above the curve: its chord; below 1, where f is bent downwards, lifted by what its curvature adds at most.
    bend = np.maximum(np.abs(start**2 - 1) * density(start), np.abs(end**2 - 1) * density(end))
    lift = np.where(start < 1, width**2 / 8 * bend, 0.0) + 2.0**-50
    peak, low = density(start) - base + lift, density(end) - base + lift
    # Where the line meets the stairs, rounded up, so that no last bit of an exponential is in it.
    span = np.ceil(width * peak / (peak - low) * 2.0**40) * 2.0**-40
    first = float(stairs[0])
    tail = [first, math.inf, 0.0, 0.0, 0.0]
    areas = np.append(density(stairs[:1]) / first, peak * span / 2)
    cumulated = np.cumsum(areas)
    return _Table(uniforms, cumulated / cumulated[-1], np.vstack([tail, np.stack([start, end, span, peak, base], 1)]))


def half_widths() -> Float:
    """Return a_0 > a_1 > ..., shape (`PARTS` - `RESIDUAL`,): each rectangle is as wide as fits under f, down
    to 2^-26.
    """
    out = np.empty(PARTS - RESIDUAL)
    below, a = 0.0, 4.2
    for i in range(len(out)):
        for _ in range(12):  # Newton: 2 a (f(a) - below) = 1 / PARTS, from the right
            f = _PEAK * math.exp(-0.5 * a * a)
            step = (2 * a * (f - below) - 1 / PARTS) / (2 * (f - below) - 2 * a * a * f)
            a -= step
            if abs(step) < 2.0**-46:
                break
        a = math.floor(a * 2.0**26) * 2.0**-26
        out[i] = a
        below += 0.5 / PARTS / a
    return out


def density(x: Float) -> Float:
    return _PEAK * np.exp(-0.5 * x * x)
