"""Alembic runs this file: it migrates on the connection that `migrate.upgrade` opened, in its transaction."""

from __future__ import annotations

from alembic import context

from fieldfare_server.ledger.sql.models import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
