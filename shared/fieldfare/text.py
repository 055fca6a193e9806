"""How numbers are written for people: the same on the page, in answers, in the statement and on the command line."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def decimal(value: float, digits: int = 6) -> str:
    """Return a number of at most `digits` significant digits, small ones as 1e-5 and not as 1e-05."""
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text


def up(value: float | None, digits: int = 4) -> float:
    """Return what was spent (None: infinity) in `digits` significant digits, rounded up but for 5e-13 of it."""
    return math.inf if value is None else float(Context(digits, ROUND_CEILING).create_decimal(f"{value:.12g}"))


def promised(delta: float) -> str:
    """Return a delta that holds, as `decimal` writes it, rounded up."""
    return decimal(up(delta, 6))


def down(value: float, digits: int = 4) -> float:
    """Return what is left in `digits` significant digits, rounded down: a limit that is named is allowed."""
    return float(Context(digits, ROUND_FLOOR).create_decimal(repr(float(value))))


def counted(number: int, noun: str) -> str:
    """Return `number` with its noun: "1 user", "2 users"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
