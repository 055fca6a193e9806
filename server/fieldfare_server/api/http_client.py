"""A typed client of the budget service over HTTP, for programs and for `fieldfare budget --url`."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
from pydantic import ValidationError

from fieldfare.errors import NotAllowed, Unreadable, WrongForm
from fieldfare_server.api.refusal import Problem
from fieldfare_server.api.service import Service, ServiceError, ServiceRequest
from fieldfare_server.api.settings import LOOPBACK_HOSTS

__all__ = ["Client", "LiveEvent", "ServiceError"]


@dataclass(frozen=True)
class LiveEvent:
    """One event of the live stream. `kind` is "ledger", "hello" or "reset" (load everything again)."""

    id: int
    kind: str
    data: dict[str, object]


class Client(Service):
    """Synchronous client; use as a context manager. Every method raises `ServiceError`."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        transport: httpx.BaseTransport | None = None,
        verify: bool | str = True,
    ) -> None:
        """Connect to the service at `url`.

        verify: as in httpx; a path names the certificates to trust. Raises `BadInput` for a URL that cannot
        be read, and for a token that would cross the network in the clear.
        """
        try:
            parts = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            parts = httpx.URL("")
        if parts.scheme not in ("http", "https") or not parts.host:
            raise WrongForm(f"service URL {url!r}", "cannot be understood.", "http://127.0.0.1:8080")
        if token and parts.scheme == "http" and parts.host not in (*LOOPBACK_HOSTS, "::1"):
            raise NotAllowed(f"a token for {url}", "it would be sent in the clear.", url.replace("http:", "https:", 1))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.where = url
        try:
            self._http = httpx.Client(
                base_url=url, headers=headers, timeout=timeout, transport=transport, verify=verify, trust_env=False
            )
        except ssl.SSLError:
            raise Unreadable(f"certificates to trust {verify}", "hold no certificate.", "a PEM file") from None

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def events(self, last_id: int | None = None) -> Iterator[LiveEvent]:
        """Yield the live stream after event `last_id`, or from now on for None, until the service ends it.

        A caller that remembers the id of the last event and calls again with it misses nothing.
        """
        headers = {} if last_id is None else {"Last-Event-ID": str(last_id)}
        timeout = httpx.Timeout(10.0, read=60.0)
        try:
            with self._http.stream("GET", "/v1/events", headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refusal(response)
                yield from _parse(response.iter_lines())
        except httpx.HTTPError as error:
            raise self._unreached(error) from error

    def _unreached(self, error: httpx.HTTPError) -> ServiceError:
        told, near = str(error) or type(error).__name__, "the URL that `fieldfare serve` printed"
        if "CERTIFICATE_VERIFY" in told:
            near = "--ca-file with who signed its certificate, and a host that this names"
        return ServiceError(f"{self._http.base_url}", f"{told}.", near)

    def _send(self, asked: ServiceRequest) -> bytes:
        try:
            response = self._http.request(asked.method, asked.path, params=asked.parameters, json=asked.body)
        except httpx.HTTPError as error:
            raise self._unreached(error) from error
        if response.status_code not in asked.accept:
            raise _refusal(response)
        return response.content


def _refusal(response: httpx.Response) -> ServiceError:
    try:
        return ServiceError.of(Problem.model_validate_json(response.content))
    except ValidationError:
        return ServiceError(f"{response.request.url}", f"status {response.status_code}.")


def _parse(lines: Iterator[str]) -> Iterator[LiveEvent]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield LiveEvent(int(fields.get("id", "0")), fields.get("event", "message"), json.loads(fields["data"]))
        fields = {}
