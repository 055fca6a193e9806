"""Refusals have codes that programs read; every sentence of theirs stands in one file."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from fieldfare import errors
from fieldfare.errors import BadInput, BudgetRefused, FieldfareError, NoLedger, OutOfRange
from fieldfare.plan import Plan
from fieldfare_server.api.refusal import described
from fieldfare_server.api.service import ServiceError
from support.refusals import coded

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def refusals() -> ModuleType:
    spec = importlib.util.spec_from_file_location("refusals", ROOT / "docs/hooks/refusals.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_people_read_is_in_one_file(refusals: ModuleType) -> None:
    """Other words: `make words` writes the file again, and its difference is read by somebody."""
    assert refusals.snapshot().splitlines() == refusals.SNAPSHOT.read_text().splitlines(), "run `make words`"


def test_codes_are_short_words(refusals: ModuleType) -> None:
    codes = {each.code for each in refusals.said()} - {None}
    assert len(codes) > 70
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)
    # Programs cannot tell two meanings of one code apart.
    assert not codes & {refusals.code_of(kind) for kind in refusals.classes()}


def test_the_page_lists_every_code(refusals: ModuleType) -> None:
    assert refusals.PLACE in (ROOT / "docs/errors.md").read_text()
    assert "docs/hooks/refusals.py" in (ROOT / "mkdocs.yml").read_text()
    table = refusals.markdown()
    for each in refusals.said():
        assert f"| `{each.code or refusals.code_of(each.kind)}` |" in table
    assert f"| `budget-refused` | 3 | {(BudgetRefused.__doc__ or '').splitlines()[0]} |" in table


@pytest.mark.parametrize(
    "kind", [name for name, value in vars(errors).items() if isinstance(value, type) and hasattr(value, "code")]
)
def test_a_class_has_the_code_that_the_page_says(kind: str, refusals: ModuleType) -> None:
    assert getattr(errors, kind).code == refusals.code_of(kind)


def test_a_code_outlives_lines_and_lists_of_faults() -> None:
    one = BadInput("run.rounds = 0", "must be at least 1.", "1", code="at-least-one")
    assert (one.code, one.at(3).code, BadInput.of([one, one]).code) == ("at-least-one",) * 3
    assert (BadInput("x", "y.").code, NoLedger("x", "y.").code, FieldfareError("x").code) == (
        "bad-input",
        "no-ledger",
        "fieldfare-error",
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rounds": 0}, "value-wrong"),
        ({"no_such": 1}, "key-unknown"),
        ({"mechanism": {"kind": "nn"}}, "kind-unknown"),
        ({"noise_multiplier": 1.0}, "values-conflict"),
        ({"delta": None}, "key-required"),
        (
            {"min_available": 3, "adjacency": "add_remove", "participation": {"scheme": "poisson", "rate": 0.1}},
            "min-available-shows-presence",
        ),
    ],
)
def test_a_plan_is_refused_by_code(change: dict[str, object], code: str) -> None:
    with pytest.raises(BadInput, check=coded(code)):
        Plan(**{"task": "digits", "epsilon": 4, "delta": 1e-5, "rounds": 8, "cohort": 20, **change})


def test_a_refusal_stays_of_its_class_with_a_line_and_among_others() -> None:
    one = OutOfRange("run.rounds = 0", "must be at least 1.", "1")
    assert [type(each) for each in (one.at(3), one.at(None), BadInput.of([one.at(3), one]))] == [OutOfRange] * 3
    assert (one.at(3).code, one.at(3).line, BadInput.of([one.at(3), one]).line) == ("out-of-range", 3, 3)


def test_tests_read_codes() -> None:
    """Of all that tests assert, less than one in twenty is about the words of a message."""
    asserted, read = 0, 0
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                asserted += 1
                read += any(_reads_a_sentence(part) for part in ast.walk(node.test))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
                asserted += 1
                read += any(keyword.arg == "match" for keyword in node.keywords)
    assert read < asserted / 20, f"{read} of {asserted}: a refusal has a code, see support.refusals"


def _reads_a_sentence(node: ast.AST) -> bool:
    """Whether it asks for two plain words or more, one after another, inside something."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In)
        and isinstance(node.left, ast.Constant)
        and re.search("[a-z]{2,}[ ,:]+[a-z]{2,}", str(node.left.value)) is not None
    )


def test_a_problem_says_the_code_of_its_refusal() -> None:
    problem = described(BudgetRefused("a run", "does not fit."), "/v1/populations/a")
    assert (problem.code, problem.type) == ("budget-refused", "urn:fieldfare:problem:budget-refused")
    assert ServiceError.of(problem).code == "budget-refused"
