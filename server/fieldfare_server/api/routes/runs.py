"""Runs, their rounds, and the three requests that a coordinator obeys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from fieldfare.names import LONGEST_NAME, NAME
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.auth import Admin, Caller, Reader
from fieldfare_server.api.etag import conditional
from fieldfare_server.api.problems import responses
from fieldfare_server.api.routes.common import AnswersOf, Cursor, Format, Limit, RunId
from fieldfare_server.api.schemas import Accepted, Histogram, Page, Round, Run, RunDetail, Series
from fieldfare_server.api.schemas import Request as RunRequest
from fieldfare_server.api.service import Written
from fieldfare_server.api.tables import CSV, csv_of
from fieldfare_server.ledger import states
from fieldfare_server.ledger.views import every

router = APIRouter(prefix="/v1/runs", tags=["runs"])


def _reader(caller: Reader, answers: AnswersOf, run_id: RunId) -> Caller:
    if caller.populations is not None:
        caller.require(answers.population_of(run_id))
    return caller


def _admin(caller: Admin, answers: AnswersOf, run_id: RunId) -> Caller:
    return _reader(caller, answers, run_id)


RunReader = Annotated[Caller, Depends(_reader)]
# A caller who may see, or steer, the run of the path.
RunAdmin = Annotated[Caller, Depends(_admin)]

_ONE = responses(304, 401, 403, 404, 422, 429, 503)


@router.get("", response_model=Page[Run], responses=CSV | _ONE | responses(400))
def runs(
    request: Request,
    caller: Reader,
    answers: AnswersOf,
    cursor: Cursor = None,
    limit: Limit = 50,
    population: Annotated[str | None, Query(max_length=LONGEST_NAME, pattern=NAME)] = None,
    state: Annotated[states.RunState | None, Query(description="only runs in this state")] = None,
    asks: Annotated[bool | None, Query(description="only questions (true), or only runs that train (false)")] = None,
    as_: Format = "json",
) -> Response:
    """Runs, newest first. A token for some populations has to name one. As CSV: all from the cursor on."""
    caller.require(population)
    if as_ == "csv":
        pages = every(lambda at, most: answers.runs(at, most, population, state, asks), cursor)
        return csv_of(Run, pages, "fieldfare-runs.csv")
    return conditional(request, answers.runs(cursor, limit, population, state, asks))


@router.get("/{run_id}", response_model=RunDetail, responses=_ONE)
def run(request: Request, _: RunReader, answers: AnswersOf, run_id: RunId) -> Response:
    """One run with its plan and its guarantee."""
    return conditional(request, answers.run(run_id))


@router.get("/{run_id}/rounds", response_model=Page[Round], responses=CSV | _ONE | responses(400))
def run_rounds(
    request: Request,
    _: RunReader,
    answers: AnswersOf,
    run_id: RunId,
    cursor: Cursor = None,
    limit: Limit = 100,
    as_: Format = "json",
) -> Response:
    """Every attempt at a round, oldest first: committed, void, and the one that is open. As CSV: all of them."""
    if as_ == "csv":
        pages = every(lambda at, most: answers.rounds(run_id, at, most), cursor)
        return csv_of(Round, pages, f"{run_id}-rounds.csv")
    return conditional(request, answers.rounds(run_id, cursor, limit))


@router.get("/{run_id}/series", response_model=Series, responses=_ONE)
def run_series(
    request: Request,
    _: RunReader,
    answers: AnswersOf,
    run_id: RunId,
    points: Annotated[int, Query(ge=2, le=2000, description="most points; the last round is always one")] = 400,
) -> Response:
    """Committed rounds, down-sampled for a chart."""
    return conditional(request, answers.series(run_id, points))


@router.get("/{run_id}/participation", response_model=Histogram, responses=_ONE)
def run_participation(request: Request, _: RunReader, answers: AnswersOf, run_id: RunId) -> Response:
    """How many users took part how often: aggregate counts only."""
    return conditional(request, answers.participation(run_id))


@router.get(
    "/{run_id}/report",
    responses={
        200: {"content": {kind: {"schema": {"type": "string"}} for kind in ("text/markdown", "text/html")}},
        **responses(401, 403, 404, 422, 429, 503),
    },
)
def run_report(
    caller: RunReader, answers: AnswersOf, run_id: RunId, as_: Annotated[Written, Query(alias="format")] = "json"
) -> Response:
    """The privacy statement of a run: every number in it comes from the ledger."""
    text = answers.report(run_id, as_, alone=caller.populations is not None)
    if as_ == "json":
        return Response(text, media_type="application/json")
    # An HTML statement contains its style; it may run nothing and fetch nothing.
    headers = (
        {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"} if as_ == "html" else {}
    )
    return Response(text, media_type=f"text/{as_}; charset=utf-8", headers=headers)


@router.get("/{run_id}/registry-entry", responses=_ONE)
def run_registry_entry(_: RunReader, answers: AnswersOf, run_id: RunId) -> dict[str, object]:
    """The run as a tier 3 entry of the DP Deployments Registry; `missing` lists what only its curator knows."""
    return answers.registry_entry(run_id)


def _accept(answers: Answers, run_id: str, request: RunRequest, caller: Caller) -> Accepted:
    state = answers.request(run_id, request, f"token {caller.name}", caller.secret)
    return Accepted(run=run_id, request=request, state=state)


_REQUEST = responses(401, 403, 404, 409, 422, 429, 503)


@router.post("/{run_id}/stop", status_code=202, responses=_REQUEST)
def stop_run(caller: RunAdmin, answers: AnswersOf, run_id: RunId) -> Accepted:
    """Stop at the next round boundary. What was spent stays spent, what was reserved is free again. Final."""
    return _accept(answers, run_id, "stop", caller)


@router.post("/{run_id}/pause", status_code=202, responses=_REQUEST)
def pause_run(caller: RunAdmin, answers: AnswersOf, run_id: RunId) -> Accepted:
    """Pause at the next round boundary; the reservation is kept."""
    return _accept(answers, run_id, "pause", caller)


@router.post("/{run_id}/resume", status_code=202, responses=_REQUEST)
def resume_run(caller: RunAdmin, answers: AnswersOf, run_id: RunId) -> Accepted:
    """Cancel a pause."""
    return _accept(answers, run_id, "resume", caller)
