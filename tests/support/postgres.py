"""A PostgreSQL cluster of the tests' own: made from scratch, on a socket in a private directory, removed at the end."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

REQUIRE = "FIELDFARE_REQUIRE_POSTGRES"
QUICK = ("fsync = off", "shared_buffers = 16MB", "max_connections = 60")


def find_programs() -> Path | None:
    """The directory of initdb and pg_ctl, newest version first; None where there is none."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    if on_path is not None:
        places.append(Path(on_path).resolve().parent)
    return next((path for path in places if (path / "initdb").exists() and (path / "pg_ctl").exists()), None)


def missing() -> None:
    """Skip, or fail where PostgreSQL is required (`FIELDFARE_REQUIRE_POSTGRES=1`)."""
    reason = "PostgreSQL's programs (initdb, pg_ctl) are not installed"
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{reason}, and {REQUIRE} is set")
    pytest.skip(reason)


class Cluster:
    """A running server. It refuses to run as root, so as root it runs as `postgres` or `nobody`.

    settings: lines of its configuration beside where it listens; by default quick and not durable, as tests want.
    primary: of which this is a streaming standby; None: it is one itself.
    """

    def __init__(self, programs: Path, settings: tuple[str, ...] = QUICK, primary: Cluster | None = None) -> None:
        self._programs = programs
        self.directory = Path(tempfile.mkdtemp(prefix="ffpg-"))
        self._owner: str | None = None
        if os.geteuid() == 0:
            names = {entry.pw_name for entry in pwd.getpwall()}
            self._owner = "postgres" if "postgres" in names else "nobody"
            shutil.chown(self.directory, self._owner)
        self._data = self.directory / "data"
        if primary is None:
            self._run("initdb", "-D", str(self._data), "-A", "trust", "-U", "fieldfare", "-E", "UTF8", "--no-sync")
        else:
            source = ("-h", str(primary.directory), "-U", "fieldfare")
            self._run("pg_basebackup", "-D", str(self._data), *source, "--write-recovery-conf", "--checkpoint=fast")
        settings = ("listen_addresses = ''", f"unix_socket_directories = '{self.directory}'", *settings)
        with open(self._data / "postgresql.conf", "a") as file:
            file.write("\n".join(settings) + "\n")
        self.start()

    def start(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", str(self.directory / "log"), "start")

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` is a crash: connections drop, nothing is flushed, the log is replayed at the next start."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", mode, "stop")

    def promote(self) -> None:
        """Make a standby a primary."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "promote")

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """What a statement of the owner returns; [] for one that returns no rows."""
        with psycopg.connect(host=str(self.directory), user="fieldfare", dbname="postgres", autocommit=True) as link:
            found = link.execute(statement)  # type: ignore[call-overload]
            return found.fetchall() if found.description is not None else []

    def new_database(self) -> str:
        """The URL of a fresh, empty database."""
        name = f"ff_{secrets.token_hex(6)}"
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def url(self, name: str) -> str:
        """The URL of the database `name`."""
        return f"postgresql://fieldfare@/{name}?host={quote(str(self.directory), safe='')}"

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(
            command,
            user=self._owner,
            cwd=self.directory,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr}")
