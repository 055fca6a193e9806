"""Every list of kinds, on the page or in the documentation, is the registry's."""

from __future__ import annotations

import json
import re

from fieldfare.clipping import clippings
from fieldfare.mechanisms.registry import describe, kinds
from fieldfare.plan import Plan
from fieldfare.questions import kinds as questions
from fieldfare_server.optimizers.registry import kinds as optimizers
from fieldfare_server.planning.what_if import changed
from support.pages import ROOT

TABLE = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)
PLAN_FILES = (ROOT / "docs/plan-files.md").read_text()


def offered_by_the_page() -> list[str]:
    script = (ROOT / "server/fieldfare_server/dashboard/static/population.js").read_text()
    (found,) = re.findall(r"^const KINDS = (\[.*\]);$", script, re.MULTILINE)
    names: list[str] = json.loads(found)
    return names


def test_the_page_offers_every_kind_that_needs_no_task() -> None:
    assert sorted([*offered_by_the_page(), "spectral"]) == sorted(kinds())


def test_every_kind_that_the_page_offers_is_a_plan() -> None:
    """`banded` was offered and always refused, for it names no number of bands."""
    stored = json.loads(Plan.from_toml((ROOT / "deploy/plans/flights.toml").read_text()).to_json())
    for kind in offered_by_the_page():
        plan = Plan.parse(changed(json.loads(json.dumps(stored)), {"mechanism": kind}))
        assert plan.mechanism.kind == kind


def test_the_page_on_mechanisms_has_a_row_for_each_kind() -> None:
    page = (ROOT / "docs/mechanisms.md").read_text()
    assert sorted(TABLE.findall(page)) == sorted(kinds())
    for kind in kinds():
        assert f"| `{kind}` | {describe(kind).source} |" in page


def test_the_table_of_charges_names_each_kind() -> None:
    text = (ROOT / "shared/fieldfare/mechanisms/README.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith(("| `", "| the same"))]
    assert {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)} - {"window"} == set(kinds())


def test_plan_files_names_each_optimizer() -> None:
    sentences = PLAN_FILES[PLAN_FILES.index("`server_optimizer.kind` is one of") :].split("\n\n", 1)[0]
    named = set(re.findall(r"`([a-z-]+)`", sentences)) - {"base"}
    assert named == set(optimizers())


def test_plan_files_names_each_clipping() -> None:
    (sentence,) = re.findall(r"`clipping\.kind` is one of (.*)\.\n", PLAN_FILES)
    assert set(re.findall(r"`([a-z-]+)`", sentence)) == set(clippings.kinds())


def test_the_guarantee_lists_every_question_and_the_page_on_questions_too() -> None:
    """Every look at the data has its line, and says what it costs."""
    looks = (ROOT / "docs/guarantee.md").read_text().split("## Every look at the data")[1].split("\n## ")[0]
    kinds_of_questions = (ROOT / "docs/questions.md").read_text().split("## Kinds")[1].split("\nEvery user")[0]
    for text in (looks, kinds_of_questions):
        assert set(questions()) <= set(re.findall(r"`([a-z]+)`", text))
    assert all(f"`{kind}`" in looks for kind in clippings.kinds() if kind.startswith("adaptive"))
