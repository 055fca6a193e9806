"""The shell of a stranger: an empty account, and no variable of ours.

Flower's `flwr run` starts a SuperLink in the background, which its next runs use. Here it ends with the test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldfare_server.deployment.submit import program
from support.waiting import free_port

CALLS_NOBODY = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
"""Without these Flower and Ray contact their makers: the only variables that the suite sets."""
KEPT = ("PYTHONPATH", "TMPDIR", "LANG")
"""Variables of this process that stay: which sources are tested, and where files for a while are."""


@contextlib.contextmanager
def stranger(account: Path) -> Iterator[dict[str, str]]:
    """The variables of a shell whose HOME is the new directory `account`; what it has started ends here.

    The ports of Flower's background SuperLink are free ones, because this machine may have another.
    """
    account.mkdir()
    ports = {name: str(free_port()) for name in ("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "FLWR_LOCAL_CONTROL_API_PORT")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    try:
        yield {**kept, **CALLS_NOBODY, **ports, "HOME": str(account), "PATH": path}
    finally:
        _end_all_of(account)


def become_stranger(account: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give this process the new directory `account` as its HOME and no variable of ours; returns `data_home`."""
    account.mkdir()
    for name in os.environ:
        if name.startswith(("FIELDFARE_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(account))
    return data_home(account)


def start(env: dict[str, str], log: Path, name: str, *arguments: str) -> None:
    """Start a program of Flower in that shell's background; it ends with the shell."""
    with log.open("wb") as file:
        command = [program(name), *arguments]
        subprocess.Popen(command, env=env, stdout=file, stderr=file, start_new_session=True)


def wait_for_port(port: int, seconds: float = 90) -> None:
    """Until something listens there."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens on {port}"
            time.sleep(0.2)


def connect(account: Path, address: str, root_certificates: Path | None = None) -> None:
    """Name the SuperLink at `address` "federation" in the account's Flower configuration, as Flower's pages say."""
    (account / ".flwr").mkdir(exist_ok=True)
    trust = "insecure = true" if root_certificates is None else f'root-certificates = "{root_certificates}"'
    table = f'[superlink.federation]\naddress = "{address}"\n{trust}\n'
    (account / ".flwr" / "config.toml").write_text(f'[superlink]\ndefault = "federation"\n{table}')


def flwr_run(env: dict[str, str], *arguments: str, seconds: float = 400) -> str:
    """`flwr run ARGUMENTS --stream` in that shell; returns its output. Fails where the command does."""
    return flwr(env, "run", *arguments, "--stream", seconds=seconds)


def flwr(env: dict[str, str], *arguments: str, seconds: float = 60) -> str:
    """`flwr ARGUMENTS` in that shell; returns its output. Fails where the command does."""
    command = [program("flwr"), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def data_home(account: Path) -> Path:
    """Where Fieldfare keeps its state in that account."""
    return account / ".local" / "share" / "fieldfare"


def _processes_of(account: Path) -> list[int]:
    """Processes that have this HOME; nothing else in the machine has."""
    wanted, found = f"HOME={account}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end, or be another's
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


def _end_all_of(account: Path, patience: float = 10.0) -> None:
    deadline = time.monotonic() + patience
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in _processes_of(account):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        while _processes_of(account) and time.monotonic() < deadline:
            time.sleep(0.1)
