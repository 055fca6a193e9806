"""Conditional GET: a strong ETag over the exact bytes of an answer, and 304 for a caller that has them."""

from __future__ import annotations

import hashlib

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel


def conditional(request: Request, answer: BaseModel) -> Response:
    """Return `answer` as JSON with an ETag, or 304 Not Modified."""
    body = answer.model_dump_json().encode()
    # The answer depends on the caller, so no shared cache may keep it, and the caller must revalidate it each time.
    headers = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
    return tagged(request, body, tag_of(body), "application/json", headers)


def tag_of(body: bytes) -> str:
    """Return the ETag of these bytes."""
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def tagged(request: Request, body: bytes, tag: str, media_type: str, headers: dict[str, str]) -> Response:
    """Return `body` under `tag`, or 304 for a caller who names it, weakly too: a proxy that compresses makes it so."""
    named = ",".join(request.headers.getlist("if-none-match")).split(",")
    known = {tag, "*"}.intersection(part.strip().removeprefix("W/") for part in named)
    headers = {"ETag": tag, **headers}
    return Response(status_code=304, headers=headers) if known else Response(body, 200, headers, media_type)
