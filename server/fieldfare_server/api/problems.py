"""Errors as RFC 9457 problem details. Every error answer of the service is made here and has one shape."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from fieldfare.errors import BadInput, BudgetRefused, FieldfareError, LedgerError, Refused
from fieldfare_server.ledger.sql.proof import Disproved

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """RFC 9457. `type` names the kind of problem; `nearest` is the closest allowed alternative."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:fieldfare:problem:not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str | None = Field(default=None, examples=["population 'trains': there is no such population."])
    instance: str | None = Field(default=None, examples=["/v1/populations/trains"])
    nearest: str | None = Field(default=None, examples=["aircraft"])


class ProblemError(Exception):
    """Code below a route raises this to answer with a problem."""

    def __init__(
        self, status: int, kind: str, detail: str, *, nearest: str = "", headers: dict[str, str] | None = None
    ) -> None:
        self.status, self.kind, self.detail, self.nearest = status, kind, detail, nearest
        self.headers = headers or {}
        super().__init__(detail)


def problem(
    status: int,
    kind: str,
    detail: str | None = None,
    *,
    instance: str | None = None,
    nearest: str = "",
    headers: dict[str, str] | None = None,
    **extra: Any,
) -> Response:
    """A problem response. `kind` is the last part of its type URN; the title is made from it."""
    body = Problem(
        type=f"urn:fieldfare:problem:{kind}",
        title=kind.replace("-", " ").capitalize(),
        status=status,
        detail=detail,
        instance=instance,
        nearest=nearest or None,
        **extra,
    )
    return JSONResponse(
        body.model_dump(mode="json", exclude_none=True), status_code=status, media_type=MEDIA_TYPE, headers=headers
    )


def kind_of(status: int) -> str:
    """The problem kind for a bare HTTP status."""
    try:
        return HTTPStatus(status).phrase.lower().replace(" ", "-").replace("'", "")
    except ValueError:
        return "error"


def responses(*statuses: int, body: str | None = None) -> dict[int | str, dict[str, Any]]:
    """A route's responses in the OpenAPI document: problems, and a 200 of media type `body` if it is not JSON."""
    answers: dict[int | str, dict[str, Any]] = {}
    if body is not None:
        answers[200] = {"content": {body: {"schema": {"type": "string"}}}}
    for status in statuses:
        answers[status] = {"description": HTTPStatus(status).phrase}
        if status >= 400:
            answers[status]["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return answers


def install(app: FastAPI) -> None:
    """Map every exception that can leave a route to a problem. No internal is shown."""

    @app.exception_handler(ProblemError)
    async def _problem(request: Request, error: ProblemError) -> Response:
        return problem(
            error.status,
            error.kind,
            error.detail,
            instance=request.url.path,
            nearest=error.nearest,
            headers=error.headers,
        )

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        return problem(
            error.status_code,
            kind_of(error.status_code),
            error.detail or None,
            instance=request.url.path,
            headers=dict(error.headers or {}),
        )

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        faults = [
            {"where": ".".join(str(part) for part in fault["loc"]), "why": str(fault["msg"])}
            for fault in error.errors()
        ]
        first = faults[0]
        return problem(
            422, "invalid-request", f"{first['where']}: {first['why']}", instance=request.url.path, errors=faults
        )

    @app.exception_handler(FieldfareError)
    async def _refused(request: Request, error: FieldfareError) -> Response:
        status, kind = 500, "refused"
        if isinstance(error, BadInput):
            status, kind = 422, "invalid-request"
        elif isinstance(error, BudgetRefused):
            status, kind = 409, "budget-refused"
        elif isinstance(error, Disproved):
            status, kind = 409, "ledger-disproved"
        elif isinstance(error, LedgerError):
            status, kind = 503, "ledger-unavailable"
        nearest = error.nearest if isinstance(error, Refused) else ""
        detail = f"{error.what}: {error.why}" if isinstance(error, Refused) else None
        return problem(status, kind, detail, instance=request.url.path, nearest=nearest)
