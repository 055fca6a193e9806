"""Keys and certificates of one federation: a private CA, the server's certificate, one key pair a node, one secret.

Layout of the directory (0700; every private file 0600):

    ca.crt               what everybody trusts; its key is used once and never written
    server.crt server.key    SuperLink and the nodes' runtime ports, valid for all given host names
    node-1 node-1.pub ...    OpenSSH EC P-384 pairs: the .pub is registered at the SuperLink, the other stays there
    superexec.secret     shared by SuperLink, nodes and their executors
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fieldfare.errors import BadInput

DAYS = 397
"""Validity: what public authorities allow for server certificates."""

_PEM = serialization.Encoding.PEM
_PLAIN = serialization.NoEncryption()


def make_certificates(directory: Path, hosts: Sequence[str], nodes: int, days: int = DAYS) -> list[Path]:
    """Write everything; return the files. Refuses to overwrite, so that running nodes keep their identity.

    Raises `BadInput` where the directory already holds a CA, or no host is given.
    """
    if (directory / "ca.crt").exists():
        raise BadInput(f"directory {str(directory)!r}", "already holds certificates.", "an empty directory")
    if not hosts:
        raise BadInput("hosts", "the server certificate needs at least one host name.", "localhost")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fieldfare federation CA")])
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    server = (
        _certificate(server_name, ca_name, server_key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    files = {
        "ca.crt": ca.public_bytes(_PEM),
        "server.crt": server.public_bytes(_PEM),
        "server.key": server_key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, _PLAIN),
        "superexec.secret": secrets.token_bytes(32),
    }
    for index in range(1, nodes + 1):
        files |= node_key(f"node-{index}")
    return [_write(directory / name, content, public=_is_public(name)) for name, content in files.items()]


def node_key(name: str) -> dict[str, bytes]:
    """A new node's key pair, as Flower reads them: {name: private, name.pub: public}."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {
        name: key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, _PLAIN),
        f"{name}.pub": public + f" {name}\n".encode(),
    }


def _is_public(name: str) -> bool:
    return name.endswith((".crt", ".pub"))


def _write(path: Path, content: bytes, public: bool) -> Path:
    path.touch(mode=0o644 if public else 0o600, exist_ok=False)
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
