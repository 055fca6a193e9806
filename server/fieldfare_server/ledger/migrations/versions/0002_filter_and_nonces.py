"""Budgets valid under adaptive choice, one nonce a round, and the strategy that a run applies.

* `populations.leak`: D of the filter (`fieldfare.accounting.filter`), fixed when the population is made;
* `runs.price`: JSON of the run's planned price in the filter; NULL for runs of version 0001, which are priced again;
* `runs.format`: how a run's noise rows are derived and its charge is computed; 0 for runs of version 0001;
* `runs.strategy`: SHA-256 of the strategy that the run applies, where it was stored by content;
* `rounds.nonce`: hex of the 128 bits that the noise rows born in a committed round are drawn with.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("populations", sa.Column("leak", sa.Double(), nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("price", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("format", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("strategy", sa.String(length=64), nullable=True))
    op.add_column("rounds", sa.Column("nonce", sa.String(length=32), nullable=True))
    op.create_index("uq_rounds_nonce", "rounds", ["nonce"], unique=True)
