"""`fieldfare demo` on a dozen made-up users: four ways to spend one epsilon, charged to two populations."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
from typer.testing import CliRunner

from fieldfare.accounting import certification
from fieldfare.errors import Interrupted
from fieldfare_server.cli.application import application
from fieldfare_server.files.home import LEDGER_FILE, StateDirectory
from fieldfare_server.ledger import Ledger
from support.faulty_tasks import Right

# `from fieldfare_server.cli import demo` would be the command, once the application is assembled.
DEMO = importlib.import_module("fieldfare_server.cli.demo")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certification, "SAMPLES", (1 << 15, 1 << 15))
    monkeypatch.setattr(certification, "_PILOT", 1 << 13)
    monkeypatch.setattr(DEMO, "BUDGET", {"epsilon": 60.0, "delta": 1e-3})
    monkeypatch.setattr(
        DEMO,
        "PLAN",
        {
            "privacy": {"population": "aircraft", "epsilon": 10.0, "delta": 1e-3},
            "run": {"task": "right", "rounds": 4, "cohort": 3, "min_reports": 1},
            "participation": {"scheme": "min-separation", "separation": 4},
            "mechanism": {"kind": "nu", "nu": "auto"},
            "client": {"batch_size": 3},
        },
    )
    sampling = (None, None, {"scheme": "poisson", "rate": 0.25}, {"scheme": "balls-in-bins", "bins": 4})
    ways = [(label, kind, way, who) for (label, kind, _, who), way in zip(DEMO.WAYS, sampling, strict=True)]
    monkeypatch.setattr(DEMO, "WAYS", tuple(ways))


@pytest.mark.parametrize("as_json", [True, False])
def test_four_ways_are_charged_and_shown(as_json: bool, small: None, tmp_path: Path) -> None:
    words = ["demo", "--all", "--no-serve", "--task", "support.faulty_tasks:Right", "--out", str(tmp_path)]
    result = CliRunner().invoke(application, [*words, *(["--json"] if as_json else [])])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    if not as_json:
        for shown in ("sampled and correlated", DEMO.WHO_CALLS, "phones do not", "NOT PRIVATE", "aircraft-at-will"):
            assert shown in " ".join(result.output.split())
        return
    told = json.loads(result.stdout)
    assert [run["label"] for run in told["runs"]] == [*(label for label, *_ in DEMO.WAYS), "no privacy"]
    assert [run["private"] for run in told["runs"]] == [True] * 4 + [False]
    assert all(0 < run["epsilon"] <= 10.0 and run["prefix_noise"] > 0 for run in told["runs"][:4])
    assert told["runs"][4]["prefix_noise"] == 0
    assert {each["name"]: each["adjacency"] for each in told["populations"]} == {
        "aircraft": "zero_out",
        "aircraft-at-will": "add_remove",
    }
    assert all(0 < each["epsilon_spent"] <= 60.0 for each in told["populations"])


def interrupted_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody presses Ctrl-C at this score of a model; afterwards nobody does."""
    scores, scored = itertools.count(1), Right.evaluate

    def evaluate(self: Right, model: torch.nn.Module) -> dict[str, float]:
        if next(scores) == call:
            raise KeyboardInterrupt
        return scored(self, model)

    monkeypatch.setattr(Right, "evaluate", evaluate)


def test_an_interrupted_demo_names_the_command_that_continues_its_run(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_at(4, monkeypatch)  # two of them are the check's
    words = ["demo", "--no-serve", "--task", "support.faulty_tasks:Right", "--out", str(tmp_path / "my demo")]
    result = CliRunner().invoke(application, words)
    assert result.exit_code == 4, result.output
    (that,) = re.findall("That is: fieldfare (simulate --resume .*)", result.stderr)
    continued = CliRunner().invoke(application, shlex.split(that))
    assert continued.exit_code == 0, continued.output
    assert "4 of 4 rounds" in continued.stdout


def test_an_interrupted_yardstick_names_no_run_to_continue(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted_at(2, monkeypatch)
    with pytest.raises(Interrupted, match="nothing of it is kept") as stopped:
        DEMO._without_noise("support.faulty_tasks:Right", True)
    assert "--resume" not in str(stopped.value)


def test_demos_of_one_second_have_directories_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two began at once, one was refused: it found the population that the other had made."""
    monkeypatch.setattr(DEMO.time, "strftime", lambda form: "now")
    with ThreadPoolExecutor(8) as pool:
        homes = list(pool.map(DEMO._own_home, [tmp_path / "out"] * 8))
    assert len({each.root for each in homes}) == 8
    assert all(each.root.is_dir() and each.ledger == f"sqlite:///{each.root / LEDGER_FILE}" for each in homes)


def test_without_more_words_it_tells_what_anyone_can_use(small: None, tmp_path: Path) -> None:
    words = ["demo", "--no-serve", "--task", "support.faulty_tasks:Right", "--out", str(tmp_path)]
    result = CliRunner().invoke(application, words)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "correlated" in said
    assert "--all" in said
    assert "aircraft-at-will" not in said
    told = json.loads(CliRunner().invoke(application, [*words, "--json"]).stdout)
    assert [run["label"] for run in told["runs"]] == ["independent", "correlated", "no privacy"]
    assert [each["name"] for each in told["populations"]] == ["aircraft"]


def test_a_task_that_prints_leaves_one_json_document(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEMO, "WAYS", DEMO.WAYS[:1])

    def told(self: Right, model: object) -> dict[str, float]:
        print("a score")
        return {"accuracy": 0.5}

    monkeypatch.setattr(Right, "evaluate", told)
    words = ["demo", "--no-serve", "--task", "support.faulty_tasks:Right", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(application, words)
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["runs"]) == 2
    assert "a score" in result.stderr


def test_a_port_that_is_taken_is_replaced_without_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    home = StateDirectory.of(tmp_path, f"sqlite:///{tmp_path / 'ledger.sqlite3'}")
    Ledger.open(home.ledger, create=True).close()
    with DEMO._serve_page(home, 0) as first:
        port = int(first.rpartition(":")[2])
        with DEMO._serve_page(home, port) as second:
            assert second != first
            assert {httpx.get(f"{each}/healthz").status_code for each in (first, second)} == {200}
    assert not caplog.records
    assert "in use" not in capfd.readouterr().err


def test_the_masked_demo_has_the_demos_plan_with_sums_of_eight_nodes() -> None:
    masked, plain = (DEMO.demo_plan(masked=masked) for masked in (True, False))
    assert (masked.aggregation.fewest_nodes, plain.aggregation.fewest_nodes) == (8, 0)
    assert masked.run_json(0.0) != plain.run_json(0.0)
    assert (masked.run, masked.privacy, masked.mechanism) == (plain.run, plain.privacy, plain.mechanism)
