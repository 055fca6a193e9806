"""`make test` leaves to `make test-all` what tests/suite.toml names, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support import workers

ROOT = Path(__file__).parents[2]
SUITE = tomllib.loads((ROOT / "tests/suite.toml").read_text())
# Installed plugins take most of the time that pytest takes to start.
ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
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


def collected(folder: Path, *options: str) -> set[str]:
    """The tests that pytest finds in a made-up file beside this conftest."""
    (folder / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (folder / "suite.toml").write_text((ROOT / "tests/suite.toml").read_text())
    (folder / "costs.toml").write_text('"test_made_up.py::test_costly" = 9.0')
    (folder / "test_made_up.py").write_text(MADE_UP)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  flower: x\n  postgres: x\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, str(folder)]
    environment = {**ALONE, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    return {line.split()[0].partition("::")[2] for line in done.stdout.splitlines() if " PASSED" in line}


def test_a_file_that_comes_later_is_not_even_loaded(tmp_path: Path) -> None:
    later = tmp_path / SUITE["later"][0]
    later.parent.mkdir(parents=True)
    later.write_text("raise RuntimeError")
    assert "test_one" in collected(tmp_path, "--quick")
    with pytest.raises(subprocess.CalledProcessError):
        collected(tmp_path)


def test_of_many_cases_a_few_are_drawn_and_always_the_same(tmp_path: Path) -> None:
    quick = collected(tmp_path, "--quick")
    assert "test_one" in quick
    assert "test_real_processes" not in quick
    assert len(quick) == 1 + SUITE["cases"]
    assert collected(tmp_path, "--quick") == quick
    assert len(collected(tmp_path)) == 44


SHARED = """
import os
import subprocess
import time
import pytest

@pytest.mark.parametrize("case", range(3))
def test_passes(case, tmp_path, capfd):
    subprocess.Popen(["sleep", "20"])  # what a test leaves running holds nobody up
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "20"])
    print(tmp_path)
    assert capfd.readouterr().out == f"{tmp_path}\\n"

def test_skips():
    pytest.skip("why")

def test_last(tmp_path):
    print("said before")
    until = time.monotonic() + 40
    while not all((tmp_path.parents[1] / worker).exists() for worker in "01"):
        assert time.monotonic() < until
        time.sleep(0.01)
    END
"""


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("pass", 0, "8 passed, 2 skipped"),
        ("assert not case", 1, "said before"),
        ("os._exit(0)", 1, "tests were run by no worker"),
        ("os.kill(os.getpid(), 9)", 1, "ended with status -9"),
    ],
)
def test_workers_tell_what_one_process_would(tmp_path: Path, end: str, status: int, said: str) -> None:
    """Each test once, with files and captured output of its own; a worker that is lost fails the tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]")
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(SHARED.replace("END", end))
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.workers", "--workers=2", str(tmp_path)]
    command += [f"--rootdir={tmp_path}", f"--basetemp={tmp_path / 'base'}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, env=ALONE)
    assert (done.returncode, said in done.stdout) == (status, True), done.stdout


ONE_FITS = """
from tests.support import workers

def pytest_runtest_logreport():
    workers.BEGAN -= 1000
"""
"""After a test time is up: in the worker that ran it, and in the process that is told."""


def bounded(folder: Path, *options: str) -> tuple[int, str]:
    """Run three files of which the second fails; the exit status, and the last line."""
    (folder / "pytest.ini").write_text("[pytest]")
    (folder / "conftest.py").write_text(ONE_FITS)
    for number in range(3):
        (folder / f"test_{number}.py").write_text(f"def test_it():\n    assert {number} != 1\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.workers", "--workers=1", str(folder), *options]
    command += [f"--rootdir={folder}", f"--basetemp={folder / 'base'}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, env=ALONE)
    return done.returncode, done.stdout.splitlines()[-1]


def test_when_time_is_up_no_test_is_begun_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    assert bounded(tmp_path, "--seconds=0") == (0, "Left out: 3 of 3 files of tests, test_0.py to test_2.py")
    assert bounded(tmp_path, "--seconds=900") == (0, "Left out: 2 of 3 files of tests, test_1.py to test_2.py")
    # The next turn begins at the file that fails.
    one = bounded(tmp_path, "--seconds=900", "--turn=1")
    assert one == (1, "Left out: 2 of 3 files of tests, test_2.py to test_0.py")
    assert bounded(tmp_path)[0] == 1


@pytest.mark.parametrize(("fit", "turns"), [(1, 233), (10, 21), (40, 5)])
def test_turns_reach_every_file(fit: int, turns: int) -> None:
    """Of 100 files, wherever the turns begin to be counted: no order of beginnings does much better."""
    for first in range(1000, 1100):
        run = {file for turn in range(first, first + turns) for file in workers.turned(list(range(100)), turn)[:fit]}
        assert run == set(range(100))


AGAIN = """
import time
import pytest

@pytest.fixture(scope="module")
def shared():
    return []

def test_waits(shared):
    for _ in range(9):
        time.sleep(0.01)
    shared.append(1)
    assert len(shared) == 1
    with open("waits", "a") as file:
        file.write("1")

def test_counts():
    with open("counts", "a") as file:
        file.write("1")
"""


def test_what_waits_is_run_again_from_its_beginning_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_again.py").write_text(AGAIN)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.again", "--again=4"]
    environment = {**ALONE, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=tmp_path, env=environment, timeout=240, check=True, stdout=subprocess.DEVNULL)
    assert ((tmp_path / "waits").read_text(), (tmp_path / "counts").read_text()) == ("1111", "1")


def test_each_of_many_runs_has_the_time_that_one_has(tmp_path: Path) -> None:
    """One timer for all had ended four slow tests of a busy machine."""
    (tmp_path / "test_slow.py").write_text(
        "import time\n\ndef test_slow():\n    for _ in range(9):\n        time.sleep(0.1)\n"
    )
    command = [sys.executable, str(ROOT / "tests/flaky.py"), "3", str(tmp_path), "-o", "timeout=2.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout


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


def test_suites_are_told_how_long_they_have_and_what_they_leave_out_is_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = 'case "$1" in test-all) echo "Left out: 2 of 3 files";; mutants) echo "Left out: 7 of 9 mutants";; esac'
    monkeypatch.setitem(FAKES, "make", f'echo "$@" >>"$CALLED"; {says}')
    assert landed(tmp_path, 0, 4800)[1] == "Left out: 2 of 3 files;7 of 9 mutants"
    asked = re.findall(r"ARGS=--seconds (\d+) --turn 0", (tmp_path / "called-0-4800").read_text())
    # What has begun may take 300 seconds more; 600 and 900 are kept for the two suites after it.
    assert [int(seconds) for seconds in asked] == pytest.approx([4800 - 300 - 1500, 4800 - 300 - 900], abs=60)


def test_what_fails_at_a_landing_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("test", "docs", "test-all", "mutants", "containers-test"):
        monkeypatch.setitem(FAKES, "make", f'echo "$@" >>"$CALLED"; [ "$1" != {target} ]')
        with pytest.raises(subprocess.CalledProcessError):
            landed(tmp_path, 1, 4800)
