"""The budget service: what was spent, on what, and what is left, for people and for machines. Holds no model."""

from fieldfare_server.api.app import build
from fieldfare_server.api.settings import Settings

__all__ = ["Settings", "build"]
