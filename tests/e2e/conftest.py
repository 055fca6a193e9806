"""One federation in containers for all tests that want it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.container_runs import TASK
from support.containers import Federation, require_engine


@pytest.fixture(scope="session")
def federation() -> Iterator[Federation]:
    require_engine()
    made = Federation("fieldfare-e2e", ["docker-compose.yml", "tests/e2e/compose.e2e.yml"], TASK)
    try:
        made.up()
        yield made
    finally:
        made.down()
