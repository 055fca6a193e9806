"""Every run is of one format; `sql.convert` then brings the log of an earlier version into it."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.drop_column("runs", "format")
