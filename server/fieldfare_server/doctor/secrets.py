"""Secrets that lie here: who can read them, and whether anybody could guess them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from fieldfare_server.doctor.finding import Finding, fault, fine, warning

PUBLIC = (".crt", ".pub")
COMMON = frozenset({"", "admin", "changeme", "fieldfare", "password", "postgres", "secret", "test", "1234", "12345678"})
SHORTEST = 16
"""Characters of a password, bytes of a shared secret."""


def readable(directory: Path) -> list[Finding]:
    """Private files below `directory` (secrets, or a home with noise keys) that others can read."""
    private = [p for p in sorted(directory.rglob("*")) if _is_private(p)]
    open_ = [path for path in private if _is_open(path.stat())]
    found = [
        fault(
            f"secret {path}", f"others can read it (mode {stat.S_IMODE(path.stat().st_mode):o}).", f"chmod 600 {path}"
        )
        for path in open_
    ]
    return found or [fine(f"secrets in {directory}", f"{len(private)} private files, readable by their owner alone.")]


def _is_open(status: os.stat_result) -> bool:
    """Whether others than we can read it. Kubernetes mounts Secrets as root's, for the group of the pod alone."""
    ours = status.st_uid == os.getuid()
    return bool(stat.S_IMODE(status.st_mode) & (0o077 if ours else 0o037))


def _is_private(path: Path) -> bool:
    """All that is not public by name. The database's password is read by another user: its directory is its fence."""
    if not path.is_file() or path.suffix in PUBLIC or path.parts[-2:] == ("ledger", "password"):
        return False
    return path.suffix in (".key", ".secret", ".token", ".url", ".password") or path.name == "node"


def guessable(directory: Path) -> list[Finding]:
    """Shared secrets and passwords below `directory` that are too short, or that one byte makes up."""
    found = []
    for path in sorted(p for p in directory.rglob("*") if p.suffix in (".secret", ".password") or p.name == "password"):
        try:
            content = path.read_bytes()
        except OSError as error:
            found.append(fault(f"secret {path}", f"cannot be read ({error.strerror}).", "give it to this user"))
            continue
        if len(content) < SHORTEST or len(set(content)) < 4 or content.strip().lower() in {c.encode() for c in COMMON}:
            found.append(fault(f"secret {path}", "can be guessed.", "`fieldfare certificates` makes random ones"))
    return found


def ledger_password(url: str) -> Finding:
    """Whether the database's password is one that everybody tries first, or stands in the environment."""
    check = "ledger password"
    try:
        parsed = make_url(url)
    except ArgumentError:
        return fault(check, "the ledger's URL cannot be understood.", "sqlite:///PATH or postgresql://...")
    if parsed.get_backend_name() == "sqlite":
        return fine(check, "the ledger is a file and has none.")
    password = str(parsed.password or "")
    mend = "set a random one in the database and in the file that FIELDFARE_LEDGER_FILE names"
    if password.lower() in COMMON or password == parsed.username:
        return fault(check, "is missing, or one that everybody tries first.", mend)
    if len(password) < SHORTEST:
        return warning(check, f"is shorter than {SHORTEST} characters.", mend)
    if password in os.environ.get("FIELDFARE_LEDGER", ""):
        return warning(check, "stands in the environment, where other processes and crash reports show it.", mend)
    return fine(check, "is long, and not in the environment.")


def node_identity(directory: Path) -> Finding:
    """A node's key: without one, or with another at each start, it is a stranger every time."""
    check, mend = "node identity", "`fieldfare certificates node`, then have NAME.pub registered on the server"
    try:
        private = serialization.load_ssh_private_key((directory / "node").read_bytes(), password=None)
        public = (directory / "node.pub").read_bytes()
    except FileNotFoundError:
        return fault(check, f"there is no key in {directory}: the node would be a stranger at every start.", mend)
    except (OSError, ValueError) as error:
        return fault(check, f"its key cannot be read ({type(error).__name__}).", mend)
    openssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    if private.public_key().public_bytes(*openssh).split()[1] != public.split()[1]:
        return fault(check, "node.pub belongs to another key: the server was given the wrong one.", mend)
    return fine(check, "one key, and its public half beside it.")
