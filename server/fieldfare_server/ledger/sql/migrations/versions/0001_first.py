"""The first ledger."""

from __future__ import annotations

import hashlib
import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# (name, event, table, condition, message): statements the database itself refuses.
_GUARDS = (
    (
        "audit_append",
        "INSERT",
        "audit",
        "NEW.id <> (SELECT count FROM head) + 1",
        "the audit log only grows at its end",
    ),
    ("audit_keep", "UPDATE", "audit", "", "the audit log is append-only"),
    ("audit_stay", "DELETE", "audit", "", "the audit log is append-only"),
    ("head_forward", "UPDATE", "head", "NEW.count <> OLD.count + 1", "the audit log never gets shorter"),
    ("head_stay", "DELETE", "head", "", "the audit log never gets shorter"),
    ("rounds_keep", "UPDATE", "rounds", "OLD.state <> 'open'", "a closed round does not change"),
    ("rounds_stay", "DELETE", "rounds", "", "rounds are not removed"),
    ("participations_keep", "UPDATE", "participations", "", "participation does not change"),
    ("participations_stay", "DELETE", "participations", "", "participation does not change"),
    ("users_keep", "UPDATE", "users", "", "users are not renumbered"),
    ("users_stay", "DELETE", "users", "", "users are not renumbered"),
)


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("population", sa.String(length=100), nullable=True),
        sa.Column("run", sa.String(length=40), nullable=True),
        sa.Column("round", sa.Integer(), nullable=True),
        sa.Column("event", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("previous", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sa.UniqueConstraint("event", name=op.f("uq_audit_event")),
    )
    op.create_index(op.f("ix_audit_population"), "audit", ["population"], unique=False)
    op.create_index(op.f("ix_audit_run"), "audit", ["run"], unique=False)
    op.create_table(
        "head",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ledger", sa.String(length=32), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_head_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_head")),
    )
    op.create_table(
        "populations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("delta", sa.Double(), nullable=False),
        sa.Column("adjacency", sa.String(length=20), nullable=False),
        sa.Column("unit", sa.String(length=100), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("users", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.CheckConstraint("epsilon > 0 AND delta > 0 AND delta < 1", name=op.f("ck_populations_budget")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_populations")),
        sa.UniqueConstraint("name", name=op.f("uq_populations_name")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("digest", name=op.f("uq_tokens_digest")),
    )
    op.create_table(
        "runs",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("population_id", sa.Integer(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("plan_digest", sa.String(length=128), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("planned", sa.Text(), nullable=False),
        sa.Column("spent", sa.Text(), nullable=False),
        sa.Column("noise_source", sa.String(length=40), nullable=False),
        sa.Column("key_commitment", sa.String(length=128), nullable=False),
        sa.Column("trust_node_ids", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("request", sa.String(length=20), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("next_round", sa.Integer(), nullable=False),
        sa.Column("checkpoint", sa.String(length=64), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("started_by", sa.String(length=200), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["population_id"], ["populations.id"], name=op.f("fk_runs_population_id")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_runs")),
        sa.UniqueConstraint("id", name=op.f("uq_runs_id")),
    )
    op.create_index(op.f("ix_runs_population_id_state"), "runs", ["population_id", "state"], unique=False)
    op.create_index(
        "uq_runs_key",
        "runs",
        ["key_commitment"],
        unique=True,
        sqlite_where=sa.text("noise_source <> 'seeded'"),
        postgresql_where=sa.text("noise_source <> 'seeded'"),
    )
    op.create_table(
        "users",
        sa.Column("population_id", sa.Integer(), nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("hashes", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["population_id"], ["populations.id"], name=op.f("fk_users_population_id")),
        sa.PrimaryKeyConstraint("population_id", "first", name=op.f("pk_users")),
    )
    op.create_table(
        "leases",
        sa.Column("run_seq", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(length=300), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("renewed_at", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_seq"], ["runs.seq"], name=op.f("fk_leases_run_seq")),
        sa.PrimaryKeyConstraint("run_seq", name=op.f("pk_leases")),
    )
    op.create_table(
        "rounds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_seq", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("noise_row", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("cohort", sa.LargeBinary(), nullable=True),
        sa.Column("cohort_size", sa.Integer(), nullable=False),
        sa.Column("reports", sa.Integer(), nullable=False),
        sa.Column("participants", sa.Integer(), nullable=False),
        sa.Column("spent", sa.Text(), nullable=True),
        sa.Column("epsilon", sa.Double(), nullable=True),
        sa.Column("checkpoint", sa.String(length=64), nullable=True),
        sa.Column("statistics", sa.Text(), nullable=False),
        sa.Column("rejects", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("closed_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run_seq"], ["runs.seq"], name=op.f("fk_rounds_run_seq")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rounds")),
        sa.UniqueConstraint("run_seq", "index", "attempt", name=op.f("uq_rounds_run_seq_index_attempt")),
    )
    op.create_index(
        "uq_rounds_committed_noise_row",
        "rounds",
        ["run_seq", "noise_row"],
        unique=True,
        sqlite_where=sa.text("state = 'committed'"),
        postgresql_where=sa.text("state = 'committed'"),
    )
    op.create_index(
        "uq_rounds_one_open",
        "rounds",
        ["run_seq"],
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_table(
        "participations",
        sa.Column("round_id", sa.Integer(), nullable=False),
        sa.Column("run_seq", sa.Integer(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("users", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name=op.f("fk_participations_round_id")),
        sa.ForeignKeyConstraint(["run_seq"], ["runs.seq"], name=op.f("fk_participations_run_seq")),
        sa.PrimaryKeyConstraint("round_id", name=op.f("pk_participations")),
        sa.UniqueConstraint("run_seq", "index", name=op.f("uq_participations_run_seq_index")),
    )
    head = sa.table("head", sa.column("id"), sa.column("ledger"), sa.column("count"), sa.column("hash"))
    ledger = secrets.token_hex(16)
    genesis = hashlib.sha256(b"fieldfare.ledger.v1\0" + ledger.encode()).hexdigest()
    op.bulk_insert(head, [{"id": 1, "ledger": ledger, "count": 0, "hash": genesis}])
    for name, event, table, condition, message in _GUARDS:
        _guard(name, event, table, condition, message)


def _guard(name: str, event: str, table: str, condition: str, message: str) -> None:
    if op.get_bind().dialect.name == "sqlite":
        when = f" WHEN {condition}" if condition else ""
        op.execute(f"CREATE TRIGGER {name} BEFORE {event} ON {table}{when} BEGIN SELECT RAISE(ABORT, '{message}'); END")
        return
    test = f"IF {condition} THEN RAISE EXCEPTION '{message}'; END IF;" if condition else f"RAISE EXCEPTION '{message}';"
    row = "OLD" if event == "DELETE" else "NEW"
    op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {test} RETURN {row}; END $$")
    op.execute(f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
    if event == "DELETE":
        op.execute(
            f"CREATE TRIGGER {name}_truncate BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
        )
