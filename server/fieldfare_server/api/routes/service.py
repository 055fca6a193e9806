"""Probes, metrics, and the caller's own rights."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from fieldfare_server.api.auth import Overseer, Reader
from fieldfare_server.api.health import Readiness
from fieldfare_server.api.metrics import CONTENT_TYPE, Metrics
from fieldfare_server.api.problems import responses
from fieldfare_server.api.schemas import Health, Me

router = APIRouter(tags=["service"])


@router.get("/healthz")
async def healthz(request: Request) -> Health:
    """The process is alive. The probe does not look at the ledger."""
    return Health(status="ok", version=request.app.version)


@router.get(
    "/readyz", response_model=Health, responses={503: {"model": Health, "description": "Not ready: `checks` says why"}}
)
def readyz(request: Request) -> Response:
    """Ready only when the ledger is reachable and whole; `checks` says why not to those who may read all of it."""
    readiness: Readiness = request.app.state.readiness
    health = readiness.check()
    if not request.app.state.authenticator.tells(request):  # why names populations, files and hosts
        health = health.model_copy(update={"checks": {}})
    return JSONResponse(health.model_dump(mode="json"), status_code=200 if health.status == "ok" else 503)


@router.get("/metrics", response_class=Response, responses=responses(401, 403, 429, body="text/plain"))
def metrics(request: Request, _: Overseer) -> Response:
    """Prometheus text."""
    figures: Metrics = request.app.state.metrics
    return Response(figures.render(), media_type=CONTENT_TYPE)


@router.get("/v1/me", responses=responses(401, 403, 429, 503))
def me(caller: Reader) -> Me:
    """The caller's name and scopes, as the service sees them."""
    scopes = tuple(sorted(caller.scopes))
    return Me(
        name=caller.name,
        scopes=scopes,
        anonymous=caller.anonymous,
        expires_at=caller.expires_at,
        populations=caller.populations,
    )
