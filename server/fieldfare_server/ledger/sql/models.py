"""The ledger's tables. The migrations create them; a test keeps the two equal.

The journal (table `audit`) is the ledger's spine: append-only, each row chained to the one before; every other row can
be recomputed from it (`fieldfare_server.evidence.verify`). Privacy losses are JSON text of `PrivacyLoss`; the modules
that write binary columns document them (`blobs`, `users`).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

CREDENTIAL_ROWS = "action IN ('token.create', 'token.revoke')"
"""The journal rows that make and unmake tokens; literals, because a database uses a partial index only for those."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

head = Table(
    "head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("ledger", String(32), nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("signed", Text),
    CheckConstraint("id = 1", name="one_row"),
)
"""One row: how long the journal is and where it ends. Every writer locks it first, so writers are serialised.
`signed`: the newest head that a coordinator signed (`fieldfare.signed_head`), for readers to show."""

journal = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("action", String(40), nullable=False),
    Column("population", String(100)),
    Column("run", String(40)),
    Column("round", Integer),
    Column("event", String(32), nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    UniqueConstraint("event"),
    Index(None, "run"),
    Index(None, "population"),
    Index("ix_audit_tokens", "id", sqlite_where=text(CREDENTIAL_ROWS), postgresql_where=text(CREDENTIAL_ROWS)),
)
"""Append-only (triggers). `at`: seconds since 1970 by the writer's clock, informative; the order is `id`'s."""

objects = Table(
    "objects",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
"""Plans, salts and statistics, which the journal names by SHA-256. Append-only (triggers). With these,
`users` and `participations`, whose rows it names too, every other table can be made again (`rebuild`)."""

populations = Table(
    "populations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(100), nullable=False),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("adjacency", String(20), nullable=False),
    Column("unit", String(100), nullable=False),
    Column("simulated", Boolean, nullable=False),
    Column("state", String(20), nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("users", BigInteger, nullable=False),
    Column("settled", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("created_by", String(200), nullable=False),
    Column("leak", Double, nullable=False, server_default="0"),
    Column("bound_epsilon", Double, nullable=False, server_default="0"),
    Column("bound_delta", Double, nullable=False, server_default="0"),
    Column("ceiling_epsilon", Double),
    Column("ceiling_delta", Double),
    Column("reservation_seconds", Double),
    Column("two_persons", Boolean, nullable=False, server_default=false()),
    Column("accounting", String(12), nullable=False, server_default="worst-case"),
    Column("window_epsilon", Double),
    Column("window_every", String(10)),
    UniqueConstraint("name"),
    CheckConstraint("epsilon > 0 AND delta > 0 AND delta < 1", name="budget"),
)
"""`settled`: the composed loss of every finished run, informative: `budget.sums` decides by the prices in `runs`.
`leak`: D of the filter, fixed at creation. `bound_*`: the largest budget that there ever was, which is the
guarantee. `ceiling_*`: no raise goes above (NULL: no ceiling). `two_persons`: a raise waits for a second
person. `window_*`: what may begin in each calendar day, week, month or year (NULL: no window).
`reservation_seconds`: how long a run without a coordinator keeps its reservation (NULL: without end).
`accounting`: "individual" where odometers are kept (`odometers`)."""

proposals = Table(
    "proposals",
    metadata,
    Column("id", String(20), primary_key=True),
    Column("population_id", ForeignKey("populations.id"), nullable=False),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("proposed_at", Double, nullable=False),
    Column("proposed_by", String(200), nullable=False),
    Column("person", String(200), nullable=False),
    Column("decided_at", Double),
    Column("decided_by", String(200)),
)
"""Raises that wait for a second person, and what became of them. `person`: the token's id, or the system's user."""

users = Table(
    "users",
    metadata,
    Column("population_id", ForeignKey("populations.id"), primary_key=True),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("count", Integer, nullable=False),
    Column("hashes", LargeBinary, nullable=False),
)
"""Users `first` ... `first + count - 1` of a population: 8-byte salted hashes, concatenated in order."""

runs = Table(
    "runs",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", String(40), nullable=False),
    Column("population_id", ForeignKey("populations.id"), nullable=False),
    Column("plan", Text, nullable=False),
    Column("plan_digest", String(128), nullable=False),
    Column("rounds", Integer, nullable=False),
    Column("planned", Text, nullable=False),
    Column("spent", Text, nullable=False),
    Column("noise_source", String(40), nullable=False),
    Column("key_commitment", String(128), nullable=False),
    Column("trust_node_ids", Boolean, nullable=False),
    Column("state", String(20), nullable=False),
    Column("request", String(20)),
    Column("message", Text, nullable=False),
    Column("next_round", Integer, nullable=False),
    Column("checkpoint", String(64)),
    Column("started_at", Double, nullable=False),
    Column("started_by", String(200), nullable=False),
    Column("ended_at", Double),
    Column("price", Text),
    Column("strategy", String(64)),
    Column("accounting", String(12), nullable=False, server_default="worst-case"),
    Column("most", BigInteger),
    UniqueConstraint("id"),
    Index(None, "population_id", "state"),
    Index(
        "uq_runs_key",
        "key_commitment",
        unique=True,
        sqlite_where=text("noise_source <> 'seeded'"),
        postgresql_where=text("noise_source <> 'seeded'"),
    ),
)
"""`strategy`: SHA-256 of the applied strategy.
`most`: under individual accounting, the most that the run can cost one user, in units of 2^-44 mu^2.
`uq_runs_key`: a key serves one run, because the same noise under two sums would tell their difference."""

leases = Table(
    "leases",
    metadata,
    Column("run_seq", ForeignKey("runs.seq"), primary_key=True),
    Column("holder", String(300), nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("renewed_at", Double, nullable=False),
    Column("seconds", Double, nullable=False),
)
"""`token` rises with every new holder and fences off the old one; `beat` rises with every renewal."""

rounds = Table(
    "rounds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_seq", ForeignKey("runs.seq"), nullable=False),
    Column("index", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("noise_row", Integer, nullable=False),
    Column("state", String(12), nullable=False),
    Column("cohort", LargeBinary),
    Column("cohort_size", Integer, nullable=False),
    Column("reports", Integer, nullable=False),
    Column("participants", Integer, nullable=False),
    Column("spent", Text),
    Column("epsilon", Double),
    Column("checkpoint", String(64)),
    Column("statistics", Text, nullable=False),
    Column("rejects", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("closed_at", Double),
    Column("nonce", String(32)),
    UniqueConstraint("run_seq", "index", "attempt"),
    Index("uq_rounds_nonce", "nonce", unique=True),
    Index(
        "uq_rounds_committed_noise_row",
        "run_seq",
        "noise_row",
        unique=True,
        sqlite_where=text("state = 'committed'"),
        postgresql_where=text("state = 'committed'"),
    ),
    Index(
        "uq_rounds_one_open",
        "run_seq",
        unique=True,
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
)
"""`cohort` is kept only while the round is open; `spent` is the run's cumulative loss after the round."""

participations = Table(
    "participations",
    metadata,
    Column("round_id", ForeignKey("rounds.id"), primary_key=True),
    Column("run_seq", ForeignKey("runs.seq"), nullable=False),
    Column("index", Integer, nullable=False),
    Column("count", Integer, nullable=False),
    Column("users", LargeBinary, nullable=False),
    Column("charges", LargeBinary),
    UniqueConstraint("run_seq", "index"),
)
"""One blob a committed round: the indices of the users whose updates are in the released sum.
`charges`: under individual accounting, what the round cost each of them, in the same order."""

odometers = Table(
    "odometers",
    metadata,
    Column("population_id", ForeignKey("populations.id"), primary_key=True),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("count", Integer, nullable=False),
    Column("spent", LargeBinary, nullable=False),
)
"""What ended runs have cost users `first` ... `first + count - 1`: 8 bytes each, in units of 2^-44 mu^2."""

pledges = Table(
    "pledges",
    metadata,
    Column("run_seq", ForeignKey("runs.seq"), primary_key=True),
    Column("first", BigInteger, primary_key=True, autoincrement=False),
    Column("count", Integer, nullable=False),
    Column("caps", LargeBinary, nullable=False),
)
"""The most that a run under way may cost each of users `first` ... `first + count - 1`; no other run may use it."""

charges = Table(
    "charges",
    metadata,
    Column("population_id", ForeignKey("populations.id"), primary_key=True),
    Column("key", String(100), primary_key=True),
    Column("who", String(200), nullable=False),
    Column("what", String(200), nullable=False),
    Column("why", Text, nullable=False),
    Column("loss", Text, nullable=False),
    Column("price", Text, nullable=False),
    Column("state", String(12), nullable=False),
    Column("reserved_at", Double, nullable=False),
    Column("closed_at", Double),
)
"""Losses that other trainers charge to all users of a population (`foreign`). `key`: the charger's idempotency key."""

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(20), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("scopes", String(100), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("created_by", String(200), nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("populations", Text),
    UniqueConstraint("digest"),
)
