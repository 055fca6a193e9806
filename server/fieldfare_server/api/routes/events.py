"""The live stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse

from fieldfare_server.api.auth import Overseer
from fieldfare_server.api.events import Broker, TooManyClients
from fieldfare_server.api.problems import ProblemError, responses

router = APIRouter(prefix="/v1/events", tags=["events"])


@router.get(
    "", response_class=StreamingResponse, responses=responses(401, 403, 422, 429, 503, body="text/event-stream")
)
async def events(
    request: Request,
    caller: Overseer,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=2**63 - 1, description="resume after this id; without it, from now")
    ] = None,
    fieldfare_page: Annotated[
        str | None, Header(max_length=64, description="any name of the page that listens; it has one stream at a time")
    ] = None,
) -> StreamingResponse:
    """Ledger rows as they are committed. `reset` means that the client missed too much: load everything again."""
    broker: Broker = request.app.state.broker
    try:
        address = request.client.host if request.client else "unknown"
        # Pages that share a token, as behind a proxy, are told apart by their addresses where these differ.
        stream = await broker.stream(last_event_id, f"{caller.token_id} {address}", fieldfare_page)
    except TooManyClients:
        raise ProblemError(
            503, "too-many-event-streams", "every event stream is in use.", headers={"Retry-After": "10"}
        ) from None
    return StreamingResponse(
        stream, media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
