"""The page: static files. They hold no data and need no token; the page fetches its figures like any client."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, Request
from fastapi.responses import Response

from fieldfare_server.api.etag import tag_of, tagged
from fieldfare_server.api.problems import ProblemError

router = APIRouter(include_in_schema=False)

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


def _load() -> dict[str, tuple[bytes, str, str]]:
    files: dict[str, tuple[bytes, str, str]] = {}
    for entry in resources.files("fieldfare_server.dashboard").joinpath("static").iterdir():
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None:
            body = entry.read_bytes()
            files[entry.name] = (body, kind, tag_of(body))
    return files


# A closed table, read at start: no path of a request ever reaches the file system.
_FILES = _load()


def _file(request: Request, name: str) -> Response:
    if name not in _FILES:
        raise ProblemError(404, "not-found", "there is no such file.")
    body, kind, tag = _FILES[name]
    return tagged(request, body, tag, kind, {"Cache-Control": "no-cache"})


@router.get("/")
async def page(request: Request) -> Response:
    """The budget page."""
    return _file(request, "index.html")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """The API reference, drawn from the OpenAPI document. It fetches nothing from other servers."""
    return _file(request, "docs.html")


@router.get("/favicon.ico")
async def favicon(request: Request) -> Response:
    """The icon, which browsers request by themselves."""
    return _file(request, "icon.svg")


@router.get("/assets/{name}")
async def asset(request: Request, name: str) -> Response:
    """A file of the page."""
    return _file(request, name)
