"""Populations: the budgets."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from fieldfare_server.api.auth import Reader
from fieldfare_server.api.etag import conditional
from fieldfare_server.api.problems import responses
from fieldfare_server.api.routes.common import AnswersOf, Cursor, Limit, PopulationName
from fieldfare_server.api.schemas import Page, Population

router = APIRouter(prefix="/v1/populations", tags=["populations"])


@router.get("", response_model=Page[Population], responses=responses(304, 400, 401, 403, 422, 429, 503))
def populations(request: Request, _: Reader, answers: AnswersOf, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """Every population with its budget, by name."""
    return conditional(request, answers.populations(cursor, limit))


@router.get("/{name}", response_model=Population, responses=responses(304, 401, 403, 404, 422, 429, 503))
def population(request: Request, _: Reader, answers: AnswersOf, name: PopulationName) -> Response:
    """One population: budget, spent, reserved, remaining, rounds left, projected end."""
    return conditional(request, answers.population(name))
