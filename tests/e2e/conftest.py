"""One federation in containers for all tests that want it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.container_runs import TASK
from support.containers import Federation, require_engine, wait_for

LET_IN = '"path":"/v1/fleet/activate-node","status":200'


@pytest.fixture(scope="session")
def federation() -> Iterator[Federation]:
    require_engine()
    made = Federation("fieldfare-e2e", ["docker-compose.yml", "tests/e2e/compose.e2e.yml"], TASK)
    try:
        made.up()
        # Until its key is registered a node ends and starts again, and what a test runs in its container ends with it.
        wait_for(lambda: made.logs("gate").count(LET_IN) >= 2)
        yield made
    finally:
        made.down()
