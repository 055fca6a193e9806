"""What is reached over the network: the SuperLink (or its gate) and the budget API, their certificates and clocks."""

from __future__ import annotations

import datetime
import http.client
import json
import ssl
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path

from cryptography import x509

from fieldfare import __version__
from fieldfare.errors import FieldfareError
from fieldfare_server.api.http_client import Client
from fieldfare_server.doctor.certificates import RENEW, dates
from fieldfare_server.doctor.finding import Finding, fault, fine, warning

AHEAD, BEHIND = 5.0, 305.0
"""Seconds by which a node's signed clock may be before or behind the SuperLink's (Flower 1.41, node_auth.py)."""
_BLUR = 2.0
"""What a Date header can tell apart: whole seconds, and the way there."""
_TIMEOUT = 5.0


def superlink(address: str, root_certificates: Path | None, *, node: bool) -> Iterator[Finding]:
    """The SuperLink or gate at `address` (host:port). root_certificates None: without TLS, which is a finding.

    node: whether this is a node, whose requests carry a signed time.
    """
    check = f"SuperLink {address}"
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        yield fault(check, "is no address.", "--superlink HOST:PORT")
        return
    if root_certificates is not None and not _is_authority(root_certificates):
        yield fault(check, f"{root_certificates} holds no certificate.", "the ca.crt that the server published last")
        return
    if root_certificates is None:
        yield warning(check, "is reached without TLS: anybody on the way reads sums and writes messages.", "use TLS")
    try:
        connection = _connect(host, int(port), root_certificates)
    except ssl.SSLCertVerificationError as error:
        yield fault(check, f"its certificate is refused: {error.verify_message}.", _mend(error, host))
        return
    except ssl.SSLError as error:
        yield fault(check, f"does not speak TLS as we do ({error.reason}).", "the same scheme on both sides")
        return
    except OSError as error:
        yield fault(check, f"cannot be reached ({error}).", "start it; on a node: the gate's name, port and firewall")
        return
    try:
        yield from _answers(connection, check, node)
    except (OSError, http.client.HTTPException, ValueError) as error:
        yield fault(check, f"does not answer as one would ({type(error).__name__}).", "the SuperLink's own port")
    finally:
        connection.close()


def _is_authority(path: Path) -> bool:
    try:
        return bool(x509.load_pem_x509_certificates(path.read_bytes()))
    except (OSError, ValueError):
        return False


def _connect(host: str, port: int, ca: Path | None) -> http.client.HTTPConnection:
    if ca is None:
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    else:
        context = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=context)
    connection.connect()
    return connection


def _mend(error: ssl.SSLCertVerificationError, host: str) -> str:
    # OpenSSL's codes: 9 not yet valid, 10 expired, 62 and 64 another name or address.
    if error.verify_code == 9:
        return "set this machine's clock"
    if error.verify_code == 10:
        return RENEW
    if error.verify_code in (62, 64):
        return f"a certificate made with --host {host}, or the name that it was made for"
    return "the ca.crt that the server published last"


def _answers(connection: http.client.HTTPConnection, check: str, node: bool) -> Iterator[Finding]:
    if isinstance(connection.sock, ssl.SSLSocket):
        said = connection.sock.getpeercert() or {}
        ends = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(str(said["notAfter"])), datetime.UTC)
        begins = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(str(said["notBefore"])), datetime.UTC)
        yield dates(f"certificate of {check}", begins, ends, datetime.datetime.now(datetime.UTC))
    before = time.time()
    connection.request("GET", "/health")
    reply = connection.getresponse()
    reply.read()
    if reply.status != 200:
        yield fault(check, f"its health check says {reply.status}.", "its log")
        return
    yield fine(check, "is reached, and healthy.")
    date = reply.getheader("Date")
    if date:
        yield clock((before + time.time()) / 2 - parsedate_to_datetime(date).timestamp() - 0.5, node)
    yield from _gate(connection) if node else _version(connection)


def clock(ahead: float, node: bool) -> Finding:
    """What it means that our clock is `ahead` seconds before the SuperLink's."""
    check, mend = "clock", "let both machines' clocks be set by NTP (chrony)"
    said = f"ours is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the SuperLink's"
    if node and (ahead > AHEAD or -ahead > BEHIND):
        return fault(check, f"{said}: it refuses this node's signature.", mend)
    if abs(ahead) > _BLUR:
        return warning(check, f"{said}.", mend)
    return fine(check, "agrees with the SuperLink's.")


def _gate(connection: http.client.HTTPConnection) -> Iterator[Finding]:
    """Whether this node reaches more than a node should: what the SuperLink shows everybody, a gate does not."""
    connection.request("GET", "/openapi.json")
    reply = connection.getresponse()
    reply.read()
    if reply.status == 200:
        yield fault(
            "gate",
            "this node reaches all of the SuperLink, also the API that has code run on the coordinator.",
            "put the gate between them (deploy/gate), and close the SuperLink's own port to nodes",
        )
    else:
        yield fine("gate", "lets this node reach what nodes need, and not the rest.")


def _version(connection: http.client.HTTPConnection) -> Iterator[Finding]:
    """The SuperLink's Flower version, which it shows where no gate stands before it."""
    connection.request("GET", "/openapi.json")
    reply = connection.getresponse()
    body = reply.read()
    if reply.status == 200:
        theirs, ours = str(json.loads(body)["info"]["version"]), metadata.version("flwr")
        if theirs != ours:
            yield fault(
                "Flower versions", f"the SuperLink's is {theirs}, ours is {ours}.", "one image for the server side"
            )
        else:
            yield fine("Flower versions", f"{ours} here and in the SuperLink.")


def api(url: str, ca_file: Path | None) -> Iterator[Finding]:
    """The budget API at `url`: whether it is ready, and of our version. Asks without a token."""
    check = f"API {url}"
    try:
        with Client(url, timeout=_TIMEOUT, verify=True if ca_file is None else str(ca_file)) as client:
            health = client.ready()
    except (FieldfareError, OSError) as error:
        yield fault(check, f"cannot be asked: {error}", "start it (`fieldfare serve`), and see its log")
        return
    if health.status != "ok":
        said = "; ".join(f"{name}: {what}" for name, what in health.checks.items())
        yield fault(check, f"is not ready: {said}", "mend the ledger: `fieldfare verify`")
    else:
        yield fine(check, "is ready.")
    # A source tree that was not installed has no version to compare.
    if health.version not in ("0", __version__):
        yield fault(check, f"its version is {health.version}, ours is {__version__}.", "one image for the server side")
