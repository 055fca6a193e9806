"""The home of somebody who set nothing: one place, wherever a process starts, and never a second budget unnoticed."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fieldfare as ff
from fieldfare.errors import BadInput, BudgetRefused, Refused
from fieldfare_server.cli.application import application
from fieldfare_server.files.home import StateDirectory, scratch_folder
from support.flower_app import vector_app, vector_arrays
from support.refusals import coded

PLAN = """
[privacy]
population = "people"
epsilon = 8
delta = 1e-5
[run]
task = "digits"
rounds = 2
cohort = 3
accept_noise = true
[mechanism]
kind = "independent"
"""


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty account without a variable, in an empty directory; returns its home."""
    for name in ("FIELDFARE_HOME", "FIELDFARE_LEDGER", "FIELDFARE_LEDGER_FILE", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "account"))
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    return tmp_path / "account" / ".local" / "share" / "fieldfare"


def start() -> None:
    private = ff.PrivateStrategy(
        epsilon=8.0, delta=1e-5, cohort=3, mechanism="independent", population="people", budget=8.0
    )
    private.start(ff.LocalGrid(vector_app, 3, {}), vector_arrays(), num_rounds=2)


def test_the_scratch_of_a_killed_process_is_deleted_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed simulation left the key of its noise, and checkpoints, until somebody cleaned the machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = (
        "import pathlib, sys, tempfile, time; tempfile.tempdir = sys.argv[1]; from fieldfare_server.files.home import "
        "scratch_folder; made = scratch_folder(); (pathlib.Path(made.name) / 'noise.key').touch(); "
        "print(made.name, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        old = time.time() - 3600
        os.utime(left, (old, old))
        with scratch_folder() as mine:
            assert left.exists(), "its process lives"
            process.kill()
            process.wait()
            os.utime(left, (old, old))
            with scratch_folder() as other:
                assert not left.exists()
                assert Path(other).exists()
            assert Path(mine).exists()
            new = tmp_path / Path(mine).with_name("fieldfare-scratch-new")
            new.mkdir()
            with scratch_folder():
                assert new.exists(), "whoever made it has not locked it yet"
    assert not Path(mine).exists()


def test_two_working_directories_share_one_budget(
    account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start()
    monkeypatch.chdir(tmp_path / "second")
    with pytest.raises(BudgetRefused, match="'people'"):
        start()
    with ff.Ledger.open(StateDirectory.of().ledger) as ledger:
        assert ledger.population("people").spent_epsilon == pytest.approx(8.0, rel=1e-6)
        assert len(ledger.runs().items) == 1
    assert {path.name for path in tmp_path.iterdir() if any(path.iterdir())} == {"account"}
    assert account.stat().st_mode & 0o077 == 0


def test_names_come_first(account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (StateDirectory.of().root, StateDirectory.of().named) == (account, False)
    monkeypatch.setenv("FIELDFARE_LEDGER", "postgresql://host/db")
    assert StateDirectory.of() == StateDirectory(account, "postgresql://host/db")
    monkeypatch.setenv("FIELDFARE_HOME", str(tmp_path / "named"))
    assert StateDirectory.of() == StateDirectory(tmp_path / "named", "postgresql://host/db")
    assert StateDirectory.of("here", "sqlite://").root == tmp_path / "first" / "here"


@pytest.mark.usefixtures("account")
def test_a_file_for_the_ledgers_url_that_holds_no_text_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_bytes(b"\xff\xfe\x00")
    monkeypatch.setenv("FIELDFARE_LEDGER_FILE", str(tmp_path / "url"))
    with pytest.raises(BadInput, check=coded("unreadable", "FIELDFARE_LEDGER_FILE")):
        StateDirectory.of()


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("postgresql://u@127.0.0.1:1/x?password=SECRET", "database-away"),
        ("postgresql://u@127.0.0.1:1/x?password=SECRET&password=SECRET", "database-away"),
        ("postgresql://u@127.0.0.1:1/x?sslkey=k&sslpassword=SECRET", "database-away"),
        ("mysql://u@h/d?password=SECRET&SslPassword=SECRET", "ledger-database-kind"),
        ("postgresql://u:SECRET@[::/d", "ledger-url"),
    ],
)
def test_no_refusal_shows_a_password_wherever_the_url_has_it(url: str, code: str) -> None:
    """In the query libpq takes one too, and every message about the ledger showed it. The last one was a traceback."""
    with pytest.raises(Refused) as refused:
        ff.Ledger.open(url, patience=0.0)
    assert refused.value.code == code
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("left", ["ledger.sqlite3", "ledger.head"])
def test_the_default_of_earlier_versions_is_named_and_not_left(
    left: str, account: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tmp_path / "first" / "runs"
    before.mkdir()
    assert StateDirectory.of().root == account  # a directory of that name is nothing
    (before / left).touch()
    with pytest.raises(
        BadInput, check=coded("not-allowed", f"export FIELDFARE_HOME={before}", f"mv {before} {account}")
    ):
        start()
    account.mkdir(parents=True)
    with pytest.raises(BadInput) as refused:
        StateDirectory.of()
    assert "mv " not in str(refused.value)  # into what is there it would hide, not join
    monkeypatch.setenv("FIELDFARE_HOME", str(before))
    assert StateDirectory.of().root == before


def test_an_account_without_a_directory_is_refused(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(BadInput, check=coded("not-found", "home")):
        StateDirectory.of()


@pytest.mark.parametrize(
    ("home", "said"), [("gone", "gone is a link"), ("gone/home", "gone is a link"), ("file", "file is no directory")]
)
def test_a_home_that_cannot_be_made_names_what_is_in_its_place(tmp_path: Path, home: str, said: str) -> None:
    """It said "File exists" of a link to a disk that is not mounted. Nothing is made there: the budgets are on it."""
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "disk")
    with pytest.raises(BadInput, check=coded("unwritable", f"{tmp_path}/{said}")):
        StateDirectory.of(tmp_path / home).prepare()
    assert not (tmp_path / "disk").exists()


CREATE = ("population", "create", "people", "--epsilon", "8", "--delta", "1e-5")


@pytest.mark.parametrize(
    "words", [CREATE, ("run", "plan.toml", "--create-population", "--insecure"), ("init",)], ids=lambda w: w[0]
)
def test_every_way_to_a_budget_of_people_needs_a_home_that_was_named(account: Path, words: tuple[str, ...]) -> None:
    """`run --create-population` and `budget=` were refused where `population create` and `init` of a file were not."""
    Path("people.csv").write_text("person,age,label\n" + "".join(f"p{i},1,{i % 2}\n" for i in range(300)))
    Path("plan.toml").write_text(PLAN)
    refused = CliRunner().invoke(application, words)
    assert refused.exit_code == 2, refused.output
    assert f"FIELDFARE_HOME={account}" in "".join(refused.stderr.replace("│", "").split())
    assert not list(Path().glob("csv_task.py"))
    if words[0] != "run":  # which needs a SuperLink to go on
        named = CliRunner().invoke(application, [*words, "--home", str(account)])
        assert named.exit_code == 0, named.output


def test_made_up_people_need_no_name_for_the_home(account: Path) -> None:
    for words in ([*CREATE, "--simulated"], ["init", "mine"], ["init", "mine"]):  # the second changes nothing
        made = CliRunner().invoke(application, words)
        assert made.exit_code == 0, made.output
