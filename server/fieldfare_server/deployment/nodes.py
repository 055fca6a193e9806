"""Admit nodes to a federation, and remove them, by their public keys."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key

from fieldfare.errors import Unreadable
from fieldfare_server.deployment.submit import FlowerError, environment, program, tail, write_connection
from fieldfare_server.ledger.sql.nodes import key_digest


def register_node(address: str, root_certificates: Path, public_key: Path, timeout: float = 60.0) -> str:
    """Admit the node with this public key (an OpenSSH file); returns "registered" or "was registered".

    Raises `FlowerError` where the SuperLink refuses, or does not answer within `timeout` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="fieldfare-") as scratch:
        flwr_home = Path(scratch)
        write_connection(flwr_home, address, root_certificates)
        command = [program("flwr"), "supernode", "register", str(public_key), "federation", "--name", public_key.stem]
        try:
            done = subprocess.run(  # noqa: S603  (a fixed program, no shell)
                command, env=environment(flwr_home), capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise FlowerError(f"the SuperLink at {address} did not answer within {timeout:g} s") from None
    output = done.stdout + done.stderr
    if done.returncode == 0:
        return "registered"
    if "already" in output.lower():
        return "was registered"
    raise FlowerError(f"node {public_key.stem} could not be registered: {tail(output)}")


def revoke_node(address: str, root_certificates: Path, public_key: Path) -> int:
    """Remove every node with this public key (an OpenSSH file); returns how many there were.

    From then on the SuperLink refuses the key. Raises `BadInput` where the file holds no such key, and
    `FlowerError` where the SuperLink does not remove them.
    """
    from fieldfare_flower.nodes import remove_nodes  # Flower, which no help needs

    key = read_public_key(public_key)
    try:
        return remove_nodes(address, root_certificates, key)
    except httpx.HTTPError as error:
        raise FlowerError(f"the SuperLink at {address} did not remove {public_key.stem}: {error}") from None


def read_public_key(path: Path) -> ec.EllipticCurvePublicKey:
    """Return the key in an OpenSSH file. Raises `BadInput` where there is none."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise Unreadable(f"public key {str(path)!r}", "cannot be read as one.", "the node's NAME.pub")
    return key


def digest_of(path: Path) -> str:
    """Return the name of the node with the public key in the OpenSSH file `path`: `ledger.nodes.key_digest`.

    Raises `BadInput` where there is none.
    """
    shown = read_public_key(path).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return key_digest(shown)
