"""The gate's log, from deploy/gate/start.sh and nginx: refused requests are JSON whatever a node asks for."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fieldfare_server.deployment.certificates import make_server
from support.waiting import free_port, until

GATE = Path(os.environ.get("FIELDFARE_GATE", Path(__file__).parents[2] / "deploy/gate"))
PRETENDED = """#!/bin/sh
[ "$5" = -s ] && echo 'settings are read again' >&2 && exit
echo 'it has started' >&2
exec sleep 60
"""
"""What stands for nginx where there is none: it says what it is told to do."""


@contextlib.contextmanager
def gate(work: Path, port: int) -> Iterator[Callable[[], str]]:
    """The gate on loopback before a SuperLink that is not there; yields a function that reads its log."""
    make_server(work / "secrets", work / "exchange", ["localhost"], ["localhost"])
    (work / "gate").mkdir()
    for name in ("nginx.conf", "start.sh"):
        text = (GATE / name).read_text().replace("/tmp/", f"{work}/").replace("/secrets", str(work / "secrets/gate"))
        text = text.replace("listen 8000", f"listen 127.0.0.1:{port}").replace(
            "server superlink:8000", "server 127.0.0.1:9"
        )
        (work / "gate" / name).write_text(text)
    (work / "bin").mkdir()
    lookup = work / "bin/getent"
    lookup.write_text(f"#!/bin/sh\ncat {work}/address\n")
    lookup.chmod(0o755)
    (work / "address").write_text("127.0.0.1 STREAM superlink\n")
    if not shutil.which("nginx"):
        (work / "bin/nginx").write_text(PRETENDED)
        (work / "bin/nginx").chmod(0o755)
    log = work / "log"
    with log.open("wb") as sink:
        env = {**os.environ, "PATH": f"{work / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        command = ["sh", str(work / "gate/start.sh")]
        process = subprocess.Popen(command, env=env, stdout=sink, stderr=sink, start_new_session=True)
        try:
            yield lambda: log.read_bytes().decode(errors="replace")
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_superlink_at_another_address_makes_the_gate_read_its_settings_again(tmp_path: Path) -> None:
    port = free_port()
    with gate(tmp_path, port) as log:
        # The script starts nginx after its first look-up of the address; the next is two seconds later.
        until(lambda: listens(port) or "it has started" in log())
        (tmp_path / "address").write_text("127.0.0.2 STREAM superlink\n")
        until(lambda: "the SuperLink has moved" in log())
        if not shutil.which("nginx"):
            until(lambda: "settings are read again" in log())


@pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx")
def test_refused_requests_are_json_objects_even_where_they_are_no_text(tmp_path: Path) -> None:
    port = free_port()
    with gate(tmp_path, port) as log:
        trusting = ssl.create_default_context(cafile=str(tmp_path / "exchange/ca.crt"))

        def ask(path: bytes) -> bytes:
            try:
                plain = socket.create_connection(("127.0.0.1", port), timeout=5)
                with plain, trusting.wrap_socket(plain, server_hostname="localhost") as connection:
                    connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    return connection.recv(100)
            except ConnectionRefusedError:
                return b""

        until(lambda: ask(b"/health"))
        assert b"404" in ask(b'/v1/"\\\xff\xc3')
        assert b"404" in ask(b'/v1/"\\')

        def refused() -> list[str]:
            lines = [json.loads(line) for line in log().splitlines() if line.startswith("{")]
            return [line["path"] for line in lines if line["status"] == 404]

        until(lambda: refused()[1:])
        assert refused() == ["(not ASCII)", '/v1/"\\']


@pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx")
def test_a_request_that_is_no_part_of_a_reply_is_small(tmp_path: Path) -> None:
    """The coordinator reads those of all replies at once: an error whose reason has 30 MB would cost it much more."""
    port = free_port()
    with gate(tmp_path, port):
        trusting = ssl.create_default_context(cafile=str(tmp_path / "exchange/ca.crt"))

        def send(path: str, megabytes: int) -> int:
            """The status; the body is announced, and sent where it is asked for."""
            size = megabytes << 20
            head = f"POST /v1/fleet/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n"
            try:
                plain = socket.create_connection(("127.0.0.1", port), timeout=60)
                with plain, trusting.wrap_socket(plain, server_hostname="localhost") as connection:
                    connection.sendall(f"{head}Expect: 100-continue\r\nConnection: close\r\n\r\n".encode())
                    answer = connection.recv(1000)
                    if b" 100 " in answer.splitlines()[0]:
                        connection.sendall(bytes(size))
                        answer = connection.recv(1000)
                    return int(answer.split()[1])
            except ConnectionRefusedError:
                return 0

        until(lambda: send("push-messages", 0))
        # 500: a worker of nginx may not write to the folder of this test.
        passed, too_large = (500, 502), 413
        assert send("push-messages", 3) in passed
        assert send("push-messages", 5) == too_large
        assert send("pull-messages", 5) == too_large
        assert send("push-object", 31) in passed
        assert send("push-object", 33) == too_large
