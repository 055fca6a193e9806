"""What each user has spent, and what other trainers charge.

* `populations.accounting`: "individual" where the ledger keeps odometers; older populations stay "worst-case" until a
  person has them recomputed;
* `runs.accounting`: how a run is charged; `runs.most`: the most that it can cost one user, in units of 2^-44 mu^2;
* `participations.charges`: what a round cost each of its users, in their order (`odometer_tables.encode`);
* `odometers`: what ended runs have cost each user, 8 bytes a user;
* `pledges`: what a run under way may still take of each user, with what it has taken;
* `charges`: losses that other trainers reserve, commit and release.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


_KEPT = " OR ".join(f'NEW."{name}" <> OLD."{name}"' for name in ("round_id", "run_seq", "index", "count", "users"))
# Who took part never changes. What it cost each user may be added once, to rounds from before odometers.
_FIXED = f"OLD.charges IS NOT NULL OR {_KEPT}"


def _let_charges_be_added() -> None:
    name, message = "participations_keep", "participation does not change"
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"DROP TRIGGER {name}")
        op.execute(
            f"CREATE TRIGGER {name} BEFORE UPDATE ON participations WHEN {_FIXED} "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
        return
    test = f"IF {_FIXED} THEN RAISE EXCEPTION '{message}'; END IF;"
    op.execute(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {test} RETURN NEW; END $$"
    )


def upgrade() -> None:
    for table in ("populations", "runs"):
        kind = sa.Column("accounting", sa.String(length=12), nullable=False, server_default="worst-case")
        op.add_column(table, kind)
    op.add_column("runs", sa.Column("most", sa.BigInteger(), nullable=True))
    op.add_column("participations", sa.Column("charges", sa.LargeBinary(), nullable=True))
    _let_charges_be_added()
    op.create_table(
        "odometers",
        sa.Column("population_id", sa.Integer(), nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("spent", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["population_id"], ["populations.id"], name="fk_odometers_population_id"),
        sa.PrimaryKeyConstraint("population_id", "first", name="pk_odometers"),
    )
    op.create_table(
        "pledges",
        sa.Column("run_seq", sa.Integer(), nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("caps", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_seq"], ["runs.seq"], name="fk_pledges_run_seq"),
        sa.PrimaryKeyConstraint("run_seq", "first", name="pk_pledges"),
    )
    op.create_table(
        "charges",
        sa.Column("population_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(length=100), nullable=False),
        sa.Column("who", sa.String(length=200), nullable=False),
        sa.Column("what", sa.String(length=200), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("loss", sa.Text(), nullable=False),
        sa.Column("price", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("reserved_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["population_id"], ["populations.id"], name="fk_charges_population_id"),
        sa.PrimaryKeyConstraint("population_id", "key", name="pk_charges"),
    )
