"""How numbers are written for people: the same on the page, in answers, in the statement and on the command line."""

from __future__ import annotations


def decimal(value: float, digits: int = 6) -> str:
    """Return a number of at most `digits` significant digits, small ones as 1e-5 and not as 1e-05."""
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text


def counted(number: int, noun: str) -> str:
    """Return `number` with its noun: "1 user", "2 users"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
