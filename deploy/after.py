"""Start a program once what it needs is there: the services of a deployment start in any order.

    after.py FILE|HOST:PORT ... -- PROGRAM ARGUMENT ...

Waits until every file can be read and every port accepts a connection, then becomes PROGRAM. It uses the standard
library alone, so that waiting costs nothing; a program that fails and restarts would import everything each time.
"""

import os
import socket
import sys
import time


def missing(needs: list[str]) -> list[str]:
    """Those of `needs` that are not there yet."""
    return [need for need in needs if not (_listens(need) if _is_port(need) else os.access(need, os.R_OK))]


def _is_port(need: str) -> bool:
    return "/" not in need and need.rpartition(":")[2].isdigit()


def _listens(need: str) -> bool:
    host, _, port = need.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=3).close()
    except OSError:
        return False
    return True


def main(arguments: list[str]) -> None:
    """See the module."""
    at = arguments.index("--")
    needs, program = arguments[:at], arguments[at + 1 :]
    reported: list[str] = []
    while absent := missing(needs):
        if absent != reported:
            print("waiting for " + " ".join(absent), file=sys.stderr, flush=True)
            reported = absent
        time.sleep(0.5)
    os.execvp(program[0], program)  # noqa: S606  (the operator's own command)


if __name__ == "__main__":
    main(sys.argv[1:])
