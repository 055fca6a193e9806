"""Fuzzed from its own OpenAPI document: no server error, no answer that the document does not describe."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from fake_store import FakeStore

from fieldfare_server.api import Settings, build
from fieldfare_server.api.server import beside, config

STREAMS = ("/v1/events",)  # never ends; see test_api_events
OPEN = ("/healthz", "/readyz")
LIMITLESS = {"requests_per_minute": 10**9, "burst": 10**9, "failed_logins_per_minute": 10**9}


@pytest.mark.slow
@pytest.mark.parametrize("here", [True, False], ids=["anonymous may read", "only tokens"])
@pytest.mark.filterwarnings("ignore")
def test_no_input_breaks_it_and_nothing_opens_without_a_token(here: bool) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from schemathesis.specs.openapi import checks

    told = (
        schemathesis.checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    )
    store = FakeStore()
    app = build(store, Settings(anonymous_read=here, **LIMITLESS))
    tried = 0
    with beside(config(app, port=0)) as url:
        schema = schemathesis.openapi.from_dict(app.openapi())
        for operation in (result.ok() for result in schema.get_all_operations()):
            if operation.path in STREAMS:
                continue

            @hypothesis.given(case=operation.as_strategy())
            @hypothesis.settings(
                max_examples=40,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            def fuzz(case: Any) -> None:
                nonlocal tried
                tried += 1
                answer = case.call(base_url=url)
                if case.method == "POST" or not (here or case.operation.path in OPEN):
                    assert answer.status_code >= 400, "nothing opens without a token"
                if answer.status_code not in (400, 405, 413, 414, 421):  # the guard's, and the same for every route
                    case.validate_response(answer, checks=told)

            fuzz()
    assert tried > 500
    assert store.requests == {}
