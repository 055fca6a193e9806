"""All that a ledger's database holds."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select, text

from fieldfare_server.ledger.sql import models


def everything(connection: Connection) -> dict[str, list[Any]]:
    """All rows of all tables, by their names; on SQLite with the schema."""
    tables = models.metadata.sorted_tables
    rows = {table.name: sorted(connection.execute(select(table)).all(), key=repr) for table in tables}
    if connection.dialect.name == "sqlite":
        schema = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        rows["schema"] = sorted(connection.execute(text(schema)).all(), key=repr)
    return rows
