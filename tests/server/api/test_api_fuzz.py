"""Fuzzed from its own OpenAPI document: no server error, no answer that the document does not describe."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import ledger_data
import pytest

from fieldfare_server.api import Settings, create_app
from fieldfare_server.api.server import config, serve_in_thread
from fieldfare_server.ledger import Ledger

STREAMS = ("/v1/events",)  # never ends; see test_api_events
OPEN = ("/healthz", "/readyz")
LIMITLESS = {"requests_per_minute": 10**9, "burst": 10**9, "failed_logins_per_minute": 10**9}
KNOWN = {"name": "aircraft", "run_id": "run-3"}
"""Names that exist, tried besides random ones: without them no route would be fuzzed past its 404."""


def fuzz(ledger: Ledger, url: str, caller: str, secret: str, examples: int) -> None:
    """Calls every operation of the document `examples` times as `caller`, whose token is `secret`."""
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from schemathesis.specs.openapi import checks

    told = (
        schemathesis.checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    )
    app = create_app(url, Settings(anonymous_read=caller != "stranger", **LIMITLESS))
    seen: Counter[int] = Counter()
    before = ledger.head()
    with serve_in_thread(config(app, port=0)) as address:
        schema = schemathesis.openapi.from_dict(app.openapi())
        for operation in (result.ok() for result in schema.get_all_operations()):
            if operation.path in STREAMS:
                continue

            @hypothesis.given(case=operation.as_strategy(), known=hypothesis.strategies.booleans())
            @hypothesis.settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            def one(case: Any, known: bool) -> None:
                if known:
                    # Plain answers, not only refusals: the made-up token is an attempt to log in.
                    case.headers.pop("Authorization", None)
                    case.path_parameters.update({k: v for k, v in KNOWN.items() if k in case.path_parameters})
                if secret:
                    case.headers["Authorization"] = f"Bearer {secret}"
                answer = case.call(base_url=address)
                seen[answer.status_code] += 1
                closed = case.method == "POST" or (caller == "stranger" and case.operation.path not in OPEN)
                if closed and caller not in WRITERS:
                    assert answer.status_code >= 400, "nothing opens without a token"
                if answer.status_code != 405:  # of a method that the document does not name
                    case.validate_response(answer, checks=told)

            one()
        if caller not in WRITERS:
            rows = ledger.events(before.count, 10)
            assert [row.action for row in rows] == ["token.use"] * bool(secret), "nothing else was written"
    assert sum(seen.values()) > 12 * examples
    assert seen[200] > OPENED[caller] * examples, seen
    if caller == "officer":
        assert seen[202] + seen[409] > examples / 4, seen


TOKENS: dict[str, dict[str, Any]] = {
    "reader": {"scopes": ("read",)},
    "of one population": {"scopes": ("read", "admin"), "populations": ("aircraft",)},
    "trainer": {"scopes": ("charge",)},
    "officer": {"scopes": ("read", "admin")},
}
"""Every scope, and a token for one population. Who is not here has no token: on this machine, or elsewhere."""
OPENED = {"stranger": 0.0, "neighbour": 2.5, "reader": 2.5, "of one population": 1.0, "trainer": 2.5, "officer": 5.0}
"""Answers of 200, at least, for every example of each operation."""
WRITERS = ("officer", "of one population", "trainer")


@pytest.mark.parametrize("examples", [3, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("caller", ["neighbour", "stranger", *TOKENS])
@pytest.mark.filterwarnings("ignore")
def test_no_input_breaks_the_service(ledger_url: str, caller: str, examples: int) -> None:
    """A ledger with an ended run, and one under way that has committed and void rounds."""
    with ledger_data.new_ledger(ledger_url) as ledger:
        done = ledger_data.start(ledger, "run-1")
        ledger_data.commit(done)
        done.finish("stopped")
        live = ledger_data.start(ledger, "run-3")
        for _ in range(3):
            ledger_data.commit(live)
        ledger_data.void(live)
        secret = ""
        if caller in TOKENS:
            secret, _ = ledger.create_token(caller, actor="test", **TOKENS[caller])
        fuzz(ledger, ledger_url, caller, secret, examples)
