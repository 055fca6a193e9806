"""The command line: exit codes, one message for a refusal, nothing written, `--json` that parses."""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import Result
from rich.text import Text
from typer.core import TyperOption
from typer.main import get_command
from typer.testing import CliRunner

from fieldfare.errors import BadInput, Conflict
from fieldfare.text import up
from fieldfare_client.app import user_names
from fieldfare_server.cli import main, output
from fieldfare_server.cli.application import application, assemble
from fieldfare_server.cli.output import refusals
from fieldfare_server.files.home import LEDGER_FILE
from fieldfare_server.files.plan_file import read_plan
from fieldfare_server.ledger import Ledger
from support.commands import Run, command_in
from support.ledgers import start

DIGITS = """
[privacy]
population = "writers"
epsilon = 4.0
delta = 1e-5
[run]
task = "digits"
rounds = 3
cohort = 12
min_reports = 6
accept_noise = true
[participation]
scheme = "min-separation"
separation = 2
max_participations = 2
[mechanism]
kind = "nu"
nu = "auto"
[client]
epochs = 1
batch_size = 8
learning_rate = 0.3
"""

QUESTION = """
[question]
kind = "mean"
measure = "rows"
low = 0
high = 50
[run]
task = "digits"
cohort = 50
[privacy]
population = "writers"
epsilon = 1.0
delta = 0.01
"""


@pytest.fixture
def fieldfare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return command_in(tmp_path, monkeypatch)


@pytest.fixture
def plan_file(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str = DIGITS, **changes: str) -> Path:
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "plan.toml"
        path.write_text(text)
        return path

    return write


def said(result: Result) -> Any:
    return json.loads(result.stdout)


def test_plan_prices_without_a_ledger(fieldfare: Run, plan_file: Callable[..., Path], tmp_path: Path) -> None:
    result = fieldfare("plan", plan_file(), "--json")
    assert result.exit_code == 0, result.output
    keys = {"mechanism", "rounds", "noise_multiplier", "sensitivity", "rho_zcdp", "mu_gdp", "epsilon", "delta"}
    told = said(result)
    assert keys | {"max_error", "mean_error", "buffers"} <= set(told)
    assert told["epsilon"] == pytest.approx(4.0, rel=1e-6)
    assert told["epsilon"] <= 4.0
    of_noise = (told["sensitivity"] / told["noise_multiplier"]) ** 2
    assert told["mu_gdp"] ** 2 == pytest.approx(of_noise + told["resolution_mu_squared"], rel=1e-12)
    assert told["epsilon_zcdp"] > told["epsilon"]
    assert not (tmp_path / "home").exists()
    assert fieldfare("plan", plan_file()).exit_code == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epsilon = 4.0", "epsilom = 4.0", ("privacy.epsilom", "epsilon")),
        ("rounds = 3", 'rounds = "x"', ("run.rounds = 'x'",)),
        ("rounds = 3", "rounds = 0", ("run.rounds = 0", "1")),
        ("max_participations = 2", "max_participations = 3", ("max_participations = 3", "2")),
        ('kind = "nu"', 'kind = "new"', ("mechanism.kind = 'new'", "nu")),
        ('nu = "auto"', "nu = 1.5", ("mechanism.nu",)),
        ("delta = 1e-5", "delta = 2", ("privacy.delta = 2",)),
        ("[client]", "[clients]", ("clients", "client")),
        ("[client]", '[clipping]\nkind = "flat"\nnorm = -1.0\n[client]', ("clipping.norm = -1.0",)),
        ("[client]", '[server_optimizer]\nkind = "sdg"\n[client]', ("server_optimizer.kind = 'sdg'", "sgd")),
        ("[privacy]", "[privacy", ("not TOML",)),
    ],
)
@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_bad_plans_are_refused_with_code_2_and_nothing_written(
    command: str,
    old: str,
    new: str,
    words: tuple[str, ...],
    fieldfare: Run,
    plan_file: Callable[..., Path],
    tmp_path: Path,
) -> None:
    result = fieldfare(command, plan_file(**{old: new}))
    assert result.exit_code == 2, result.output
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("command", "work"), [("plan", "price"), ("suggest", "suggest_ways"), ("simulate", "priced_here")]
)
def test_who_waits_for_a_price_is_told_on_standard_error(
    fieldfare: Run, plan_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, command: str, work: str
) -> None:
    module, said = importlib.import_module(f"fieldfare_server.cli.{command}"), threading.Event()
    monkeypatch.setattr(output, "_SILENT", 0.01)
    monkeypatch.setattr(output, "print_progress", lambda text: said.set())
    monkeypatch.setattr("fieldfare_server.cli.simulate.check_first", lambda *given, **named: None)

    def slow(*given: object, **named: object) -> None:
        raise Conflict("slow", "was told" if said.wait(30) else "was silent")

    monkeypatch.setattr(module, work, slow)
    assert "was told" in fieldfare(command, plan_file(), "--json").stdout


def test_a_refusal_in_json_has_its_parts(fieldfare: Run, plan_file: Callable[..., Path]) -> None:
    result = fieldfare("plan", plan_file(**{"rounds = 3": "rounds = 0"}), "--json")
    assert result.exit_code == 2
    assert said(result) == {
        "error": "BadInput",
        "code": "value-wrong",
        "message": said(result)["message"],
        "exit_code": 2,
        "what": "run.rounds = 0",
        "why": said(result)["why"],
        "nearest": "1",
        "line": 8,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "missing.toml"),
        ("budget",),
        ("runs",),
        ("verify",),
        ("report", "nobody"),
        ("simulate",),
        ("simulate", "--resume", "nobody"),
        ("population", "create", "x", "--epsilon", "-1", "--delta", "1e-5"),
        ("population", "create", "../x", "--epsilon", "1", "--delta", "1e-5"),
        ("population", "raise", "x", "--reason", "because", "--epsilon", "9"),
        ("token", "create", "officer", "--scope", "root"),
        ("run", "plan.toml"),
        ("compare", "plan.toml", "--train"),
        ("serve", "--certificate", "only.pem"),
    ],
)
def test_what_cannot_be_is_refused_in_one_message(arguments: tuple[str, ...], fieldfare: Run) -> None:
    result = fieldfare(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Refused.")
    assert "Traceback" not in result.output


def test_submitting_a_first_plan_makes_ledger_and_population(
    fieldfare: Run, plan_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldfare_server.cli.run.submit_and_follow", lambda *arguments, **options: "")
    done = fieldfare("run", plan_file(), "--insecure", "--create-population", "--detach", "--json")
    assert done.exit_code == 0, done.output
    assert said(done)["run"]
    assert "writers" in fieldfare("budget").output
    # A ledger that was seen and is gone is not made once more: a new one would forget what was spent.
    (tmp_path / "home" / "ledger.sqlite3").unlink()
    again = fieldfare("run", plan_file(), "--insecure", "--create-population", "--detach", "--json")
    assert (again.exit_code, "would forget" in again.stdout) == (2, True), again.output


def test_a_plan_that_drowns_is_not_submitted_and_makes_no_population(
    fieldfare: Run, plan_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldfare_server.cli.run.submit_and_follow", lambda *arguments, **options: "")
    path = plan_file(**{"accept_noise = true\n": ""})
    refused = fieldfare("run", path, "--insecure", "--create-population", "--detach", "--json")
    assert (refused.exit_code, said(refused)["code"]) == (2, "signal-below-noise"), refused.output
    assert not (tmp_path / "home").exists()


def test_a_plan_makes_a_population_of_its_own_adjacency(
    fieldfare: Run, plan_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another would refuse the run, and keep its adjacency for good."""
    monkeypatch.setattr("fieldfare_server.cli.run.submit_and_follow", lambda *arguments, **options: "")
    path = plan_file(**{"[privacy]": '[privacy]\nadjacency = "replace_one"'})
    done = fieldfare("run", path, "--insecure", "--create-population", "--detach", "--json")
    assert done.exit_code == 0, done.output
    assert said(fieldfare("budget", "writers", "--json"))[0]["adjacency"] == "replace_one"


def test_the_life_of_a_budget(fieldfare: Run, plan_file: Callable[..., Path], tmp_path: Path) -> None:
    created = fieldfare("population", "create", "writers", "--epsilon", "5", "--delta", "1e-5", "--json")
    assert said(created)["spent"]["epsilon"] == 0
    # All 100 writers take part in the first two rounds, and 50 of them in the third as well.
    everyone = plan_file(**{"cohort = 12": "cohort = 50", "min_reports = 6": "min_reports = 50"})
    done = fieldfare("simulate", everyone, "--nodes", "2", "--json")
    assert done.exit_code == 0, done.output
    run = said(done)
    assert (run["state"], run["rounds"]) == ("done", 3)
    assert run["epsilon"] <= 4.0
    assert Path(run["model"]).exists()

    refused = fieldfare("simulate", everyone)
    assert refused.exit_code == 3
    assert "50 of 100 users have left what one round costs them" in " ".join(refused.stderr.split())
    worst = fieldfare("simulate", plan_file(**{"[privacy]": '[privacy]\naccounting = "worst-case"'}))
    assert worst.exit_code == 3
    assert "would come to" in worst.stderr
    budget = said(fieldfare("budget", "writers", "--json"))[0]
    assert budget["spent"]["epsilon"] == pytest.approx(run["epsilon"])
    assert "users alone who have most left" in " ".join(fieldfare("budget").output.split())
    assert [entry["id"] for entry in said(fieldfare("runs", "--json"))] == [run["run"]]

    checked = said(fieldfare("verify", "--json"))
    assert checked["ok"]
    assert checked["checked"]["charges"] == 3
    statement = fieldfare("report", run["run"])
    assert "Privacy statement" in statement.stdout
    assert said(fieldfare("report", run["run"], "--json"))
    assert said(fieldfare("audit", run["run"], "--json"))["residual"]["passed"]

    raised = fieldfare("population", "raise", "writers", "--epsilon", "20", "--reason", "a second study", "--json")
    assert said(raised)["epsilon"] == 20
    assert fieldfare("simulate", plan_file(), "--json").exit_code == 0
    assert said(fieldfare("population", "close", "writers", "--reason", "over", "--json"))["state"] == "closed"
    assert fieldfare("simulate", plan_file()).exit_code == 2

    token = said(fieldfare("token", "create", "officer", "--scope", "read", "--json"))
    listed = fieldfare("token", "list", "--json")
    assert token["token"] not in listed.stdout
    assert fieldfare("token", "revoke", token["id"]).exit_code == 0


def test_a_changed_ledger_is_named(fieldfare: Run, plan_file: Callable[..., Path], tmp_path: Path) -> None:
    fieldfare("population", "create", "writers", "--epsilon", "5", "--delta", "1e-5")
    assert fieldfare("simulate", plan_file(), "--json").exit_code == 0
    with sqlite3.connect(tmp_path / "home" / "ledger.sqlite3") as raw:
        change = "UPDATE rounds SET spent = replace(spent, '0.', '0.0') WHERE \"index\" = 1"
        with pytest.raises(sqlite3.IntegrityError, match="does not change"):
            raw.execute(change)
        guards = [
            (name, text) for name, text in raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        ]
        for name, _ in guards:
            raw.execute(f"DROP TRIGGER {name}")
        assert raw.execute(change).rowcount == 1
        for _, text in guards:
            raw.execute(text)
    result = fieldfare("verify")
    assert result.exit_code == 2
    assert "rounds" in result.stderr
    assert "charge" in result.stderr or "spent" in result.stderr


def test_a_population_too_small_for_the_plan_is_refused(fieldfare: Run, plan_file: Callable[..., Path]) -> None:
    fieldfare("population", "create", "writers", "--epsilon", "5", "--delta", "1e-5")
    result = fieldfare("simulate", plan_file(**{"cohort = 12\nmin_reports = 6": "cohort = 80\nmin_reports = 80"}))
    assert result.exit_code == 2
    assert "there are 100 users to ask" in result.stderr
    assert said(fieldfare("runs", "--json")) == []


def test_compare_needs_no_ledger_and_no_data(fieldfare: Run, plan_file: Callable[..., Path], tmp_path: Path) -> None:
    result = fieldfare(
        "compare", plan_file(), "--mechanism", "independent", "--mechanism", '{kind = "nu", nu = 0.1}', "--json"
    )
    assert result.exit_code == 0, result.output
    labels = [row["label"] for row in said(result)["plans"]]
    assert labels == ["independent", "nu(nu=0.1)"]
    assert {row["epsilon"] <= 4.0 for row in said(result)["plans"]} == {True}
    assert not (tmp_path / "home").exists()


def test_mechanisms_lists_every_kind(fieldfare: Run) -> None:
    from fieldfare import mechanisms

    result = fieldfare("mechanisms", "--rounds", "32", "--separation", "8", "--max-participations", "4", "--json")
    assert result.exit_code == 0, result.output
    assert {row["kind"] for row in said(result)} == set(mechanisms.kinds())


def test_no_key_is_in_the_ledger_or_in_any_output(
    fieldfare: Run, plan_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The run destroys its key when it ends; `tee` keeps a copy for this test.
    monkeypatch.setenv("FIELDFARE_KEY_WRAP", json.dumps(["tee", str(tmp_path / "copy.key")]))
    monkeypatch.setenv("FIELDFARE_KEY_UNWRAP", json.dumps(["cat"]))
    fieldfare("population", "create", "writers", "--epsilon", "5", "--delta", "1e-5")
    result = fieldfare("simulate", plan_file(), "--json")
    key = (tmp_path / "copy.key").read_bytes()
    assert len(key) == 32
    with Ledger.open(f"sqlite:///{tmp_path / 'home' / 'ledger.sqlite3'}"):
        pass
    raw = (tmp_path / "home" / "ledger.sqlite3").read_bytes()
    assert key not in raw
    assert key.hex().encode() not in raw
    assert key.hex() not in result.output


def test_plan_compares_delta_with_the_users_that_it_is_told(fieldfare: Run, plan_file: Callable[..., Path]) -> None:
    fits = fieldfare("plan", plan_file(), "--users", "task", "--json")
    assert said(fits)["users"] == len(user_names("digits"))
    assert [each for each in said(fits)["warnings"] if "delta" in each] == []
    warned = fieldfare("plan", plan_file(), "--users", "20000", "--json")
    assert warned.exit_code == 0
    assert [each for each in said(warned)["warnings"] if "delta" in each] == [
        "privacy.delta = 1e-5: publishing one user at random of 20000 has delta 5e-5. Better: at most 5e-6."
    ]
    refused = fieldfare("plan", plan_file(), "--users", "100000")
    assert refused.exit_code == 2
    assert "1e-6, or --accept-delta" in refused.stderr
    accepted = fieldfare("plan", plan_file(), "--users", "100000", "--accept-delta")
    assert accepted.exit_code == 0
    assert "warning: privacy.delta" in accepted.stderr
    assert "here 100000" in accepted.stdout
    for wrong in ("0", "-3", "many", "1.5", ""):
        assert "--users 3000" in fieldfare("plan", plan_file(), "--users", wrong).stderr


def test_a_delta_above_one_user_needs_a_persons_word(fieldfare: Run, plan_file: Callable[..., Path]) -> None:
    assert fieldfare("population", "create", "writers", "--epsilon", "50", "--delta", "0.5").exit_code == 0
    path = plan_file(**{"delta = 1e-5": "delta = 0.5"})
    refused = fieldfare("simulate", path)
    assert refused.exit_code == 2
    assert "or --accept-delta" in refused.stderr
    assert said(fieldfare("runs", "--json")) == []
    done = fieldfare("simulate", path, "--accept-delta", "--json")
    assert done.exit_code == 0, done.output
    assert "warning: privacy.delta = 0.5" in done.stderr
    # It stands in the statement, as long as the ledger does.
    statement = said(fieldfare("report", said(done)["run"], "--json"))
    assert statement["warnings"][0].startswith("privacy.delta = 0.5")
    assert "Warning: privacy.delta = 0.5" in fieldfare("report", said(done)["run"]).stdout


def test_run_knows_the_users_of_earlier_runs(
    fieldfare: Run, plan_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submitted: list[str] = []
    monkeypatch.setattr(
        "fieldfare_server.cli.run.submit_and_follow", lambda *_, **terms: submitted.append(terms["run_id"])
    )
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.sqlite3'}", create=True) as ledger:
        ledger.create_population("writers", 9.0, 0.01, actor="test")
        start(ledger, population="writers").register_users(np.arange(200, dtype=np.uint64))
        terms = ("--insecure", "--detach", "--ledger", ledger.url)
    path = plan_file(**{"delta = 1e-5": "delta = 0.01"})
    refused = fieldfare("run", path, *terms)
    assert refused.exit_code == 2
    assert "0.0005, or --accept-delta" in refused.stderr
    assert not submitted
    accepted = fieldfare("run", path, *terms, "--accept-delta")
    assert accepted.exit_code == 0, accepted.output
    assert "warning: privacy.delta = 0.01" in accepted.stderr
    assert "made-up people" not in accepted.stderr
    assert len(submitted) == 1
    # A question to nodes is asked the same.
    monkeypatch.setattr(
        "fieldfare_server.cli.ask.submit_and_follow", lambda *_, **terms: submitted.append(terms["run_id"])
    )
    question = tmp_path / "question.toml"
    question.write_text(QUESTION)
    refused = fieldfare("ask", question, "--superlink", "127.0.0.1:1", *terms[:1], *terms[2:])
    assert refused.exit_code == 2
    assert "0.0005, or --accept-delta" in refused.stderr
    assert len(submitted) == 1
    with Ledger.open(terms[-1]) as ledger:
        ledger.create_population("tried", 9.0, 0.01, simulated=True, actor="test")
    path.write_text(path.read_text().replace('"writers"', '"tried"'))
    assert "tried is of made-up people" in fieldfare("run", path, *terms).stderr


def test_plan_shows_what_a_sampled_run_is_priced_at(fieldfare: Run, plan_file: Callable[..., Path]) -> None:
    few = {
        "delta = 1e-5": 'delta = 1e-5\nadjacency = "add_remove"',
        "min_reports = 6\n": "",
        'scheme = "min-separation"\nseparation = 2\nmax_participations = 2': 'scheme = "poisson"\nrate = 0.1',
        'kind = "nu"\nnu = "auto"': 'kind = "independent"',
    }
    told = said(fieldfare("plan", plan_file(**few), "--json"))
    priced = told["epsilon_priced"]
    assert list(priced) == ["0.01", "0.1", "0.3"]
    assert all(value > told["epsilon"] for value in priced.values())
    shown = " ".join(fieldfare("plan", plan_file(**few)).stdout.split())
    assert "epsilon as priced across runs" in shown
    assert f"{up(priced['0.1'], 6):.6g} at 0.1" in shown
    # Three rounds have no cheap price; that is said where it is dear.
    assert ("Dear across runs" in shown) == (min(priced.values()) > 1.25 * told["epsilon"])
    assert "epsilon_priced" not in said(fieldfare("plan", plan_file(), "--json"))


@pytest.mark.parametrize("as_json", [True, False])
def test_a_full_or_read_only_disk_is_said_and_no_traceback(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (errno.ENOSPC, errno.EROFS):
        with pytest.raises(SystemExit) as ended, refusals(as_json):
            raise OSError(number, os.strerror(number), "/state/run/noise.key")
        assert ended.value.code not in (0, None)
        printed = "".join(capsys.readouterr())
        assert "/state/run/noise.key" in printed
        assert os.strerror(number) in printed
    with pytest.raises(SystemExit) as ended, refusals(as_json):
        Path("/proc/no-file-can-be-made-here").write_text("")
    assert ended.value.code == 2
    assert "/proc/no-file-can-be-made-here" in "".join(capsys.readouterr())
    with pytest.raises(ConnectionResetError), refusals(as_json):  # no word about a disk for what is none
        raise ConnectionResetError(errno.ECONNRESET, "gone")


PROGRAM = "import sys; from fieldfare_server.cli import main; sys.argv[0] = 'fieldfare'; main()"


def elsewhere(line: str, *command: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command in the surroundings that `line` of a shell makes for `"$@"`."""
    words = ["bash", "-c", line, "bash", sys.executable, "-c", PROGRAM, *command]
    return subprocess.run(words, env={**os.environ, **variables}, capture_output=True, timeout=300, check=False)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_closed_are_nothing_to_speak_of(tmp_path: Path, closed: str) -> None:
    made = ("population", "create", "writers", "--epsilon", "2", "--delta", "1e-5", "--simulated")
    ended = elsewhere(f'"$@" {closed}', *made, FIELDFARE_HOME=str(tmp_path / "home"))
    assert (ended.returncode, ended.stderr) == (0, b"")
    with Ledger.open(f"sqlite:///{tmp_path / 'home' / LEDGER_FILE}") as ledger:
        assert [one.name for one in ledger.populations()] == ["writers"]


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_what_a_terminal_has_no_character_for_is_escaped() -> None:
    ended = elsewhere('"$@"', "data", "list", **ASCII)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"\\u2014" in ended.stdout


@pytest.mark.parametrize("command", [("budget", "--json"), ("backup", "copies")])
def test_a_home_whose_path_is_no_text_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    home = os.fsdecode(os.fsencode(tmp_path) + b"/h\xe9")
    ended = elsewhere('"$@"', *command, FIELDFARE_HOME=home, **ASCII)
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr
    if "--json" in command:
        assert json.loads(ended.stdout)["code"] == "ledger-path-encoding"


def test_a_working_directory_that_is_gone_is_refused_only_by_what_needs_it(tmp_path: Path) -> None:
    gone = f'mkdir "{tmp_path}/gone"; cd "{tmp_path}/gone"; rmdir "{tmp_path}/gone"; "$@"'
    assert elsewhere(gone, "--version").returncode == 0
    ended = elsewhere(gone, "backup", "copies", FIELDFARE_HOME=str(tmp_path))
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("command", [["--help"], ["plan", "nowhere.toml", "--json"]])
def test_output_that_cannot_be_written_is_one_sentence(command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run([sys.executable, "-c", PROGRAM, *command], stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.startswith(b"Refused.")


def test_a_plan_of_five_thousand_brackets_and_a_horizon_beyond_memory_are_refused(tmp_path: Path) -> None:
    """Both ended in a traceback."""
    (tmp_path / "deep.toml").write_text("a = " + 5000 * "[" + 5000 * "]")
    with pytest.raises(BadInput, match="is not TOML"):
        read_plan(tmp_path / "deep.toml")
    assert CliRunner().invoke(application, ["mechanisms", "--rounds", "99999999999"]).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        *(("simulate", "--resume", empty) for empty in ("", " ")),
        *((command, "--resume=") for command in ("run", "ask")),
        ("simulate", "plan.toml", "--export", ""),
        ("init", ""),
        ("backup", ""),
        ("plan", "plan.toml", "--explain", ""),
    ],
    ids=" ".join,
)
def test_an_empty_word_starts_nothing(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--resume "$RUN"` with a variable that is unset started a new run, where a plan lay in the directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fieldfare", *words, "--home", "home"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert "it is empty" in " ".join(told.split())
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        *(("init first", 0), ("plan --template", 0), ("budget --ledger none", 2)),
        *(("--help", 0), ("plan --help", 0), ("--version", 0), ("plan --epsilom 2", 2), ("", 2)),
    ],
)
def test_a_reader_who_is_gone_changes_no_exit_code(tmp_path: Path, words: str, code: int) -> None:
    """For example after `| head -1`, where `init` wrote nothing and blamed the task."""
    reader, writer = os.pipe()
    os.close(reader)
    command, env = (
        [sys.executable, "-c", PROGRAM, *words.split()],
        {**os.environ, "FIELDFARE_HOME": str(tmp_path / "h")},
    )
    ended = subprocess.run(command, cwd=tmp_path, env=env, stdout=writer, stderr=writer, timeout=300, check=False)
    os.close(writer)
    assert ended.returncode == code
    if words == "init first":
        assert len(list((tmp_path / "first").iterdir())) == 4


def test_what_is_told_to_a_terminal_that_was_closed_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*told: object, **options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(output.err, "print", closed)
    output.print_progress("round 1")
    with pytest.raises(SystemExit) as ended, refusals(as_json=False):
        raise Conflict("a", "and b.")
    assert ended.value.code == 2


ENDED = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # shells ignore some for what runs in the background
    signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
from fieldfare_server.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_with_a_word_and_its_code(tmp_path: Path, number: signal.Signals) -> None:
    waits = [sys.executable, "-c", ENDED, "supervise", "--insecure", "--home", str(tmp_path)]  # for a ledger
    with subprocess.Popen(waits, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Waiting: ")
        process.send_signal(number)
        said, told = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    assert "\nStopped. `fieldfare runs` shows" in f"\n{told}"


HANDLERS = """
import os, signal
from fieldfare_server.cli import end_like_ctrl_c
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
end_like_ctrl_c()
assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, "nohup"
if (child := os.fork()) == 0:
    os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
assert os.waitpid(child, 0)[1] == 0, "a child would go on"
"""


def test_signals_end_children_as_they_always_do_and_nohup_is_heeded() -> None:
    subprocess.run([sys.executable, "-c", HANDLERS], timeout=120, check=True)


def test_ctrl_c_while_the_command_is_imported_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(command: str | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["fieldfare", "budget"])
    monkeypatch.setattr("fieldfare_server.cli.application.assemble", pressed)
    monkeypatch.setattr("fieldfare_server.cli.end_like_ctrl_c", lambda: None)
    monkeypatch.setattr("fieldfare_server.cli.ready_streams", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err.startswith("Stopped. ")
    monkeypatch.setattr("fieldfare_server.cli.application.called", pressed)  # before there are words
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def commands_of(program: click.Command) -> Iterator[click.Command]:
    """The commands of `program`, and of its groups."""
    for each in program.commands.values() if isinstance(program, click.Group) else (program,):
        yield from commands_of(each) if isinstance(each, click.Group) else (each,)


def test_no_help_cuts_a_word_on_a_narrow_terminal() -> None:
    """Names of options were cut: `--ceiling-epsi…`."""
    application, cut = assemble(), []

    def show(command: click.Command, path: tuple[str, ...]) -> None:
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                show(command.commands[name], (*path, name))
        elif "\u2026" in CliRunner().invoke(application, [*path, "--help"], env={"COLUMNS": "80"}).output:
            cut.append(" ".join(path))

    show(get_command(application), ())
    assert cut == []


def test_helps_are_shown_as_they_are_written() -> None:
    """Rich took "[one started here]" and others for markup and showed nothing; texts were broken as in the source."""
    seen = list(commands_of(get_command(assemble())))
    assert len(seen) > 50
    for each in seen:
        helps = [each.help or "", *(option.help or "" for option in each.params if isinstance(option, TyperOption))]
        for text in helps:
            assert Text.from_markup(text).plain == text.replace("\\[", "["), (each.name, text)
        assert "\n" not in helps[0].replace("\n\n", ""), each.name
        assert all(helps), each.name
    said = CliRunner().invoke(application, ["task", "check", "--help"]).output
    assert "take [task] and [client] from this plan" in " ".join(said.replace("│", " ").split())
