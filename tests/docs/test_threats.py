"""The threat model names tests that there are, and SECURITY.md agrees with it."""

from __future__ import annotations

import ast
import re

from support.pages import ROOT

THREATS = (ROOT / "THREATS.md").read_text()
ATTACKS = THREATS[THREATS.index("## What each can do") : THREATS.index("## Between nodes and server")]


def names_of_tests() -> set[str]:
    """Names of all test functions."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def rows() -> list[list[str]]:
    """The cells of each attack: what, what stops it, the tests, what remains."""
    lines = [line for line in ATTACKS.splitlines() if line.startswith("| ") and not line.startswith("| attack |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", THREATS))
    assert len(named) > 60
    assert named - names_of_tests() == set()


def test_every_attack_names_a_test_or_says_that_nothing_stops_it() -> None:
    found = rows()
    assert len(found) > 40
    for attack, stops, shown, remains in found:
        assert attack, found
        if stops.startswith("nothing"):
            assert remains, f"{attack}: nothing stops it, so what remains must be said"
        else:
            assert re.fullmatch(r"`test_\w+`(, `test_\w+`)*", shown), attack


def test_the_gaps_that_were_found_missing_are_named() -> None:
    """R14 of the review: each was a gap of the first edition's page."""
    remains = THREATS[THREATS.index("## What remains") :]
    for gap in (
        "Even an authenticated node may name users that it does not host",
        "One person may be two users",
        "Sybils and poisoning",
        "Denial of service by budget",
        "Key retention",
        "snapshots",
        "The database role",
        "Pseudonyms on the wire",
    ):
        assert gap in remains, gap


def test_security_names_the_secrets_that_the_threat_model_protects() -> None:
    security = (ROOT / "SECURITY.md").read_text()
    for word in ("noise key", "checkpoints", "tokens", "database password", "TLS and node keys", "ledger.key"):
        assert word in security, word
    assert "`THREATS.md`" in security
