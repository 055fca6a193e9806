"""Errors as RFC 9457 problem details. Every error answer of the service is made here and has one shape."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from fieldfare.errors import FieldfareError
from fieldfare_server.api.refusal import Problem, ProblemError, described, kind_of, problem_of

__all__ = ["MEDIA_TYPE", "Problem", "ProblemError", "install", "problem", "responses"]

MEDIA_TYPE = "application/problem+json"


def problem(
    status: int,
    kind: str,
    detail: str | None = None,
    *,
    instance: str | None = None,
    nearest: str = "",
    headers: dict[str, str] | None = None,
    **extra: object,
) -> Response:
    """Return a problem response. `kind` is the last part of its type URN; the title is made from it.

    Args:
        status: of HTTP.
        kind: the last part of the type URN.
        detail: what was refused, and why.
        instance: the path of the request.
        nearest: what would be allowed; empty for nothing.
        headers: further ones of the response.
    """
    return _response(problem_of(status, kind, detail, instance, nearest).model_copy(update=extra), headers)


def _response(body: Problem, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(
        body.model_dump(mode="json", exclude_none=True), status_code=body.status, media_type=MEDIA_TYPE, headers=headers
    )


def responses(*statuses: int, body: str | None = None) -> dict[int | str, dict[str, object]]:
    """Return what OpenAPI says a route answers: problems, and where `body` names another type than JSON, that."""
    answers: dict[int | str, dict[str, object]] = {}
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
        return _response(described(error, request.url.path), error.headers)

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
        return _response(described(error, request.url.path))
