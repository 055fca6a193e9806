"""kill -9, full disks and I/O errors at every step of a round; then the run goes on as if nothing had happened."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fieldfare_server import faults
from support.driver import ROUNDS, Place, fork_and_live, prepare
from support.postgres import Cluster
from support.transcript import check

REAL_ROUND_ONLY = ("strategy.stepped", "strategy.summed", "run.secret-destroyed")
"""Points that the driver has no step for; `test_round_crashes` passes them."""
MASKED_ONLY = ("round.closing.written", "ledger.round.closing", "ledger.round.closed", "strategy.asked")
"""Points of masked sums; `tests/server/run/test_masked_runs.py` passes them."""
POINTS = tuple(point for point in faults.POINTS if point not in (*REAL_ROUND_ONLY, *MASKED_ONLY))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, fast_tmp: Path) -> Place:
    if request.param == "sqlite":
        return Place(f"sqlite:///{fast_tmp / 'ledger.sqlite3'}", fast_tmp / "runs")
    cluster: Cluster = request.getfixturevalue("postgres")
    return Place(cluster.new_database(), fast_tmp / "runs")


def memory_directory() -> Path:
    """A directory in memory where there is one: a killed process loses nothing there either, and fsync is free."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="fieldfare-", dir=memory if memory.is_dir() else None))


@pytest.fixture
def fast_tmp() -> Iterator[Path]:
    path = memory_directory()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def uninterrupted() -> Iterator[list[list[float]]]:
    """The models that a run releases when nothing happens."""
    path = memory_directory()
    place = Place(f"sqlite:///{path / 'ledger.sqlite3'}", path / "runs")
    prepare(place)
    assert fork_and_live(place) == 0
    check(place, ended=True)
    yield models(place)
    shutil.rmtree(path)


def models(place: Place) -> list[list[float]]:
    """The released models by round."""
    found = {line["round"]: line["params"] for line in place.lines() if line["what"] == "released"}
    return [found[index] for index in range(ROUNDS)]


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_each_step_the_run_ends_as_if_uninterrupted(
    place: Place, uninterrupted: list[list[float]], point: str
) -> None:
    prepare(place)
    statuses = [fork_and_live(place, f"{point}:kill:{nth}") for nth in (1, 3)]
    assert statuses[0] == -signal.SIGKILL, "the point was never passed"
    check(place, ended=statuses[1] == 0)
    assert fork_and_live(place) == 0
    check(place, ended=True)
    assert models(place) == uninterrupted


@pytest.mark.parametrize("action", ["raise", "enospc", "eio"])
def test_errors_at_each_step_leave_a_run_that_can_go_on(
    place: Place, uninterrupted: list[list[float]], action: str
) -> None:
    prepare(place)
    for point in POINTS:
        status = fork_and_live(place, f"{point}:{action}:2")
        assert status in (0, 1), point
        check(place, ended=status == 0)
        if status == 0:
            break
    assert fork_and_live(place) == 0
    check(place, ended=True)
    assert models(place) == uninterrupted


lives = st.lists(
    st.tuples(st.sampled_from(POINTS), st.sampled_from(("kill", "kill", "raise", "enospc", "eio")), st.integers(1, 9)),
    min_size=1,
    max_size=4,
)


def survive(
    schedule: list[tuple[str, str, int]], random_replies: bool, torn: bool, expected: list[list[float]]
) -> None:
    path = memory_directory()
    try:
        place = Place(f"sqlite:///{path / 'ledger.sqlite3'}", path / "runs", random_replies)
        prepare(place)
        for point, action, nth in schedule:
            fork_and_live(place, f"{point}:{action}:{nth}")
            if torn:
                tear(place)
        assert fork_and_live(place) == 0
        check(place, ended=True)
        if not random_replies:
            assert models(place) == expected
    finally:
        shutil.rmtree(path)


def tear(place: Place) -> None:
    """What a power cut may do to files that were not synced yet: cut them short."""
    for file in (place.root / "run" / "pending").glob(".*.tmp"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=lives, random_replies=st.booleans(), torn=st.booleans())
def test_random_crash_schedules(
    uninterrupted: list[list[float]], schedule: list[tuple[str, str, int]], random_replies: bool, torn: bool
) -> None:
    survive(schedule, random_replies, torn, uninterrupted)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedule=lives, random_replies=st.booleans(), torn=st.booleans())
def test_thousands_of_random_crash_schedules(
    uninterrupted: list[list[float]], schedule: list[tuple[str, str, int]], random_replies: bool, torn: bool
) -> None:
    survive(schedule, random_replies, torn, uninterrupted)
