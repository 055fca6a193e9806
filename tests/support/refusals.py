"""Refusals by their codes: what a test checks stays when the words change."""

from __future__ import annotations

from collections.abc import Callable

from fieldfare.errors import FieldfareError


def coded(code: str, *quoted: str) -> Callable[[FieldfareError], bool]:
    """Whether an error has this code and names each of these: `pytest.raises(BadInput, check=coded("not-toml"))`."""
    return lambda error: (
        code in {each.code for each in getattr(error, "faults", (error,))}
        and all(text in str(error) for text in quoted)
    )
