"""Small numbers have one spelling: 1e-5, as on the page, in the statement, in answers and on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fieldfare.text import decimal
from fieldfare_server.cli.output import _cell
from support.pages import ROOT

SOURCES = [path for room in ("shared", "server", "client") for path in sorted((ROOT / room).rglob("*.py"))]
BARE = re.compile(r"\{[^{}:]*\b\w*(?:delta|leak|failure)(?:['\"]\])?(?: / \d+)?:\.?\d*g\}")
"""A delta in Python's own spelling, 1e-05, inside an f-string."""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1e-5, "1e-5"),
        (1.25e-10, "1.25e-10"),
        (5e-10, "5e-10"),
        (0.001, "0.001"),
        (0.0, "0"),
        (12.5, "12.5"),
        (1e7, "1e7"),
    ],
)
def test_the_spelling(value: float, shown: str) -> None:
    assert decimal(value) == shown
    assert float(decimal(value)) == value


def test_digits_are_significant() -> None:
    assert decimal(1.23456e-5, 3) == "1.23e-5"
    assert decimal(123.456, 2) == "1.2e2"


def test_cells_of_tables_have_it_too() -> None:
    assert _cell(1e-5) == ("1e-5", True)
    assert _cell(0.123456) == ("0.1235", True)


def test_the_pattern_finds_a_bare_delta() -> None:
    for text in (
        'f"at delta {view.delta:g}"',
        'f"{cost.leak:.3g} of"',
        "f\"{fields['delta']:g}\"",
        'f"{delta / 10:g}"',
    ):
        assert BARE.search(text)


@pytest.mark.parametrize("room", ["shared", "server", "client"])
def test_no_message_spells_a_delta_otherwise(room: str) -> None:
    bare = [(path.name, found.group()) for path in _sources(room) for found in BARE.finditer(path.read_text())]
    assert bare == []


def _sources(room: str) -> list[Path]:
    return [path for path in SOURCES if path.is_relative_to(ROOT / room)]
