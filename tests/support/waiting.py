"""What tests wait for that start servers and processes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any


def until(found: Callable[[], Any], patience: float = 90.0) -> Any:
    """What is found as soon as it is; the patience is for a busy machine."""
    deadline = time.monotonic() + patience
    while not (value := found()):
        assert time.monotonic() < deadline, f"not within {patience} s"
        time.sleep(0.02)
    return value


def free_port() -> int:
    """A port of the loopback address that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
