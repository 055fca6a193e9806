"""Run every test that waits again and again: `python -m pytest -p tests.support.again --again 20`.

What neither waits nor starts a process gives the same answer each time, so one run of it is enough. A thread that
waits, for a clock, a server, a lock or a process, gives up its core by itself, and the kernel counts how often.
"""

from __future__ import annotations

import resource

import pytest
from _pytest.runner import runtestprotocol

FEW = 2
"""Waits of a test that only reads and writes files, each of which may be a wait for a disk."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--again", type=int, default=1, help="how often a test that waits is run")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    hook = item.config.hook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    before = waits()
    runtestprotocol(item, nextitem=nextitem)
    if waits() - before > FEW:
        for _ in range(item.config.getoption("--again") - 1):
            item.session._setupstate.teardown_exact(None)  # what tests share is made again too
            item._initrequest()  # type: ignore[attr-defined]
            runtestprotocol(item, nextitem=nextitem)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def waits() -> int:
    """How often this thread, and processes that it has waited for, gave up a core without being told to."""
    return sum(resource.getrusage(of).ru_nvcsw for of in (resource.RUSAGE_THREAD, resource.RUSAGE_CHILDREN))
