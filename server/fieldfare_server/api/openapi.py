"""The OpenAPI document: FastAPI's, with the `Problem` schema and without schemas of errors that are not sent."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from fieldfare_server.api.problems import Problem


def describe(app: FastAPI) -> None:
    """Replace `app.openapi` by one that adds the `Problem` schema. The document is computed once."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = original()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            schemas["Problem"] = Problem.model_json_schema()
            app.openapi_schema = document
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
