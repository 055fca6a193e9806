"""The ledger's tables. The migrations create them; a test keeps the two equal.

The journal (table `audit`) is the ledger's spine: append-only, each row chained to the one before; every other row can
be recomputed from it (`fieldfare_server.evidence.verify`). Privacy losses are JSON text of `PrivacyLoss`; the modules
that write binary columns document them (`blobs`, `users`).
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

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
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

from fieldfare_server.ledger.state import rows as facts

# The journal rows that make and unmake tokens; literals, because a database uses a partial index only for those.
CREDENTIAL_ROWS = "action IN ('token.create', 'token.revoke')"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _columns(fact: type[NamedTuple], **kinds: int | TypeEngine[Any] | Column[Any]) -> Iterator[Column[Any]]:
    """The columns of a table of facts, by their fields: of each one's type, and NULL where it may be None.

    kinds: of fields that this does not say all of: the most characters of a text, another type (where the log has a
        hash, the table has what it names), or the column.
    """
    for name, hint in get_type_hints(fact).items():
        if name in _OWNERS:
            column, target = _OWNERS[name]
            yield Column(column, ForeignKey(target), nullable=False)
            continue
        python = next(each for each in get_args(hint) or (hint,) if each is not NoneType)
        kind = kinds.get(name, _TYPES.get(python, Text()))
        if not isinstance(kind, Column):
            kind = Column(name, String(kind) if isinstance(kind, int) else kind, nullable=NoneType in get_args(hint))
        yield kind


_TYPES: dict[type, TypeEngine[Any]] = {float: Double(), int: Integer(), bool: Boolean()}
# Fields that name a row of another table: the column with its number, and what that refers to.
_OWNERS = {"population": ("population_id", "populations.id"), "run": ("run_seq", "runs.seq")}


def _blocks(name: str, owner: str, numbers: str) -> Table:
    """A table of 8 bytes a user, for users `first` ... `first + count - 1` of a population or a run."""
    column, target = _OWNERS[owner]
    return Table(
        name,
        metadata,
        Column(column, ForeignKey(target), primary_key=True),
        Column("first", BigInteger, primary_key=True, autoincrement=False),
        Column("count", Integer, nullable=False),
        Column(numbers, LargeBinary, nullable=False),
    )


# One row: how long the journal is and where it ends. Every writer locks it first, so writers are serialised.
# `signed`: the newest head that a coordinator signed (`fieldfare.signed_head`), for readers to show.
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

# Append-only (triggers). `at`: seconds since 1970 by the writer's clock, informative; the order is `id`'s.
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
    Index("ix_audit_tokens", "id", info={"where": CREDENTIAL_ROWS}),
)

# Plans, salts and statistics, which the journal names by SHA-256. Append-only (triggers). With these, `users`
# and `participations`, whose rows it names too, every other table can be made again (`rebuild`).
objects = Table(
    "objects",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

# `settled`: the composed loss of every finished run, informative: `budget.sums` decides by the prices in
# `runs`. `leak`: D of the filter, fixed at creation. `bound_*`: the largest budget that there ever was, which
# is the guarantee. `ceiling_*`: no raise goes above (NULL: no ceiling). `two_persons`: a raise waits for a
# second person. `window_*`: what may begin in each calendar day, week, month or year (NULL: no window).
# `reservation_seconds`: how long a run without a coordinator keeps its reservation (NULL: without end).
# `accounting`: "individual" where odometers are kept (`odometers`).
populations = Table(
    "populations",
    metadata,
    Column("id", Integer, primary_key=True),
    *_columns(
        facts.PopulationRow,
        **{"name": 100, "adjacency": 20, "unit": 100, "state": 20, "created_by": 200, "accounting": 12},
        **{"window_every": 10},
        salt=LargeBinary(),
        users=BigInteger(),
    ),
    UniqueConstraint("name"),
    CheckConstraint("epsilon > 0 AND delta > 0 AND delta < 1", name="budget"),
)

# Raises that wait for a second person, and what became of them. `person`: the token's id, or the system's user.
proposals = Table(
    "proposals",
    metadata,
    *_columns(facts.ProposalRow, id=20, state=20, proposed_by=200, person=200, decided_by=200),
    PrimaryKeyConstraint("id"),
)

# Users `first` ... `first + count - 1` of a population: 8-byte salted hashes, concatenated in order.
users = Table(
    "users",
    metadata,
    *_columns(facts.UsersRow, first=BigInteger(), hashes=LargeBinary()),
    PrimaryKeyConstraint("population_id", "first"),
)

# `strategy`: SHA-256 of the applied strategy. `most`: under individual accounting, the most that the run can
# cost one user, in units of 2^-44 mu^2. `uq_runs_key`: a key serves one run, because the same noise under two
# sums would tell their difference.
runs = Table(
    "runs",
    metadata,
    Column("seq", Integer, primary_key=True),
    *_columns(
        facts.RunRow,
        **{"id": 40, "plan_digest": 128, "noise_source": 40, "key_commitment": 128, "state": 20, "request": 20},
        **{"checkpoint": 64, "started_by": 200, "strategy": 64, "accounting": 12},
        most=BigInteger(),
        price=Column("price", Text),
    ),
    UniqueConstraint("id"),
    Index(None, "population_id", "state"),
    Index("uq_runs_key", "key_commitment", unique=True, info={"where": "noise_source <> 'seeded'"}),
)

# `token` rises with every new holder and fences off the old one; `beat` rises with every renewal.
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

# `cohort` is kept only while the round is open; `spent` is the run's cumulative loss after the round.
rounds = Table(
    "rounds",
    metadata,
    Column("id", Integer, primary_key=True),
    *_columns(facts.RoundRow, state=12, cohort=LargeBinary(), checkpoint=64, nonce=32),
    UniqueConstraint("run_seq", "index", "attempt"),
    Index("uq_rounds_nonce", "nonce", unique=True),
    Index("uq_rounds_committed_noise_row", "run_seq", "noise_row", unique=True, info={"where": "state = 'committed'"}),
    Index("uq_rounds_one_open", "run_seq", unique=True, info={"where": "state = 'open'"}),
)

# One blob a committed round: the indices of the users whose updates are in the released sum. `charges`: under
# individual accounting, what the round cost each of them, in the same order.
participations = Table(
    "participations",
    metadata,
    Column("round_id", ForeignKey("rounds.id"), primary_key=True),
    *_columns(facts.ParticipationRow, users=LargeBinary(), charges=LargeBinary()),
    UniqueConstraint("run_seq", "index"),
)

# What ended runs have cost users `first` ... `first + count - 1`: 8 bytes each, in units of 2^-44 mu^2.
odometers = _blocks("odometers", "population", "spent")

# The most that a run under way may cost each of users `first` ... `first + count - 1`; no other run may use it.
pledges = _blocks("pledges", "run", "caps")

# Losses that other trainers charge to all users of a population (`foreign`). `key`: the charger's idempotency key.
charges = Table(
    "charges",
    metadata,
    *_columns(facts.ChargeRow, key=100, who=200, what=200, state=12),
    PrimaryKeyConstraint("population_id", "key"),
)

tokens = Table(
    "tokens",
    metadata,
    *_columns(facts.TokenRow, id=20, name=200, digest=64, scopes=100, created_by=200),
    PrimaryKeyConstraint("id"),
    UniqueConstraint("digest"),
)
