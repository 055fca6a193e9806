"""Keys and certificates of one federation. Each party makes its own; only public halves travel.

The server side's directory, of which each part goes to one service only (private files have mode 0600):

    superlink/    ca.crt server.crt server.key superexec.secret
    gate/         ca.crt server.crt server.key      (nodes reach it instead of the SuperLink; see deploy/gate/)
    coordinator/  ca.crt superexec.secret ledger.url
    api/          ledger.url              (the page's token is added by `fieldfare serve --page-token`)
    admin/        ca.crt ledger.url       (for people: populations, budgets, tokens)
    migrate/      ledger.url coordinator.password api.password admin.password     (the ledger's owner makes the roles)
    ledger/       password                (the owner's)
    monitoring/   grafana.password     (the token to scrape with is added by `fieldfare serve --metrics-token`)

A node's directory, made on the node:

    node node.pub                         its identity, an OpenSSH EC P-384 pair; the SuperLink knows the public half
    runtime-ca.crt runtime.crt runtime.key superexec.secret      between the SuperNode and its executor

An exchange directory holds what is public: `ca.crt` from the server, one `NAME.pub` from each node. The key
of a certificate authority signs one set of certificates and is never written.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from sqlalchemy.engine import URL, make_url

from fieldfare.errors import AlreadyThere, NotFound, NotGiven, WrongForm
from fieldfare_server.ledger.sql.roles import PARTS as ROLES

# Validity in days: the most that public authorities allow for server certificates.
DAYS = 397

# Directories of the server side, one for each service.
PARTS = ("superlink", "gate", "coordinator", "api", "admin", "migrate", "ledger", "monitoring")

# The role that owns the ledger's tables.
_OWNER = "fieldfare"
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
    """Write the server side's secrets and `exchange`/ca.crt; return the files. Overwrites nothing.

    Args:
        hosts: names and addresses at which the server side (coordinator, operators, gate) reaches the
            SuperLink.
        gate_hosts: those at which nodes reach the gate, which has its own key.
        ledger_host: the name of the PostgreSQL server.
        days: validity of the certificates.

    Raises `BadInput` where the directory already holds secrets, or no host is given.
    """
    _require_new(directory / "superlink" / "ca.crt")
    # The database reads the password from a file, its clients from a URL.
    password, executor_secret = secrets.token_urlsafe(24), secrets.token_bytes(32)
    owner = make_url(f"postgresql+psycopg://{_OWNER}:{password}@{ledger_host}:5432/fieldfare")
    files = {
        "coordinator/superexec.secret": executor_secret,
        "ledger/password": password.encode(),
        **_roles(owner),
        _GRAFANA: secrets.token_urlsafe(24).encode(),
        "superlink/superexec.secret": executor_secret,
        **_tls(hosts, gate_hosts, days),
    }
    written = _write_all(directory, files)
    # The database image runs as its own user, which must read this file. Its directory holds nothing else.
    (directory / "ledger").chmod(0o755)
    (directory / "ledger" / "password").chmod(0o444)
    return [*written, _publish(exchange / "ca.crt", files["superlink/ca.crt"])]


def _roles(owner: URL) -> dict[str, bytes]:
    """Return the URL of each role of the ledger and the passwords to make them with; last the owner's URL."""
    files = {}
    for part in ROLES:
        password = secrets.token_urlsafe(24)
        files[f"{part}/ledger.url"] = _line(owner.set(username=f"{owner.username}_{part}", password=password))
        files[f"migrate/{part}.password"] = password.encode()
    return {**files, "migrate/ledger.url": _line(owner)}


def _line(url: URL) -> bytes:
    return f"{url.render_as_string(hide_password=False)}\n".encode()


def separate_roles(directory: Path) -> list[Path]:
    """Give the parties of a deployment from before there were roles the files that roles need; return those.

    Where `coordinator/ledger.url` is not what `make_server` wrote, it names someone's own database, whose
    administrator makes roles: the files of the new parties then name the same role.
    """
    if (directory / "migrate" / "ledger.url").exists():
        return []
    kept = directory / "ledger" / "password"
    old = make_url((directory / "coordinator" / "ledger.url").read_text().strip())
    password = kept.read_text().strip() if kept.exists() else None
    # A killed attempt may have given the coordinator its new role already.
    ours = password is not None and (old.password == password or old.username == f"{_OWNER}_coordinator")
    if ours:
        files = _roles(old.set(username=_OWNER, password=password))
    else:
        files = {"admin/ledger.url": _line(old), "migrate/ledger.url": _line(old)}
    return _write_all(directory, {"admin/ca.crt": (directory / "superlink" / "ca.crt").read_bytes(), **files})


def renew_server(
    directory: Path, exchange: Path, hosts: Sequence[str], gate_hosts: Sequence[str] = ("gate",), *, days: int = DAYS
) -> list[Path]:
    """Replace the certificates that `make_server` wrote; return the files.

    Secrets stay as they are; those that an older version did not write are added. Afterwards every node needs
    the new `exchange`/ca.crt, and services that read the old files must restart. Raises `BadInput` where
    there is nothing to renew. For the arguments see `make_server`.
    """
    if not (directory / "superlink" / "ca.crt").exists():
        raise NotFound(f"directory {str(directory)!r}", "holds no certificates to renew.", "what `server` wrote")
    files = {} if (directory / _GRAFANA).exists() else {_GRAFANA: secrets.token_urlsafe(24).encode()}
    files |= _tls(hosts, gate_hosts, days)
    return [
        *separate_roles(directory),
        *_write_all(directory, files),
        _publish(exchange / "ca.crt", files["superlink/ca.crt"]),
    ]


def _tls(hosts: Sequence[str], gate_hosts: Sequence[str], days: int) -> dict[str, bytes]:
    """Make the server side's certificates and keys, by file name. The CA's certificate comes last; see `_write_all`."""
    ca, [(certificate, key), (gate_certificate, gate_key)] = _authority_and_servers(
        "Fieldfare federation CA", [hosts, gate_hosts], days
    )
    return {
        "coordinator/ca.crt": ca,
        "admin/ca.crt": ca,
        "gate/ca.crt": ca,
        "gate/server.crt": gate_certificate,
        "gate/server.key": gate_key,
        "superlink/server.crt": certificate,
        "superlink/server.key": key,
        "superlink/ca.crt": ca,
    }


def make_node(directory: Path, exchange: Path, name: str, hosts: Sequence[str], *, days: int = DAYS) -> list[Path]:
    """Write a node's identity, its runtime's certificates, and `exchange`/NAME.pub; return the files.

    name: of the public key's file. hosts: names at which the node's executor reaches its SuperNode. Raises
    `BadInput` where the node already has a key, or `name` is no file name.
    """
    if not name or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        raise WrongForm(f"node name {name!r}", "letters, digits, '-', '_' and '.' only.", "node-1")
    _require_new(directory / "node")
    ca, [(certificate, key)] = _authority_and_servers(f"{name} runtime CA", [hosts], days)
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
    """Make a new key pair for a node, (private, public), in the formats that Flower reads."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return key.private_bytes(_PEM, serialization.PrivateFormat.OpenSSH, _PLAIN), public + f" {name}\n".encode()


def _require_new(last: Path) -> None:
    if last.exists():
        raise AlreadyThere(f"directory {str(last.parent)!r}", "already holds secrets.", "an empty directory")


def _authority_and_servers(
    name: str, servers: Sequence[Sequence[str]], days: int
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the CA's certificate, then (certificate, key) of a server for each list of host names; all PEM.

    The CA's key is discarded when this returns.
    """
    ca_key = ec.generate_private_key(ec.SECP384R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(ca_key, hashes.SHA384())
    )
    return ca.public_bytes(_PEM), [_server(ca_name, ca_key, hosts, days) for hosts in servers]


def _server(
    ca_name: x509.Name, ca_key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], days: int
) -> tuple[bytes, bytes]:
    """Return (certificate, key) of a server that clients reach at `hosts`; PEM."""
    if not hosts:
        raise NotGiven("hosts", "a server certificate needs at least one host name.", "localhost")
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
    """Write the files in order, so that the last one exists only when all do."""
    written = []
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)  # mkdir's mode is cut by the umask, and no matter where there is a directory
        # A file may be left from an attempt that was killed; its last one is missing, so nothing uses it yet.
        path.unlink(missing_ok=True)
        # It has its mode before it has content: at no moment can others read a key.
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
        # A little in the past, because clocks of nodes may be slow.
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
