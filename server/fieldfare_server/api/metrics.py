"""Prometheus metrics: base units and bounded labels (population, state, reason, route), never a user or a
node.

A scrape reads the ledger, at most every `metrics_seconds`, so that a scrape loop cannot load the database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fieldfare_server.api.answers import Answers, Figures
from fieldfare_server.api.population_schemas import Population
from fieldfare_server.api.schemas import Verification

log = logging.getLogger(__name__)
Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})


class LedgerCollector(Collector):
    """The ledger's figures, cached for `seconds`."""

    def __init__(
        self,
        answers: Answers,
        seconds: float,
        last_check: Callable[[], Verification | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """last_check: the last check of journal and tables; None while there is none. Cheap to call."""
        self._answers, self._seconds, self._last_check, self._clock = answers, seconds, last_check, clock
        self._lock = threading.Lock()
        self._cached: tuple[float, Figures] | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield all ledger metrics, or `fieldfare_ledger_up` alone, at 0, if the ledger cannot be read."""
        up = GaugeMetricFamily("fieldfare_ledger_up", "1 if the ledger could be read for this scrape")
        try:
            figures, check = self._read(), self._last_check()
        except Exception:
            yield _filled(up, [((), 0)])
            return
        yield _filled(up, [((), 1)])
        chain = GaugeMetricFamily("fieldfare_ledger_chain_ok", "1 if the journal is whole and the tables say the same")
        yield _filled(chain, [((), None if check is None else check.ok)])
        fault = GaugeMetricFamily(
            "fieldfare_ledger_fault", "1 for the first row that does not fit", labels=["table", "row"]
        )
        unfit = [] if check is None or check.ok else [((check.table or "", check.row or ""), 1)]
        yield _filled(fault, unfit)
        yield from _budgets(figures.populations)
        yield from _counts(figures)

    def _read(self) -> Figures:
        with self._lock:
            now = self._clock()
            if self._cached is None or now - self._cached[0] >= self._seconds:
                self._cached = (now, self._answers.figures())
            return self._cached[1]


def _filled(family: Family, values: Iterable[tuple[Sequence[str], float | None]]) -> Family:
    """Return `family` with these numbers, each under its labels; None: there is none."""
    for labels, number in values:
        if number is not None:
            family.add_metric(labels, number)
    return family


def _budgets(populations: tuple[Population, ...]) -> Iterator[Metric]:
    def gauge(name: str, text: str, value: Callable[[Population], float | None]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"fieldfare_{name}", text, labels=["population"])
        return _filled(family, (((population.name,), value(population)) for population in populations))

    yield gauge("privacy_epsilon_limit", "The population's budget", lambda p: p.epsilon)
    spent = "Charged by committed rounds, at the population's delta"
    yield gauge("privacy_epsilon_spent", spent, lambda p: p.spent.epsilon)
    yield gauge("privacy_epsilon_committed", "Spent and reserved, composed", lambda p: p.committed.epsilon)
    yield gauge("privacy_delta", "The delta that every epsilon of the population is at", lambda p: p.delta)
    yield gauge("privacy_budget_committed_ratio", "Committed epsilon over the limit", lambda p: p.committed_share)
    yield gauge("rounds_left", "Rounds the running plan may still commit", lambda p: p.rounds_left)


def _counts(figures: Figures) -> Iterator[Metric]:
    def by(label: str, family: type[Family], name: str, text: str, counts: Mapping[str, int]) -> Family:
        return _filled(family(name, text, labels=[label]), (((each,), n) for each, n in sorted(counts.items())))

    yield by("state", GaugeMetricFamily, "fieldfare_runs", "Runs by state", figures.runs)
    failed = GaugeMetricFamily(
        "fieldfare_noise_self_test_failed_runs", "Runs whose newest residual test found another noise than was charged"
    )
    yield _filled(failed, [((), figures.failed_self_tests)])
    left = GaugeMetricFamily(
        "fieldfare_reservation_left_ratio",
        "Share of the time that is left of the reservation that goes first; about 1 while runs have coordinators",
    )
    yield _filled(left, [((), min(figures.reservations.values(), default=None))])
    yield by("state", CounterMetricFamily, "fieldfare_rounds", "Rounds by how they ended", figures.rounds)
    rejects = "fieldfare_updates_rejected", "Replies refused, by reason"
    yield by("reason", CounterMetricFamily, *rejects, figures.rejects)


class Metrics:
    """The service's metrics. Each application has its own registry, so that two in one process share no counter."""

    def __init__(
        self,
        answers: Answers,
        seconds: float,
        clients: Callable[[], int],
        last_check: Callable[[], Verification | None],
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(LedgerCollector(answers, seconds, last_check))
        self.requests = Counter(
            "fieldfare_http_requests", "Requests", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "fieldfare_http_request_duration_seconds",
            "Time to the answer's end; event streams are left out",
            ["route"],
            registry=self.registry,
        )
        streams = Gauge("fieldfare_event_streams", "Event streams open now", registry=self.registry)
        streams.set_function(clients)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request. `route` is the template of a route, never the path that the caller wrote."""
        self.requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        if route != "/v1/events":
            self.seconds.labels(route).observe(seconds)

    def render(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self.registry)


class Measure:
    """ASGI middleware that counts every request once, by method, route template and status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, record_status)
        finally:
            route = getattr(scope.get("route"), "path", None) or "unmatched"
            seconds = time.perf_counter() - began
            self._metrics.observe(scope["method"], route, status, seconds)
            # Log the route's template: a path or a query is written by the caller and may contain anything.
            log.debug("%s %s: %d in %.1f ms", scope["method"], route, status, 1000 * seconds)
