"""The text in the code gets no worse: `make prose` prints the shares, and these are their floors."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

import prose


@pytest.fixture(scope="module")
def counted() -> Counter[str]:
    return sum((prose.measure(path) for path in prose.files()), Counter())


def test_functions_say_first_what_they_do(counted: Counter[str]) -> None:
    assert counted["verbs"] / counted["texts"] > 0.8


def test_prose_keeps_its_width(counted: Counter[str]) -> None:
    assert counted["long"] < 0.006 * counted["lines"]


def test_no_word_stands_alone_below_a_line_that_has_room_for_it() -> None:
    for path in prose.files():
        text = path.read_text()
        assert not prose.orphans(text, ast.parse(text)), path


def test_arguments_and_comments_do_not_become_fewer(counted: Counter[str]) -> None:
    assert counted["listed"] / (counted["listed"] + counted["unlisted"]) > 0.17
    assert counted["comments"] / counted["lines"] > 0.03


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ('"""Return it."""', set()),
        ('"""The sum."""', {"verb"}),
        ('"""Sum of all."""', {"verb"}),
        ("pass", {"docstring"}),
    ],
)
def test_what_a_function_lacks(text: str, missing: set[str]) -> None:
    [function] = prose.functions(ast.parse(f"def f(a: int) -> int:\n    {text}\n"))
    assert prose.lacks(function) == missing


def test_two_parameters_want_a_list() -> None:
    [function] = prose.functions(ast.parse('def f(a: int, b: int) -> int:\n    """Return a + b."""\n'))
    assert prose.lacks(function) == {"args"}
