"""`fieldfare simulate`: what it writes, what it refuses, and what Ctrl-C leaves behind."""

from __future__ import annotations

import csv
import errno
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from fieldfare.errors import BadInput, Interrupted
from fieldfare.plan import Plan
from fieldfare_client.app import forget_users
from fieldfare_client.task_faults import fault_of
from fieldfare_server.cli.application import application
from fieldfare_server.cli.export import _EVENT_BYTES, COLUMNS, RoundExport, _parquet, check_export, live_export
from fieldfare_server.cli.simulate import _ended
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.session import Session
from support.faulty_tasks import Right
from support.federation import TinyTask, home
from support.full_disk import no_file_above
from support.refusals import coded

PLAN = """
[privacy]
population = "people"
noise_multiplier = 2.0
delta = 1e-5
[run]
task = "support.federation:{task}"
rounds = {rounds}
cohort = 6
noise_seed = 11
round_timeout = 5.0
[mechanism]
kind = "independent"
[participation]
scheme = "min-separation"
separation = 4
[client]
batch_size = 3
"""


def prepare(root: Path, task: str = "TinyTask", rounds: int = 5) -> tuple[StateDirectory, list[str]]:
    (root / "plan.toml").write_text(PLAN.format(task=task, rounds=rounds))
    where = home(root, epsilon=200.0)
    return where, ["simulate", str(root / "plan.toml"), "--home", str(where.root), "--ledger", where.ledger, "--json"]


def simulate(arguments: list[str]) -> Result:
    return CliRunner().invoke(application, arguments)


def told(where: StateDirectory) -> list[dict[str, object]]:
    with Ledger.open(where.ledger) as ledger:
        (run,) = ledger.runs().items
        assert run.started_by.startswith("simulation@"), "doctor and supervise must know"
        rounds = ledger.rounds(run.id).items
    return [{**r.statistics, **r.model_dump(), "round": r.index} for r in rounds]


def test_rounds_as_csv_are_what_the_ledger_says(tmp_path: Path) -> None:
    where, arguments = prepare(tmp_path)
    to = tmp_path / "new" / "rounds.csv"
    result = simulate([*arguments, "--export", str(to)])
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(to.read_text().splitlines()))
    assert len(rows) == 5
    assert tuple(rows[0]) == COLUMNS
    for row, seen in zip(rows, told(where), strict=True):
        assert {name: str(seen[name]) for name in COLUMNS} == row


@pytest.mark.parametrize("simulated", [True, False])
def test_a_run_on_made_up_people_says_so_before_it_is_charged(simulated: bool, tmp_path: Path) -> None:
    """A starter's file of made-up people may be replaced; their population stays, and keeps no real person's budget."""
    (tmp_path / "plan.toml").write_text(PLAN.format(task="TinyTask", rounds=1).replace("noise_seed = 11\n", ""))
    where = home(tmp_path, epsilon=0.01, simulated=simulated)
    result = simulate(["simulate", str(tmp_path / "plan.toml"), "--home", str(where.root), "--ledger", where.ledger])
    assert result.exit_code == 3, result.output
    assert ("people is of made-up people" in result.stderr) is simulated


def test_rounds_as_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    where, arguments = prepare(tmp_path)
    assert simulate([*arguments, "--export", str(tmp_path / "rounds.parquet")]).exit_code == 0
    rows = pq.read_table(tmp_path / "rounds.parquet").to_pylist()
    assert rows == [{name: seen[name] for name in COLUMNS} for seen in told(where)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_metrics_of_a_run_have_columns_behind_the_others(tmp_path: Path, suffix: str, capsys: Any) -> None:
    import pyarrow.parquet as pq

    where, arguments = prepare(tmp_path)
    with (tmp_path / "plan.toml").open("a") as plan:
        plan.write("[metrics]\nshow = { loss = [0, 4], correct = [0, 1] }\n")
    to = tmp_path / f"rounds{suffix}"
    result = simulate([*arguments, "--export", str(to)])
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(to.read_text().splitlines())) if suffix == ".csv" else pq.read_table(to).to_pylist()
    more = [f"metric.{name}{end}" for name in ("correct", "loss") for end in ("", ".low", ".high")]
    assert list(rows[0]) == [*COLUMNS, *more]
    for row, seen in zip(rows, told(where), strict=True):
        assert [float(row[name]) for name in more] == [seen[name] for name in more]
    check_export(to)  # it may be replaced
    last, told_last = json.loads(result.stdout), told(where)[-1]
    assert [last[name] for name in more] == [told_last[name] for name in more]
    _ended(where, last["run"], None).tell()
    assert f"metric.loss of users' own data, in the last rounds: {last['metric.loss']:.4f} (" in capsys.readouterr().out


def test_rounds_in_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    where, arguments = prepare(tmp_path)
    result = simulate([*arguments, "--export", str(tmp_path / "tb")])
    assert result.exit_code == 0, result.output
    log = EventAccumulator(str(tmp_path / "tb" / json.loads(result.stdout)["run"]))
    log.Reload()
    for name in ("epsilon", "score", "reports"):
        seen = [(event.step, event.value) for event in log.Scalars(name)]
        assert seen == [(row["round"], pytest.approx(row[name], rel=1e-6)) for row in told(where)]


class Growing(RoundExport):
    """Of a run that looks as if it had only so many rounds yet."""

    shown = 2

    def _read(self, ledger: Ledger) -> None:
        self._rows, self._cursor = [], None
        super()._read(ledger)
        del self._rows[self.shown :]


@pytest.mark.parametrize("to", ["rounds.csv", "rounds.parquet", "tb"])
def test_an_export_that_grew_is_the_one_written_at_the_end(tmp_path: Path, to: str) -> None:
    where, arguments = prepare(tmp_path)
    result = simulate([*arguments, "--export", str(tmp_path / to)])
    run = json.loads(result.stdout)["run"]
    grown = Growing(run, tmp_path / "grown" / to)
    grown.update(where.ledger)
    assert len(written(tmp_path / "grown" / to)) == 2
    grown.shown = 4
    grown.update(where.ledger, last=True)
    grown.update(where.ledger, last=True)
    grown.shown = 5
    grown.update(where.ledger, last=True)
    grown.close()
    assert written(tmp_path / "grown" / to) == written(tmp_path / to)
    assert len(written(tmp_path / to)) == 5


def written(path: Path) -> list[Any]:
    import pyarrow.parquet as pq
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    if path.suffix == ".csv":
        return list(csv.DictReader(path.read_text().splitlines()))
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    (run,) = path.iterdir()
    log = EventAccumulator(str(run))
    log.Reload()
    return [(event.step, event.value) for event in log.Scalars("epsilon")]


@pytest.mark.parametrize(("to", "why"), [("rounds.xlsx", "no"), ("folder.csv", "directory"), ("file", "is a file")])
def test_an_export_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path, to: str, why: str) -> None:
    where, arguments = prepare(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").touch()
    result = simulate([*arguments, "--export", str(tmp_path / to)])
    assert result.exit_code == 2
    assert why in result.output
    with Ledger.open(where.ledger) as ledger:
        assert not ledger.runs().items


def test_ctrl_c_leaves_a_run_that_resume_finishes(tmp_path: Path) -> None:
    where, arguments = prepare(tmp_path, "SlowTask", rounds=30)
    export = ["--export", str(tmp_path / "rounds.csv")]
    # Where a script runs the tests in the background, its shell ignores Ctrl-C, and all below it inherit that.
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    script += "from fieldfare_server.cli import main; main()"
    command = [sys.executable, "-c", script, *arguments, *export]
    python_path = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1", "SLOW_TASK": "0.5"}
    # The file of rounds is written once a second: thirty half seconds leave room on a busy machine.
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        rows = tmp_path / "rounds.csv"
        while not (rows.exists() and len(rows.read_text().splitlines()) >= 4):  # live, while the run goes on
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the command
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 4, said
    body = json.loads(said)
    assert (body["error"], body["exit_code"]) == ("Interrupted", 4)
    with Ledger.open(where.ledger) as ledger:
        (run,) = ledger.runs().items
    assert run.state == "interrupted"
    assert f"--resume {run.id}" in body["message"]
    assert 3 <= run.next_round < 30
    assert len((tmp_path / "rounds.csv").read_text().splitlines()) >= 1 + run.next_round

    result = simulate(["simulate", "--resume", run.id, *arguments[2:]])
    assert result.exit_code == 0, result.output
    assert (json.loads(result.stdout)["state"], json.loads(result.stdout)["rounds"]) == ("done", 30)
    with Ledger.open(where.ledger) as ledger:
        report = verify(ledger, where.root, recompute=recharge, held=[ledger.head()])
    assert report.ok, str(report.fault)


def test_a_run_whose_machine_is_gone_is_abandoned(tmp_path: Path) -> None:
    where, arguments = prepare(tmp_path)
    session = Session.begin(where, Plan.from_toml((tmp_path / "plan.toml").read_text()), True)
    run = session.account.id
    abandon = ["abandon", run, "--reason", "its disk is lost", *arguments[2:]]
    held = simulate(abandon)
    assert held.exit_code == 2
    assert "held by" in held.output
    with session:
        session.account.hand_back("the machine went away")
    shutil.rmtree(where.root / run)
    ended = simulate(abandon)
    assert ended.exit_code == 0, ended.output
    body = json.loads(ended.stdout)
    assert (body["state"], body["message"], body["spent"]["epsilon"]) == ("stopped", "its disk is lost", 0)
    with Ledger.open(where.ledger) as ledger:
        assert ledger.population("people").committed_epsilon == 0
    assert simulate(arguments).exit_code == 0


@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_an_export_never_overwrites_a_file_that_is_none(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("person,label\np1,0\n")
    with pytest.raises(BadInput, check=coded("already-there", "--export")):
        check_export(path)
    assert path.read_text() == "person,label\np1,0\n"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_earlier_export_may_be_replaced(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rounds{suffix}"
    path.write_bytes(",".join(COLUMNS).encode() + b"\n" if suffix == ".csv" else _parquet([]))
    check_export(path)
    check_export(tmp_path / f"new{suffix}")


FAULTY = """
[privacy]
population = "people"
epsilon = 4.0
delta = 1e-5
[run]
task = "{task}"
rounds = 5
cohort = 6
min_reports = {needed}
[mechanism]
kind = "independent"
[participation]
scheme = "min-separation"
separation = 2
max_participations = 2
"""


@pytest.mark.parametrize(
    ("task", "needed", "words"),
    [
        ("support.faulty_tasks:NoName", 4, "has no name"),
        ("support.faulty_tasks:Unseeded", 4, "does not give the same"),
        ("support.faulty_tasks:Right", 5, "need 25 participations; there are 12 users to ask, who give at most 24"),
    ],
)
def test_what_cannot_reach_its_end_is_not_started(task: str, needed: int, words: str, tmp_path: Path) -> None:
    """F1, F4: a mistake costs seconds, and no budget."""
    where = home(tmp_path, simulated=False)
    (tmp_path / "plan.toml").write_text(FAULTY.format(task=task, needed=needed))
    result = simulate(["simulate", str(tmp_path / "plan.toml"), "--home", str(where.root), "--json"])
    assert result.exit_code == 2
    assert words in json.loads(result.stdout)["message"]
    with Ledger.open(where.ledger) as ledger:
        assert ledger.runs().items == ()
        assert ledger.population("people").committed_epsilon == 0.0


@pytest.mark.parametrize(
    ("task", "needed", "words"),
    [
        ("support.faulty_tasks:NoName", 4, "has no name"),
        ("support.faulty_tasks:Right", 5, "need 25 participations; there are 12 users to ask, who give at most 24"),
    ],
)
def test_compare_trains_nothing_that_cannot_reach_its_end(
    task: str, needed: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "rehearse", lambda *_, **__: pytest.fail("a rehearsal was begun"))
    (tmp_path / "plan.toml").write_text(FAULTY.format(task=task, needed=needed))
    result = simulate(["compare", str(tmp_path / "plan.toml"), "--train", "--data-is-public", "--json"])
    assert result.exit_code == 2, result.output
    assert words in json.loads(result.stdout)["message"]


@pytest.mark.parametrize(
    ("task", "words"),
    [("support.faulty_tasks:NoName", "has no name"), ("support.faulty_tasks:Right", "there are 12 ")],
)
def test_a_demo_that_cannot_reach_its_end_leaves_nothing(task: str, words: str, tmp_path: Path) -> None:
    result = simulate(["demo", "--task", task, "--out", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 2, result.output
    assert words in json.loads(result.stdout)["message"]
    assert not (tmp_path / "out").exists()


def test_a_run_of_the_last_possible_visit_reaches_its_end(tmp_path: Path) -> None:
    where = home(tmp_path, simulated=False)
    (tmp_path / "plan.toml").write_text(FAULTY.format(task="support.faulty_tasks:Right", needed=4))
    result = simulate(["simulate", str(tmp_path / "plan.toml"), "--home", str(where.root), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rounds"] == 5


def test_the_check_shows_the_line_of_the_task_that_fails(tmp_path: Path) -> None:
    result = simulate(["task", "check", "support.faulty_tasks:Broken"])
    assert result.exit_code == 2
    assert "in evaluate" in result.output
    assert "evaluate() failed: RuntimeError: no test file" in " ".join(result.output.split())
    right = simulate(["task", "check", "support.faulty_tasks:Right", "--json"])
    assert right.exit_code == 0
    assert "12 users with 60 rows" in json.loads(right.stdout)["right"][0]


@pytest.mark.parametrize("number", [np.float32, torch.tensor])
def test_scores_may_be_numbers_of_numpy_and_torch(
    number: Callable[[float], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the task took them, and the run stopped at its first round, over JSON."""
    _, command = prepare(tmp_path)
    monkeypatch.setattr(TinyTask, "evaluate", lambda self, model: {"r": number(0.5), "of": number(2.0)})
    said = simulate(command)
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["score"] == 0.5


@pytest.mark.parametrize("how", [lambda: sys.exit(3), lambda: 1 / 0])
def test_a_score_that_fails_in_a_run_leaves_it_for_its_resume(
    how: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sys.exit(3)` ended the command with the code of a refused budget, anything else with a traceback and 1."""
    _, command = prepare(tmp_path)
    right, calls = TinyTask.evaluate, itertools.count()
    monkeypatch.setattr(TinyTask, "evaluate", lambda self, model: how() if next(calls) == 3 else right(self, model))
    said = simulate(command)
    assert said.exit_code == 4, said.output
    run = re.findall("--resume ([0-9a-f]+)", json.loads(said.stdout)["message"])
    assert run, said.output
    done = simulate(["simulate", "--resume", run[0], *command[2:]])
    assert json.loads(done.stdout)["state"] == "done"


def test_a_command_ends_by_no_code_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.toml").write_text(FAULTY.format(task="support.faulty_tasks:Right", needed=4))
    monkeypatch.setattr(Right, "users", lambda _: sys.exit(3))
    forget_users()  # whom an earlier command of this process asked
    said = simulate(["plan", str(tmp_path / "plan.toml"), "--users", "task", "--json"])
    assert (said.exit_code, json.loads(said.stdout)["code"]) == (2, "task-exits")


RAISING = {
    "import": ("from os import nothing_there\n", "ImportError: cannot import name 'nothing_there'"),
    "model": (
        "from support.faulty_tasks import Right\nclass Mine(Right):\n    def build_model(self): return {}['layers']\n",
        "KeyError: 'layers'",
    ),
}


@pytest.mark.parametrize("where", RAISING)
def test_what_a_tasks_code_raises_where_a_plan_is_priced_is_a_refusal_with_its_own_lines(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`plan`, `suggest` and `run` ended with a traceback of Fieldfare's own lines, and 1."""
    text, words = RAISING[where]
    (tmp_path / f"raises_in_{where}.py").write_text(text)
    (tmp_path / "plan.toml").write_text(FAULTY.format(task=f"raises_in_{where}:Mine", needed=4))
    monkeypatch.syspath_prepend(tmp_path)
    said = simulate(["plan", str(tmp_path / "plan.toml")])
    trace, _, refusal = said.output.partition("Refused. ")
    assert said.exit_code == 2, said.output
    assert f"raises_in_{where}.py" in trace
    assert "fieldfare_server" not in trace
    assert words in " ".join(refusal.split())
    as_json = simulate(["plan", str(tmp_path / "plan.toml"), "--json"])
    assert json.loads(as_json.output)["code"] == "faulty"  # and nothing beside it


def test_an_error_of_our_own_is_no_tasks() -> None:
    """A traceback is what a report of it needs."""
    for error in (
        KeyError("ours"),
        json.JSONDecodeError("of the standard library", "", 0),
        BadInput("a plan", "is odd."),
    ):
        assert fault_of(error) is None
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("")  # whose frames are a package's
    assert fault_of(raised.value.with_traceback(raised.tb.tb_next)) is None  # type: ignore[union-attr]


IMPORTED = "import os\nos._exit(0)\n"
USED = "import os\nfrom support.faulty_tasks import Right\nclass Quits(Right):\n    def users(self): os._exit(0)\n"


@pytest.mark.parametrize(
    ("task", "command", "code"),
    [
        (IMPORTED, "task check quitter:Quits", "faulty"),
        (USED, "task check quitter:Quits", "faulty"),
        (IMPORTED, "simulate plan.toml", "faulty"),
        (IMPORTED, "ask --clip-of plan.toml", "task-exits"),
    ],
    ids=("check import", "check users", "simulate", "ask"),
)
def test_a_task_that_ends_its_process_is_no_success(task: str, command: str, code: str, tmp_path: Path) -> None:
    """`os._exit(0)` ended the command without a word, and with the code of what is done."""
    (tmp_path / "quitter.py").write_text(task)
    (tmp_path / "plan.toml").write_text(FAULTY.format(task="quitter:Quits", needed=4))
    program = "import sys; from fieldfare_server.cli import main; sys.argv[0] = 'fieldfare'; main()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    home(tmp_path)
    words = [sys.executable, "-c", program, *command.split(), "--home", str(tmp_path / "home"), "--json"]
    ended = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2, ended.stderr
    assert json.loads(ended.stdout)["code"] == code


def test_an_export_to_a_full_disk_keeps_whole_rows_and_goes_on_with_them(tmp_path: Path) -> None:
    """The next update wrote its rows behind a half one."""
    export, file = RoundExport("run", tmp_path / "rounds.csv"), tmp_path / "rounds.csv"
    row = dict.fromkeys(COLUMNS, 1)
    export._rows = [row]
    export._csv()
    export._written, export._rows = 1, [row] * 3
    whole = file.read_text()
    with no_file_above(len(whole) + 5), pytest.raises(OSError):
        export._csv()
    assert file.read_text() == whole
    export._csv()
    assert file.read_text() == whole + 2 * whole.splitlines(keepends=True)[1]


def test_a_tensorboard_log_on_a_full_disk_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """TensorBoard's own thread printed a traceback, and the log stayed without its rounds."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    export, directory = RoundExport("run", tmp_path / "board"), tmp_path / "board/run"
    export._rows = [dict.fromkeys(COLUMNS, 1) | {"state": "committed", "round": number} for number in range(3)]
    with no_file_above(3000), pytest.raises(OSError):
        export._tensorboard()
    assert not any(directory.iterdir())
    export._tensorboard()
    export.close()
    (log,) = directory.iterdir()
    assert 0 < log.stat().st_size < _EVENT_BYTES * 3
    read = EventAccumulator(str(directory)).Reload()
    assert all(len(read.Scalars(tag)) == 3 for tag in read.Tags()["scalars"])


def test_an_export_that_fails_says_so_and_hides_no_other_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RoundExport, "update", full)
    with pytest.raises(BadInput, check=coded("unwritable", "--export")), live_export("", "run", tmp_path / "a.csv"):
        pass
    with pytest.raises(Interrupted, match="go on"), live_export("", "run", tmp_path / "a.csv"):
        raise Interrupted("go on")
    assert os.strerror(errno.ENOSPC) in " ".join(capsys.readouterr().err.split())
