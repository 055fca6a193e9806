"""What /metrics says of the places that the ledger depends on: room on their disks, and its newest backup's age."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fieldfare_server.ledger.sql import backups


class PlacesCollector(Collector):
    """Looks at each scrape: that costs microseconds."""

    def __init__(self, places: Mapping[str, Path], copies: Path | None) -> None:
        """places: directories by what they hold; copies: where the ledger's backups go, None for elsewhere."""
        self._places, self._copies = places, copies

    def collect(self) -> Iterator[Metric]:
        """Yield the share of each disk that is free, and the age of the newest backup: infinite without one."""
        free = GaugeMetricFamily("fieldfare_disk_free_ratio", "Share of a place's disk that is free", labels=["place"])
        for place, path in self._places.items():
            try:
                usage = shutil.disk_usage(path)
            except OSError:
                continue
            # In whole percent: where presence is secret, the bytes that a ledger has grown by would count its users.
            free.add_metric([place], int(100 * usage.free / usage.total) / 100)
        yield free
        age = GaugeMetricFamily("fieldfare_backup_age_seconds", "Seconds since the newest backup of the ledger")
        if self._copies is not None:
            try:
                age.add_metric([], backups.age(self._copies))
            except OSError:
                age.add_metric([], float("inf"))
        yield age
