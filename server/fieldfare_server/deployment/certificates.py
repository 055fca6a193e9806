"""Keys and certificates of one federation. Every party makes its own; only public halves travel.

The server side's directory (each part below goes to one service, and to no other; private files are 0600):

    superlink/    ca.crt server.crt server.key superexec.secret
    gate/         ca.crt server.crt server.key      (what nodes reach instead of the SuperLink; see deploy/gate/)
    coordinator/  ca.crt superexec.secret ledger.url
    api/          ledger.url              (the page's token is added by `fieldfare serve --page-token`)
    ledger/       password
    monitoring/   grafana.password     (the token to scrape with is added by `fieldfare serve --metrics-token`)

A node's directory, made where the node is:

    node node.pub                         its identity, an OpenSSH EC P-384 pair: the SuperLink knows the public half
    runtime-ca.crt runtime.crt runtime.key superexec.secret      between the SuperNode and its executor

What everybody may see lies in an exchange directory: `ca.crt` from the server, one `NAME.pub` from each node. The key
of a certificate authority signs once and is never written.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fieldfare.errors import BadInput

DAYS = 397
"""Validity: what public authorities allow for server certificates."""

PARTS = ("superlink", "gate", "coordinator", "api", "ledger", "monitoring")
"""Directories of the server side: one a service."""

_GRAFANA = "monitoring/grafana.password"
_PEM = serialization.Encoding.PEM
_PLAIN = serialization.NoEncryption()


def make_server(
    directory: Path,
    exchange: Path,
    hosts: Sequence[str],
    gate_hosts: Sequence[str] = ("gate",),
    *,
    ledger_host: str = "ledger",
    days: int = DAYS,
) -> list[Path]:
    """Write the server side's secrets and `exchange`/ca.crt; return the files. Never overwrites.

    hosts: names and addresses at which the server side (executors, operators, the gate) reaches the SuperLink;
    gate_hosts: those at which nodes reach the gate, which has a key of its own. Raises `BadInput` where the directory
    already holds secrets, or no host is given.
    """
    _require_new(directory / "superlink" / "ca.crt")
    # A URL and a file hold the same password: the database takes one, its clients the other.
    password, executor_secret = secrets.token_urlsafe(24), secrets.token_bytes(32)
    url = f"postgresql+psycopg://fieldfare:{password}@{ledger_host}:5432/fieldfare\n".encode()
    files = {
        "coordinator/superexec.secret": executor_secret,
        "coordinator/ledger.url": url,
        "api/ledger.url": url,
        "ledger/password": password.encode(),
        _GRAFANA: secrets.token_urlsafe(24).encode(),
        "superlink/superexec.secret": executor_secret,
        **_tls(hosts, gate_hosts, days),
    }
    written = _write_all(directory, files)
    # Another user than the others' reads this one: the database image's own. Nothing else is ever in its directory.
    (directory / "ledger").chmod(0o755)
    (directory / "ledger" / "password").chmod(0o444)
    return [*written, _publish(exchange / "ca.crt", files["superlink/ca.crt"])]


def renew_server(
    directory: Path, exchange: Path, hosts: Sequence[str], gate_hosts: Sequence[str] = ("gate",), *, days: int = DAYS
) -> list[Path]:
    """Put new certificates in the place of those that `make_server` wrote; return the files. Secrets stay as they are,
    and those that an older version did not make yet are made.

    Every node needs the new `exchange`/ca.crt, and services that were started with the old files have to be started
    again. Raises `BadInput` where there is nothing to renew.
    """
    if not (directory / "superlink" / "ca.crt").exists():
        raise BadInput(f"directory {str(directory)!r}", "holds no certificates to renew.", "what `server` wrote")
    files = {} if (directory / _GRAFANA).exists() else {_GRAFANA: secrets.token_urlsafe(24).encode()}
    files |= _tls(hosts, gate_hosts, days)
    return [*_write_all(directory, files), _publish(exchange / "ca.crt", files["superlink/ca.crt"])]


def _tls(hosts: Sequence[str], gate_hosts: Sequence[str], days: int) -> dict[str, bytes]:
    """The server side's certificates and their keys, by file; the CA's own certificate comes last."""
    ca, (certificate, key), (gate_certificate, gate_key) = _authority_and_servers(
        "Fieldfare federation CA", [hosts, gate_hosts], days
    )
    return {
        "coordinator/ca.crt": ca,
        "gate/ca.crt": ca,
        "gate/server.crt": gate_certificate,
        "gate/server.key": gate_key,
        "superlink/server.crt": certificate,
        "superlink/server.key": key,
        "superlink/ca.crt": ca,
    }


def make_node(directory: Path, exchange: Path, name: str, hosts: Sequence[str], *, days: int = DAYS) -> list[Path]:
    """Write a node's identity and what it shares with its executor, and `exchange`/NAME.pub; return the files.

    hosts: names at which its executor reaches the SuperNode. Raises `BadInput` where the node has a key already.
    """
    if not name or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        raise BadInput(f"node name {name!r}", "letters, digits, '-', '_' and '.' only.", "node-1")
    _require_new(directory / "node")
    ca, (certificate, key) = _authority_and_servers(f"{name} runtime CA", [hosts], days)
    private, public = node_key(name)
    files = {
        "runtime-ca.crt": ca,
        "runtime.crt": certificate,
        "runtime.key": key,
        "superexec.secret": secrets.token_bytes(32),
        "node.pub": public,
        "node": private,
    }
    return [*_write_all(directory, files), _publish(exchange / f"{name}.pub", public)]


def node_key(name: str) -> tuple[bytes, bytes]:
    """A new node's key pair, (private, public), as Flower reads them."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, _PLAIN), public + f" {name}\n".encode()


def _require_new(last: Path) -> None:
    if last.exists():
        raise BadInput(f"directory {str(last.parent)!r}", "already holds secrets.", "an empty directory")


def _authority_and_servers(name: str, servers: Sequence[Sequence[str]], days: int) -> tuple[Any, ...]:
    """The CA's certificate, then (certificate, key) of one server for each list of host names; PEM.

    The CA's key is gone when this returns.
    """
    ca_key = ec.generate_private_key(ec.SECP384R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    return (ca.public_bytes(_PEM), *(_server(ca_name, ca_key, hosts, days) for hosts in servers))


def _server(
    ca_name: x509.Name, ca_key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], days: int
) -> tuple[bytes, bytes]:
    """(certificate, key) of a server that is reached at `hosts`, PEM."""
    if not hosts:
        raise BadInput("hosts", "a server certificate needs at least one host name.", "localhost")
    key = ec.generate_private_key(ec.SECP384R1())
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    certificate = (
        _certificate(server_name, ca_name, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    pem = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _PLAIN)
    return certificate.public_bytes(_PEM), pem


def _write_all(directory: Path, files: Mapping[str, bytes]) -> list[Path]:
    """In order, so that the last file's presence says that all are there."""
    written = []
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        # What a killed attempt left is not in use yet: its last file is missing.
        path.unlink(missing_ok=True)
        path.touch(mode=0o644 if name.endswith((".crt", ".pub")) else 0o600)
        path.write_bytes(content)
        written.append(path)
    return written


def _publish(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A little in the past: clocks of nodes may be behind.
        .not_valid_before(now - datetime.timedelta(minutes=10))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
