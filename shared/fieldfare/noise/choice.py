"""A choice with probabilities proportional to exp(rate x score), drawn exactly: whole scores, a fraction, and bits.

No float is exponentiated: probabilities that are right to a few digits only would say more of the scores than
is charged (Ilvento 2020). A place is drawn uniformly and kept with probability exp(-x), x = rate x (largest
score - its own), so what is kept has the law that is wanted. exp(-x) is a product of trials of exp(-1) and
one of exp(-y), y < 1, each by the rule of Canonne, Kamath, Steinke 2020, algorithm 1.

How long a draw takes depends on the scores (rejection sampling): it must not be visible outside the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from fieldfare.noise.secure import SecureNoise

# Bytes of keystream taken at a time.
_PIECE = 64


def exponential_choice(scores: Sequence[int], rate: Fraction, noise: SecureNoise, *, row: int) -> int:
    """Draw j with probability exp(rate scores[j]) / sum_i exp(rate scores[i]), exactly.

    Args:
        scores: whole numbers, at least one.
        rate: at least 0.
        noise: whose key, and nonce of the round that bears `row`, fix the choice. No other use shares its bits.
    """
    bits, most = _Bits(noise._source_of_row("z", row), row), max(scores)
    while True:
        place = bits.below(len(scores))
        if _exp(rate * (most - scores[place]), bits):
            return place


def _exp(x: Fraction, bits: _Bits) -> bool:
    """Bernoulli(exp(-x)), x >= 0."""
    while x >= 1:
        if not _exp_of_part(Fraction(1), bits):
            return False
        x -= 1
    return _exp_of_part(x, bits)


def _exp_of_part(y: Fraction, bits: _Bits) -> bool:
    """Bernoulli(exp(-y)), 0 <= y <= 1: trials of y / 1, y / 2, ... first fail at the m-th, which is odd."""
    m = 1
    while bits.below(y.denominator * m) < y.numerator:
        m += 1
    return m % 2 == 1


class _Bits:
    """The random bits of one choice, in order."""

    def __init__(self, noise: SecureNoise, row: int) -> None:
        self._noise, self._row, self._next, self._held = noise, row, 0, b""

    def _take(self, n: int) -> int:
        while len(self._held) < n:
            self._held += bytes(self._noise.bytes(_PIECE, row=self._row, offset=self._next, stream="choice"))
            self._next += _PIECE
        taken, self._held = self._held[:n], self._held[n:]
        return int.from_bytes(taken, "little")

    def below(self, bound: int) -> int:
        """An exact uniform integer in [0, bound)."""
        n = (bound.bit_length() + 15) // 8
        limit = (1 << 8 * n) // bound * bound
        while (drawn := self._take(n)) >= limit:
            pass
        return drawn % bound
