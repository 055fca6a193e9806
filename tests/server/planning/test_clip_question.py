"""A clip norm from a charged question: what is asked, what is refused, and what is written into the plan."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from typer.testing import CliRunner

import fieldfare as ff
from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare_client.app import forget_users
from fieldfare_client.questions import QuestionTask
from fieldfare_client.users import UserTable
from fieldfare_server.cli import ask
from fieldfare_server.cli.application import application
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning import reference
from fieldfare_server.planning.questions import CLIP_QUESTION, Asked, require_clear, with_norm
from fieldfare_server.run.pricing import price_with_model
from support.federation import TinyTask
from support.refusals import coded

TINY = "support.federation:TinyTask"


def plan(**changes: object) -> Plan:
    keys = {"task": TINY, "epsilon": 4, "delta": 1e-5, "rounds": 6, "cohort": 6, "client": {"steps": 2}}
    return Plan(**{**keys, **changes})


def test_the_question_is_about_the_plans_own_training_and_population() -> None:
    asked = Asked.clip_of(plan(population="writers", adjacency="replace_one"), 0.25)
    assert asked.question.model_dump(include=set(CLIP_QUESTION))["bins"] == 64
    assert (asked.privacy.population, asked.privacy.epsilon, asked.privacy.adjacency) == (
        "writers",
        0.25,
        "replace_one",
    )
    assert asked.client is not None
    assert asked.client.steps == 2
    with pytest.raises(BadInput, check=coded("conflict", "run.task")):
        Asked.clip_of(Plan.parse({**plan().model_dump(mode="json"), "run": {"rounds": 6, "cohort": 6}}))


def test_the_answer_is_near_the_median_of_the_norms_and_is_charged(tmp_path: Path) -> None:
    found = ff.ask(clip_of=plan(), epsilon=200.0, population="people", budget=300, ledger=tmp_path)
    of = QuestionTask(TINY, CLIP_QUESTION, plan().client)._asked(TinyTask(), TinyTask().users())
    values = of(np.arange(len(TinyTask().users()))).numbers
    median = found.answer[0]  # type: ignore[union-attr]
    ratio = (1e4 / 1e-4) ** (1 / 64)
    assert median.value == pytest.approx(float(np.median(values)), rel=ratio - 1)
    with Ledger.open(StateDirectory.of(tmp_path).ledger) as ledger:
        assert ledger.population("people").spent_epsilon == pytest.approx(200.0, rel=0.01)


def test_noise_alone_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    with pytest.raises(BadInput, check=coded("too-few", "privacy.epsilon", "24")) as refused:
        ff.ask(clip_of=plan(), population="people", budget=60, ledger=tmp_path)
    enough = float(refused.value.nearest.partition(",")[0])
    for epsilon in (enough, enough - 0.1):  # 1.3 was named, which is refused
        asked = Asked.clip_of(plan(), epsilon)
        with nullcontext() if epsilon == enough else pytest.raises(BadInput):
            require_clear(asked, asked.plan(24), price_with_model(asked.plan(24)))
    asked = Asked.clip_of(plan(), 0.1)
    a_plan = asked.plan(2000)
    require_clear(asked, a_plan, price_with_model(a_plan))


@pytest.mark.parametrize(
    "text",
    [
        reference.template(),
        reference.template().replace("\nnorm = 1.0\n", "\nnorm = 1.0  # of one user\n"),
        'mechanism.kind = "blt"\n[privacy]\npopulation = "p"\nepsilon = 1.0\ndelta = 1e-5\n'
        "[run]\nrounds = 4\ncohort = 3\n",
        'mechanism.kind = "blt"\n[privacy]\npopulation = "p"\nepsilon = 1.0\ndelta = 1e-5\n'
        '\n[clipping]\nkind = "adaptive-quantile"\n[run]\nrounds = 4\ncohort = 3\n',
    ],
    ids=["template", "comment", "no table", "another kind"],
)
def test_only_the_norm_of_a_plan_changes(text: str) -> None:
    made = Plan.from_toml(with_norm(text, 0.0325))
    assert made.clipping.norm == 0.0325
    before = Plan.from_toml(text)
    assert {**made.model_dump(), "clipping": 0} == {**before.model_dump(), "clipping": 0}
    assert made.clipping.kind == before.clipping.kind
    assert with_norm(text, 0.0325).count("# of one user") == text.count("# of one user")


@pytest.mark.parametrize(
    "line", ['clipping = { kind = "flat", norm = 1.0 }', "clipping.norm = 1.0\nclipping.kind = 'flat'"]
)
def test_a_plan_that_says_its_clipping_otherwise_is_left_alone(line: str) -> None:
    text = f'{line}\nmechanism.kind = "blt"\nrun = {{ rounds = 4, cohort = 3 }}\n'
    text += 'privacy = { population = "p", epsilon = 1.0, delta = 1e-5 }\n'
    Plan.from_toml(text)
    with pytest.raises(BadInput):
        with_norm(text, 0.5)


def test_the_starter_takes_its_clip_norm_from_a_charged_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the task's module is found beside the plan
    monkeypatch.delitem(sys.modules, "csv_task", raising=False)
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FIELDFARE_LEDGER", raising=False)
    runner = CliRunner()
    assert runner.invoke(application, ["init", "clinic"]).exit_code == 0
    before = Plan.from_toml(Path("clinic/plan.toml").read_text())
    said = runner.invoke(application, ["ask", "--clip-of", "clinic/plan.toml"])
    assert said.exit_code == 0, said.output
    after = Plan.from_toml(Path("clinic/plan.toml").read_text())
    assert after.clipping.norm != before.clipping.norm
    assert 0.01 < after.clipping.norm < 10
    assert "epsilon 0.1 at delta 1e-5, charged to population example" in " ".join(said.output.split())
    forget_users()
    sys.modules.pop("csv_task", None)
    with Ledger.open(StateDirectory.of().ledger) as ledger:
        assert ledger.population("example").spent_epsilon == pytest.approx(0.1, rel=0.01)


def test_a_full_disk_leaves_the_plan_as_it_was_and_the_answer_that_was_paid_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan was cut off where it stood, and its answer, charged, was shown to nobody."""
    path, state = tmp_path / "plan.toml", StateDirectory.of(tmp_path / "home")
    path.write_text(text := reference.template())
    state.prepare()
    found = SimpleNamespace(answer=[SimpleNamespace(value=0.1234)])

    def full(_: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def put(*_: object, **__: object) -> SimpleNamespace:
        disk.setattr(os, "fsync", full)
        return found

    monkeypatch.setattr(ask, "put", put)
    with monkeypatch.context() as disk:
        assert ask.ask_clip(state, path, 0.1, dry_run=False, accept_delta=False) is found
    assert path.read_text() == text
    assert "clipping.norm = 0.123" in " ".join(capsys.readouterr().err.split())
    assert set(tmp_path.iterdir()) == {path, state.root}
    monkeypatch.setattr(ask, "put", lambda *_, **__: found)
    ask.ask_clip(state, path, 0.1, dry_run=False, accept_delta=False)
    assert Plan.from_toml(path.read_text()).clipping.norm == 0.123


def test_where_too_few_users_have_an_update_the_plan_stays_and_the_answer_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The norm was the last bin's: 8 000."""
    monkeypatch.setattr(
        TinyTask, "users", lambda self: UserTable(np.arange(24, dtype=np.uint64), np.zeros(25, int), {})
    )
    forget_users()
    path, state = tmp_path / "plan.toml", StateDirectory.of(tmp_path / "home")
    path.write_text(text := reference.template().replace('task = "digits"', f'task = "{TINY}"'))
    state.prepare()
    with Ledger.open(state.ledger, create=True, head_file=state.head_file) as ledger:
        ledger.create_population(Plan.from_toml(text).privacy.population, 300.0, 1e-5, simulated=True, actor="test")
    found = ask.ask_clip(state, path, 200.0, dry_run=False, accept_delta=False)
    forget_users()
    median, users = found.answer  # type: ignore[union-attr]
    assert (median.value, median.low, median.high) == (None, 1e-4, 1e4)
    assert users.high < 1
    assert path.read_text() == text
    assert "is left as it is" in " ".join(capsys.readouterr().err.split())


def test_a_delta_and_an_adjacency_that_are_given_are_the_questions(tmp_path: Path) -> None:
    """Both were dropped for the plan's."""
    keys: dict[str, Any] = {"clip_of": plan(), "epsilon": 200.0, "population": "people", "dry_run": True}
    own, other = ff.ask(**keys), ff.ask(**keys, delta=1e-7)
    assert (own.delta, other.delta) == (1e-5, 1e-7)
    assert other.noise_multiplier > own.noise_multiplier
    assert ff.ask(**keys, adjacency="replace_one").noise_multiplier > 1.9 * own.noise_multiplier  # type: ignore[union-attr]
    with pytest.raises(BadInput):
        ff.ask(**keys, delta=0.0)
