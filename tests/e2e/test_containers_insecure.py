"""The quick look without TLS and without node authentication: it runs, and says what it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.container_runs import plan
from support.containers import Federation, require_engine

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def insecure() -> Iterator[Federation]:
    require_engine()
    made = Federation("fieldfare-e2e-insecure", ["docker-compose.yml", "deploy/compose.insecure.yml"], "digits")
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_without_authentication_a_plan_must_say_so_and_the_page_does(insecure: Federation) -> None:
    text = plan("quick", 4, min_available=100).replace("fieldfare_e2e:Digits400", "digits")
    insecure.submit(text, ["--insecure"])
    trusting = insecure.submit(text.replace("[run]", "[run]\ntrust_node_ids = true"), ["--insecure"])
    insecure.wait_done(trusting)
    assert [run["id"] for run in insecure.get("/v1/runs")["items"]] == [trusting]
    told = insecure.get(f"/v1/runs/{trusting}")
    assert told["plan"]["run"]["trust_node_ids"] is True
    assert any("the ids they claim" in line for line in told["guarantee"]["not_covered"])
