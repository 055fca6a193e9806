"""What can be asked of a budget service: over HTTP (`http_client`), or in this process (`in_process`)."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from fieldfare import signed_head
from fieldfare.accounting.foreign import Foreign
from fieldfare.atomic import replace_file
from fieldfare.errors import BudgetRefused, Refused
from fieldfare_server.api.population_schemas import (
    Charge,
    Population,
    PopulationHistogram,
    WhatIf,
    WhatIfAnswer,
)
from fieldfare_server.api.refusal import Problem
from fieldfare_server.api.schemas import (
    Accepted,
    AuditRow,
    Health,
    Histogram,
    Me,
    NewestHead,
    Page,
    Request,
    Round,
    Run,
    RunDetail,
    Series,
    Verification,
)
from fieldfare_server.ledger.history import History

M = TypeVar("M", bound=BaseModel)

# What a privacy statement can be written as.
Written = Literal["json", "markdown", "html"]

_CHARGES = TypeAdapter(tuple[Charge, ...])


class ServiceError(Refused):
    """The service refused, or could not be reached. `problem` holds its answer, if there was one."""

    problem: Problem | None = None

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return what a service refused, in the words of the refusal itself: a command here says the same."""
        told = problem.detail or str(problem.status)
        what, why = told.split(": ", 1) if ": " in told else (problem.title, told)
        error = cls(what, why, problem.nearest or "", code=problem.code or "")
        error.problem = problem
        if problem.type.endswith(":budget-refused"):
            error.exit_status = BudgetRefused.exit_status
        return error

    @property
    def status(self) -> int | None:
        """The HTTP status, or None if there was no answer."""
        return self.problem.status if self.problem else None


@dataclass(frozen=True)
class ServiceRequest:
    """One request to a budget service."""

    path: str
    parameters: Mapping[str, str] | None = None
    method: Literal["GET", "POST"] = "GET"
    accept: tuple[int, ...] = (200,)  # status codes
    body: dict[str, object] | None = None


class Service(ABC):
    """A budget service; use as a context manager. Every method raises `ServiceError`."""

    where: str  # what an error names: the service's address

    @abstractmethod
    def _send(self, asked: ServiceRequest) -> bytes:
        """Return the body of an answer. Raises `ServiceError` unless its status is one that is accepted."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def me(self) -> Me:
        """Return this client, as the service sees it."""
        return self._get("/v1/me", Me)

    def ready(self) -> Health:
        """Return the readiness probe, whether it is ready or not."""
        return self._model(Health, self._send(ServiceRequest("/readyz", accept=(200, 503))))

    def populations(self, search: str = "", order: Literal["name", "nearness"] = "name") -> Iterator[Population]:
        """Return every population whose name holds `search`, by name, or the ones nearest to their limits first."""
        return self._pages("/v1/populations", Page[Population], {"search": search, "order": order})

    def population(self, name: str) -> Population:
        """Return one population."""
        return self._get(f"/v1/populations/{name}", Population)

    def history(self, population: str, points: int = 200) -> History:
        """Return a population's budget over time, and every change to it."""
        return self._get(f"/v1/populations/{population}/history", History, {"points": str(points)})

    def charges(self, population: str) -> tuple[Charge, ...]:
        """Return what other trainers have charged to a population, oldest first."""
        return _CHARGES.validate_json(self._send(ServiceRequest(f"/v1/populations/{population}/charges")))

    def population_participation(self, population: str) -> PopulationHistogram:
        """Return how many users took part how often in all runs of a population."""
        return self._get(f"/v1/populations/{population}/participation", PopulationHistogram)

    def what_if(self, population: str, asked: WhatIf) -> WhatIfAnswer:
        """Return what a run's plan would cost with some values changed."""
        given = {name: str(value) for name, value in asked.model_dump(exclude_none=True).items()}
        return self._get(f"/v1/populations/{population}/what-if", WhatIfAnswer, given)

    def runs(self, population: str | None = None) -> Iterator[Run]:
        """Return every run, newest first; of one population if given."""
        return self._pages("/v1/runs", Page[Run], {"population": population} if population else {})

    def run(self, run_id: str) -> RunDetail:
        """Return one run with its plan and its guarantee."""
        return self._get(f"/v1/runs/{run_id}", RunDetail)

    def rounds(self, run_id: str) -> Iterator[Round]:
        """Return every attempt at a round, oldest first."""
        return self._pages(f"/v1/runs/{run_id}/rounds", Page[Round])

    def series(self, run_id: str, points: int = 400) -> Series:
        """Return committed rounds, down-sampled."""
        return self._get(f"/v1/runs/{run_id}/series", Series, {"points": str(points)})

    def participation(self, run_id: str) -> Histogram:
        """Return how many users took part how often."""
        return self._get(f"/v1/runs/{run_id}/participation", Histogram)

    def report(self, run_id: str, format_: Written = "markdown") -> str:
        """Return the privacy statement of a run, as text."""
        return self._send(ServiceRequest(f"/v1/runs/{run_id}/report", {"format": format_})).decode()

    def audit(self, run_id: str | None = None) -> Iterator[AuditRow]:
        """Return the audit log, newest first; of one run if given."""
        return self._pages("/v1/audit", Page[AuditRow], {"run": run_id} if run_id else {})

    def verification(self) -> Verification:
        """Return whether the audit chain is whole."""
        return self._get("/v1/audit/verification", Verification)

    def signed_head(self, since: int | None = None) -> NewestHead:
        """Return the newest signed head, and the hash of row `since`. Needs read for all populations."""
        return self._get("/v1/audit/head", NewestHead, {} if since is None else {"since": str(since)})

    def watch_head(self, kept: Path) -> None:
        """Compare the journal's head with the one in the file `kept`, then keep the newest there.

        Raises `HeadRefused` if the journal went back, forked, or changed its key.
        """
        held = signed_head.SignedHead.parse(kept.read_text("ascii", "replace")) if kept.exists() else None
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

    def reserve_charge(
        self, population: str, key: str, loss: Foreign, *, what: str, why: str, actor: str = ""
    ) -> Charge:
        """Reserve a loss for all users of a population. Needs scope charge; the token's name is the actor."""
        described = loss.model_dump(mode="json", exclude_none=True)
        return self._charge(population, {"key": key, "loss": described, "what": what, "why": why})

    def commit_charge(self, population: str, key: str, *, actor: str = "") -> Charge:
        """Commit what was reserved under `key`: it has been spent. Needs scope charge."""
        return self._charge(population, {"key": key, "action": "commit"})

    def release_charge(self, population: str, key: str, *, actor: str = "") -> Charge:
        """Release what was reserved under `key`: it never happened. Needs scope charge."""
        return self._charge(population, {"key": key, "action": "release"})

    def _charge(self, population: str, body: dict[str, object]) -> Charge:
        asked = ServiceRequest(f"/v1/populations/{population}/charges", method="POST", body=body)
        return self._model(Charge, self._send(asked))

    def _request(self, run_id: str, request: Request) -> Accepted:
        asked = ServiceRequest(f"/v1/runs/{run_id}/{request}", method="POST", accept=(202,))
        return self._model(Accepted, self._send(asked))

    def _get(self, path: str, model: type[M], query: Mapping[str, str] | None = None) -> M:
        return self._model(model, self._send(ServiceRequest(path, query)))

    def _pages(self, path: str, model: type[Page[M]], query: Mapping[str, str] | None = None) -> Iterator[M]:
        parameters = {"limit": "500", **{name: value for name, value in (query or {}).items() if value}}
        while True:
            page = self._model(model, self._send(ServiceRequest(path, parameters)))
            yield from page.items
            if page.next is None:
                return
            parameters["cursor"] = page.next

    def _model(self, model: type[M], content: bytes) -> M:
        try:
            return model.model_validate_json(content)
        except ValidationError:
            raise ServiceError(self.where, "the answer is not what this version expects.") from None


def as_json(value: object) -> bytes:
    """Return a value of JSON, as a service sends it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
