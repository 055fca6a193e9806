"""Flower's own programs, for tests that start them."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from fieldfare_server.deployment.simulation import stop
from fieldfare_server.deployment.submit import environment, program


@contextlib.contextmanager
def supernode(
    work: Path,
    address: str,
    index: int,
    task: str = "",
    nodes: int = 2,
    more: str = "",
    start: Sequence[str] = (),
    **env: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """One of several insecure SuperNodes while inside; its log goes to `work`/node-INDEX.log.

    task: in its configuration, next to its partition; empty: it knows nothing else. more: in it, too.
    start: another program than Flower's own.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [*(start or [program("flower-supernode")]), "--insecure", "--superlink", address, "--host", "127.0.0.1"]
    config = f"partition-id={index} num-partitions={nodes} {more}" + (f' task="{task}"' if task else "")
    command += ["--port", str(port), "--node-config", config]
    with (work / f"node-{index}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment(work / f"flwr-{index}", {"OMP_NUM_THREADS": "1", **env}),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            stop(process)
