"""One federation in containers for all tests that want it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from support.container_runs import TASK
from support.containers import COMPOSE, ENGINE, Federation


@pytest.fixture(scope="session")
def federation() -> Iterator[Federation]:
    if "CONTAINERS" not in os.environ:
        pytest.skip("starts containers: run it by `make containers-test`")
    for program in (COMPOSE[0], ENGINE[0]):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not here: set COMPOSE and ENGINE")
    made = Federation("fieldfare-e2e", ["docker-compose.yml", "tests/e2e/compose.e2e.yml"], TASK)
    try:
        made.up()
        yield made
    finally:
        made.down()
