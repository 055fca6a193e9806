"""Populations: the budgets, and the requests that change them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from fieldfare.names import LONGEST_NAME
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.auth import Admin, Caller, Charger, Reader
from fieldfare_server.api.cursors import Order
from fieldfare_server.api.etag import conditional
from fieldfare_server.api.population_schemas import (
    Charge,
    NewCharge,
    Population,
    PopulationHistogram,
    WhatIf,
    WhatIfAnswer,
)
from fieldfare_server.api.problems import responses
from fieldfare_server.api.routes.common import AnswersOf, Cursor, Format, Limit, PopulationName
from fieldfare_server.api.schemas import Change, NewWindow, Note, Page, Reason
from fieldfare_server.api.tables import CSV, csv_of
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.history import History, Moment
from fieldfare_server.ledger.views import PopulationView, every

router = APIRouter(prefix="/v1/populations", tags=["populations"])
proposals = APIRouter(prefix="/v1/proposals", tags=["populations"])

_CHANGE = responses(401, 403, 404, 409, 422, 429, 503)
ProposalId = Annotated[str, Path(max_length=20, pattern="^[0-9a-f]+$", examples=["5f0c1a2b3c4d"])]


@router.get("", response_model=Page[Population], responses=CSV | responses(304, 400, 401, 403, 422, 429, 503))
def populations(
    request: Request,
    caller: Reader,
    answers: AnswersOf,
    cursor: Cursor = None,
    limit: Limit = 50,
    order: Annotated[Order, Query(description="nearness: the ones nearest to their limits first")] = "name",
    search: Annotated[str, Query(max_length=LONGEST_NAME, description="only names that hold this text")] = "",
    as_: Format = "json",
) -> Response:
    """Every population that the caller may see, with its budget. As CSV: all from the cursor on."""
    only = caller.populations
    if as_ == "csv":
        pages = every(lambda at, most: answers.populations(at, most, only, order, search), cursor)
        return csv_of(Population, pages, "fieldfare-populations.csv")
    return conditional(request, answers.populations(cursor, limit, only, order, search))


@router.get("/{name}", response_model=Population, responses=responses(304, 401, 403, 404, 422, 429, 503))
def population(request: Request, caller: Reader, answers: AnswersOf, name: PopulationName) -> Response:
    """One population: budget, spent, reserved, remaining, rounds left, projected end."""
    caller.require(name)
    return conditional(request, answers.population(name, caller.populations))


@router.get("/{name}/history", response_model=History, responses=CSV | responses(304, 401, 403, 404, 422, 429, 503))
def population_history(
    request: Request,
    caller: Reader,
    answers: AnswersOf,
    name: PopulationName,
    points: Annotated[int, Query(ge=2, le=2000, description="about how many moments; the newest is one")] = 200,
    as_: Format = "json",
) -> Response:
    """The budget over time: limit, committed and spent after each change, and who changed the limit and why."""
    caller.require(name)
    told = answers.history(name, points)
    if as_ == "csv":
        return csv_of(Moment, told.moments, f"{name}-history.csv")
    return conditional(request, told)


@router.get(
    "/{name}/participation", response_model=PopulationHistogram, responses=responses(304, 401, 403, 404, 422, 429, 503)
)
def population_participation(request: Request, caller: Reader, answers: AnswersOf, name: PopulationName) -> Response:
    """How many users took part in how many rounds of all runs together: counts of users, never one user's own."""
    caller.require(name)
    return conditional(request, answers.population_participation(name))


@router.get("/{name}/what-if", response_model=WhatIfAnswer, responses=responses(304, 401, 403, 404, 422, 429, 503))
def what_if(
    request: Request, caller: Reader, answers: AnswersOf, name: PopulationName, asked: Annotated[WhatIf, Query()]
) -> Response:
    """What a run's plan would cost with other rounds, cohort, mechanism, clip norm or epsilon.

    Nothing is reserved or written, and no data are read. One request is priced at a time.
    """
    caller.require(name)
    return conditional(request, answers.what_if(name, asked))


@router.get("/{name}/charges", responses=responses(401, 403, 404, 422, 429, 503))
def charges(caller: Reader, answers: AnswersOf, name: PopulationName) -> tuple[Charge, ...]:
    """What other trainers have reserved, spent or released, oldest first."""
    caller.require(name)
    return answers.charges(name)


@router.post("/{name}/charges", status_code=200, responses=responses(401, 403, 404, 409, 422, 429, 503))
def charge(caller: Charger, answers: AnswersOf, name: PopulationName, asked: NewCharge) -> Charge:
    """Reserve a loss before it happens, then commit it, or release it if it never did.

    A reservation that is never released stays charged. Which users took part is unknown, so all of them are
    charged. What another token has reserved, only an admin may commit or release.
    """
    caller.require(name)
    return answers.charge(name, asked, _actor(caller), caller.secret, "admin" in caller.scopes)


@router.post("/{name}/raise", responses=_CHANGE)
def raise_(caller: Admin, answers: AnswersOf, name: PopulationName, change: Change) -> Population:
    """Raise a budget. Where two persons are needed it waits: `proposals` shows it until another admin approves it."""
    return _changed(caller, answers, name, Ledger.raise_population, **change.model_dump(), person=caller.token_id)


@router.post("/{name}/tighten", responses=_CHANGE)
def tighten(caller: Admin, answers: AnswersOf, name: PopulationName, change: Change) -> Population:
    """Lower a budget, never below what is spent and reserved."""
    return _changed(caller, answers, name, Ledger.tighten_population, **change.model_dump())


@router.post("/{name}/window", responses=_CHANGE)
def window(caller: Admin, answers: AnswersOf, name: PopulationName, asked: NewWindow) -> Population:
    """Let only so much of a budget begin in each calendar day, week, month or year, or take that limit away."""
    return _changed(caller, answers, name, Ledger.set_window, **asked.model_dump())


@router.post("/{name}/note", responses=_CHANGE)
def note(caller: Admin, answers: AnswersOf, name: PopulationName, asked: Note) -> Population:
    """Write a note on a population into the log; its history lists it. Changes nothing."""
    return _changed(caller, answers, name, Ledger.note_population, **asked.model_dump())


@router.post("/{name}/close", responses=_CHANGE)
def close(caller: Admin, answers: AnswersOf, name: PopulationName, why: Reason) -> Population:
    """Accept no new run; runs under way go on."""
    return _changed(caller, answers, name, Ledger.close_population, **why.model_dump())


@router.post("/{name}/reopen", responses=_CHANGE)
def reopen(caller: Admin, answers: AnswersOf, name: PopulationName, why: Reason) -> Population:
    """Accept new runs again, on the budget as it stands."""
    return _changed(caller, answers, name, Ledger.reopen_population, **why.model_dump())


@proposals.post("/{proposal}/approve", responses=_CHANGE)
def approve(caller: Admin, answers: AnswersOf, proposal: ProposalId) -> Population:
    """Approve a raise that another person proposed, and apply it."""
    name, person = answers.proposal_population(proposal), str(caller.token_id)
    return _changed(caller, answers, name, Ledger.approve_raise, proposal, person=person)


@proposals.post("/{proposal}/withdraw", responses=_CHANGE)
def withdraw(caller: Admin, answers: AnswersOf, proposal: ProposalId, why: Reason) -> Population:
    """Take back, or refuse, a raise that waits."""
    name = answers.proposal_population(proposal)
    return _changed(caller, answers, name, Ledger.withdraw_raise, proposal, **why.model_dump())


def _changed(
    caller: Caller, answers: Answers, name: str, how: Callable[..., PopulationView], of: str = "", **given: object
) -> Population:
    """Change population `name` for its caller, by a method of `Ledger`. of: the proposal that it is about, if any."""
    caller.require(name)
    change = partial(how, actor=_actor(caller), **given)
    return answers.change(name, caller.secret, caller.populations, lambda ledger: change(ledger, of or name))


def _actor(caller: Caller) -> str:
    return f"token {caller.name}"
