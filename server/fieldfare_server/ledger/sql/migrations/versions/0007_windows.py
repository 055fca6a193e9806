"""Populations have calendar windows: `window_epsilon` may begin in each `window_every`; NULL: no window."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("populations", sa.Column("window_epsilon", sa.Double(), nullable=True))
    op.add_column("populations", sa.Column("window_every", sa.String(length=10), nullable=True))
