"""Tasks that are forks of a warm parent: they get what a process would get, share nothing, and do no harm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fieldfare_flower.warm import stand_in
from fieldfare_flower.warm.__main__ import TASK_PROGRAM
from support.waiting import until

SUPPORT = Path(__file__).parents[1] / "support" / "warm_parent.py"


def alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a parent listens, with the stand-in, as an executor has it."""
    place = tmp_path_factory.mktemp("warm")
    (place / TASK_PROGRAM).symlink_to(stand_in.__file__)
    parent = subprocess.Popen([sys.executable, str(SUPPORT), str(place)], stdin=subprocess.PIPE)
    try:
        until(lambda: listens(place))
        yield place
        assert parent.poll() is None, "a task ended the parent"
        assert parent.stdin is not None
        parent.stdin.close()
        assert parent.wait(10) == 0
    finally:
        parent.kill()
        parent.wait()


def start(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """As a SuperExec does: by name, with the stand-in first on the PATH."""
    env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **options.pop("env", {})}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([TASK_PROGRAM, *arguments], env=env, text=True, **{**pipes, **options})


def listens(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller, contextlib.suppress(OSError):
        caller.connect(str(folder / stand_in.SOCKET))
        return True
    return False


def told(folder: Path) -> dict[str, Any]:
    return dict(json.loads(start(folder, "tell").communicate("", timeout=60)[0]))


def test_a_fork_gets_what_a_process_would_get(folder: Path, tmp_path: Path) -> None:
    task = start(folder, "tell", "--token", "a b", cwd=tmp_path, env={"VARIABLE": "it's", "OMP_NUM_THREADS": "9"})
    out, err = task.communicate("read me", timeout=60)
    found = json.loads(out)
    assert found["arguments"] == [TASK_PROGRAM, "tell", "--token", "a b"]
    assert (found["folder"], found["variable"], found["said"]) == (str(tmp_path), "it's", "read me")
    assert (err, task.returncode) == ("to standard error\n", 7)
    assert found["threads"] == 3


def test_forks_draw_different_random_numbers(folder: Path) -> None:
    one, two = told(folder), told(folder)
    assert one["parent"] == two["parent"] != one["process"] != two["process"]
    assert all(a != b for a, b in zip(one["drawn"], two["drawn"], strict=True))


def test_a_fork_holds_nothing_of_another_task(folder: Path) -> None:
    other = start(folder, "sleep")
    assert other.stdout is not None
    other.stdout.readline()
    try:
        found = told(folder)
        assert found["sockets"] == 1  # its own connection
        assert found["handles"] == []
    finally:
        other.kill()
        other.communicate(timeout=30)


def test_a_fork_that_dies_is_reported_and_does_no_harm(folder: Path) -> None:
    before = told(folder)["parent"]
    task = start(folder, "die")
    task.communicate("", timeout=60)
    assert task.returncode == 128 + signal.SIGKILL
    assert told(folder)["parent"] == before


def test_a_task_ends_with_the_process_that_a_superexec_knows_it_by(folder: Path) -> None:
    task = start(folder, "sleep")
    assert task.stdout is not None
    process = int(task.stdout.readline())
    assert alive(process)
    task.kill()
    task.communicate(timeout=30)
    until(lambda: not alive(process), 30)


@pytest.fixture
def ordinary(tmp_path: Path) -> str:
    """A PATH on which the ordinary program is a script that prints what it was asked."""
    script = tmp_path / "bin" / TASK_PROGRAM
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho ordinary "$@"\nexit 5\n')
    script.chmod(0o755)
    return f"{script.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("state", ["never there", "dead", "silent", "refuses"])
def test_without_a_parent_the_ordinary_program_runs(state: str, ordinary: str, tmp_path: Path) -> None:
    place = tmp_path / "warm"
    place.mkdir()
    (place / TASK_PROGRAM).symlink_to(stand_in.__file__)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        if state != "never there":
            listening.bind(str(place / stand_in.SOCKET))
        if state == "dead":
            listening.close()
        if state in ("silent", "refuses"):
            listening.listen()
        task = start(place, "--token", "x", env={"PATH": f"{place}{os.pathsep}{ordinary}"})
        if state == "refuses":
            listening.accept()[0].close()
        if state == "silent":
            time.sleep(0.5)
            assert task.poll() is None
            listening.close()  # what a parent's death looks like
        assert task.communicate("", timeout=60)[0] == "ordinary --token x\n"
        assert task.returncode == 5


def test_a_task_that_was_taken_is_not_started_a_second_time(ordinary: str, tmp_path: Path) -> None:
    (tmp_path / TASK_PROGRAM).symlink_to(stand_in.__file__)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / stand_in.SOCKET))
        listening.listen()
        task = start(tmp_path, env={"PATH": f"{tmp_path}{os.pathsep}{ordinary}"})
        with listening.accept()[0] as connection:
            connection.recv(1 << 20)
            connection.send(stand_in.TAKEN)
        assert task.communicate("", timeout=60)[0] == ""
        assert task.returncode == 1


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b'{"arguments": 1}', b'{"environment": {"A": 1}}'])
def test_a_caller_that_sends_nonsense_is_not_served_and_does_no_harm(folder: Path, payload: bytes) -> None:
    before = told(folder)["parent"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.settimeout(60)
        caller.connect(str(folder / stand_in.SOCKET))
        if payload:
            caller.send(payload)
        else:
            caller.shutdown(socket.SHUT_WR)
        assert caller.recv(16) != stand_in.TAKEN
    assert told(folder)["parent"] == before


def test_only_its_own_user_reaches_a_parent(folder: Path) -> None:
    assert stat.S_IMODE((folder / stand_in.SOCKET).stat().st_mode) == 0o600


WARM_UP = """
import sys
from fieldfare_flower.warm.parent import warm_up
program, threads = warm_up(sys.argv[1])
print(program.__name__, threads, getattr(sys.modules.get("preloaded"), "called", None), "torch._dynamo" in sys.modules)
"""


@pytest.mark.parametrize(
    ("preload", "outcome"),
    [
        ("", "flwr_clientapp 1 None False"),
        ("preloaded", "flwr_clientapp 1 0 False"),
        ("preloaded:call", "flwr_clientapp 1 1 False"),
        # What each task of an app of Flower's own would import with its first optimizer step.
        ("fieldfare_client.app:preload", "flwr_clientapp 1 None True"),
        ("preloaded:start_thread", "RuntimeError: loading left 1 threads running, so forks would not be safe"),
    ],
)
def test_a_parent_loads_the_module_that_it_is_told_and_no_other(preload: str, outcome: str, tmp_path: Path) -> None:
    (tmp_path / "preloaded.py").write_text(
        "import threading\ncalled = 0\n"
        "def call():\n    global called\n    called += 1\n"
        "def start_thread():\n    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    path = os.pathsep.join([str(tmp_path), *(part for part in sys.path if part)])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WARM_UP, preload]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout + done.stderr).splitlines()[-1] == outcome


@pytest.mark.slow
def test_a_parent_that_dies_is_started_again_and_ends_with_its_executor(tmp_path: Path) -> None:
    told = tmp_path / "path"
    script = f'echo "$PATH" >{told}; exec sleep 600'
    command = [sys.executable, "-m", "fieldfare_flower.warm", "--preload", "fieldfare_client.app:preload"]
    executor = subprocess.Popen([*command, "sh", "-c", script])
    try:
        place = Path(until(lambda: told.exists() and told.read_text()).split(os.pathsep)[0])
        assert stat.S_IMODE(place.stat().st_mode) == 0o700

        def parents() -> list[int]:
            processes = [p for p in Path("/proc").iterdir() if p.name.isdigit()]
            words = [f"fieldfare_flower.warm.parent\0{place}".encode()]
            found = []
            for process in processes:
                with contextlib.suppress(OSError):
                    if words[0] in (process / "cmdline").read_bytes() and alive(int(process.name)):
                        found.append(int(process.name))
            return found

        first = until(parents)[0]
        until(lambda: listens(place))
        task = start(place, "--help")
        out, _ = task.communicate("", timeout=60)
        assert task.returncode == 0
        assert out.startswith(f"usage: {TASK_PROGRAM}")
        os.kill(first, signal.SIGKILL)
        until(lambda: [p for p in parents() if p != first])
        until(lambda: listens(place))
        assert start(place, "--help").communicate("", timeout=60)[0].startswith("usage:")
        executor.kill()
        executor.wait()
        until(lambda: not parents())
        until(lambda: not place.exists())
    finally:
        executor.kill()
        executor.wait()
