"""Wait for what is not there yet: services of a deployment start in any order."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from fieldfare.errors import FieldfareError
from fieldfare_server.cli.output import tell

T = TypeVar("T")

PATIENCE = 600.0
"""Seconds after which waiting is given up, and what stood in the way is said."""
PAUSE = 1.0


def until(attempt: Callable[[], T], patience: float = PATIENCE, pause: float = PAUSE) -> T:
    """What `attempt` returns once it raises no `FieldfareError` any more; its last error after `patience` seconds.

    Says on standard error what it waits for, once for each different obstacle.
    """
    deadline, said = time.monotonic() + patience, ""
    while True:
        try:
            return attempt()
        except FieldfareError as error:
            if time.monotonic() >= deadline:
                raise
            if str(error) != said:
                said = str(error)
                tell(f"Waiting: {said}")
            time.sleep(pause)
