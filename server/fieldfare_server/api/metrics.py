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

    def __init__(self, store: Store, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._seconds, self._clock = store, seconds, clock
        self._lock = threading.Lock()
        self._cached: tuple[float, list[Population], Totals] | None = None

    def collect(self) -> Iterator[Metric]:
        """All ledger metrics; `fieldfare_ledger_up` alone, at 0, when the ledger cannot be read."""
        up = GaugeMetricFamily("fieldfare_ledger_up", "1 if the ledger could be read for this scrape")
        try:
            populations, totals = self._read()
        except Exception:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
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

    def __init__(self, store: Store, seconds: float, clients: Callable[[], int], whole: Callable[[], bool]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(LedgerCollector(store, seconds))
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
        chain = Gauge(
            "fieldfare_ledger_chain_whole",
            "1 if every row of the audit log was checked and fits; 0 while that is not known",
            registry=self.registry,
        )
        chain.set_function(whole)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request. `route` is a route's template, never a path as asked for."""
        self.requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        if route != "/v1/events":
            self.seconds.labels(route).observe(seconds)

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
