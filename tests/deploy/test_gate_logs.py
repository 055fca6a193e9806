"""Every line of the gate is JSON, whatever a node asks for: deploy/gate/start.sh, with nginx where it is installed."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldfare_server.deployment.certificates import make_server

GATE = Path(__file__).parents[2] / "deploy/gate"
PRETENDED = """#!/bin/sh
[ "$5" = -s ] && exit
printf '%s\\n' '2026/11/21 14:00:00 [error] 7#7: *1 connect() failed, request: "GET /a\\b HTTP/1.1"' >&2
printf 'no line of nginx \377\t"\n' >&2
exec sleep 60
"""


@contextlib.contextmanager
def gate(work: Path, port: int) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The gate on loopback before a SuperLink that is not there; yields what reads its log."""
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
            yield lambda: [json.loads(line) for line in log.read_bytes().decode().splitlines()]
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)


def until(found: Callable[[], Any], patience: float = 30.0) -> Any:
    deadline = time.monotonic() + patience
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_errors_and_what_the_script_says_are_objects(tmp_path: Path) -> None:
    port = free_port()
    with gate(tmp_path, port) as lines:
        if shutil.which("nginx"):
            until(lambda: listens(port))
        else:
            first, second = until(lambda: lines()[1:] and lines())
            assert (first["level"], first["service"]) == ("error", "gate")
            assert datetime.datetime.fromisoformat(first["time"]).hour == 14
            assert first["message"].endswith('request: "GET /a\\b HTTP/1.1"')
            assert second["message"] == 'no line of nginx ???"'
        # The script looks again two seconds after its first look.
        (tmp_path / "address").write_text("127.0.0.2 STREAM superlink\n")
        until(lambda: "the SuperLink has moved" in "".join(str(line.get("message")) for line in lines()))


@pytest.mark.skipif(not shutil.which("nginx"), reason="needs nginx")
def test_requests_that_are_no_text_are_objects_too(tmp_path: Path) -> None:
    port = free_port()
    with gate(tmp_path, port) as lines:
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
        paths = [
            line["path"]
            for line in until(lambda: [one for one in lines() if one.get("status") == 404][1:] and lines())
            if "path" in line
        ]
        assert paths[-2:] == ["(not ASCII)", '/v1/"\\']
        assert "error" in {line.get("level") for line in lines()}, "nobody listens where the SuperLink should be"
