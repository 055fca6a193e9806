"""Tiny archives in the true formats of npm and Debian packages, and sources that are pinned to them."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fieldfare_client.sources import Source

LICENCE = "Use it as you like.\n"


def tar(members: Mapping[str, bytes], compression: str, prefix: str = "") -> bytes:
    """A tar archive of regular files, with the times of its members at 0."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def deb(members: Mapping[str, bytes]) -> bytes:
    """A Debian package: an `ar` archive with a version, control data of an odd length, and the files."""
    out = b"!<arch>\n"
    files = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", "data.tar.xz": tar(members, "xz", "./")}
    for name, content in files.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}".encode() + b"`\n"
        out += content + b"\n" * (len(content) % 2)
    return out


def pinned(source: Source, members: Mapping[str, bytes], folder: Path) -> tuple[Source, Path]:
    """`source`, pinned to an archive in `folder` with these members and a licence."""
    assert source.package is not None
    members = {**members, source.package.licence_member: LICENCE.encode()}
    content = deb(members) if source.package.client == "apt" else tar(members, "gz")
    archive = folder / source.package.file
    archive.write_bytes(content)
    package = dataclasses.replace(
        source.package, size=len(content), sha256=hashlib.sha256(content).hexdigest(), version="0-test"
    )
    return dataclasses.replace(source, package=package), archive


def idx(values: NDArray[np.uint8]) -> bytes:
    """A gzipped IDX file of bytes."""
    head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return gzip.compress(head + values.tobytes(), mtime=0)


def fashion_members(train: int = 6, test: int = 4) -> dict[str, bytes]:
    random = np.random.default_rng(0)
    members = {}
    for stem, rows in (("train", train), ("t10k", test)):
        images = random.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
        labels = (np.arange(rows) % 10).astype(np.uint8)
        members[f"usr/share/datasets/fashion-mnist/{stem}-images-idx3-ubyte.gz"] = idx(images)
        members[f"usr/share/datasets/fashion-mnist/{stem}-labels-idx1-ubyte.gz"] = idx(labels)
    return members


def described(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())
