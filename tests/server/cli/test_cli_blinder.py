"""`fieldfare blinder`, as the operator of a blinder types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fieldfare_server.cli.application import assemble
from support.full_disk import no_file_above

PLAN = """
[privacy]
population = "clinics"
epsilon = 4.0
delta = 1e-5
[run]
rounds = 2
cohort = 12
[mechanism]
kind = "independent"
[aggregation]
kind = "masked"
least_nodes = 2
blinder = "{key}"
"""


def ask(*words: str, at: Path) -> tuple[int, str]:
    """(exit code, what was printed, on one line); a traceback fails the test."""
    answer = CliRunner().invoke(assemble("blinder"), ["blinder", *words, "--at", str(at)])
    assert answer.exception is None or isinstance(answer.exception, SystemExit), answer.exception
    return answer.exit_code, " ".join(answer.output.split())


def test_a_second_approval_says_what_is_approved(tmp_path: Path) -> None:
    at, plan = tmp_path / "blinder", tmp_path / "plan.toml"
    plan.write_text(PLAN.format(key=ask("init", at=at)[1]))
    for _ in range(2):
        code, said = ask("approve", str(plan), "--words", "31", at=at)
        assert (code, "sums of 31 numbers" in said) == (0, True)
    code, said = ask("approve", str(plan), "--words", "99", at=at)
    assert (code, "is approved for 31" in said, "sums of 99 numbers from" in said) == (2, True, False)
    assert "31 numbers, at least 2 nodes" in ask("status", at=at)[1]


def test_an_approval_says_that_the_blinders_budget_has_no_room(tmp_path: Path) -> None:
    """Without this word a run would be refused minutes later, on other machines."""
    at, plan = tmp_path / "blinder", tmp_path / "plan.toml"
    plan.write_text(PLAN.format(key=ask("init", at=at)[1]) + "blinder_noise = 0.5\n")
    approve = "approve", str(plan), "--words", "31"
    assert ask(*approve, at=at)[0] == 2
    for epsilon, fits in (("8", False), ("16", True), ("8", False)):
        assert ask("budget", "--epsilon", epsilon, "--delta", "1e-5", at=at)[0] == 0
        code, said = ask(*approve, at=at)
        assert (code, "is approved" in said, "no room" not in said) == (0, True, fits), said


@pytest.mark.parametrize(
    "words", [("admit", "us", f"ffn1:{'0' * 64}"), ("budget", "--epsilon", "8", "--delta", "1e-5")]
)
def test_a_full_disk_is_a_refusal_and_leaves_what_was_there(words: tuple[str, ...], tmp_path: Path) -> None:
    at = tmp_path / "blinder"
    key = ask("init", at=at)[1]
    with no_file_above(1024):
        code, said = ask(*words, at=at)
    assert (code, "cannot be read and written" in said, "room on its disk" in said) == (2, True, True), said
    assert ask("status", at=at) == (0, "")
    assert ask("key", at=at)[1] == key
    assert ask(*words, at=at)[0] == 0


@pytest.mark.parametrize("held", [b"no database" * 100, b"SQLite format 3\0" + bytes(84)])
@pytest.mark.parametrize("command", ["key", "status"])
def test_a_blinders_file_that_cannot_be_used_is_refused_by_name(tmp_path: Path, held: bytes, command: str) -> None:
    (file := tmp_path / "blinder.sqlite3").write_bytes(held)
    file.chmod(0o600)
    code, said = ask(command, at=tmp_path)
    assert (code, "the blinder's file" in said, "cannot be read and written" in said) == (2, True, True)


def test_a_blinder_is_made_only_where_its_file_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for at in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / ("long" * 99)):
        code, said = ask("init", at=at)
        assert (code, "cannot be used" in said) == (2, True), said
