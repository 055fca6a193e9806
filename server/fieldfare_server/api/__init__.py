"""The budget service: what was spent, on what, and what is left, for people and for machines. It holds no model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fieldfare_server.api.settings import Settings

if TYPE_CHECKING:
    from fieldfare_server.api.app import create_app

__all__ = ["Settings", "create_app"]


def __getattr__(name: str) -> Any:
    # `create_app` is imported on request: the command line asks in this process, and needs no web framework.
    if name == "create_app":
        from fieldfare_server.api.app import create_app

        return create_app
    raise AttributeError(name)
