"""Secrets on this machine: who can read them, and whether they can be guessed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from fieldfare.errors import BadInput
from fieldfare_server.doctor.finding import Finding, fault, fine, warning
from fieldfare_server.ledger.sql.database import understood

PUBLIC = (".crt", ".pub")
COMMON = frozenset({"", "admin", "changeme", "fieldfare", "password", "postgres", "secret", "test", "1234", "12345678"})
# Fewest characters of a password, or bytes of a shared secret.
SHORTEST = 16


def check_permissions(directory: Path) -> list[Finding]:
    """Find private files below `directory` (secrets, or a home with noise keys) that others can read."""
    private = [p for p in sorted(directory.rglob("*")) if _is_private(p)]
    findings = [
        fault(f"secret {path}", f"others can read it (mode {stat.S_IMODE(status.st_mode):o}).", f"chmod 600 {path}")
        for path in private
        if _is_open(status := path.stat())
    ]
    return findings or [
        fine(f"secrets in {directory}", f"{len(private)} private files, readable by their owner alone.")
    ]


def _is_open(status: os.stat_result) -> bool:
    """Return whether another user can read the file."""
    # Kubernetes mounts Secrets as root's files, which only the pod's group can read: that group is ours.
    ours = status.st_uid == os.getuid()
    return bool(stat.S_IMODE(status.st_mode) & (0o077 if ours else 0o037))


def _is_private(path: Path) -> bool:
    """Return whether the file's name says that it holds a secret."""
    # Another user, the database's, reads ledger/password; the permissions of the directory protect it.
    if not path.is_file() or path.suffix in PUBLIC or path.parts[-2:] == ("ledger", "password"):
        return False
    # Checkpoints hold noise state and participants.
    return (
        path.suffix in (".key", ".secret", ".token", ".url", ".password")
        or path.name in ("node", "users.digest", "blinder.sqlite3")
        or path.parent.name in ("checkpoints", "pending", "closing", "noise")
    )


def check_strength(directory: Path) -> list[Finding]:
    """Find shared secrets and passwords below `directory` that are short, repetitive, or well known."""
    findings = []
    for path in sorted(p for p in directory.rglob("*") if p.suffix in (".secret", ".password") or p.name == "password"):
        try:
            content = path.read_bytes()
        except OSError as error:
            findings.append(fault(f"secret {path}", f"cannot be read ({error.strerror}).", "give it to this user"))
            continue
        if len(content) < SHORTEST or len(set(content)) < 4 or content.strip().lower() in {c.encode() for c in COMMON}:
            findings.append(fault(f"secret {path}", "can be guessed.", "`fieldfare certificates` makes random ones"))
    return findings


def check_ledger_password(url: str) -> Finding:
    """Check whether the database's password is one that attackers try first, or stands in the environment."""
    check = "ledger password"
    try:
        parsed = understood(url)
    except BadInput:
        return fault(check, "the ledger's URL cannot be understood.", "sqlite:///PATH or postgresql://...")
    if parsed.get_backend_name() == "sqlite":
        return fine(check, "the ledger is a file and has none.")
    password = str(parsed.password or "")
    mend = "set a random one in the database and in the file that FIELDFARE_LEDGER_FILE names"
    if password.lower() in COMMON or password == parsed.username:
        return fault(check, "is missing, or one that attackers try first.", mend)
    if len(password) < SHORTEST:
        return warning(check, f"is shorter than {SHORTEST} characters.", mend)
    if password in os.environ.get("FIELDFARE_LEDGER", ""):
        return warning(check, "stands in the environment, where other processes and crash reports show it.", mend)
    return fine(check, "is long, and not in the environment.")


def check_node_identity(directory: Path) -> Finding:
    """Check a node's key. Without it, or with a new one at every start, the node is a stranger each time."""
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
    return fine(check, "one key, with its public half.")
