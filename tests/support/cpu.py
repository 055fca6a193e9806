"""Count the CPU seconds of each test file, its collection and imports included: `pytest -p support.cpu`.

Processes that a test started count from when it waited for them. `CPU_OUT=FILE.json` keeps the figures of each test.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SPENT: dict[str, float] = defaultdict(float)
"""CPU seconds by node id; a file's collection stands under the file."""
SHOWN = 40


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
    before = _now()
    done = yield
    SPENT[item.nodeid] += _now() - before
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: dict[str, float] = defaultdict(float)
    for node, seconds in SPENT.items():
        files[node.partition("::")[0]] += seconds
    terminalreporter.write_line(f"CPU seconds: {_now():.1f} in all, {sum(files.values()):.1f} in tests and collection")
    for file, seconds in sorted(files.items(), key=lambda one: -one[1])[:SHOWN]:
        terminalreporter.write_line(f"{seconds:8.2f}  {file}")
    if out := os.environ.get("CPU_OUT"):
        Path(out).write_text(json.dumps(dict(SPENT)))
