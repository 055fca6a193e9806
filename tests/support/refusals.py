"""Refusals by their codes: what a test checks stays when the words change."""

from __future__ import annotations

from typing import NamedTuple

from fieldfare.errors import FieldfareError


class Coded(NamedTuple):
    """Whether an error, or one of its faults, has a code, and its text names all that is quoted."""

    code: str
    quoted: tuple[str, ...]

    def __call__(self, error: FieldfareError) -> bool:
        codes = {each.code for each in getattr(error, "faults", (error,))}
        return self.code in codes and all(text in str(error) for text in self.quoted)

    def __repr__(self) -> str:
        """What the names of cases have of it."""
        return ", ".join((self.code, *self.quoted))


def coded(code: str, *quoted: str) -> Coded:
    """For `pytest.raises(BadInput, check=coded("not-toml"))`. quoted: fields, names and numbers, no sentences."""
    return Coded(code, quoted)
