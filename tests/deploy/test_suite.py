"""`make test` leaves to `make test-all` what tests/suite.toml names, and nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = tomllib.loads((ROOT / "tests/suite.toml").read_text())
MADE_UP = """
import pytest

@pytest.mark.parametrize("case", range(40))
def test_many(case):
    pass

@pytest.mark.flower
def test_real_processes():
    pass

@pytest.mark.parametrize("case", range(2))
def test_costly(case):
    pass

def test_one():
    pass
"""


def test_what_comes_later_exists() -> None:
    for place in (*SUITE["later"], *SUITE["always"]):
        path, _, name = place.partition("::")  # `always` has beginnings of names of cases
        assert (ROOT / path).exists(), place
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), place


def test_the_halves_are_every_file_of_tests_once() -> None:
    spec = importlib.util.spec_from_file_location("halves", ROOT / "tests/halves.py")
    assert spec is not None
    assert spec.loader is not None
    halves = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(halves)
    places = [ROOT / "tests" / place for half in halves.halves() for place in half]
    for file in (ROOT / "tests").rglob("test_*.py"):
        assert sum(file == place or place in file.parents for place in places) == 1, file


def collected(folder: Path, *options: str) -> set[str]:
    """The tests that pytest finds in a made-up file beside this conftest."""
    (folder / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (folder / "suite.toml").write_text((ROOT / "tests/suite.toml").read_text())
    (folder / "costs.toml").write_text('"test_made_up.py::test_costly" = 9.0')
    (folder / "test_made_up.py").write_text(MADE_UP)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  flower: x\n  postgres: x\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    return {line.split()[0].partition("::")[2] for line in done.stdout.splitlines() if " PASSED" in line}


def test_of_many_cases_a_few_are_drawn_and_always_the_same(tmp_path: Path) -> None:
    quick = collected(tmp_path, "--quick")
    assert "test_one" in quick
    assert "test_real_processes" not in quick
    assert len(quick) == 1 + SUITE["cases"]
    assert collected(tmp_path, "--quick") == quick
    assert len(collected(tmp_path)) == 44


FAKES = {
    "make": 'echo "$@" >>"$CALLED"',
    "git": "echo $TURN",
    "id": "echo 1000",
    "docker": "true",
    "apt-get": "exit 1",
}


def landed(folder: Path, turn: int, seconds: int) -> tuple[list[str], str]:
    """What `.ci/run` asks of make at this landing within so many seconds, and its last line."""
    called = folder / f"called-{turn}-{seconds}"
    for name, script in FAKES.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "CALLED": str(called), "TURN": str(turn)}
    command = ["bash", str(ROOT / ".ci/run")]
    environment["CI_SECONDS"] = str(seconds)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [line.split()[0] for line in called.read_text().splitlines()], done.stdout.splitlines()[-1]


def test_a_landing_runs_all_that_fits_and_says_what_it_left_out(tmp_path: Path) -> None:
    for turn in range(3):
        called, last = landed(tmp_path, turn, 4800)
        assert called[:3] == ["test", "docs", "first-minute"]
        assert set(called[3:]) == {"test-all", "mutants", "containers-test"}
        assert last == "Left out: nothing"
    hasty = [landed(tmp_path, turn, 1250) for turn in range(3)]
    assert [called[3] for called, _ in hasty] == ["test-all", "mutants", "containers-test"]
    for called, last in hasty:
        assert ("test-all" in last) == ("test-all" not in called)
        assert ("containers" in last) == ("containers-test" not in called)


def test_what_fails_at_a_landing_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("test", "docs", "test-all", "mutants", "containers-test"):
        monkeypatch.setitem(FAKES, "make", f'echo "$@" >>"$CALLED"; [ "$1" != {target} ]')
        with pytest.raises(subprocess.CalledProcessError):
            landed(tmp_path, 1, 4800)
