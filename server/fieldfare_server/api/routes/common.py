"""Parameters that the routers share: the application's answers, pages, names in paths."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Request

from fieldfare.names import LONGEST_NAME, NAME
from fieldfare_server.api.answers import Answers


def _answers(request: Request) -> Answers:
    answers: Answers = request.app.state.answers
    return answers


AnswersOf = Annotated[Answers, Depends(_answers)]
PopulationName = Annotated[str, Path(max_length=LONGEST_NAME, pattern=NAME, examples=["aircraft"])]
RunId = Annotated[str, Path(max_length=LONGEST_NAME, pattern=NAME, examples=["7f3a90c1d2e4"])]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the previous page")]
Limit = Annotated[int, Query(ge=1, le=500, description="most items on the page")]
Format = Annotated[Literal["json", "csv"], Query(alias="format", description="csv: a table to download")]
