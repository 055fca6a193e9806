"""Each public name has examples in its docstring or its methods': they run, and print what they show."""

from __future__ import annotations

import ast
import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fieldfare as ff

NAMES = sorted(set(ff.__all__) - {"__version__"})
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PARSER = doctest.DocTestParser()

ELSEWHERE = {
    # Flower's interfaces, which Flower calls.
    "LocalGrid": {"set_run", "push_messages", "pull_messages", "rehearse_masks", "name_blinder"},
    "PrivateStrategy": {
        "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate", "initialize_parameters",
    },
    # Pydantic's; and what nodes and coordinators call.
    "Plan": {"model_post_init", "asks", "takes", "told"},
    # What questions about a model ask for; and what loads a task by its name. Both have defaults.
    "Task": {"measure", "configured", "Parameters"},
    # What only coordinators, nodes and administrators' commands call; docs/privacy-officer.md has those commands.
    "Ledger": {
        "migrate", "hold_head", "close", "approve_raise",
        "withdraw_raise", "set_window", "keep_odometers", "start_run", "resume_run", "request", "abandon",
        "expire_reservations", "record_residual_test", "draw_seed", "record_key_destroyed", "release_charge",
        "rebuild", "restore", "mend", "population_or_new",
    },
}  # fmt: skip
"""Methods that no example of a class calls."""


def examples_of(name: str) -> list[doctest.DocTest]:
    """Return the examples in the docstring of a public name and in those of its methods, which go on with its names."""
    thing = getattr(ff, name)
    methods = vars(thing) if inspect.isclass(thing) else ()
    documented = [each for each in (getattr(thing, method) for method in methods) if inspect.isroutine(each)]
    text = "\n\n".join(inspect.getdoc(each) or "" for each in (thing, *documented))
    return [PARSER.get_doctest(text, {"__name__": "an_example"}, f"ff.{name}", None, None)]


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the example a directory and a home of its own, and one thread: two of them spin on a busy machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "home"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("apart")
def test_the_example_runs_and_prints_what_it_shows(name: str) -> None:
    [test] = examples_of(name)
    assert test.examples, f"ff.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(getattr(ff, name))])
def test_the_example_calls_the_methods(name: str) -> None:
    thing: Any = getattr(ff, name)
    [test] = examples_of(name)
    called = {
        node.attr
        for example in test.examples
        for node in ast.walk(ast.parse(example.source))
        if isinstance(node, ast.Attribute)
    }
    defined = {
        node.name
        for example in test.examples
        for node in ast.walk(ast.parse(example.source))
        if isinstance(node, ast.FunctionDef)
    }
    public = {method for method in vars(thing) if not method.startswith("_") and callable(getattr(thing, method))}
    assert public - called - defined == ELSEWHERE.get(name, set()) & public
    assert ELSEWHERE.get(name, set()) <= public
