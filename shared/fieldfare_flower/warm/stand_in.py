#!/usr/bin/env -S python3 -IS
"""What a SuperExec finds on its PATH as `flwr-clientapp`: hands the task to the warm parent, or starts the real one.

It uses the standard library alone, without site-packages, because its interpreter start is the one that is
left. The parent's socket lies in the folder of the link through which this file was called. Arguments (Flower
passes the task's token there), environment, working directory and standard streams go over that socket, to a
process forked for this task.
"""

import json
import os
import socket
import sys

SOCKET = "socket"
TAKEN = b"taken"
# Where this is set, a task starts by the way that checks its code.
PINNED = "FIELDFARE_CODE"
# Seconds that a fork has to take a task.
PATIENCE = 10.0


def hand_over(path: str, arguments: list[str], environment: dict[str, str]) -> int | None:
    """Return the task's exit status, or None where the parent at `path` did not take it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as parent:
        try:
            parent.settimeout(PATIENCE)
            parent.connect(path)
            task = json.dumps({"arguments": arguments, "environment": environment, "folder": os.getcwd()})
            socket.send_fds(parent, [task.encode()], [0, 1, 2])
            if parent.recv(len(TAKEN)) != TAKEN:
                return None
        except OSError:
            return None
        # The fork has the task: whatever happens now, it must not be started a second time.
        try:
            parent.settimeout(None)
            return int(parent.recv(16) or b"1")  # nothing: the fork died, and so failed
        except OSError:
            return 1


def main() -> None:
    """See the module."""
    folder, name = os.path.split(sys.argv[0])
    # Without this folder, so that the task finds the real program under its name.
    rest = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if entry != folder]
    os.environ["PATH"] = os.pathsep.join(rest)
    arguments = [name, *sys.argv[1:]]
    status = hand_over(os.path.join(folder, SOCKET), arguments, dict(os.environ))
    if status is None and PINNED in os.environ:
        os.execvp("python3", ["python3", "-Pm", "fieldfare_flower.pinned", *arguments])  # noqa: S606, S607
    if status is None:
        os.execvp(name, arguments)  # noqa: S606  (the very program that was asked for)
    sys.exit(status)


if __name__ == "__main__":
    main()
