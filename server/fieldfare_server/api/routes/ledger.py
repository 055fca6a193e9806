"""The audit log: rows, verification, export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from fieldfare.names import LONGEST_NAME, NAME
from fieldfare_server.api.auth import Chief, Overseer
from fieldfare_server.api.etag import conditional
from fieldfare_server.api.health import Readiness
from fieldfare_server.api.problems import responses
from fieldfare_server.api.routes.common import AnswersOf, Cursor, Format, Limit
from fieldfare_server.api.schemas import AuditRow, NewestHead, Page, Verification
from fieldfare_server.api.tables import CSV, csv_of
from fieldfare_server.ledger.views import every

router = APIRouter(prefix="/v1/audit", tags=["audit"])
_BATCH = 1000


@router.get("", response_model=Page[AuditRow], responses=CSV | responses(304, 400, 401, 403, 422, 429, 503))
def audit(
    request: Request,
    _: Overseer,
    answers: AnswersOf,
    cursor: Cursor = None,
    limit: Limit = 50,
    run: Annotated[str | None, Query(max_length=LONGEST_NAME, pattern=NAME)] = None,
    as_: Format = "json",
) -> Response:
    """Append-only rows, newest first. The hash of a row covers the row before it. As CSV: all from the cursor on."""
    if as_ == "csv":
        return csv_of(AuditRow, every(lambda at, most: answers.audit(at, most, run), cursor), "fieldfare-audit.csv")
    return conditional(request, answers.audit(cursor, limit, run))


@router.get("/verification", responses=responses(401, 403, 429, 503))
def verification(request: Request, _: Overseer) -> Verification:
    """Whether journal and tables agree. Rows that are new since the last check are checked now, and all
    budgets.

    A check that takes long is answered as it stands, with `complete` false: ask again.
    """
    readiness: Readiness = request.app.state.readiness
    return readiness.verification()


@router.post("/verification", responses=responses(401, 403, 422, 429, 503))
def verify(request: Request, _: Chief) -> Verification:
    """Check everything again, from the first row, as `fieldfare verify` does. GET shows when it is done."""
    readiness: Readiness = request.app.state.readiness
    return readiness.verification(restart=True)


@router.get("/head", responses=responses(401, 403, 404, 422, 429, 503))
def signed_head(
    _: Overseer,
    answers: AnswersOf,
    since: Annotated[int | None, Query(ge=1, le=2**62, description="show the hash of this row too")] = None,
) -> NewestHead:
    """The newest head that the coordinator signed: keep `text` elsewhere, and the past cannot be taken back."""
    return answers.signed_head(since)


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=responses(401, 403, 429, 503, body="application/x-ndjson"),
)
def export_audit(_: Overseer, answers: AnswersOf) -> StreamingResponse:
    """The whole log, oldest first, one JSON object a line: enough to verify the chain elsewhere.

    Where presence is secret rows omit counts of users, and the hash of such a row can only be checked on the
    server.
    """

    def lines() -> Iterator[bytes]:
        # One transaction for each batch, because a slow download must not hold a snapshot open. Rows are
        # append-only, so batches of different snapshots still make one log.
        after = 0
        while rows := answers.events(after, _BATCH):
            yield b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
            after = rows[-1].id

    headers = {"Content-Disposition": 'attachment; filename="fieldfare-audit.ndjson"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)
