"""A plan from keywords is the plan from tables; tasks may be objects of this process."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys

import pytest

from fieldfare.errors import BadInput
from fieldfare.mechanisms import parse
from fieldfare.plan import Plan
from fieldfare.task import load_task
from support.federation import TinyTask
from support.refusals import Coded, coded

FILE = """
[privacy]
population = "p"
epsilon = 1
delta = 1e-5
[run]
task = "digits"
rounds = 2
cohort = 2
[mechanism]
kind = "nu"
"""
KEYWORDS = {"task": "digits", "epsilon": 4, "delta": 1e-5, "rounds": 8, "cohort": 20}


def test_keywords_say_what_tables_say() -> None:
    keyworded = Plan(
        **KEYWORDS,
        population="clinics",
        mechanism={"kind": "nu", "nu": 0.1},
        clip=0.5,
        participation={"scheme": "min-separation", "separation": 4},
        server_optimizer="sgd",
        client={"steps": 3},
        seed=7,
        min_reports=10,
        rounding="none",
        availability=None,
    )
    tables = {
        "privacy": {"population": "clinics", "epsilon": 4, "delta": 1e-5, "rounding": "none"},
        "run": {"task": "digits", "rounds": 8, "cohort": 20, "seed": 7, "min_reports": 10},
        "participation": {"scheme": "min-separation", "separation": 4},
        "mechanism": {"kind": "nu", "nu": 0.1},
        "clipping": {"kind": "flat", "norm": 0.5},
        "server_optimizer": {"kind": "sgd"},
        "client": {"steps": 3},
    }
    assert keyworded.to_json() == Plan.parse(tables).to_json() == Plan(**tables).to_json()
    assert keyworded == Plan.parse(tables)


def test_kinds_may_be_words_tables_or_specs_and_the_default_is_blt() -> None:
    assert Plan(**KEYWORDS).mechanism.kind == "blt"
    assert Plan(**KEYWORDS, mechanism="nu").mechanism == parse({"kind": "nu"})
    assert Plan(**KEYWORDS, mechanism=parse({"kind": "nu"})) == Plan(**KEYWORDS, mechanism="nu")
    assert Plan(**KEYWORDS, clip={"kind": "flat", "norm": 2.0}).clipping.norm == 2.0


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"epsilom": 4}, coded("key-unknown", "epsilom = 4")),
        ({"epsilon": -1}, coded("value-wrong", "privacy.epsilon")),
        ({"epsilon": None}, coded("values-conflict", "privacy", "noise_multiplier")),
        ({"mechanism": "bltt"}, coded("kind-unknown", "mechanism.kind", "'bltt'")),
        ({"mechanism": 3}, coded("kind-unknown", "mechanism.kind")),
        ({"clip": -1}, coded("value-wrong", "clipping.norm")),
        ({"cohort": True}, coded("values-conflict", "run.cohort")),
        ({"task": 3}, coded("wrong-form", "task = 3", "fieldfare.Task")),
        ({"rounds": 0}, coded("value-wrong", "run.rounds")),
    ],
)
def test_a_fault_is_one_refusal_that_names_it(keywords: dict[str, object], words: Coded) -> None:
    with pytest.raises(BadInput, check=words):
        Plan(**{**KEYWORDS, **keywords})


def test_a_plan_file_has_no_flat_keys() -> None:
    with pytest.raises(BadInput, check=coded("key-unknown")):
        Plan.from_toml("epsilon = 4\n" + FILE)
    assert Plan.from_toml(FILE).privacy.epsilon == 1
    with pytest.raises(BadInput, check=coded("key-unknown")):
        Plan.parse(KEYWORDS)


def test_a_notebook_sees_the_keywords() -> None:
    assert {"task", "epsilon", "mechanism", "clip"} < set(inspect.signature(Plan).parameters)


def test_a_class_has_a_name_that_every_process_can_load() -> None:
    assert Plan(**{**KEYWORDS, "task": TinyTask}).run.task == "support.federation:TinyTask"

    class Inner(TinyTask):
        pass

    with pytest.raises(BadInput, check=coded("not-found", "task")):
        Plan(**{**KEYWORDS, "task": Inner})


def test_an_object_is_found_for_as_long_as_its_plan_lives() -> None:
    first, second = TinyTask(), TinyTask()
    plan, again, other = (Plan(**{**KEYWORDS, "task": task}) for task in (first, first, second))
    assert plan.run.task == again.run.task == "object:support.federation.TinyTask"
    assert other.run.task != plan.run.task
    assert load_task(plan.run.task) is first
    assert load_task(other.run.task) is second
    kept = plan.model_copy()
    del first, plan, again
    gc.collect()
    assert load_task(kept.run.task) is kept._task
    del kept
    gc.collect()
    with pytest.raises(BadInput, check=coded("unknown-task", "run.task")):
        load_task("object:support.federation.TinyTask")


def test_another_process_says_what_it_needs() -> None:
    code = "from fieldfare.task import load_task; load_task('object:__main__.MyTask')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert "was an object of a script or notebook" in done.stderr
    assert "task = MyTask(...); plan = ff.Plan(task=task, ...)" in done.stderr


@pytest.mark.parametrize(
    ("keywords", "near"),
    [
        ({"run": {"task": "digits", "rounds": 4, "cohort": 20}, "epsilon": 8}, "privacy.epsilon"),
        ({"privacy": {"population": "p", "epsilon": 8, "delta": 1e-5}, "rounds": 4}, "run.rounds"),
        ({"run": {"learning_rate": 0.1}, "privacy": {}}, "client.learning_rate"),
        ({"run": {"epsilom": 8}, "privacy": {}}, ""),
        ({"run": {"task": "digits"}, "privacy": {"delta": 1e-5}, "mechanism": {"kind": "blt"}, "epsilom": 8}, ""),
    ],
)
def test_a_key_of_another_table_is_told_its_place(keywords: dict[str, object], near: str) -> None:
    """It was an unknown key, whose nearest were all keys of the table in which it stood."""
    with pytest.raises(BadInput) as refused:
        Plan(**keywords)
    (unknown,) = [each for each in refused.value.faults if each.code == "key-unknown"]
    assert unknown.nearest == near or (not near and "." not in unknown.nearest)


def test_a_kind_in_capitals_is_told_its_name() -> None:
    with pytest.raises(BadInput) as refused:
        Plan(task="digits", epsilon=8, delta=1e-5, rounds=4, cohort=20, mechanism="BLT")
    assert refused.value.nearest == "blt"
