"""Count the CPU seconds of each test: `python -m pytest -p tests.support.cpu`, or of the whole suite: `make costs`.

Prints the files that cost most, their collection and imports included. Processes that a test started count from when
it waited for them. `COSTS=FILE.toml` keeps the figures of tests that cost much, in place of the file's own.
"""

from __future__ import annotations

import fcntl
import os
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KEPT = 0.3
"""CPU seconds from which on a test stands in the file."""
SHOWN = 25
SPENT: dict[str, float] = defaultdict(float)
"""CPU seconds by node id; a file's collection stands under the file."""
BEGAN: dict[str, float] = {}
"""What this process had spent when the test that runs began."""
HEAD = """# CPU seconds of the costliest case of each test that takes .3 s or more, for tests/suite.toml.
# `make costs` writes this file.

"""


def _now() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    before = _now()
    report = yield
    SPENT[collector.nodeid] += _now() - before
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    BEGAN[item.nodeid] = _now()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[Any]:
    report: Any = yield
    if report.when == "teardown":
        report.spent = _now() - BEGAN.pop(item.nodeid)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take the seconds from a report, which another process may have sent."""
    SPENT[report.nodeid] += getattr(report, "spent", 0.0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: dict[str, float] = defaultdict(float)
    for node, seconds in SPENT.items():
        files[node.partition("::")[0]] += seconds
    terminalreporter.write_line(f"CPU seconds: {_now():.1f} in all, {sum(files.values()):.1f} in tests and collection")
    for file, seconds in sorted(files.items(), key=lambda one: -one[1])[:SHOWN]:
        terminalreporter.write_line(f"{seconds:8.2f}  {file}")
    if kept := os.environ.get("COSTS"):
        _keep(Path(kept))


def _keep(file: Path) -> None:
    """Write the costs of this session's tests into `file`. Workers write theirs as well, one after the other."""
    costs: dict[str, float] = defaultdict(float)
    for node, seconds in SPENT.items():
        if "::" in node:
            test = node.partition("[")[0]
            costs[test] = max(costs[test], round(seconds, 1))
    with open(file, "a+") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        known = {test: seconds for test, seconds in tomllib.loads(file.read_text()).items() if _exists(test)}
        lines = [f'"{test}" = {seconds}\n' for test, seconds in sorted({**known, **costs}.items()) if seconds >= KEPT]
        opened.truncate(0)
        opened.write(HEAD + "".join(lines))


def _exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return Path(path).exists() and f"def {name}(" in Path(path).read_text()
