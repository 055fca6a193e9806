"""A power cut may come at any moment: bytes are synced before they get their name, and the name before anyone acts."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

from fieldfare.atomic import make_file, replace_file, write_out
from fieldfare_server.files.checkpoint import RunFiles
from support.full_disk import no_file_above


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


def test_who_comes_second_goes_on_with_a_file_that_is_durable(calls: list[str], tmp_path: Path) -> None:
    """Of two nodes' processes the second returned while the first had not yet synced the directory."""
    (tmp_path / "file").write_text("the first's")
    with pytest.raises(FileExistsError):
        make_file(tmp_path / "file", b"the second's")
    assert calls == ["sync file", "link", "sync directory"]


def test_what_a_person_named_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    """A certificate or plan that was there was cut off where the disk was full."""
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_text("earlier")
    file.chmod(0o600)
    link.symlink_to(file)
    with no_file_above(10), pytest.raises(OSError) as full:
        write_out(link, "content that is longer")
    assert full.value.filename == str(file), "a person is told which file"
    assert file.read_text() == "earlier"
    write_out(link, "content")
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("content", 0o600, True)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_out(pipe, "content")
    assert os.read(reader, 100) == b"content", "what is no file is written to, and not replaced"
    os.close(reader)
    assert set(tmp_path.iterdir()) == {file, link, pipe}


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
