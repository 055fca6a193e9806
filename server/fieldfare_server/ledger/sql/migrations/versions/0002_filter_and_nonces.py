"""Budgets valid under adaptive choice, one nonce a round, and the strategy that a run applies.

* `populations.leak`: D of the filter (`fieldfare.accounting.filter`), fixed when the population is made; of older
  populations a share of the delta that they were created with, by their journal, which a reader can recompute;
* `runs.price`: JSON of the run's planned price in the filter; NULL for runs of version 0001, which are priced again;
* `runs.format`: how a run's noise rows are derived and its charge is computed; 0 for runs of version 0001;
* `runs.strategy`: SHA-256 of the strategy that the run applies, where it was stored by content;
* `rounds.nonce`: hex of the 128 bits that the noise rows born in a committed round are drawn with.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


# As `filter.default_leak` has them; a test keeps them equal.
SAMPLED_SHARE, PLAIN_SHARE = 0.1, 2.0**-60


def upgrade() -> None:
    op.add_column("populations", sa.Column("leak", sa.Double(), nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("price", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("format", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("strategy", sa.String(length=64), nullable=True))
    op.add_column("rounds", sa.Column("nonce", sa.String(length=32), nullable=True))
    op.create_index("uq_rounds_nonce", "rounds", ["nonce"], unique=True)
    _fill_leaks()


def _fill_leaks() -> None:
    connection = op.get_bind()
    created = sa.text("SELECT population, body FROM audit WHERE action = 'population.create'")
    for name, text in connection.execute(created).all():
        body = json.loads(text)
        share = SAMPLED_SHARE if body["adjacency"] == "add_remove" else PLAIN_SHARE
        values = {"leak": share * body["delta"], "name": name}
        connection.execute(sa.text("UPDATE populations SET leak = :leak WHERE name = :name"), values)
