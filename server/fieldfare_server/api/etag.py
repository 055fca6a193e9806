"""Conditional GET: a strong ETag over the exact bytes of an answer, and 304 for a caller that has them."""

from __future__ import annotations

import hashlib

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel


def conditional(request: Request, answer: BaseModel) -> Response:
    """Return `answer` as JSON with an ETag, or 304 Not Modified."""
    body = answer.model_dump_json().encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    # The answer depends on the caller, so no shared cache may keep it, and the caller must revalidate it each time.
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization"}
    if _matches(request.headers.getlist("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _matches(headers: list[str], tag: str) -> bool:
    candidates = [part.strip().removeprefix("W/") for header in headers for part in header.split(",")]
    return tag in candidates or "*" in candidates
