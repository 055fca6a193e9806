"""Prometheus metrics: base units, bounded labels (population, state, reason, route), never a user or a node.

Figures of the ledger are read when scraped, at most every `metrics_seconds`, so a scrape loop cannot load the database.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fieldfare_server.api.schemas import Population
from fieldfare_server.api.store import Store, Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})
_PAGE = 100


class LedgerCollector(Collector):
    """The ledger's figures, cached for `seconds`."""

    def __init__(
        self,
        store: Store,
        seconds: float,
        whole: Callable[[], bool | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """whole: whether the audit chain is, as far as it was checked; None while nobody knows. Cheap to ask again."""
        self._store, self._seconds, self._whole, self._clock = store, seconds, whole, clock
        self._lock = threading.Lock()
        self._cached: tuple[float, list[Population], Totals] | None = None

    def collect(self) -> Iterator[Metric]:
        """All ledger metrics; `fieldfare_ledger_up` alone, at 0, when the ledger cannot be read."""
        up = GaugeMetricFamily("fieldfare_ledger_up", "1 if the ledger could be read for this scrape")
        try:
            (populations, totals), whole = self._read(), self._whole()
        except Exception:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        chain = GaugeMetricFamily("fieldfare_ledger_chain_ok", "1 if the audit chain is whole, as far as checked")
        if whole is not None:
            chain.add_metric([], whole)
        yield chain
        yield from _budgets(populations)
        yield from _totals(totals)

    def _read(self) -> tuple[list[Population], Totals]:
        with self._lock:
            now = self._clock()
            if self._cached is None or now - self._cached[0] >= self._seconds:
                self._cached = (now, list(_all(self._store)), self._store.totals())
            return self._cached[1], self._cached[2]


def _all(store: Store) -> Iterator[Population]:
    cursor: str | None = None
    while True:
        page = store.populations(cursor, _PAGE)
        yield from page.items
        cursor = page.next
        if cursor is None:
            return


def _budgets(populations: list[Population]) -> Iterator[Metric]:
    def gauge(name: str, text: str, value: Callable[[Population], float | None]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"fieldfare_privacy_{name}", text, labels=["population"])
        for population in populations:
            number = value(population)
            if number is not None:
                family.add_metric([population.name], number)
        return family

    yield gauge("epsilon_limit", "The population's budget", lambda p: p.epsilon)
    yield gauge("epsilon_spent", "Charged by committed rounds, at the population's delta", lambda p: p.spent.epsilon)
    yield gauge("epsilon_committed", "Spent and reserved, composed", lambda p: p.committed.epsilon)
    yield gauge("delta", "The delta that every epsilon of the population is at", lambda p: p.delta)
    yield gauge(
        "budget_committed_ratio",
        "Committed epsilon over the limit",
        lambda p: None if p.committed.epsilon is None else p.committed.epsilon / p.epsilon,
    )
    left = GaugeMetricFamily("fieldfare_rounds_left", "Rounds the running plan may still commit", labels=["population"])
    for population in populations:
        if population.rounds_left is not None:
            left.add_metric([population.name], population.rounds_left)
    yield left


def _totals(totals: Totals) -> Iterator[Metric]:
    runs = GaugeMetricFamily("fieldfare_runs", "Runs by state", labels=["state"])
    for state, number in sorted(totals.runs.items()):
        runs.add_metric([state], number)
    yield runs
    failed = GaugeMetricFamily(
        "fieldfare_noise_self_test_failed_runs", "Runs whose newest audit found another noise than was charged"
    )
    failed.add_metric([], totals.failed_self_tests)
    yield failed
    rounds = CounterMetricFamily("fieldfare_rounds", "Rounds by how they ended", labels=["state"])
    for state, number in sorted(totals.rounds.items()):
        rounds.add_metric([state], number)
    yield rounds
    rejects = CounterMetricFamily("fieldfare_updates_rejected", "Replies refused, by reason", labels=["reason"])
    for reason, number in sorted(totals.rejects.items()):
        rejects.add_metric([reason], number)
    yield rejects


class Metrics:
    """A registry of its own, so that two applications in one process do not share counters."""

    def __init__(
        self, store: Store, seconds: float, clients: Callable[[], int], whole: Callable[[], bool | None]
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(LedgerCollector(store, seconds, whole))
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
        """Count one request. `route` is a route's template, never a path as asked for."""
        self.requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        if route != "/v1/events":
            self.seconds.labels(route).observe(seconds)

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
