"""The budget API over the network: whether it is ready, and of this version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fieldfare import __version__
from fieldfare.errors import FieldfareError
from fieldfare_server.api.http_client import Client
from fieldfare_server.doctor.finding import Finding, fault, fine

_TIMEOUT = 5.0


def check_api(url: str, ca_file: Path | None) -> Iterator[Finding]:
    """Ask the budget API at `url`, without a token."""
    check = f"API {url}"
    try:
        with Client(url, timeout=_TIMEOUT, verify=True if ca_file is None else str(ca_file)) as client:
            health = client.ready()
    except (FieldfareError, OSError) as error:
        yield fault(check, f"cannot be asked: {error}", "start it (`fieldfare serve`), and see its log")
        return
    if health.status != "ok":
        checks = "; ".join(f"{name}: {result}" for name, result in health.checks.items()) or "its log says why"
        yield fault(check, f"is not ready: {checks}", "mend the ledger: `fieldfare verify`")
    else:
        yield fine(check, "is ready.")
    if health.version != __version__:
        yield fault(check, f"its version is {health.version}, ours is {__version__}.", "one image for the server side")
