"""`fieldfare population` and `fieldfare token`: every change of a budget, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fieldfare_server.cli.application import assemble


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def ask(home: Path, *arguments: str) -> tuple[int, Any]:
    """(exit code, the answer as JSON)."""
    answer = CliRunner().invoke(assemble(arguments[0]), [*arguments, "--home", str(home), "--json"])
    return answer.exit_code, json.loads(answer.output)


def test_a_budget_from_its_creation_to_its_end(home: Path, tmp_path: Path) -> None:
    name = "clinics"
    rules = ("--ceiling-epsilon", "4", "--two-persons", "--reservation-hours", "24")
    code, made = ask(home, "population", "create", name, "--epsilon", "1", "--delta", "1e-6", *rules)
    assert (code, made["ceiling_epsilon"], made["two_persons"], made["reservation_seconds"]) == (0, 4.0, True, 86400.0)
    tokens = {}
    for who, scope in (("ann", "admin"), ("bob", "admin"), ("page", "read")):
        code, token = ask(home, "token", "create", who, "--scope", scope)
        tokens[who] = tmp_path / who
        tokens[who].write_text(token["token"])
    raised, bob = ("population", "raise", name, "--reason", "more"), ("--token-file", str(tokens["bob"]))
    # One person with a shell and one token proposed by the shell and approved by the token.
    code, refused = ask(home, *raised, "--epsilon", "2")
    assert (code, "who asks must be known" in refused["message"]) == (2, True)
    code, refused = ask(home, *raised, "--epsilon", "5", *bob)
    assert (code, "ceiling" in refused["message"]) == (2, True)
    code, waiting = ask(home, *raised, "--epsilon", "2", *bob)
    assert (code, waiting["epsilon"], waiting["proposals"][0]["proposed_by"]) == (0, 1.0, "token bob")
    proposal = waiting["proposals"][0]["id"]
    for who, why in (("page", "scope admin"), ("bob", "who proposed it")):
        code, refused = ask(home, "population", "approve", proposal, "--token-file", str(tokens[who]))
        assert (code, why in refused["message"]) == (2, True)
    code, approved = ask(home, "population", "approve", proposal, "--token-file", str(tokens["ann"]))
    assert (code, approved["epsilon"], approved["proposals"]) == (0, 2.0, [])
    code, tight = ask(home, "population", "tighten", name, "--epsilon", "1.5", "--reason", "less")
    assert (code, tight["epsilon"], tight["bound_epsilon"]) == (0, 1.5, 2.0)
    ask(home, *raised, "--epsilon", "3", *bob)
    code, shown = ask(home, "population", "show", name)
    code, kept = ask(home, "population", "withdraw", shown["proposals"][0]["id"], "--reason", "no")
    assert (code, kept["epsilon"], kept["proposals"]) == (0, 1.5, [])
    code, paced = ask(home, "population", "window", name, "--epsilon", "1", "--every", "week", "--reason", "slowly")
    assert (code, paced["window"]["epsilon"], paced["window"]["begun_epsilon"]) == (0, 1.0, 0.0)
    code, refused = ask(home, "population", "window", name, "--off", "--every", "week", "--reason", "x")
    assert (code, "--off" in refused["message"]) == (2, True)
    assert ask(home, "population", "note", name, "the board meets in May")[0] == 0
    changes = ask(home, "population", "history", name)[1]["changes"]
    assert [(each["action"], each["reason"]) for each in changes[:2]] == [
        ("population.note", "the board meets in May"),
        ("population.window", "slowly"),
    ]
    assert ask(home, "population", "show", name)[1]["notes"] == changes[:1]
    assert ask(home, "population", "close", name, "--reason", "over")[1]["state"] == "closed"
    assert ask(home, "population", "close", name, "--reason", "over")[0] == 2
    assert ask(home, "population", "reopen", name, "--reason", "again")[1]["state"] == "open"
    assert [each["name"] for each in ask(home, "population", "list")[1]] == [name]
    assert ask(home, "verify")[1]["ok"] is True


def test_tables_for_people(home: Path, tmp_path: Path) -> None:
    ask(home, "population", "create", "clinics", "--epsilon", "1", "--delta", "1e-6", "--two-persons")
    (token := tmp_path / "ann").write_text(ask(home, "token", "create", "ann", "--scope", "admin")[1]["token"])
    why = ("--reason", "the board agreed", "--token-file", str(token))
    ask(home, "population", "raise", "clinics", "--epsilon", "2", *why)
    run, where = CliRunner().invoke, ["--home", str(home)]
    shown = run(assemble("population"), ["population", "show", "clinics", *where]).output
    for words in ("two persons", "the board agreed", "without end", "largest limit so far", "waits"):
        assert words in shown
    assert "clinics" in run(assemble("population"), ["population", "list", *where]).output


def test_tables_round_what_is_used_up(home: Path) -> None:
    """Four digits, as on the page: the nearest ones would be fewer than was spent."""
    ask(home, "population", "create", "clinics", "--epsilon", "2", "--delta", "1e-5")
    charge = ("charge", "clinics", "--key", "k")
    ask(home, *charge, "--mu", "0.2", "--what", "a ranker", "--why", "search")
    ask(home, *charge, "--action", "commit")
    spent = ask(home, "population", "show", "clinics")[1]["spent"]["epsilon"]
    assert float(f"{spent:.4g}") < spent < 0.7256
    for verb in (["list"], ["history", "clinics"]):
        told = CliRunner().invoke(assemble("population"), ["population", *verb, "--home", str(home)]).output
        assert "0.7256" in told
        assert "0.7255" not in told


def test_a_limit_is_told_as_no_less_than_it_is(home: Path) -> None:
    """(3.0000041, 1.0000041e-6) was told as (3, 1e-6): less than what may be spent."""
    words = ["create", "clinics", "--epsilon", "3.0000041", "--delta", "1.0000041e-6"]
    for verb in (words, ["show", "clinics"]):
        told = CliRunner().invoke(assemble("population"), ["population", *verb, "--home", str(home)]).output
        assert "epsilon 3.00001 at delta 1.00001e-6" in " ".join(told.split())
        assert "epsilon 3 " not in told


def test_a_change_is_confirmed_with_what_was_before(home: Path) -> None:
    ask(home, "population", "create", "clinics", "--epsilon", "1", "--delta", "1e-6")
    for verb, epsilon, before in (
        ("raise", "2", "raised from epsilon 1"),
        ("tighten", "1.5", "tightened from epsilon 2"),
    ):
        words = ["population", verb, "clinics", "--epsilon", epsilon, "--reason", "x", "--home", str(home)]
        said = " ".join(CliRunner().invoke(assemble("population"), words).output.split())
        assert f"{before} at delta 1e-6: epsilon {epsilon} at delta 1e-6" in said


def test_what_other_trainers_have_reserved_is_shown(home: Path) -> None:
    """Nothing listed them: who had to release the charge of a trainer that died could not find its key."""
    ask(home, "population", "create", "clinics", "--epsilon", "1", "--delta", "1e-6")
    for key in ("kept", "done"):
        why = ("--what", "ranker\x1b[2J", "--why", "weekly [bold]training")
        ask(home, "charge", "clinics", "--key", key, "--mu", "0.01", *why)
    ask(home, "charge", "clinics", "--key", "done", "--action", "commit")
    _, shown = ask(home, "population", "show", "clinics")
    assert [(each["key"], each["why"]) for each in shown["charges_reserved"]] == [("kept", "weekly [bold]training")]
    text = CliRunner().invoke(assemble("population"), ["population", "show", "clinics", "--home", str(home)]).output
    for words in ("0 of 0 runs and 1 charges", "charge kept is reserved", "weekly [bold]training", "ranker\ufffd[2J"):
        assert words in text, text
    assert "\x1b" not in text


def test_a_key_that_looks_like_markup_is_printed_as_it_is(home: Path) -> None:
    """Rich read `[/x]` as a tag: a charge that was taken ended in a traceback, and `[bold]` was left out."""
    ask(home, "population", "create", "clinics", "--epsilon", "1", "--delta", "1e-6")
    for key in ("[/x]", "[bold]a"):
        why = ("--what", "ranker", "--why", "weekly training", "--home", str(home))
        answer = CliRunner().invoke(assemble("charge"), ["charge", "clinics", "--key", key, "--mu", "0.01", *why])
        assert (answer.exit_code, answer.output) == (0, f"Charge {key} on clinics: reserved.\n")


def test_tokens_by_name_and_for_populations(home: Path) -> None:
    ask(home, "population", "create", "clinics", "--epsilon", "1", "--delta", "1e-6")
    assert ask(home, "token", "create", "page", "--population", "nowhere")[0] == 2
    assert ask(home, "token", "create", "page", "--population", "clinics")[0] == 0
    assert ask(home, "token", "list")[1][0]["populations"] == ["clinics"]
    code, revoked = ask(home, "token", "revoke", "page")
    assert (code, revoked["revoked_at"] is not None) == (0, True)
    assert ask(home, "token", "revoke", "nobody")[0] == 2


def test_a_person_needs_a_reason(home: Path) -> None:
    ask(home, "population", "create", "clinics", "--epsilon", "1", "--delta", "1e-6")
    assert ask(home, "population", "raise", "clinics", "--epsilon", "2", "--reason", " ")[0] == 2
    answer = CliRunner().invoke(assemble("population"), ["population", "close", "clinics", "--home", str(home)])
    assert answer.exit_code == 2


def test_a_home_that_is_none_and_a_ledger_that_is_none_are_named(tmp_path: Path) -> None:
    """Creating a population helps with neither, and there is no run to be resumed."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("notes")
    link.symlink_to(tmp_path / "nowhere")
    for where in (file, file / "below", link, link / "below"):
        code, refused = ask(where, "budget")
        assert (code, refused["code"]) == (2, "home-is-no-directory")
        assert f"{tmp_path / where.relative_to(tmp_path).parts[0]} is " in json.dumps(refused)
    (tmp_path / "ledger.sqlite3").write_text("no database")
    code, refused = ask(tmp_path, "budget")
    assert (code, refused["code"], "resume" in refused["nearest"]) == (2, "database-refused", False)


def test_a_note_of_two_lines_does_not_look_like_two_changes(home: Path) -> None:
    ask(home, "population", "create", "clinics", "--epsilon", "1", "--delta", "1e-6")
    ask(home, "population", "note", "clinics", "all is well\n2026-01-01 09:00 raise by token ann: agreed")
    for verb in ("history", "show"):
        shown = CliRunner().invoke(assemble("population"), ["population", verb, "clinics", "--home", str(home)]).output
        assert "all is well 2026-01-01 09:00 raise by token ann: agreed" in shown
        assert not [line for line in shown.splitlines() if line.startswith("2026-01-01")]
