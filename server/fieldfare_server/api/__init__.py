"""The budget service: what was spent, on what, and what is left, for people and for machines. Holds no model."""

from __future__ import annotations

from fastapi import FastAPI

from fieldfare_server.api.app import build
from fieldfare_server.api.ledger_store import LedgerStore
from fieldfare_server.api.settings import Settings
from fieldfare_server.ledger import Ledger

__all__ = ["LedgerStore", "Settings", "build", "create_app"]


def create_app(ledger_url: str, settings: Settings | None = None) -> FastAPI:
    """The service over the ledger at `ledger_url`. Raises `LedgerError` if there is none, or it is of another version.

    Waits only briefly for a database that is away: a probe must be answered, not hung.
    """
    return build(LedgerStore(Ledger.open(ledger_url, patience=2.0)), settings or Settings())
