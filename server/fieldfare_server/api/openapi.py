"""The OpenAPI document: FastAPI's, with what every route may answer, and without what none sends."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.routing import APIRoute

from fieldfare_server.api.problems import Problem, responses

# What `Guard` refuses before a route is found, and FastAPI where a body is not JSON.
_EVERYWHERE = responses(400, 408, 413, 414, 421, 429)
SERVERS = [{"url": "/", "description": "the service that sent this document"}]


def operation_id(route: APIRoute) -> str:
    """Return the name of an operation: that of its function."""
    return route.name.rstrip("_")


def describe(app: FastAPI) -> None:
    """Replace `app.openapi` by one that completes the document. It is computed once."""
    original = app.openapi

    def openapi() -> dict[str, object]:
        if app.openapi_schema is None:
            document = original()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            schemas["Problem"] = Problem.model_json_schema()
            for operations in document["paths"].values():
                for method, operation in operations.items():
                    for status, answer in _EVERYWHERE.items():
                        operation["responses"].setdefault(str(status), answer)
                    if method == "get" and "security" in operation:
                        # The service may let callers on its own machine read without a token.
                        operation["security"].append({})
            app.openapi_schema = document
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
