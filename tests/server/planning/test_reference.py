"""The plan reference is whole: every key is described, and schema, template, page and --explain have it."""

from __future__ import annotations

import copy
import json
import runpy
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.task import parameters_of, task_names
from fieldfare_server.planning import reference
from support.refusals import coded

ROOT = Path(__file__).parents[3]
SECTIONS = tuple(reference.sections())
KEYS = [key for section in SECTIONS for key in section.keys]
TASKS = (
    "changelog",
    "chess",
    "cifar10",
    "digits",
    "fashion",
    "flights",
    "flights-mlp",
    "mnist",
    "poems",
    "regression",
    "stackoverflow",
)


def test_every_key_has_a_description_and_every_table_one_sentence() -> None:
    assert not [f"{key.path} ({key.kind})" for key in KEYS if not key.meaning]
    assert not [section.title for section in SECTIONS if not section.about]
    assert len(KEYS) > 130
    assert {section.table for section in SECTIONS} >= set(Plan.model_fields)


def test_every_parameter_of_a_bundled_task_has_a_description() -> None:
    assert set(TASKS) <= set(task_names())
    for name in TASKS:
        for key in reference.section_of_task(parameters_of(name)).keys:
            assert key.meaning, (name, key.path)
            assert key.default != "required", (name, key.path)


def test_a_key_tells_meaning_unit_range_and_default() -> None:
    assert reference.explain("round_timeout") == (
        "run.round_timeout: how long a round waits for reports.\n"
        "  unit:    seconds\n"
        "  takes:   a number above 0\n"
        "  default: 600.0"
    )
    assert reference.explain("run.rounds").count("at least 1 and at most 1000000") == 1
    assert "banded-inverse" in reference.explain("mechanism.bands")
    assert "keys: norm, linf_filter, weighting" in reference.explain("clipping")
    told = {kind.split('"')[1]: kind for kind in reference.explain("mechanism").split("\n\n")}
    assert "Independent noise that falls over the run" in told["decaying"]
    assert not [kind for kind, words in told.items() if "subclass" in words or f': `kind = "{kind}"`.' in words]
    with pytest.raises(BadInput, check=coded("unknown", "--explain")):
        reference.explain("cohrt")


def test_the_template_is_a_plan_with_every_key_of_its_tables() -> None:
    text = reference.template()
    plan = Plan.from_toml(text)
    assert text.startswith(f"#:schema {reference.SCHEMA_FILE}\n")
    for section in SECTIONS:
        chosen = {"mechanism": "blt", "clipping": "flat", "aggregation": "plain", "server_optimizer": "sgd"}.get(
            section.table
        )
        if chosen in (None, section.kind) and section.table in Plan.model_fields:
            for key in section.keys:
                assert f"\n{key.name} = " in text or f"\n# {key.name} = " in text, key.path
        elif section.table in Plan.model_fields:
            assert section.kind in text
    # What is in a comment is the default: a template where every such key is set is the same plan.
    for key in KEYS:
        if key.kind in ("", "blt", "flat", "sgd") and key.default not in ("required", "not set"):
            text = text.replace(f"\n# {key.name} = {key.default}\n", f"\n{key.name} = {key.default}\n")
    assert "\nround_timeout = 600.0\n" in text
    text = text.replace("# [metrics]\n", "[metrics]\nshow = { correct = [0, 1] }\n")
    text = text.replace("# [tuning]\n", "[tuning]\nshare = 0.1\n")
    assert Plan.from_toml(text.replace("# [availability]", "[availability]")).run == plan.run


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/plans").glob("*.toml")), ids=lambda path: path.stem)
def test_the_schema_accepts_the_deployed_plans(path: Path) -> None:
    jsonschema.Draft7Validator(reference.json_schema()).validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("run", "rounds", 0),
        ("run", "cohrt", 3),
        ("mechanism", "kind", "nux"),
        ("mechanism", "bands", 4),
        ("clipping", "kind", None),
        ("server_optimizer", "kind", "adam"),
        ("server_optimizer", "schedule", {"kind": "cosine", "power": 1}),
    ],
)
def test_the_schema_refuses_what_a_plan_refuses(table: str, key: str, value: Any) -> None:
    plan = tomllib.loads(reference.template())
    validator = jsonschema.Draft7Validator(reference.json_schema())
    validator.validate(plan)
    changed = copy.deepcopy(plan)
    changed[table][key] = value
    if value is None:
        del changed[table][key]
    assert not validator.is_valid(changed)
    with pytest.raises(BadInput):
        Plan.parse(changed)


def test_a_wrapped_optimizer_and_a_schedule_are_in_the_schema() -> None:
    plan = tomllib.loads(reference.template())
    plan["server_optimizer"] = {"kind": "disk", "base": {"kind": "sgd", "schedule": {"kind": "cosine", "final": 0.1}}}
    validator = jsonschema.Draft7Validator(reference.json_schema())
    validator.validate(plan)
    assert Plan.parse(plan)
    plan["server_optimizer"]["base"]["schedule"]["final"] = 2
    assert not validator.is_valid(plan)
    assert "SecureNoise" not in json.dumps(reference.json_schema())


def test_the_site_shows_every_key() -> None:
    hook = runpy.run_path(str(ROOT / "docs/hooks/plan_reference.py"))["on_page_markdown"]
    source = (ROOT / "docs/plan-files.md").read_text()
    page = hook(source, page=None, config=None, files=None)
    for key in KEYS:
        assert f"| `{key.name}` | {key.meaning} | {key.unit or '—'} | `{key.default}` | {key.takes} |" in page
    assert hook("another page", page=None, config=None, files=None) == "another page"
    assert "plan-files.md" in (ROOT / "mkdocs.yml").read_text()
