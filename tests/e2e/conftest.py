"""One federation in containers for all tests that want it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.container_runs import TASK
from support.containers import LET_IN, Federation, require_engine, wait_for


@pytest.fixture(scope="session")
def federation() -> Iterator[Federation]:
    require_engine()
    made = Federation("fieldfare-e2e", ["docker-compose.yml", "tests/e2e/compose.e2e.yml"], TASK)
    try:
        made.up()
        # Until its key is registered a node ends and starts again, and what a test runs in its container ends with it.
        wait_for(lambda: all(LET_IN in made.logs(node) for node in ("node-1", "node-2")))
        yield made
    finally:
        made.down()
