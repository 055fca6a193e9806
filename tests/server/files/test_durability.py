"""A power cut may come at any moment: bytes are synced before they get their name, and the name before anyone acts."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from fieldfare_server.files.atomic import replace_file
from fieldfare_server.files.checkpoint import RunFiles


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What reaches the file system, in order."""
    made: list[str] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        made.append("sync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        sync(descriptor)

    def watched(name: str) -> None:
        real = getattr(Path, name)

        def move(path: Path, target: Path) -> Any:
            made.append("link" if name == "hardlink_to" else "rename")
            return real(path, target)

        monkeypatch.setattr(Path, name, move)

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("rename", "replace", "hardlink_to"):
        watched(name)
    return made


def test_a_replaced_file_is_synced_before_and_after_it_gets_its_name(calls: list[str], tmp_path: Path) -> None:
    replace_file(tmp_path / "file", b"content")
    assert calls == ["sync file", "rename", "sync directory"]


def test_a_checkpoint_is_synced_before_it_can_be_committed(calls: list[str], tmp_path: Path) -> None:
    files = RunFiles(tmp_path, "run")
    files.create(bytes(32))
    assert calls == ["sync file", "link", "sync directory", "sync directory"], "the key, and the run's directory"
    calls.clear()
    digest = files.write(0, {"params": torch.zeros(3)}, {})
    assert calls == ["sync file", "rename", "sync directory"]
    calls.clear()
    files.promote(digest)
    assert calls == ["rename", "sync directory", "sync directory"]
