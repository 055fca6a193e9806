"""`fieldfare init`: what it writes runs at once from its directory, as an installed program; it overwrites nothing."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from fieldfare.errors import BadInput
from fieldfare.plan import Plan
from fieldfare.plan_tables import ClientSpec
from fieldfare.population_size import largest_delta
from fieldfare.schema import Schema
from fieldfare.task import Task
from fieldfare_client.check import check
from fieldfare_client.task_faults import Faulty
from fieldfare_server.cli.init import CHOSEN, _write
from fieldfare_server.cli.starter import csv_task as starter
from fieldfare_server.cli.starter.csv_task import CsvParameters
from fieldfare_server.ledger import Ledger
from fieldfare_server.planning.feasibility import is_feasible, require_feasible
from support.commands import command_in
from support.full_disk import no_file_above
from support.refusals import coded

# An installed program has its own folder in front of the path, not the directory that it is started in.
PROGRAM = "import sys; sys.path[0] = '/nowhere'; from fieldfare_server.cli import main; main()"


def run(directory: Path, account: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FIELDFARE_")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=directory,
        env={**inherited, "HOME": str(account), "XDG_DATA_HOME": ""},
        capture_output=True,
        text=True,
    )


def test_what_init_writes_runs_at_once(tmp_path: Path) -> None:
    account = tmp_path / "account"
    made = run(tmp_path, account, "init", "mine")
    assert made.returncode == 0, made.stderr
    mine = tmp_path / "mine"
    text = (mine / "plan.toml").read_text()
    assert text.startswith("#:schema plan.schema.json\n")
    assert (mine / "plan.schema.json").is_file()
    assert tomllib.loads(text)["task"] == {"file": "people.csv"}
    (mine / "plan.toml").write_text(text.replace(f"rounds = {CHOSEN['run.rounds']}", "rounds = 36"))
    ended = run(mine, account, "simulate")
    assert ended.returncode == 0, ended.stderr
    assert f"State: {account}/.local/share/fieldfare\n" in ended.stderr
    assert "36 of 36 rounds" in ended.stdout
    # The run's delta and the population's, which may differ.
    assert ended.stdout.count("at delta 1e-5") == 2
    auc = float(ended.stdout.partition("Held-out auc: ")[2].split()[0])
    assert auc > 0.75  # 0.5 is chance


@pytest.fixture
def fieldfare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return command_in(tmp_path, monkeypatch, "runs")


HEADER = "person,age,visits,label\n"
ROWS = "".join(f"p{i},{i % 7}.5,{i % 3},{i % 2}\n" for i in range(60))
WRONG: dict[str, tuple[dict[str, Any], str | bytes, str]] = {
    "user": ({"user": "patient"}, HEADER + ROWS, "column 'patient': is not in the first line of people.csv"),
    "target": ({"target": "late"}, HEADER + ROWS, "column 'late': is not in the first line"),
    "path": ({"file": "data/peeple.csv"}, HEADER + ROWS, "'peeple.csv': cannot be read: No such file or directory."),
    "no file": ({"file": "peeple.csv"}, HEADER + ROWS, "'peeple.csv': cannot be read: No such file or directory. Nea"),
    "directory": ({"file": "."}, HEADER + ROWS, "cannot be read: Is a directory"),
    "empty": ({}, "", "column 'person': is not in the first line"),
    "no row": ({}, HEADER, "has no row below its first line"),
    "no header": ({}, ROWS, "which must name the columns"),
    "semicolons": ({}, (HEADER + ROWS).replace(",", ";"), "Nearest allowed: commas between columns"),
    "twice": ({}, HEADER.replace("visits", "age") + ROWS, "column 'age': stands twice"),
    "no column": ({}, "person,label\np0,0\np1,1\n", "has no column to predict from"),
    "text": ({}, HEADER + ROWS + "p9,high,1,1\n", "people.csv, line 62, column 'age': 'high' is not a number"),
    "comma": ({}, HEADER + 'p9,"1,5",1,1\n', "line 2, column 'age': '1,5' is not a number"),
    "empty cell": ({}, HEADER + "p9,,1,1\n", "line 2, column 'age': an empty cell is not a number"),
    "nan": ({}, HEADER + "p9,1,nan,1\n", "line 2, column 'visits': 'nan' is not a number"),
    "huge": ({}, HEADER + "p9,1,1e300,1\n", "column 'visits': '1e300' is not a number below 1e38"),
    "words": ({}, HEADER + "p9,1,1,yes\n", "column 'label': 'yes' is not a target. Nearest allowed: 0 or 1"),
    "target of three": (
        {"words": {"label": ["no", "yes", ""]}},
        HEADER + ROWS,
        "'label': is the target, which has two",
    ),
    "target of one": ({"words": {"label": ["no", "no"]}}, HEADER + ROWS, "is the target, which has two words"),
    "other target": (
        {"words": {"label": ["no", "yes"]}},
        HEADER + ROWS,
        "'0' is not a target. Nearest allowed: no or",
    ),
    "other word": ({"words": {"age": ["0.5", ""]}}, HEADER + ROWS, "line 3, column 'age': '1.5' is none of its words"),
    "no such words": ({"words": {"sex": ["f"]}}, HEADER + ROWS, "column 'sex': is not in the first line"),
    "nothing ignored": ({"ignore": ["sex"]}, HEADER + ROWS, "column 'sex': is not in the first line"),
    "nothing divided": ({"divide": {"sex": 2}}, HEADER + ROWS, "column 'sex': is not in the first line"),
    "all ignored": ({"ignore": ["age", "visits"]}, HEADER + ROWS, "has no column to predict from"),
    "1 and 2": ({}, HEADER + "p9,1,1,2\n", "column 'label': '2' is not a target"),
    "nan target": ({}, HEADER + "p9,1,1,nan\n", "column 'label': 'nan' is not a target"),
    "short": ({}, HEADER + "p9,1\n", "line 2: has 2 cells; the first line names 4 columns"),
    "long": ({}, HEADER + "p9,1,1,1,1\n", "line 2: has 5 cells"),
    "whose": ({}, HEADER + ",1,1,1\n", "line 2, column 'person': is empty: whose row is it?"),
    "latin 1": ({}, (HEADER + ROWS + "M\u00fcller,1,1,1\n").encode("latin-1"), "is not CSV in UTF-8"),
    "utf 16": ({}, (HEADER + ROWS).encode("utf-16"), "is not CSV in UTF-8"),
    "one user": ({}, HEADER + "p0,1,1,1\np0,2,1,0\n", "has so few users (1) that all of them are held out"),
    "all held out": ({"held_out": 0.999}, HEADER + ROWS, "has so few users (60) that all of them are held out"),
    "one target": ({}, HEADER + ROWS.replace(",1\n", ",0\n"), "all rows of held-out users have the same target"),
}


def csv_task(directory: Path, parameters: dict[str, Any], people: str | bytes) -> Task:
    """The starter's task in a directory, over `people`."""
    (directory / "people.csv").write_bytes(people if isinstance(people, bytes) else people.encode())
    code = Path(starter.__file__).read_text()
    (directory / "starter_task.py").write_text(code)
    spec = importlib.util.spec_from_file_location("starter_task", directory / "starter_task.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task: Task = module.CsvTask.configured(CsvParameters(**parameters))
    return task


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_in_the_file_is_named_with_its_line(mistake: str, tmp_path: Path) -> None:
    """No cause with a traceback: these are the words that a person reads."""
    parameters, people, words = WRONG[mistake]
    with pytest.raises(Faulty) as refused:
        check(csv_task(tmp_path, parameters, people), "csv_task:CsvTask?file=%22x%22", client=ClientSpec())
    assert words in str(refused.value)
    assert str(refused.value).startswith("run.task = 'csv_task:CsvTask' (")
    assert refused.value.trace() == ""


@pytest.mark.parametrize(
    "people",
    [
        "\ufeff" + HEADER + ROWS,
        (HEADER + ROWS).replace(",", " , "),
        HEADER + "\n" + ROWS.replace("\n", "\r\n") + "\n,,,\n",
        HEADER + ROWS.replace(",1\n", ",1.0\n"),
    ],
    ids=["byte order mark", "spaces", "blank lines", "1.0"],
)
def test_what_spreadsheets_write_is_read(people: str, tmp_path: Path) -> None:
    report = check(csv_task(tmp_path, {}, people), "csv", client=ClientSpec())
    assert report.lines[0].startswith("44 users with 44 rows")
    assert report.warnings == []


def test_words_and_large_numbers_need_no_other_file(tmp_path: Path) -> None:
    """What a column may hold, and what it is divided by, the plan says: neither is found in these people's data."""
    words = {"sex": ["f", "m", ""], "back": ["no", "yes"]}
    parameters = {"words": words, "ignore": ["date"], "divide": {"income": 50000}, "target": "back"}
    cells = [("m", 25000, "no"), ("", 50000, "yes"), ("f", 100000, "no")]
    text = "".join(f"p{i},{sex},3 May,{income},{back}\n" for i, (sex, income, back) in enumerate(20 * cells))
    task = csv_task(tmp_path, parameters, "person,sex,date,income,back\n" + text)
    assert check(task, "csv", client=ClientSpec()).warnings == []
    assert task.known_schema() == Schema.of_layers(4, 8, 1)
    users = task.users()
    rows = users.rows(np.arange(len(users))).columns
    read = {(*inputs, target) for inputs, target in zip(rows["x"].tolist(), rows["y"].tolist(), strict=True)}
    assert read == {(0, 1, 0, 0.5, 0), (0, 0, 1, 1, 1), (1, 0, 0, 2, 0)}
    # What a question asks for by the names of the file: a word's place in its list, a number as it stands there.
    told = set(zip(*(rows[name].tolist() for name in ("sex", "income", "back")), strict=True))
    assert told == {(1, 25000, 0), (2, 50000, 1), (0, 100000, 0)}


def test_columns_of_the_file_can_be_asked_for_by_their_names(
    tmp_path: Path, fieldfare: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`age` was no column of the users' table, and `x`, which the refusal named, one of several numbers a row."""
    monkeypatch.delitem(sys.modules, "csv_task", raising=False)
    made = fieldfare("init")
    assert made.exit_code == 0, made.output
    with (tmp_path / "people.csv").open() as file:
        visits = [float(row["visits"]) for row in csv.DictReader(file)]
    text = """
[question]
kind = "mean"
measure = "visits"
low = -5
high = 5
[run]
task = "csv_task:CsvTask"
[privacy]
population = "example"
epsilon = 8
delta = 1e-5
"""
    (tmp_path / "question.toml").write_text(text)
    said = fieldfare("ask", "question.toml", "--json")
    assert said.exit_code == 0, said.output
    # Noise of .0039, and four fifths of the people, each with a mean of its own.
    assert json.loads(said.stdout)["answer"][0]["value"] == pytest.approx(np.mean(visits), abs=0.2)
    (tmp_path / "question.toml").write_text(text.replace("visits", "height"))
    refused = fieldfare("ask", "question.toml")
    assert refused.exit_code == 2
    assert "Nearest allowed: rows, age, visits, distance, label, y." in refused.stderr


def test_a_plan_is_fitted_before_words_are_declared(
    tmp_path: Path, fieldfare: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fitting takes only the number of people. `task check` names what the model cannot read."""
    monkeypatch.delitem(sys.modules, "csv_task", raising=False)
    (tmp_path / "people.csv").write_text(HEADER + ROWS.replace(".5,", " years,"))
    home = str(tmp_path / "named")
    made = fieldfare("init", "--home", home)
    assert "Noise against what users can teach" in made.stdout, made.output
    assert "[task.words]" in fieldfare("task", "check").stderr


def test_a_file_without_a_row_leaves_nobody_to_train(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    (tmp_path / "people.csv").write_text(HEADER)
    assert "too few people to train (0)" in fieldfare("init", "--home", str(tmp_path / "named")).stdout


def test_who_was_trained_on_is_not_scored_when_others_join_or_leave(tmp_path: Path) -> None:
    """One who joined or left moved the others' places, and people of earlier runs were scored without noise."""

    def trained(numbers: range) -> set[int]:
        file = HEADER + "".join(f"p{i},1,1,{i % 2}\n" for i in numbers)
        return set(csv_task(tmp_path, {}, file).users().pseudonyms.tolist())

    first, joined, left = trained(range(60)), trained(range(90)), trained(range(8, 60))
    assert first < joined
    assert left < first
    assert not (trained(range(60, 90)) | left) - joined


def test_values_that_no_model_can_use_are_worth_a_warning(tmp_path: Path) -> None:
    people = HEADER + ROWS.replace(".5,", "0000,")
    warnings = check(csv_task(tmp_path, {}, people), "csv", client=ClientSpec()).warnings
    assert any("without looking at these users" in warning for warning in warnings)


def test_a_mistake_in_the_file_costs_no_budget(
    tmp_path: Path, fieldfare: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "csv_task", raising=False)
    (tmp_path / "people.csv").write_text(HEADER + ROWS + "p9,high,1,1\n")
    assert fieldfare("init").exit_code == 0
    refused = fieldfare("simulate")
    assert refused.exit_code == 2
    assert "line 62, column 'age'" in refused.stderr
    assert "Traceback" not in refused.output
    with Ledger.open(f"sqlite:///{tmp_path / 'runs' / 'ledger.sqlite3'}") as ledger:
        assert ledger.runs().items == ()
        assert ledger.population("example").committed_epsilon == 0.0


def test_the_task_is_checked_as_the_plan_says(
    tmp_path: Path, fieldfare: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "people.csv").write_text((HEADER + ROWS).replace("person", "patient"))
    assert fieldfare("init").exit_code == 0
    plan = (tmp_path / "plan.toml").read_text()
    for name in (("csv_task:CsvTask",), ()):
        monkeypatch.delitem(sys.modules, "csv_task", raising=False)
        (tmp_path / "plan.toml").write_text(plan)
        refused = fieldfare("task", "check", *name)
        assert refused.exit_code == 2
        assert "column 'person'" in refused.stderr
        (tmp_path / "plan.toml").write_text(plan.replace('# user = "person"', 'user = "patient"'))
        right = fieldfare("task", "check", *name)
        assert right.exit_code == 0, right.output
        assert "Task csv_task:CsvTask is right" in right.stdout
    # A plan of another task, or one that cannot be read, says nothing of this one.
    (tmp_path / "plan.toml").write_text("broken = = 1")
    assert "no such task" in fieldfare("task", "check", "digit").stderr
    for name in ("csv_task", "csv_task.py"):
        assert "Nearest allowed: csv_task:Class" in fieldfare("task", "check", name).stderr


def test_init_overwrites_nothing(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    (tmp_path / "people.csv").write_text("mine\n")
    assert fieldfare("init").exit_code == 0
    assert (tmp_path / "people.csv").read_text() == "mine\n"
    before = (tmp_path / "plan.toml").stat().st_mtime_ns
    assert fieldfare("init").stdout.count("left as it is") == 5
    assert (tmp_path / "plan.toml").stat().st_mtime_ns == before


def test_the_plan_is_fitted_to_the_file_that_is_there(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    """Plain `init` wrote a plan for 800 people beside any file: too few for it, or more than half of its noise."""
    (tmp_path / "people.csv").write_text(HEADER + "".join(f"p{i},1,1,{i % 2}\n" for i in range(300)))
    made, typed = fieldfare("init"), fieldfare("init", "typed", "--users", "300")
    with Ledger.open(f"sqlite:///{tmp_path / 'runs' / 'ledger.sqlite3'}") as ledger:
        assert not ledger.population("example").simulated  # nobody made these people up
    assert made.exit_code == typed.exit_code == 0, made.output
    assert (tmp_path / "plan.toml").read_text() == (tmp_path / "typed" / "plan.toml").read_text()
    assert "241 users" in made.stdout
    assert "no secret" in made.stdout
    for name, rows in (("few", ROWS[:90]), ("other", ROWS)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "people.csv").write_text((HEADER if name == "few" else "a,b,c,d\n") + rows)
        unfit = fieldfare("init", name)
        assert unfit.exit_code == 0, unfit.output
        assert "Not fitted to its people" in unfit.stdout
        assert Plan.from_toml((tmp_path / name / "plan.toml").read_text()).run.cohort == CHOSEN["run.cohort"]


def test_own_people_are_not_charged_as_made_up_ones(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    """First `init` alone, to try it, then beside a file: the file's people shared a population that says that it has
    none, whose runs may have noise that anyone can compute."""
    assert fieldfare("init", "first").exit_code == 0
    own = tmp_path / "own"
    own.mkdir()
    (own / "people.csv").write_text(HEADER + "".join(f"p{i},1,1,{i % 2}\n" for i in range(300)))
    refused = fieldfare("init", "own")
    assert (refused.exit_code, "made-up people" in refused.stderr) == (2, True), refused.output
    assert not (own / "plan.toml").exists()
    made = fieldfare("init", "own", "--home", str(tmp_path / "theirs"))
    assert made.exit_code == 0
    assert f"Next: export FIELDFARE_HOME={tmp_path / 'theirs'} && cd own && fieldfare plan" in made.stdout
    assert "Next: cd first && fieldfare plan" in fieldfare("init", "first").stdout


def test_columns_of_other_names_are_said_at_init(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    """Hardly any file calls them person and label: the plan then fitted nobody, before somebody edited it."""
    file = tmp_path / "people.csv"
    columns = ("--user", "patient", "--target", "late")
    assert fieldfare("init", *columns).exit_code == 2
    header = HEADER.replace("person", "patient").replace("label", "late")
    file.write_text(header + "".join(f"p{i},1,1,{i % 2}\n" for i in range(300)))
    wrong = fieldfare("init", *columns[:3], "sex")
    assert (wrong.exit_code, "column 'sex'" in wrong.stderr) == (2, True)
    assert [path.name for path in tmp_path.glob("*.*")] == ["people.csv"]
    made = fieldfare("init", *columns)
    assert (made.exit_code, "241 users" in made.stdout) == (0, True), made.output
    task = Plan.from_toml((tmp_path / "plan.toml").read_text()).task
    assert (task["user"], task["target"]) == ("patient", "late")
    assert fieldfare("init", *columns).exit_code == 2


def test_many_people_get_a_delta_that_is_small_enough_for_them(
    tmp_path: Path, fieldfare: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1e-5 of 120 000 people, `plan` refused the plan that `init` had written for them."""
    monkeypatch.setattr("fieldfare_server.cli.init.MOST_PEOPLE", 10)  # made-up rows, which nothing here reads
    made = fieldfare("init", "--users", "120000")
    assert (made.exit_code, "people.csv is made up" in made.stdout) == (0, True), made.output
    assert Plan.from_toml((tmp_path / "plan.toml").read_text()).privacy.delta == largest_delta(120_000)
    with Ledger.open(f"sqlite:///{tmp_path / 'runs' / 'ledger.sqlite3'}") as ledger:
        assert ledger.population("example").delta == largest_delta(120_000)
        assert not ledger.population("example").simulated  # people who are counted are nobody made up
    planned = fieldfare("plan", "--users", "120000", "--json")
    assert (planned.exit_code, json.loads(planned.stdout)["warnings"]) == (0, []), planned.output


@pytest.mark.parametrize("people", [300, pytest.param(35_000, marks=pytest.mark.slow)])
def test_a_plan_for_so_many_people_is_the_one_that_suggest_writes(
    people: int, tmp_path: Path, fieldfare: Callable[..., Result]
) -> None:
    (tmp_path / "fits").mkdir()
    (tmp_path / "fits" / "people.csv").write_text(HEADER + "".join(f"p{i},1,1,{i % 2}\n" for i in range(people)))
    made = fieldfare("init", "fits", "--users", str(people))
    assert made.exit_code == 0, made.output
    plan = Plan.from_toml((tmp_path / "fits" / "plan.toml").read_text())
    trained = len(csv_task(tmp_path, {"file": "fits/people.csv"}, "").users())
    assert is_feasible(plan.participation.build(), plan.run.rounds, plan.run.cohort, trained)
    if people == 35_000:  # everybody once: a key of the starter is not set
        assert plan.participation.scheme == "single"
        return
    assert fieldfare("init", "as-it-is").exit_code == 0
    starter = tmp_path / "as-it-is" / "plan.toml"
    with pytest.raises(BadInput, check=coded("too-few")):
        require_feasible(Plan.from_toml(starter.read_text()), trained)
    suggested = fieldfare("suggest", str(starter), "--users", str(trained))
    assert Plan.from_toml((tmp_path / "suggested.toml").read_text()).digest() == plan.digest()
    said = [line for line in made.stdout.splitlines() if line in suggested.stdout]
    assert any("privacy costs more" in line for line in said)
    assert said[-1].startswith("Assumed: 241 users")


def test_a_plan_that_is_there_is_fitted_by_suggest(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    (tmp_path / "plan.toml").write_text("mine\n")
    refused = fieldfare("init", "--users", "300")
    assert refused.exit_code == 2
    assert "fieldfare suggest" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]


def test_so_few_people_that_one_would_be_trained_get_no_plan(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    assert fieldfare("init", "--users", "9").exit_code == 2
    assert not any(tmp_path.iterdir())


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    (tmp_path / "file").write_text("")
    refused = fieldfare("init", "file")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("Refused. file: ")
    assert not (tmp_path / "runs").exists(), "a population was made first"


@pytest.mark.parametrize("command", ["simulate", "plan"])
def test_without_a_plan_init_is_named(command: str, fieldfare: Callable[..., Result]) -> None:
    refused = fieldfare(command)
    assert refused.exit_code == 2
    assert "fieldfare init" in refused.stderr


def test_a_module_that_is_nowhere_is_named_with_the_way_out(tmp_path: Path, fieldfare: Callable[..., Result]) -> None:
    assert fieldfare("init").exit_code == 0
    plan = (tmp_path / "plan.toml").read_text()
    (tmp_path / "plan.toml").write_text(plan.replace("csv_task:", "csv_tusk:"))
    refused = fieldfare("simulate")
    assert refused.exit_code == 2
    assert "holds csv_tusk.py" in refused.stderr


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    """It left an empty plan, which the next call left as it was."""
    with no_file_above(10), pytest.raises(OSError):
        _write(tmp_path / "plan.toml", "longer than that")
    assert not list(tmp_path.iterdir())


def test_ctrl_c_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", pressed)
    with pytest.raises(KeyboardInterrupt):
        _write(tmp_path / "plan.toml", "a plan")
    assert not list(tmp_path.iterdir())


def test_two_at_once_in_a_new_home_both_end_well(
    fieldfare: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second found the population that the first had made since it looked, and wrote nothing."""
    make = Ledger.create_population

    def made_twice(ledger: Ledger, *words: Any, **options: Any) -> Any:
        make(ledger, *words, **options)
        return make(ledger, *words, **options)

    monkeypatch.setattr(Ledger, "create_population", made_twice)
    made = fieldfare("init", "first")
    assert made.exit_code == 0, made.stderr
    assert "population example: is there, left as it is\n" in made.stdout


def test_what_it_says_to_type_next_can_be_typed(fieldfare: Callable[..., Result]) -> None:
    (line,) = (line for line in fieldfare("init", "it's mine").stdout.splitlines() if line.startswith("Next: "))
    assert shlex.split(line)[:4] == ["Next:", "cd", "it's mine", "&&"]
