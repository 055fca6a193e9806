#!/usr/bin/env -S python3 -IS
"""What a SuperExec finds on its PATH as `flwr-clientapp`: hands the task to the warm parent, or starts the real one.

Standard library alone, without site-packages: this is the interpreter start that is left. The parent's socket lies
beside the link through which this file was called. Arguments (Flower passes the task's token there), environment,
working directory and standard streams go over that socket, to a process that was forked for this task.
"""

import json
import os
import socket
import sys

SOCKET = "socket"
TAKEN = b"taken"
PATIENCE = 10.0
"""Seconds that a fork gets to take a task."""


def hand_over(path: str, arguments: list[str], environment: dict[str, str]) -> int | None:
    """The task's exit status, or None where the parent at `path` did not take it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as parent:
        try:
            parent.settimeout(PATIENCE)
            parent.connect(path)
            told = json.dumps({"arguments": arguments, "environment": environment, "folder": os.getcwd()})
            socket.send_fds(parent, [told.encode()], [0, 1, 2])
            if parent.recv(len(TAKEN)) != TAKEN:
                return None
        except OSError:
            return None
        # Taken: whatever comes now, the task must not be started a second time.
        try:
            parent.settimeout(None)
            return int(parent.recv(16) or b"1")
        except OSError:
            return 1


def main() -> None:
    """See the module."""
    here, name = os.path.split(sys.argv[0])
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if place != here]
    os.environ["PATH"] = os.pathsep.join(places)
    arguments = [name, *sys.argv[1:]]
    status = hand_over(os.path.join(here, SOCKET), arguments, dict(os.environ))
    if status is None:
        os.execvp(name, arguments)  # noqa: S606  (the very program that was asked for)
    sys.exit(status)


if __name__ == "__main__":
    main()
