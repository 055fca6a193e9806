"""`fieldfare mechanisms`: every kind has a row, and the slow ones are left out unless asked for."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from fieldfare import mechanisms
from fieldfare_server.cli.application import application


def rows(*options: str) -> dict[str, dict[str, Any]]:
    said = CliRunner().invoke(application, ["mechanisms", "--json", *options])
    assert said.exit_code == 0, said.output
    return {row["kind"]: row for row in json.loads(said.stdout)}


def test_every_kind_has_a_row_and_only_slow_ones_have_no_error() -> None:
    found = rows("--rounds", "128", "--separation", "32", "--max-participations", "4")
    assert set(found) == set(mechanisms.kinds())
    errors = [row["mean_error"] for row in found.values()]
    assert errors[:-1] == sorted(errors[:-1]), "as in docs/mechanisms.md: the least error first"
    assert errors[-1] is None
    assert [kind for kind, row in found.items() if row["mean_error"] is None] == ["dense"]
    assert found["independent"]["mean_error"] == pytest.approx((4 * 129 / 2) ** 0.5)
    worst = found["independent"]["mean_error"]
    # A schedule pays for its least noise: the one kind that may be worse than constant noise.
    assert all(row["mean_error"] <= worst for kind, row in found.items() if kind not in ("dense", "decaying"))
    assert found["decaying"]["mean_error"] > worst


def test_slow_kinds_are_optimised_on_request_and_are_the_best() -> None:
    found = rows("--slow", "--rounds", "64", "--separation", "16", "--max-participations", "4")
    assert min(found, key=lambda kind: found[kind]["mean_error"]) == "dense"


def test_a_horizon_that_an_example_does_not_fit_leaves_its_error_out() -> None:
    found = rows("--rounds", "10", "--separation", "5", "--max-participations", "2")
    assert found["banded"]["mean_error"] is None
    assert found["blt"]["mean_error"] is not None


def test_participation_that_cannot_happen_is_refused() -> None:
    options = ["mechanisms", "--rounds", "100", "--separation", "50"]
    refused = CliRunner().invoke(application, [*options, "--max-participations", "3"])
    assert refused.exit_code == 2
    assert "Nearest allowed: 2" in refused.stderr
    # Without the option, as many as fit: of independent noise the error is sqrt(2 x 101 / 2).
    assert rows(*options[1:])["independent"]["mean_error"] == pytest.approx(101**0.5)
