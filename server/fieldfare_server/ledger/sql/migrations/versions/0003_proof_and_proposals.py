"""Budgets that are changed with reasons and limits, tokens for some populations, and the index that proves a token.

* `populations.bound_epsilon`, `bound_delta`: the largest budget that the population ever had, which is its guarantee;
  of older populations their budget, which was only ever raised;
* `populations.ceiling_epsilon`, `ceiling_delta`: what no raise may exceed; NULL: no ceiling;
* `populations.two_persons`: whether a raise waits for a second person;
* `populations.reservation_seconds`: how long a run that nobody holds keeps its reservation; NULL: without end;
* `tokens.populations`: names of the populations that the token is for, with spaces between; NULL: all;
* `head.signed`: the newest head that a coordinator signed; NULL: none yet;
* `proposals`: raises that wait for a second person, and what became of them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TOKENS = sa.text("action IN ('token.create', 'token.revoke')")


def upgrade() -> None:
    for name in ("bound_epsilon", "bound_delta"):
        op.add_column("populations", sa.Column(name, sa.Double(), nullable=False, server_default="0"))
    op.execute(sa.text("UPDATE populations SET bound_epsilon = epsilon, bound_delta = delta"))
    for name in ("ceiling_epsilon", "ceiling_delta", "reservation_seconds"):
        op.add_column("populations", sa.Column(name, sa.Double(), nullable=True))
    op.add_column("populations", sa.Column("two_persons", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("head", sa.Column("signed", sa.Text(), nullable=True))
    op.add_column("tokens", sa.Column("populations", sa.Text(), nullable=True))
    op.create_table(
        "proposals",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("population_id", sa.Integer(), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("proposed_at", sa.Double(), nullable=False),
        sa.Column("proposed_by", sa.String(length=200), nullable=False),
        sa.Column("person", sa.String(length=200), nullable=False),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.Column("decided_by", sa.String(length=200), nullable=True),
        sa.ForeignKeyConstraint(["population_id"], ["populations.id"], name=op.f("fk_proposals_population_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_proposals")),
    )
    op.create_index("ix_audit_tokens", "audit", ["id"], sqlite_where=_TOKENS, postgresql_where=_TOKENS)
