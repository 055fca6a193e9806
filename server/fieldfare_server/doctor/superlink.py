"""The SuperLink, or its gate, over the network: its certificate, clock and version."""

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

from fieldfare_server.doctor.certificates import RENEW, check_dates
from fieldfare_server.doctor.finding import Finding, fault, fine, warning

# Most seconds by which a node's signed time may be ahead of or behind the SuperLink's (Flower 1.41, node_auth.py).
AHEAD, BEHIND = 5.0, 305.0
# Seconds that a Date header cannot resolve: it has whole seconds, and travels.
_BLUR = 2.0
_TIMEOUT = 5.0


def check_superlink(address: str, root_certificates: Path | None, *, node: bool) -> Iterator[Finding]:
    """Connect to the SuperLink or gate and check what it shows.

    Args:
        address: host:port.
        root_certificates: the authority to trust; None connects without TLS, which is a finding.
        node: whether this is a node, whose requests carry a signed time.
    """
    check = f"SuperLink {address}"
    host, _, port = address.rpartition(":")
    host = host.strip("[]")  # of an address of IPv6
    if not host or not port.isdigit():
        yield fault(check, "is no address.", "--superlink HOST:PORT")
        return
    if root_certificates is not None and not _is_authority(root_certificates):
        yield fault(check, f"{root_certificates} holds no certificate.", "the ca.crt that the server published last")
        return
    if root_certificates is None:
        yield warning(
            check, "is reached without TLS: anyone on the network path can read sums and write messages.", "use TLS"
        )
    try:
        connection = _connect(host, int(port), root_certificates)
    except ssl.SSLCertVerificationError as error:
        yield fault(check, f"its certificate is refused: {error.verify_message}.", _certificate_remedy(error, host))
        return
    except ssl.SSLError as error:
        yield fault(check, f"does not speak TLS as we do ({error.reason}).", "the same scheme on both sides")
        return
    except OSError as error:
        yield fault(check, f"cannot be reached ({error}).", "start it; on a node: the gate's name, port and firewall")
        return
    try:
        yield from _check_answers(connection, check, node)
    except (OSError, http.client.HTTPException, ValueError) as error:
        yield fault(check, f"does not answer like a SuperLink ({type(error).__name__}).", "the SuperLink's own port")
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


def _certificate_remedy(error: ssl.SSLCertVerificationError, host: str) -> str:
    # OpenSSL's codes: 9 not yet valid, 10 expired, 62 and 64 another name or address.
    if error.verify_code == 9:
        return "set this machine's clock"
    if error.verify_code == 10:
        return RENEW
    if error.verify_code in (62, 64):
        return f"a certificate made with --host {host}, or the name that it was made for"
    return "the ca.crt that the server published last"


def _check_answers(connection: http.client.HTTPConnection, check: str, node: bool) -> Iterator[Finding]:
    if isinstance(connection.sock, ssl.SSLSocket):
        peer = connection.sock.getpeercert() or {}
        ends = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(str(peer["notAfter"])), datetime.UTC)
        begins = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(str(peer["notBefore"])), datetime.UTC)
        yield check_dates(f"certificate of {check}", begins, ends, datetime.datetime.now(datetime.UTC))
    before = time.time()
    connection.request("GET", "/health")
    reply = connection.getresponse()
    reply.read()
    if reply.status != 200:
        yield fault(check, f"its health check answers {reply.status}.", "its log")
        return
    yield fine(check, "can be reached, and is healthy.")
    date = reply.getheader("Date")
    if date:
        # The header was written about halfway through the exchange, and its fraction of a second was cut off.
        yield judge_clock((before + time.time()) / 2 - parsedate_to_datetime(date).timestamp() - 0.5, node)
    yield from _check_description(connection, node)


def judge_clock(ahead: float, node: bool) -> Finding:
    """Return what it means that our clock is `ahead` seconds ahead of the SuperLink's."""
    check, mend = "clock", "let both machines' clocks be set by NTP (chrony)"
    difference = f"ours is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the SuperLink's"
    if node and (ahead > AHEAD or -ahead > BEHIND):
        return fault(check, f"{difference}: it refuses this node's signature.", mend)
    if abs(ahead) > _BLUR:
        return warning(check, f"{difference}.", mend)
    return fine(check, "agrees with the SuperLink's.")


def _check_description(connection: http.client.HTTPConnection, node: bool) -> Iterator[Finding]:
    """Look for the SuperLink's API description. A gate hides it; without a gate it names Flower's version."""
    connection.request("GET", "/openapi.json")
    reply = connection.getresponse()
    body = reply.read()
    if node and reply.status == 200:
        yield fault(
            "gate",
            "this node reaches all of the SuperLink, even the API that runs code on the coordinator.",
            "put the gate between them (deploy/gate), and close the SuperLink's own port to nodes",
        )
    elif node:
        yield fine("gate", "lets this node reach what nodes need, and nothing else.")
    elif reply.status == 200:
        theirs, ours = str(json.loads(body)["info"]["version"]), metadata.version("flwr")
        check = "Flower versions"
        if theirs == ours:
            yield fine(check, f"{ours} here and in the SuperLink.")
        else:
            yield fault(check, f"the SuperLink's is {theirs}, ours is {ours}.", "one image for the server side")
