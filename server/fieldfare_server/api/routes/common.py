"""What the routers share: the store of the application, page parameters, names in paths."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from fieldfare_server.api.store import Store


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


TheStore = Annotated[Store, Depends(_store)]
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
PopulationName = Annotated[str, Path(max_length=100, pattern=NAME, examples=["aircraft"])]
RunId = Annotated[str, Path(max_length=100, pattern=NAME, examples=["7f3a90c1d2e4"])]
Cursor = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]
Limit = Annotated[int, Query(ge=1, le=500, description="most items on the page")]
