"""Start a program once what it needs is there: services of a deployment start in any order.

    after.py FILE|HOST:PORT ... -- PROGRAM ARGUMENT ...

Waits for every file to be readable and every port to accept a connection, then becomes PROGRAM. With the standard
library alone: waiting costs nothing, where a program that fails and is restarted imports everything each time.
"""

import json
import os
import socket
import sys
import time
from datetime import UTC, datetime


def missing(needs: list[str]) -> list[str]:
    """Those of `needs` that are not there yet."""
    return [need for need in needs if not (_listens(need) if _is_port(need) else os.access(need, os.R_OK))]


def _is_port(need: str) -> bool:
    return "/" not in need and need.rpartition(":")[2].isdigit()


def _listens(need: str) -> bool:
    host, _, port = need.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError:
        return False
    return True


def _line(text: str) -> str:
    # As fieldfare_flower.logs would write it.
    if os.environ.get("FIELDFARE_LOG") != "json":
        return text
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "level": "info", "logger": "after", "message": text})


def main(arguments: list[str]) -> None:
    """See the module."""
    at = arguments.index("--")
    needs, program = arguments[:at], arguments[at + 1 :]
    said: list[str] = []
    while absent := missing(needs):
        if absent != said:
            print(_line("waiting for " + " ".join(absent)), file=sys.stderr, flush=True)
            said = absent
        time.sleep(0.5)
    os.execvp(program[0], program)  # noqa: S606  (the operator's own command)


if __name__ == "__main__":
    main(sys.argv[1:])
