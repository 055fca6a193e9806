"""What the journal names by hash, in a table of its own, so that every table made of the journal can be made again.

* `objects`: plans, salts and statistics, by SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_PUT = sa.text("INSERT INTO objects (hash, content) VALUES (:hash, :content) ON CONFLICT (hash) DO NOTHING")


def _contents() -> Iterator[bytes]:
    connection = op.get_bind()
    for query in (
        "SELECT salt FROM populations",
        "SELECT plan FROM runs",
        "SELECT statistics FROM rounds WHERE statistics <> '{}'",
    ):
        for (content,) in connection.execute(sa.text(query)):
            yield content.encode() if isinstance(content, str) else bytes(content)


def upgrade() -> None:
    op.create_table(
        "objects",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_objects"),
    )
    batch = []
    for content in _contents():
        batch.append({"hash": hashlib.sha256(content).hexdigest(), "content": content})
        if len(batch) == 1000:
            op.get_bind().execute(_PUT, batch)
            batch.clear()
    if batch:
        op.get_bind().execute(_PUT, batch)
    for event in ("UPDATE", "DELETE"):
        name, message = f"objects_{event.lower()}", "objects are append-only"
        if op.get_bind().dialect.name == "sqlite":
            op.execute(f"CREATE TRIGGER {name} BEFORE {event} ON objects BEGIN SELECT RAISE(ABORT, '{message}'); END")
            continue
        body = f"BEGIN RAISE EXCEPTION '{message}'; END"
        op.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        op.execute(f"CREATE TRIGGER {name} BEFORE {event} ON objects FOR EACH ROW EXECUTE FUNCTION {name}()")
        if event == "DELETE":
            op.execute(
                f"CREATE TRIGGER {name}_truncate BEFORE TRUNCATE ON objects "
                f"FOR EACH STATEMENT EXECUTE FUNCTION {name}()"
            )
