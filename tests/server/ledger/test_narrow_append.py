"""PostgreSQL's roles append by one narrow function: what it hashes, what it refuses, and what heals."""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import LedgerError
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, chain
from fieldfare_server.ledger.sql import database, roles
from support.ledgers import commit, start
from support.postgres import Cluster
from support.refusals import coded

pytestmark = pytest.mark.postgres
SECONDS = float(os.environ.get("FIELDFARE_RANDOM_SQL_SECONDS", "3"))
"""Of random statements as each role. An hour is 3600."""
PASSWORDS = {part: f"{part}-is-long-and-random" for part in roles.PARTS}


@pytest.fixture
def apart(postgres: Cluster) -> str:
    """The URL of a ledger whose roles are apart, with a population and a run that was charged."""
    url = postgres.new_database()
    with Ledger.open(url, create=True) as ledger:
        ledger.create_population("people", 8.0, 1e-6, actor="officer")
        commit(start(ledger, 0.1), [], 0.1)
        ledger.create_token("office", ("admin",), actor="officer")
    with Ledger.open(url, clock=lambda: 1000.0) as long_ago:
        long_ago.create_token("old", ("read",), actor="officer", expires_at=1010.0)
    roles.separate(url, PASSWORDS)
    return url


def of(url: str, part: str) -> str:
    return make_url(url).set(username=f"fieldfare_{part}").render_as_string()


def words(draw: random.Random) -> str:
    """Text with all that JSON escapes, beyond the first plane too."""
    alphabet = ['"', "\\", "\b", "\t", "\n", "\f", "\r", "\x01", "\x1f", " ", "~", "\x7f", "\x80", "\u00e9", "\u2028"]
    alphabet += ["\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0001f600", "\U0010ffff", "a", "'", "%", ":", "{", "$"]
    return "".join(draw.choice(alphabet) for _ in range(draw.randrange(12)))


def test_the_database_hashes_what_python_hashes(apart: str) -> None:
    draw = random.Random(27)
    times = [0.0, 1.0, 0.1, 1e-5, 5e-324, 123456789.0, 1763888888.1234567, 999999999999.9, 1e11, 0.30000000000000004]
    times += [draw.uniform(0, 2e9) for _ in range(300)] + [
        math.ldexp(draw.random(), draw.randrange(-60, 39)) for _ in range(300)
    ]
    statement = text(
        "SELECT encode(sha256(decode(:previous, 'hex') || convert_to(ledger_content(CAST(:id AS bigint), "
        "CAST(:at AS float8), :actor, :action, :population, :run, CAST(:round AS int), :event, :body), 'UTF8')), 'hex')"
    )
    with Ledger.open(apart) as ledger, ledger.database.engine.connect() as connection:
        for number, at in enumerate(times):
            row = {
                "id": draw.randrange(2**40),
                "at": at,
                "actor": words(draw),
                "action": draw.choice(("round.commit", words(draw))),
                "population": draw.choice((None, words(draw))),
                "run": draw.choice((None, words(draw))),
                "round": draw.choice((None, draw.randrange(2**31))),
                "event": f"{number:032x}",
                "body": chain.canonical({words(draw): words(draw), "x": draw.random()}),
                "previous": f"{draw.getrandbits(256):064x}",
            }
            assert connection.execute(statement, row).scalar() == chain.row_hash(row), row


def test_limits_belong_to_the_roles_and_come_back(apart: str) -> None:
    engine = create_engine(make_url(of(apart, "api")).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("ALTER ROLE CURRENT_USER SET search_path = elsewhere"))
        connection.execute(text("ALTER ROLE CURRENT_USER SET lock_timeout = 0"))
    engine.dispose()
    roles.separate(apart, PASSWORDS)
    with Ledger.open(apart) as ledger, ledger.database.read() as connection:
        found = connection.execute(
            text("SELECT rolname, rolconnlimit, rolconfig FROM pg_roles WHERE rolname LIKE 'fieldfare\\_%'")
        ).all()
    wanted = [f"{name}={value}" for name, value in roles.LIMITS.items()]
    assert {row.rolname: row.rolconnlimit for row in found} == {
        f"fieldfare_{part}": most for part, most in roles.CONNECTIONS.items()
    }
    assert all(row.rolconfig == wanted for row in found)
    assert sum(roles.CONNECTIONS.values()) < 97, "PostgreSQL gives 100, and keeps 3 for superusers"


def test_a_role_that_holds_the_head_holds_up_no_charge_for_long(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "HELD", "0.5 s")
    quick = database._POSTGRES["options"].replace("lock_timeout=20s", "lock_timeout=300ms")  # type: ignore[attr-defined]
    monkeypatch.setitem(database._POSTGRES, "options", quick)
    url = postgres.new_database()
    with Ledger.open(url, create=True) as ledger:
        ledger.create_population("people", 8.0, 1e-6, actor="officer")
    roles.separate(url, PASSWORDS)
    engine = create_engine(make_url(of(url, "api")).set(drivername="postgresql+psycopg"))
    with engine.connect() as holder:
        for setting in roles.LIMITS:
            holder.execute(text(f"SET {setting} = 0"))
        holder.execute(text("SELECT * FROM ledger_head()"))
        begun = time.monotonic()
        with Ledger.open(of(url, "coordinator")) as coordinator:
            commit(start(coordinator, 0.1), [], 0.1)
        assert time.monotonic() - begun < 30
        with pytest.raises(DBAPIError, match="terminating connection"):
            holder.execute(text("SELECT 1"))
    engine.dispose()
    with Ledger.open(url) as ledger:
        assert verify(ledger).ok


def test_a_row_of_the_far_future_ends_no_token(apart: str) -> None:
    with (
        Ledger.open(of(apart, "api"), clock=lambda: time.time() + 10**7) as api,
        pytest.raises(LedgerError, check=coded("database-no-right")),
    ):
        api.create_token("page", ("read",), actor="service")


def test_a_token_row_without_its_journal_row_is_refused_at_the_commit(apart: str) -> None:
    with Ledger.open(of(apart, "api")) as api:
        row = "'aaaaaaaaaaaa', 'x', 'd', 'read', 1.0, 'x', NULL, NULL, NULL"
        with pytest.raises(DBAPIError, match="without a row of the journal"), api.database.engine.begin() as connection:
            connection.execute(text(f"INSERT INTO tokens SELECT {row}"))
        with pytest.raises(DBAPIError, match="without a row of the journal"), api.database.engine.begin() as connection:
            connection.execute(text("UPDATE tokens SET revoked_at = 5 WHERE expires_at IS NOT NULL"))


def value(draw: random.Random) -> str:
    return draw.choice(
        ("NULL", "'x'", "''", "0", "-1", "1e300", "'NaN'", "true", "now()", "md5(random()::text)", "'{}'", "'\\x00'")
    )


def statements(draw: random.Random, part: str) -> Callable[[], str]:
    """Random statements.

    A coordinator and an administrator may write rows of their own that fit nothing, in the journal and in tables
    (THREATS.md). Of these, only statements on head and journal, with actions that are not theirs.
    """
    columns = {
        "head": ("count", "hash", "ledger", "signed", "id"),
        "audit": ("id", "at", "body", "hash", "previous", "action", "event"),
        "populations": ("epsilon", "delta", "state", "users", "settled", "bound_epsilon", "leak"),
        "tokens": ("scopes", "revoked_at", "digest", "expires_at"),
        "runs": ("request", "state", "spent", "price"),
        "rounds": ("state", "spent"),
        "charges": ("state", "price", "closed_at"),
        "proposals": ("state", "decided_at"),
        "leases": ("token", "expires_at"),
    }
    own = {"coordinator": roles.COORDINATOR_ACTIONS, "api": (), "admin": roles.OFFICE_ACTIONS}[part]
    actions = [
        action for action in (*roles.OFFICE_ACTIONS, "made.up", "token.use") if action not in own or part == "api"
    ]
    tables = tuple(columns) if part == "api" else ("head", "audit")
    bodies = ("{}", "[]", "null", '{"id": "none", "what": "x"}', '{"scopes": ["read"]}', "nonsense", '{"id": 1e999}')

    def append() -> str:
        number = draw.choice(("1.0", "extract(epoch FROM now())", "1e300", "-1", "'NaN'", "1e11"))
        event = draw.choice(("md5(random()::text)", "'x'", "NULL"))
        action, body = draw.choice(actions), draw.choice(bodies)
        signed = draw.choice(("NULL", "'x'", "'fieldfare-head-v1 x'"))
        return (
            f"SELECT ledger_append({number}, 'x', '{action}', {value(draw)}, NULL, NULL, {event}, '{body}', {signed})"
        )

    def one() -> str:
        table = draw.choice(tables)
        column = draw.choice(columns[table])
        return draw.choice(
            (
                f"UPDATE {table} SET {column} = {value(draw)}",
                f"UPDATE {table} SET {column} = {column}",
                f"DELETE FROM {table}",
                f"INSERT INTO {table} SELECT * FROM {table}",
                f"INSERT INTO {table} ({column}) VALUES ({value(draw)})",
                f"TRUNCATE {table}",
                f"LOCK TABLE {table} IN {draw.choice(('ACCESS SHARE', 'ROW SHARE', 'EXCLUSIVE'))} MODE",
                f"ALTER TABLE {table} DISABLE TRIGGER ALL",
                append(),
                append(),
                "SELECT * FROM ledger_head()",
                "SELECT ledger_free()",
                "SELECT * FROM head FOR UPDATE",
                "NOTIFY x, 'y'",
                "SELECT set_config('fieldfare.token', 'x', false)",
                "ALTER ROLE CURRENT_USER SET statement_timeout = 0",
                "CREATE TEMPORARY TABLE head (count int)",
                f"SELECT setval('runs_seq_seq', {draw.randrange(9)})",
                "SELECT pg_advisory_lock(7421580926)",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()",
            )
        )

    return one


@pytest.mark.parametrize("part", roles.PARTS)
def test_random_statements_of_a_role_leave_a_ledger_that_charges(apart: str, part: str) -> None:
    draw = random.Random(os.urandom(8))
    seed = draw.getrandbits(64)
    draw.seed(seed)
    print(f"seed {seed}")
    make = statements(draw, part)
    engine = create_engine(make_url(of(apart, part)).set(drivername="postgresql+psycopg"))
    end, done, taken = time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        with contextlib.suppress(DBAPIError), engine.begin() as connection:
            done += 1
            for _ in range(draw.choice((1, 1, 3))):
                connection.exec_driver_sql(make(), execution_options={"no_parameters": True})
            taken += 1
    engine.dispose()
    assert done > 20
    print(f"{done} transactions, {taken} committed")
    roles.separate(apart, PASSWORDS)
    with Ledger.open(of(apart, "coordinator")) as coordinator:
        commit(start(coordinator, 0.1), [], 0.1)
        coordinator.reserve_charge("people", "k", Foreign(mu=0.1), what="x", why="y", actor="ranker")
        assert verify(coordinator).ok
    with Ledger.open(of(apart, "api")) as api:
        _, view = api.create_token("page", ("read",), actor="service")
        api.record_token_use(view.id, "read", actor="token page")
    with Ledger.open(of(apart, "admin")) as admin:
        admin.raise_population("people", epsilon=9.0, reason="agreed", actor="officer")
        assert verify(admin).ok
