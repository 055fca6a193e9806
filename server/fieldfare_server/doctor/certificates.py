"""Certificates on this machine: their dates, their signatures, and their keys."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fieldfare_server.doctor.finding import Finding, fault, fine, warning

SOON = datetime.timedelta(days=30)
RENEW = (
    "make new ones: on the server `fieldfare certificates renew`, and carry the new ca.crt to every node; "
    "between a node and its executor `fieldfare certificates node` into an empty directory"
)


def check_certificates(directory: Path, now: datetime.datetime | None = None) -> list[Finding]:
    """Return one finding or more for each *.crt below `directory`, or a fault where there is none."""
    now = now or datetime.datetime.now(datetime.UTC)
    if not any(directory.rglob("*.crt")):
        return [
            fault(
                f"certificates in {directory}",
                "there is none: this is no directory of secrets, or they were never made.",
                "`fieldfare certificates server`, or `node`; or name the directory that they wrote",
            )
        ]
    return [finding for path in sorted(directory.rglob("*.crt")) for finding in _check_one(path, now)]


def _check_one(path: Path, now: datetime.datetime) -> list[Finding]:
    check = f"certificate {path}"
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return [fault(check, f"cannot be read: {type(error).__name__}.", RENEW)]
    findings = [check_dates(check, certificate.not_valid_before_utc, certificate.not_valid_after_utc, now)]
    if not path.name.endswith("ca.crt"):
        authority = path.with_name("runtime-ca.crt" if path.name.startswith("runtime") else "ca.crt")
        findings += _check_signature(check, certificate, authority)
        findings += _check_key(check, certificate, path.with_suffix(".key"))
    return findings


def check_dates(check: str, begins: datetime.datetime, ends: datetime.datetime, now: datetime.datetime) -> Finding:
    """Check whether a certificate is valid now, and for how long."""
    if now < begins:
        return fault(check, f"is not valid before {begins:%Y-%m-%d %H:%M} UTC.", "set this machine's clock")
    if now >= ends:
        return fault(check, f"ran out on {ends:%Y-%m-%d}.", RENEW)
    if ends - now < SOON:
        return warning(check, f"runs out on {ends:%Y-%m-%d}, in {(ends - now).days} days.", RENEW)
    return fine(check, f"valid until {ends:%Y-%m-%d}.")


def _check_signature(check: str, certificate: x509.Certificate, authority: Path) -> list[Finding]:
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))
    except (OSError, ValueError, TypeError, InvalidSignature):
        return [
            fault(
                check, f"was not signed by the {authority.name} next to it: peers that trust that one refuse it.", RENEW
            )
        ]
    return []


def _check_key(check: str, certificate: x509.Certificate, path: Path) -> list[Finding]:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return [fault(check, f"its key {path.name} cannot be read.", RENEW)]
    if key.public_key() != certificate.public_key():
        return [fault(check, f"{path.name} is the key of another certificate.", RENEW)]
    return []
