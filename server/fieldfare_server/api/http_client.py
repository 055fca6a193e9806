"""A typed client of the budget service, for programs and for `fieldfare budget --url`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from fieldfare import signed_head
from fieldfare.accounting.foreign import Loss
from fieldfare.errors import BadInput, FieldfareError
from fieldfare_server.api.population_schemas import Charge, Population
from fieldfare_server.api.problems import Problem
from fieldfare_server.api.schemas import (
    Accepted,
    AuditRow,
    Health,
    Histogram,
    Me,
    Page,
    Request,
    Round,
    Run,
    RunDetail,
    Series,
    SignedHead,
    Verification,
)
from fieldfare_server.api.settings import LOOPBACK_HOSTS
from fieldfare_server.files.atomic import replace_file

M = TypeVar("M", bound=BaseModel)


class ServiceError(FieldfareError):
    """The service refused, or could not be reached. `problem` holds its answer, if there was one."""

    def __init__(self, message: str, problem: Problem | None = None) -> None:
        self.problem = problem
        super().__init__(message)

    @property
    def status(self) -> int | None:
        """The HTTP status, or None if there was no answer."""
        return self.problem.status if self.problem else None


@dataclass(frozen=True)
class Event:
    """One event of the live stream. `kind` is "ledger", "hello" or "reset" (load everything again)."""

    id: int
    kind: str
    data: dict[str, Any]


class Client:
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

        verify: as in httpx; a path names the certificates to trust. Raises `BadInput` for a URL that is none, and for
        a token that would cross the network in the clear.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"service URL {url!r}", "cannot be understood.", "http://127.0.0.1:8000")
        if token and parts.scheme == "http" and parts.hostname not in (*LOOPBACK_HOSTS, "::1"):
            raise BadInput(f"a token for {url}", "it would be sent in the clear.", url.replace("http:", "https:", 1))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, transport=transport, verify=verify, trust_env=False
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def me(self) -> Me:
        """This client, as the service sees it."""
        return self._get("/v1/me", Me)

    def ready(self) -> Health:
        """The readiness probe, whether it is ready or not."""
        return self._model(Health, self._send("GET", "/readyz", accept=(200, 503)))

    def populations(self) -> Iterator[Population]:
        """Every population, by name."""
        return self._pages("/v1/populations", Page[Population])

    def population(self, name: str) -> Population:
        """One population."""
        return self._get(f"/v1/populations/{name}", Population)

    def runs(self, population: str | None = None) -> Iterator[Run]:
        """Every run, newest first; of one population if given."""
        return self._pages("/v1/runs", Page[Run], {"population": population} if population else {})

    def run(self, run_id: str) -> RunDetail:
        """One run with its plan and its guarantee."""
        return self._get(f"/v1/runs/{run_id}", RunDetail)

    def rounds(self, run_id: str) -> Iterator[Round]:
        """Every attempt at a round, oldest first."""
        return self._pages(f"/v1/runs/{run_id}/rounds", Page[Round])

    def series(self, run_id: str, points: int = 400) -> Series:
        """Committed rounds, down-sampled."""
        return self._get(f"/v1/runs/{run_id}/series?points={points}", Series)

    def participation(self, run_id: str) -> Histogram:
        """How many users took part how often."""
        return self._get(f"/v1/runs/{run_id}/participation", Histogram)

    def report(self, run_id: str, format_: Literal["json", "markdown", "html"] = "markdown") -> str:
        """The privacy statement of a run, as text."""
        return self._send("GET", f"/v1/runs/{run_id}/report", {"format": format_}).text

    def audit(self, run_id: str | None = None) -> Iterator[AuditRow]:
        """The audit log, newest first; of one run if given."""
        return self._pages("/v1/audit", Page[AuditRow], {"run": run_id} if run_id else {})

    def verification(self) -> Verification:
        """Whether the audit chain is whole."""
        return self._get("/v1/audit/verification", Verification)

    def signed_head(self, since: int | None = None) -> SignedHead:
        """The newest head that the coordinator signed, and the hash of row `since`. Needs read for all populations."""
        return self._get("/v1/audit/head" + (f"?since={since}" if since is not None else ""), SignedHead)

    def watch_head(self, kept: Path) -> None:
        """Compare the journal's head with the one in the file `kept`, then keep the newest there.

        Raises `HeadRefused` if the journal went back, forked, or changed its key.
        """
        held = signed_head.SignedHead.parse(kept.read_text(encoding="ascii")) if kept.exists() else None
        answer = self.signed_head(None if held is None else held.count)
        shown = signed_head.SignedHead.parse(answer.text)
        rows = {} if held is None or answer.since is None else {held.count: answer.since}
        newest = signed_head.follow(held, shown, rows)
        replace_file(kept, f"{newest}\n".encode())

    def stop(self, run_id: str) -> Accepted:
        """Ask a run to stop at the next round boundary. Needs scope admin."""
        return self._request(run_id, "stop")

    def pause(self, run_id: str) -> Accepted:
        """Ask a run to pause at the next round boundary. Needs scope admin."""
        return self._request(run_id, "pause")

    def resume(self, run_id: str) -> Accepted:
        """Cancel a pause. Needs scope admin."""
        return self._request(run_id, "resume")

    def reserve_charge(self, population: str, key: str, loss: Loss, *, what: str, why: str, actor: str = "") -> Charge:
        """Reserve a loss for all users of a population. Needs scope charge; the token's name is the actor."""
        described = loss.model_dump(mode="json", exclude_none=True)
        return self._charge(population, {"key": key, "loss": described, "what": what, "why": why})

    def commit_charge(self, population: str, key: str, *, actor: str = "") -> Charge:
        """What was reserved under `key` has been spent. Needs scope charge."""
        return self._charge(population, {"key": key, "action": "commit"})

    def release_charge(self, population: str, key: str, *, actor: str = "") -> Charge:
        """What was reserved under `key` never happened. Needs scope charge."""
        return self._charge(population, {"key": key, "action": "release"})

    def _charge(self, population: str, body: dict[str, Any]) -> Charge:
        return self._model(Charge, self._send("POST", f"/v1/populations/{population}/charges", body=body))

    def events(self, last_id: int | None = None) -> Iterator[Event]:
        """The live stream after event `last_id`, or from now on for None, until the service ends it.

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
            raise ServiceError(f"{self._http.base_url}: {error or type(error).__name__}") from error

    def _request(self, run_id: str, request: Request) -> Accepted:
        return self._model(Accepted, self._send("POST", f"/v1/runs/{run_id}/{request}", accept=(202,)))

    def _get(self, path: str, model: type[M]) -> M:
        return self._model(model, self._send("GET", path))

    def _pages(self, path: str, model: type[Page[M]], query: dict[str, str] | None = None) -> Iterator[M]:
        parameters = {"limit": "100", **(query or {})}
        while True:
            page = self._model(model, self._send("GET", path, parameters))
            yield from page.items
            if page.next is None:
                return
            parameters["cursor"] = page.next

    def _send(
        self,
        method: str,
        path: str,
        parameters: dict[str, str] | None = None,
        *,
        accept: tuple[int, ...] = (200,),
        body: dict[str, Any] | None = None,
    ) -> httpx.Response:
        try:
            response = self._http.request(method, path, params=parameters, json=body)
        except httpx.HTTPError as error:
            raise ServiceError(f"{self._http.base_url}: {error or type(error).__name__}") from error
        if response.status_code not in accept:
            raise _refusal(response)
        return response

    def _model(self, model: type[M], response: httpx.Response) -> M:
        try:
            return model.model_validate_json(response.content)
        except ValidationError:
            raise ServiceError(f"{response.request.url}: the answer is not what this version expects.") from None


def _refusal(response: httpx.Response) -> ServiceError:
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return ServiceError(f"{response.request.url}: status {response.status_code}.")
    nearest = f" Nearest allowed: {problem.nearest}." if problem.nearest else ""
    return ServiceError(f"{problem.title}: {problem.detail or problem.status}{nearest}", problem)


def _parse(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield Event(int(fields.get("id", "0")), fields.get("event", "message"), json.loads(fields["data"]))
        fields = {}
