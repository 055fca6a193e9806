"""A node starts only code that its operator allows: what the server sent is refused before it is unpacked."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Error, Message, Metadata, RecordDict

from fieldfare_flower import pinned, private
from fieldfare_flower.warm import parent, stand_in
from fieldfare_server.run.presence.failures import Failures
from support.refusals import coded

CODE = b"the FAB that was read"
DIGEST = hashlib.sha256(CODE).hexdigest()
RUNNER = "flwr.supernode.runtime.run_clientapp"


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes, str], list[bytes]]:
    """Pins a process, then does what Flower's task does with the FAB that it was sent; returns what was unpacked."""
    runner = private.find(RUNNER)
    if runner is None:
        pytest.skip("this Flower unpacks code elsewhere: pin() refuses to start")
    unpacked: list[bytes] = []
    file = tmp_path / "code"
    file.write_text(f"# read on Monday\n{DIGEST}  our.fab\n")
    monkeypatch.setenv(pinned.VARIABLE, str(file))

    def run(content: bytes, claimed: str) -> list[bytes]:
        fab = SimpleNamespace(content=content, hash_str=claimed)
        monkeypatch.setattr(runner, "pull_task_input", lambda client: ("message", "context", "run", fab))
        monkeypatch.setattr(runner, "install_from_fab", lambda content, skip_prompt: unpacked.append(content))
        pinned.pin()
        _, _, _, pulled = runner.pull_task_input("client")
        runner.install_from_fab(pulled.content, skip_prompt=True)
        return unpacked

    return run


def test_code_that_was_read_starts(task: Callable[[bytes, str], list[bytes]]) -> None:
    assert task(CODE, DIGEST) == [CODE]


@pytest.mark.parametrize(
    ("content", "claimed"),
    [(b"other", DIGEST), (b"other", hashlib.sha256(b"other").hexdigest()), (CODE, "0" * 64), (CODE, ""), (b"", DIGEST)],
)
def test_other_code_is_not_even_unpacked(
    task: Callable[[bytes, str], list[bytes]], monkeypatch: pytest.MonkeyPatch, content: bytes, claimed: str
) -> None:
    """Also the right bytes under another digest: it names the folder from which Flower then loads."""
    unpacked: list[list[bytes]] = []
    with pytest.raises(pinned.CodeRefused):
        unpacked.append(task(content, claimed))
    assert not unpacked


@pytest.mark.parametrize("text", [None, "", "sha", DIGEST[:-1], DIGEST + "0", f"{DIGEST}\nx"])
def test_a_list_that_cannot_be_read_or_is_empty_lets_nothing_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    file = tmp_path / "code"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv(pinned.VARIABLE, str(file))
    with pytest.raises(pinned.CodeRefused):
        pinned.require_allowed(CODE, DIGEST)


def test_without_the_variable_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pinned.VARIABLE, raising=False)
    runner = private.find(RUNNER)
    before = getattr(runner, "install_from_fab", None)
    pinned.pin()
    assert getattr(runner, "install_from_fab", None) is before
    pinned.require_allowed(b"anything", "")


def test_a_flower_that_unpacks_elsewhere_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pinned.VARIABLE, str(tmp_path))
    monkeypatch.setattr(pinned, "_RUN", "flwr.no_such_module")
    with pytest.raises(private.FlowerDiffers, check=coded("flower-differs")):
        pinned.pin()


def test_a_fork_of_the_warm_parent_is_pinned_before_its_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(parent, "warm_up", lambda preload: (lambda: done.append("program"), 1))
    monkeypatch.setattr(parent, "listen", lambda path: None)
    monkeypatch.setattr(parent, "serve", lambda listening: None)
    monkeypatch.setattr(parent, "take_task", lambda connection, threads: done.append("task"))
    monkeypatch.setattr(parent.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(pinned, "pin", lambda: done.append("pin"))
    with pytest.raises(SystemExit):
        parent.main(Path("nowhere"), "")
    assert done == ["task", "pin", "program"]


def test_a_task_that_no_parent_takes_is_checked_too(tmp_path: Path) -> None:
    """The stand-in then starts an ordinary process: the one that checks."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("python3", "flwr-clientapp"):
        tool = tools / name
        tool.write_text('#!/bin/sh\necho "$(basename "$0") $*"\n')
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    script = tmp_path / "warm" / "flwr-clientapp"
    script.parent.mkdir()
    script.symlink_to(stand_in.__file__)
    said = {}
    for name, more in (("pinned", {pinned.VARIABLE: "list"}), ("plain", {})):
        env = {
            **{k: v for k, v in os.environ.items() if k != pinned.VARIABLE},
            "PATH": f"{tools}:/usr/bin:/bin",
            **more,
        }
        command = [sys.executable, "-IS", str(script), "--token", "t"]
        said[name] = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60).stdout.strip()
    path = str(script)
    assert said["pinned"].startswith("python3 -Pm fieldfare_flower.pinned ")
    assert said["pinned"].endswith("flwr-clientapp --token t"), path
    assert said["plain"] == "flwr-clientapp --token t"
    assert pinned.VARIABLE == stand_in.PINNED


def test_the_server_is_told_the_name_and_what_to_do() -> None:
    """In the form in which Flower reports an exception of a task."""
    error = pinned.CodeRefused("code that this node does not allow")
    failures = Failures("cohort")
    request: Any = Message(RecordDict(), metadata=Metadata(1, "m", 1, 7, "", "", 0.0, 60.0, "train"))  # type: ignore[call-overload]
    reply = Message(Error(2, f"{type(error)}:<'{error}'>"), reply_to=request)
    assert failures.note_error(reply, 7) == "error 2"
    wrong = failures.all_wrong(1)
    assert "(CodeRefused)" in str(wrong)
    assert "only code that their operators allow" in str(wrong)
