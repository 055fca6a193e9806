"""Populations: the budgets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from fieldfare_server.api.auth import Reader
from fieldfare_server.api.etag import conditional
from fieldfare_server.api.problems import responses
from fieldfare_server.api.routes.common import AnswersOf, Cursor, Format, Limit, PopulationName
from fieldfare_server.api.schemas import History, Moment, Page, Population, WhatIf, WhatIfAnswer
from fieldfare_server.api.tables import CSV, csv_of, whole

router = APIRouter(prefix="/v1/populations", tags=["populations"])


@router.get("", response_model=Page[Population], responses=CSV | responses(304, 400, 401, 403, 422, 429, 503))
def populations(
    request: Request, _: Reader, answers: AnswersOf, cursor: Cursor = None, limit: Limit = 50, as_: Format = "json"
) -> Response:
    """Every population with its budget, by name. As CSV: all from the cursor on."""
    if as_ == "csv":
        return csv_of(Population, whole(answers.populations, cursor), "fieldfare-populations.csv")
    return conditional(request, answers.populations(cursor, limit))


@router.get("/{name}", response_model=Population, responses=responses(304, 401, 403, 404, 422, 429, 503))
def population(request: Request, _: Reader, answers: AnswersOf, name: PopulationName) -> Response:
    """One population: budget, spent, reserved, remaining, rounds left, projected end."""
    return conditional(request, answers.population(name))


@router.get("/{name}/history", response_model=History, responses=CSV | responses(304, 401, 403, 404, 422, 429, 503))
def history(
    request: Request,
    _: Reader,
    answers: AnswersOf,
    name: PopulationName,
    points: Annotated[int, Query(ge=2, le=2000, description="about how many moments; the newest is one")] = 200,
    as_: Format = "json",
) -> Response:
    """The budget over time: limit, committed and spent after each change, and who changed the limit and why."""
    told = answers.history(name, points)
    if as_ == "csv":
        return csv_of(Moment, told.moments, f"{name}-history.csv")
    return conditional(request, told)


@router.get("/{name}/what-if", response_model=WhatIfAnswer, responses=responses(304, 401, 403, 404, 422, 429, 503))
def what_if(
    request: Request, _: Reader, answers: AnswersOf, name: PopulationName, asked: Annotated[WhatIf, Query()]
) -> Response:
    """What a run's plan would cost with other rounds, cohort, mechanism, clip norm or epsilon.

    Nothing is reserved or written, and no data are read. One request is priced at a time.
    """
    return conditional(request, answers.what_if(name, asked))
