"""Small numbers have one spelling: 1e-5, as on the page, in the statement, in answers and on the command line."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from fieldfare.text import decimal, down, up
from fieldfare_server.cli.output import _cell
from support.pages import ROOT

SOURCES = [path for room in ("shared", "server", "client") for path in sorted((ROOT / room).rglob("*.py"))]
BARE = re.compile(r"\{[^{}:]*\b\w*(?:delta|leak|failure)(?:['\"]\])?(?: / \d+)?:\.?\d*g\}")
"""A delta in Python's own spelling, 1e-05, inside an f-string."""
NEAREST = re.compile(
    r"\{(?!up\()[^{}]*(?:(?:spent|reserved|committed|begun|planned)[_.]epsilon|gauge(?:\([^{}]*\))?):\.?\d*g\}"
)
"""An epsilon that was spent, inside an f-string, and not rounded up."""


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


@pytest.mark.parametrize(
    ("value", "spent", "left"),
    [
        (0.0, 0.0, 0.0),
        (8.0, 8.0, 8.0),
        (0.1, 0.1, 0.1),
        (2.3, 2.3, 2.3),
        (8.00001, 8.001, 8.0),
        (7.99999, 8.0, 7.999),
        (8.0 * (1 + 1e-13), 8.0, 8.0),  # the error of a search
        (1.23451e-7, 1.235e-7, 1.234e-7),
        (12345.0, 12350.0, 12340.0),
        (1e-320, 1e-320, 9.999e-321),
        (math.inf, math.inf, math.inf),
    ],
)
def test_what_is_spent_is_rounded_up_and_what_is_left_down(value: float, spent: float, left: float) -> None:
    assert (up(value), down(value)) == (spent, left)
    assert up(np.float64(value)) == spent
    assert down(np.float64(value)) == left


def test_an_epsilon_without_end_is_shown_as_such() -> None:
    assert up(None) == math.inf


@pytest.mark.parametrize("digits", [4, 6])
def test_no_limit_that_is_named_is_above_what_is_left(digits: int) -> None:
    for value in np.random.default_rng(7).lognormal(0.0, 8.0, 2000).tolist():
        assert down(value, digits) <= value <= up(value, digits) * (1 + 5e-13)
        assert up(value, digits) - down(value, digits) <= 1.0001 * 10 ** (1 - digits) * value


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ('f"{view.spent.epsilon:.4g}"', True),
        ('f"{terms.gauge(total):.6g} of"', True),
        ('f"{run.planned_epsilon:g}"', True),
        ('f"{up(terms.gauge(total), 6):g}"', False),
        ('f"{up(view.spent.epsilon):g}"', False),
        ('f"{row.epsilon:.6g}"', False),  # a limit
    ],
)
def test_the_pattern_finds_an_epsilon_to_the_nearest(text: str, nearest: bool) -> None:
    assert bool(NEAREST.search(text)) is nearest


@pytest.mark.parametrize("room", ["shared", "server", "client"])
def test_no_message_understates_what_was_spent(room: str) -> None:
    nearest = [(path.name, found.group()) for path in _sources(room) for found in NEAREST.finditer(path.read_text())]
    assert nearest == []


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
