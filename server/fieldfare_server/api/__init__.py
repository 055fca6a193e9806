"""The budget service: what was spent, on what, and what is left, for people and for machines. It holds no model."""

from __future__ import annotations

from fieldfare_server.api.app import create_app
from fieldfare_server.api.settings import Settings

__all__ = ["Settings", "create_app"]
