"""Run the tests in forked processes that take file after file: `python -m pytest -p tests.support.workers --workers 3`.

One process collects and imports, and the others begin as copies of it. Who is done with a file takes the next, so that
all end at about the same time. The tests of a file run in one process, in order.

`--seconds 1800 --turn 7` begins no test later than so many seconds after the start, and says what it left out. Each
turn begins at another file, so that turns reach all of them.

Own code, because the workers of pytest-xdist are new processes: each imports and collects every file for itself.
"""

from __future__ import annotations

import gc
import io
import json
import os
import struct
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

LEFT_OUT = pytest.StashKey[str]()
NUMBER = struct.Struct("H")
"""How a file stands in the queue: by its number."""
CHEAP = 0.1
"""About as many CPU seconds take tests that costs.toml leaves out."""
BEGAN = time.monotonic()
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, lie as evenly as can be, however many there are: so do the files where turns begin."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=2, help="forked processes that run the tests")
    parser.addoption("--seconds", type=float, default=float("inf"), help="begin no test after so many seconds")
    parser.addoption(
        "--turn", type=int, help="where to begin, so that turns reach all files; else dear files are first"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Fork the workers, and tell their reports as if they were this process's own. A worker runs tests."""
    if session.testsfailed or session.config.option.collectonly:
        return None
    files = by_cost(session.items)
    if session.config.option.turn is not None:
        files = turned(sorted(files, key=lambda tests: tests[0].nodeid), session.config.option.turn)
    queue, filling = os.pipe()
    os.write(filling, b"".join(NUMBER.pack(number) for number in range(len(files))))
    os.close(filling)
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # once: it empties the folder
    session.config.get_terminal_writer().flush()
    gc.freeze()  # what is loaded stays; workers need not look through it
    workers: dict[Connection, int] = {}
    for number in range(session.config.option.workers):
        here, there = Pipe(duplex=False)
        process = os.fork()
        if process == 0:
            become_worker(session, number, there)
            run(session, files, queue)
            return True
        there.close()
        workers[here] = process
    listen(session, workers, queue, files)
    return True


def by_cost(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The tests of each file: those of costly files come first, and what is left at the end is short."""
    files: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    costs: dict[str, float] = tomllib.loads((Path(__file__).parents[1] / "costs.toml").read_text())

    def cost(tests: list[pytest.Item]) -> float:
        return sum(costs.get(test.nodeid.partition("[")[0], CHEAP) for test in tests)

    return sorted(files.values(), key=cost, reverse=True)


def turned(files: list[Any], turn: int) -> list[Any]:
    """The files from where this turn begins."""
    first = int(turn * GOLDEN % 1 * len(files))
    return files[first:] + files[:first]


def become_worker(session: pytest.Session, number: int, told: Connection) -> None:
    """Give this process temporary files and captured output of its own, and send its reports instead of printing."""
    config = session.config
    config.get_terminal_writer()._file = io.StringIO()
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    temporary = config._tmp_path_factory  # type: ignore[attr-defined]
    temporary._basetemp /= str(number)
    temporary._basetemp.mkdir()
    os.register_at_fork(after_in_child=told.close)  # its end is this process's, whatever a test leaves running
    config.pluginmanager.register(Teller(config, told))


class Teller:
    """Sends every report to the process that prints them."""

    def __init__(self, config: pytest.Config, told: Connection) -> None:
        self.config, self.told = config, told

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.told.send_bytes(json.dumps(data).encode())


def run(session: pytest.Session, files: list[list[pytest.Item]], queue: int) -> None:
    """Run files of the queue until it is empty or time is up. What a session keeps is torn down after the last test."""
    tests = (item for number in taken(queue) for item in files[number])
    item = next(tests, None)
    while item is not None and not is_late(session):
        following = next(tests, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following


def is_late(session: pytest.Session) -> bool:
    return time.monotonic() - BEGAN > session.config.option.seconds


def taken(queue: int) -> Iterator[int]:
    """The files that this process takes: a pipe gives two bytes to one reader alone."""
    while number := os.read(queue, NUMBER.size):
        yield NUMBER.unpack(number)[0]


def listen(session: pytest.Session, workers: dict[Connection, int], queue: int, files: list[list[pytest.Item]]) -> None:
    """Tell what the workers send until all have ended; one that ends otherwise than its reports say has failed."""
    failures = dict.fromkeys(workers, 0)
    last = dict.fromkeys(workers, "no test")
    done: set[str] = set()
    hook = session.config.hook
    while workers:
        for connection in wait(list(workers)):
            assert isinstance(connection, Connection)
            try:
                data = json.loads(connection.recv_bytes())
            except EOFError:
                status = os.waitstatus_to_exitcode(os.waitpid(workers.pop(connection), 0)[1])
                if status != min(failures[connection], 1):
                    fail(session, last[connection], f"The worker ended with status {status} after this test.")
                continue
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            if report.skipped and isinstance(report.longrepr, list):
                report.longrepr = tuple(report.longrepr)  # JSON has no tuples, and the summary asks for one
            failures[connection] += report.failed
            last[connection] = report.nodeid
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                done.add(report.nodeid)
                hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
            if session.shouldfail or session.shouldstop:
                os.read(queue, 1 << 16)  # nothing is left to take
    left = [tests for tests in files if not done.issuperset(test.nodeid for test in tests)]
    if left and is_late(session):
        ends = " to ".join(tests[0].nodeid.partition("::")[0] for tests in (left[0], left[-1]))
        session.config.stash[LEFT_OUT] = f"Left out: {len(left)} of {len(files)} files of tests, {ends}"
    elif left and not session.testsfailed:
        fail(session, "no test", f"{len(session.items) - len(done)} tests were run by no worker.")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say last what there was no time for."""
    if LEFT_OUT in config.stash:
        print(config.stash[LEFT_OUT])


def fail(session: pytest.Session, test: str, why: str) -> None:
    """Tell of a failure that no report of a worker tells: it was killed, or had an error at its end."""
    location = (test.partition("::")[0], None, test)
    report = pytest.TestReport(test, location, {}, outcome="failed", longrepr=why, when="call")
    session.config.hook.pytest_runtest_logreport(report=report)
