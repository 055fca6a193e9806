"""The `[task]` table: declared and checked by the task, part of the digest, the same on server, nodes and workers."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from fieldfare import task as task_module
from fieldfare.errors import BadInput
from fieldfare.names import split_task_reference, task_reference
from fieldfare.plan import Plan
from fieldfare.task import UnknownTask, load_task, task_names
from fieldfare_client.tasks.digits import DigitsTask
from fieldfare_client.tasks.flights import FlightsMLPTask
from fieldfare_client.tasks.regression import RegressionTask
from fieldfare_research.mnist import MnistTask
from fieldfare_server.files.plan_file import read_plan
from support.refusals import coded

TABLE: dict[str, Any] = {
    "privacy": {"population": "writers", "epsilon": 2.0, "delta": 1e-5},
    "run": {"task": "digits", "rounds": 8, "cohort": 10},
    "mechanism": {"kind": "independent"},
    "client": {"workers": 1},
}


def test_a_plan_carries_parameters_and_its_digest_knows_them() -> None:
    plain = Plan.parse(TABLE)
    with_parameters = Plan.parse({**TABLE, "task": {"users": 50, "hidden": 16}})
    assert "task" not in plain.to_json().replace('"task":"digits"', "")
    assert Plan.parse({**TABLE, "task": {}}).digest() == plain.digest()
    assert with_parameters.digest() != plain.digest()
    assert Plan.stored(Plan.model_validate_json(with_parameters.to_json()).model_dump(mode="json")) == with_parameters
    assert with_parameters.task_reference == "digits?hidden=16&users=50"
    assert plain.task_reference == "digits"


@pytest.mark.parametrize(
    "parameters", [{}, {"a": 1, "b": 0.1}, {"text": 'a "b" & c=d?é', "list": [1.0, 2e-7], "no": False, "t": {"x": "y"}}]
)
def test_a_reference_carries_every_value_exactly(parameters: dict[str, Any]) -> None:
    reference = task_reference("digits", parameters)
    assert split_task_reference(reference) == ("digits", parameters)
    assert not set("\"'\\ \n") & set(reference)


def test_the_bundled_tasks_take_their_parameters() -> None:
    digits = load_task("digits?concentration=0.0&hidden=16&users=50")
    assert isinstance(digits, DigitsTask)
    assert (digits.users_count, digits.concentration, digits.hidden) == (50, None, 16)
    assert len(digits.users()) == 50
    regression = load_task("regression?dimensions=3&noise=0.0&spectrum=1&users=7")
    assert isinstance(regression, RegressionTask)
    assert regression.eigenvalues == pytest.approx([18 / 11, 9 / 11, 6 / 11])
    assert (regression.users_count, regression.noise) == (7, 0.0)
    chosen = load_task(task_reference("regression", {"spectrum": [2.0, 1.0]}))
    assert isinstance(chosen, RegressionTask)
    assert chosen.eigenvalues.tolist() == [2.0, 1.0]
    mnist = load_task("mnist?users=30")
    assert isinstance(mnist, MnistTask)
    assert mnist.users_count == 30
    perceptron = load_task("flights-mlp?hidden=4")
    assert isinstance(perceptron, FlightsMLPTask)
    assert sum(p.numel() for p in perceptron.build_model().parameters()) == 4 * 89 + 4 + 4 + 1


def test_without_parameters_the_tasks_are_what_they_were() -> None:
    digits, regression = load_task("digits"), load_task("regression")
    assert isinstance(digits, DigitsTask)
    assert isinstance(regression, RegressionTask)
    assert (digits.users_count, digits.concentration, digits.hidden) == (100, 1.0, 32)
    assert (regression.users_count, len(regression.eigenvalues), regression.noise) == (2000, 20, 0.3)


@pytest.mark.parametrize(
    ("task", "key"),
    [
        ("users = 0", "task.users = 0"),
        ("hiden = 3", "task.hiden"),
        ('users = "x"', "task.users = 'x'"),
        ("when = 2026-01-01", "task.when"),
        ("share = nan", "task.share"),
    ],
)
def test_wrong_parameters_are_refused_with_their_line(task: str, key: str, tmp_path: Any) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(
        "[task]\n" + task + '\n[privacy]\npopulation = "w"\nepsilon = 1\ndelta = 1e-5\n'
        '[run]\ntask = "digits"\nrounds = 3\ncohort = 3\n[mechanism]\nkind = "independent"\n'
    )
    with pytest.raises(BadInput) as refusal:
        read_plan(path)
    assert refusal.value.what.startswith(key)
    assert refusal.value.line == 2


def test_a_name_takes_no_parameters_of_its_own() -> None:
    with pytest.raises(BadInput, check=coded("wrong-form", "run.task")):
        Plan.parse({**TABLE, "run": {**TABLE["run"], "task": "digits?users=3"}})
    with pytest.raises(BadInput, check=coded("task-parameters-unreadable")):
        load_task("digits?users")


def test_a_task_that_declares_nothing_takes_nothing() -> None:
    with pytest.raises(BadInput, check=coded("key-unknown", "task.users = 3")):
        load_task("changelog-words?users=3")


def test_helper_modules_are_no_tasks() -> None:
    assert not {"split", "scores"} & set(task_names())
    with pytest.raises(UnknownTask) as refusal:
        load_task("split")
    assert refusal.value.nearest != "split"


def announce(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    monkeypatch.setattr(
        task_module, "entry_points", lambda group: [EntryPoint(name, value, group) for name, value in points]
    )


def test_a_foreign_name_never_replaces_ours_and_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    announce(monkeypatch, ("digits", "fieldfare_client.tasks.regression:RegressionTask"), ("digits", "other.pkg:Task"))
    with caplog.at_level(logging.WARNING, logger="fieldfare.task"):
        assert isinstance(load_task("digits"), DigitsTask)
    assert "other.pkg:Task" in caplog.text


def test_two_foreign_tasks_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, ("faces", "a.b:C"), ("faces", "d.e:F"))
    with pytest.raises(BadInput, check=coded("task-ambiguous")):
        load_task("faces")
    announce(monkeypatch, ("numbers", "fieldfare_client.tasks.split:by_hash"), ("more", "nowhere_to_be.found:Task"))
    with pytest.raises(UnknownTask, check=coded("unknown-task", "run.task")):
        load_task("more")


class Fixed(DigitsTask):
    """A task of a user's own, which fixes what its base takes as parameters."""

    def __init__(self) -> None:
        super().__init__(users_count=7)


def test_a_task_that_fixes_its_bases_parameters_is_loaded_without_any() -> None:
    task = load_task(f"{__name__}:Fixed")
    assert isinstance(task, Fixed)
    assert task.users_count == 7
    with pytest.raises(BadInput, check=coded("key-unknown", "task.users")):
        load_task(f"{__name__}:Fixed?users=9")
