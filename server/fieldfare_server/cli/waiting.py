"""Retry until an obstacle is gone: the services of a deployment start in any order."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from fieldfare.errors import FieldfareError
from fieldfare_server.cli.output import print_progress

T = TypeVar("T")

# Seconds of retrying after which the last error is raised.
PATIENCE = 600.0
PAUSE = 1.0


def retry(attempt: Callable[[], T], patience: float = PATIENCE) -> T:
    """Call `attempt` until it raises no `FieldfareError`, and return its result.

    Prints each new obstacle to standard error. Raises the last error after `patience` seconds.
    """
    deadline, obstacle = time.monotonic() + patience, ""
    while True:
        try:
            return attempt()
        except FieldfareError as error:
            if time.monotonic() >= deadline:
                raise
            if str(error) != obstacle:
                obstacle = str(error)
                print_progress(f"Waiting: {obstacle}")
            time.sleep(PAUSE)
