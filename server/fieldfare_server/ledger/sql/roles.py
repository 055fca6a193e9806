"""One PostgreSQL role for each service, so that the password of one does not open what only another may do.

The owner of the tables, OWNER, is for migrations. Next to it are three roles:

    OWNER_coordinator   rounds, runs and their charges; no right on limits, tokens and proposals
    OWNER_api           reads; and asks in the name of a token, whose secret the database checks itself
    OWNER_admin         people: populations, budgets, tokens; no right to change the journal or the schema

No role inserts into the journal or updates its head: a wrong number or hash would stop every budget for good. A
function of the owner's, `ledger_append`, takes one action of those that the session's role may make, and computes
number, previous hash and hash itself, as `chain.row_hash` does. A guard on each table that the API may touch asks for
a valid token of the right scope and population. A row that is changed without a journal row is refused by `proof`.

Timeouts and connection limits belong to the roles. A role may lift its own timeouts, so a writer that waits too long
for the head has the sessions ended that hold it (`ledger_free`).

A ledger whose owner serves everyone, as before there were roles, works as it did; `fieldfare doctor` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from fieldfare.errors import LedgerError, Unreadable, WrongForm
from fieldfare_server.ledger.events.log import EVENTS
from fieldfare_server.ledger.sql import models
from fieldfare_server.ledger.sql.database import CALLER, Database

Part: TypeAlias = Literal["coordinator", "api", "admin"]
PARTS: tuple[Part, ...] = ("coordinator", "api", "admin")
# Fewest characters of a role's password.
SHORTEST = 16

# What a coordinator appends. A release is not among them: it would return what another trainer has reserved.
COORDINATOR_ACTIONS = (
    *("run.start", "run.certify", "run.resume", "run.interrupt", "run.request", "run.finish"),
    *("run.key_destroyed", "run.audit", "round.open", "round.commit", "round.void", "round.close", "users.register"),
    *("charge.reserve", "charge.commit"),
    "head.key",
)
CHARGE_ACTIONS = ("charge.reserve", "charge.commit", "charge.release")
# What the API appends for a token of scope admin; `CHARGE_ACTIONS` for one of scope charge or admin.
ADMIN_ACTIONS = (
    *("run.request", "population.raise", "population.propose", "population.withdraw"),
    *("population.tighten", "population.window", "population.note", "population.close", "population.reopen"),
)

# What an administrator appends: every event but those of a conversion, which is the owner's.
OFFICE_ACTIONS = tuple(EVENTS.keys() - {"ledger.converted", "charge.carry"})

# Settings that a session of each role begins with.
LIMITS = {"lock_timeout": "20s", "idle_in_transaction_session_timeout": "60s", "statement_timeout": "10min"}
# Most connections of each role, of the 97 that PostgreSQL gives by default.
CONNECTIONS: Mapping[Part, int] = {"coordinator": 45, "api": 30, "admin": 15}
# How long a transaction of a role may hold the head before another ends it. Those of services take milliseconds.
HELD = "30 s"
# Seconds that a service's clock may be ahead of the database's. A row of the far future would end every token.
SKEW = 300

# Beyond SELECT on every table.
_GRANTS: Mapping[Part, tuple[str, ...]] = {
    "coordinator": (
        "INSERT ON objects, users, runs, leases, rounds, participations, odometers, pledges, charges",
        "USAGE ON SEQUENCE runs_seq_seq, rounds_id_seq",
        "UPDATE ON runs, leases, rounds, odometers, pledges",
        "UPDATE (users, settled) ON populations",
        "UPDATE (state, closed_at) ON charges",
        "DELETE ON odometers, pledges",
    ),
    "api": (
        "INSERT ON charges, proposals, tokens",
        "UPDATE (epsilon, delta, bound_epsilon, bound_delta, window_epsilon, window_every, state) ON populations",
        "UPDATE (state, decided_at, decided_by) ON proposals",
        "UPDATE (state, closed_at) ON charges",
        "UPDATE (request, state) ON runs",
        "UPDATE (revoked_at) ON tokens",
    ),
    "admin": (
        "INSERT ON objects, populations, proposals, tokens, users, runs, leases, rounds, participations, odometers, "
        "pledges, charges",
        "UPDATE ON populations, proposals, tokens, runs, leases, rounds, odometers, pledges, charges",
        "UPDATE (charges) ON participations",
        "USAGE ON SEQUENCE populations_id_seq, runs_seq_seq, rounds_id_seq",
        "DELETE ON odometers, pledges",
    ),
}

_TABLES = ("alembic_version", *(table.name for table in models.metadata.sorted_tables))
# Tables that the API changes, for a token alone.
_ASKED = ("populations", "proposals", "charges", "runs", "tokens")
# Triggers that a role without the owner's rights needs.
GUARDS = ("tokens_journaled", *(f"{table}_role" for table in _ASKED))

_FUNCTIONS = r"""
CREATE OR REPLACE FUNCTION ledger_caller() RETURNS tokens
LANGUAGE sql STABLE SET search_path = <schema>, pg_temp AS $it$
    SELECT t FROM tokens t
    WHERE t.digest = encode(sha256(convert_to(current_setting('<setting>', true), 'UTF8')), 'hex')
    AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > extract(epoch FROM clock_timestamp()))
$it$;

CREATE OR REPLACE FUNCTION ledger_may(scope text, place text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = <schema>, pg_temp AS $it$
    SELECT coalesce((
        SELECT string_to_array(c.scopes, ' ') && ARRAY[scope, 'admin']
            AND (c.populations IS NULL OR place = ANY(string_to_array(c.populations, ' ')))
        FROM ledger_caller() c WHERE c.id IS NOT NULL), false)
$it$;

CREATE OR REPLACE FUNCTION ledger_may_append(at float8, actor text, action text, population text, run text, body jsonb)
RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = <schema>, pg_temp AS $it$
#variable_conflict use_variable
DECLARE
    caller tokens;
    place text := population;
    may boolean := false;
BEGIN
    IF session_user NOT IN (<coordinator>, <api>, <admin>) THEN RETURN true; END IF;
    IF jsonb_typeof(body) <> 'object' OR at > extract(epoch FROM clock_timestamp()) + <skew> THEN RETURN false; END IF;
    IF session_user = <admin> THEN
        may := action IN <office actions>;
    ELSIF session_user = <coordinator> THEN
        may := action IN <coordinator actions>;
    ELSIF action LIKE 'token.%' THEN
        -- The page's and the scraper's tokens, which no person asks for. The row says what the table does.
        may := population IS NULL AND run IS NULL AND EXISTS (SELECT FROM tokens t WHERE t.id = body ->> 'id'
            AND CASE action
            WHEN 'token.use' THEN
                body = jsonb_build_object('id', t.id, 'what', body ->> 'what') AND t.revoked_at IS NULL
            WHEN 'token.create' THEN
                jsonb_strip_nulls(body) = jsonb_strip_nulls(jsonb_build_object('id', t.id, 'name', t.name,
                    'scopes', jsonb_build_array(t.scopes), 'digest', t.digest, 'expires_at', t.expires_at))
                AND t.scopes = 'read' AND t.populations IS NULL AND t.revoked_at IS NULL
                AND t.created_at = at AND t.created_by = actor
                AND NOT EXISTS (SELECT FROM audit a WHERE a.action IN ('token.create', 'token.revoke')
                    AND CAST(a.body AS jsonb) ->> 'id' = t.id)
            WHEN 'token.revoke' THEN
                body = jsonb_build_object('id', t.id) AND t.revoked_at = at
                AND t.expires_at <= extract(epoch FROM clock_timestamp())
            ELSE false END);
    ELSIF action IN <charge actions> OR action IN <admin actions> THEN
        IF action = 'run.request' THEN
            SELECT p.name INTO place FROM runs r JOIN populations p ON p.id = r.population_id WHERE r.id = run;
        END IF;
        caller := ledger_caller();
        may := ledger_may(CASE WHEN action IN <charge actions> THEN 'charge' ELSE 'admin' END, place)
            AND actor = left('token ' || caller.name, 200);
        -- Of two persons, each is the token that it shows.
        IF action IN ('population.propose', 'population.raise') THEN
            may := may AND coalesce(body ->> 'person', caller.id) = caller.id;
        END IF;
    END IF;
    RETURN coalesce(may, false);
END $it$;

CREATE OR REPLACE FUNCTION ledger_text(value text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS $it$
BEGIN
    -- A JSON string in ASCII, as Python's encoder writes it. Most texts take the short way.
    IF value IS NULL THEN RETURN 'null'; END IF;
    IF value COLLATE "C" ~ '^[\x20-\x7e]*$' THEN
        RETURN '"' || replace(replace(value, '\', '\\'), '"', '\"') || '"';
    END IF;
    RETURN '"' || (
        SELECT string_agg(CASE
            WHEN one IN ('"', '\') THEN '\' || one
            WHEN code = 8 THEN '\b' WHEN code = 9 THEN '\t' WHEN code = 10 THEN '\n'
            WHEN code = 12 THEN '\f' WHEN code = 13 THEN '\r'
            WHEN code BETWEEN 32 AND 126 THEN one
            WHEN code < 65536 THEN '\u' || lpad(to_hex(code), 4, '0')
            ELSE '\u' || to_hex(55296 + ((code - 65536) >> 10))
                || '\u' || to_hex(56320 + ((code - 65536) & 1023))
        END, '' ORDER BY place)
        FROM (SELECT one, place, ascii(one) AS code
            FROM regexp_split_to_table(value, '') WITH ORDINALITY c(one, place)) d
    ) || '"';
END $it$;

CREATE OR REPLACE FUNCTION ledger_content(
    id bigint, at float8, actor text, action text, population text, run text, round int, event text, body text
) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = <schema>, pg_temp SET extra_float_digits = 1 AS $it$
BEGIN
    -- What is hashed of a row: `chain.canonical` of its columns. A whole number of seconds has ".0" in Python.
    RETURN '{"action":' || ledger_text(action) || ',"actor":' || ledger_text(actor)
        || ',"at":' || at || CASE WHEN at = trunc(at) THEN '.0' ELSE '' END
        || ',"body":' || ledger_text(body) || ',"event":' || ledger_text(event) || ',"id":' || id
        || ',"population":' || ledger_text(population) || ',"round":' || coalesce(CAST(round AS text), 'null')
        || ',"run":' || ledger_text(run) || '}';
END $it$;

CREATE OR REPLACE FUNCTION ledger_head() RETURNS head
LANGUAGE sql SECURITY DEFINER SET search_path = <schema>, pg_temp AS $it$ SELECT * FROM head FOR UPDATE $it$;

CREATE OR REPLACE FUNCTION ledger_append(
    at float8, actor text, action text, population text, run text, round int, event text, body text, signed text,
    OUT number bigint, OUT hash text
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = <schema>, pg_temp AS $it$
#variable_conflict use_variable
DECLARE
    before head;
BEGIN
    IF NOT (at >= 0 AND at < 1e12 AND event ~ '^[0-9a-f]{32}$') THEN
        RAISE EXCEPTION 'the time or the number of an event is impossible' USING ERRCODE = 'check_violation';
    END IF;
    SELECT * INTO before FROM head FOR UPDATE;
    IF NOT ledger_may_append(at, actor, action, population, run, CAST(body AS jsonb))
        OR (signed IS NOT NULL AND session_user = <api>)
    THEN
        RAISE EXCEPTION 'role % may not append % to the journal', session_user, action
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    number := before.count + 1;
    hash := encode(sha256(decode(before.hash, 'hex')
        || convert_to(ledger_content(number, at, actor, action, population, run, round, event, body), 'UTF8')), 'hex');
    IF signed NOT LIKE 'fieldfare-head-v1 ' || before.ledger || ' ' || number || ' ' || hash || ' %' THEN
        RAISE EXCEPTION 'the signed head is not that of row %', number USING ERRCODE = 'check_violation';
    END IF;
    INSERT INTO audit VALUES (number, at, actor, action, population, run, round, event, body, before.hash, hash);
    UPDATE head SET count = number, hash = ledger_append.hash, signed = coalesce(ledger_append.signed, head.signed);
END $it$;

CREATE OR REPLACE FUNCTION ledger_free() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $it$
BEGIN
    RETURN (SELECT count(pg_terminate_backend(s.pid)) FROM pg_stat_activity s JOIN pg_locks l ON l.pid = s.pid
        WHERE s.datname = current_database() AND s.usename IN (<coordinator>, <api>, <admin>)
        AND l.relation = CAST('<schema>.head' AS regclass) AND l.mode = 'RowShareLock' AND l.granted
        AND s.xact_start < clock_timestamp() - CAST('<held>' AS interval)
        AND NOT EXISTS (SELECT FROM pg_locks w WHERE w.pid = s.pid AND NOT w.granted));
EXCEPTION WHEN insufficient_privilege THEN RETURN 0;
END $it$;

CREATE OR REPLACE FUNCTION ledger_token_journaled() RETURNS trigger
LANGUAGE plpgsql SET search_path = <schema>, pg_temp AS $it$
BEGIN
    -- At the end of the transaction: a token without its row would stop every budget.
    IF EXISTS (SELECT FROM audit a WHERE a.action IN ('token.create', 'token.revoke')
        AND a.action = CASE TG_OP WHEN 'INSERT' THEN 'token.create' ELSE 'token.revoke' END
        AND CAST(a.body AS jsonb) ->> 'id' = NEW.id AND a.at = coalesce(NEW.revoked_at, NEW.created_at))
    THEN RETURN NEW; END IF;
    RAISE EXCEPTION 'token % was changed without a row of the journal', NEW.id USING ERRCODE = 'insufficient_privilege';
END $it$;

CREATE OR REPLACE FUNCTION ledger_asked_role() RETURNS trigger
LANGUAGE plpgsql SET search_path = <schema>, pg_temp AS $it$
DECLARE
    may boolean := false;
BEGIN
    IF TG_TABLE_NAME = 'tokens' THEN
        IF TG_OP = 'INSERT' THEN may := NEW.scopes = 'read';
        ELSE may := OLD.revoked_at IS NULL AND OLD.expires_at <= extract(epoch FROM clock_timestamp());
        END IF;
    ELSIF TG_TABLE_NAME = 'populations' THEN may := ledger_may('admin', NEW.name);
    ELSE
        may := (SELECT ledger_may('admin', p.name) FROM populations p WHERE p.id = NEW.population_id);
        IF TG_TABLE_NAME = 'charges' AND NOT may THEN
            -- What another trainer has reserved may have happened.
            may := (SELECT ledger_may('charge', p.name) FROM populations p WHERE p.id = NEW.population_id)
                AND NEW.who = left('token ' || (SELECT c.name FROM ledger_caller() c), 200);
        END IF;
    END IF;
    IF may THEN RETURN NEW; END IF;
    RAISE EXCEPTION 'role % may not change % without a token for it', current_user, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END $it$;
"""


# They run with the owner's rights; only the roles may call them.
_OF_THE_OWNER = (
    "ledger_head()",
    "ledger_append(float8, text, text, text, text, int, text, text, text)",
    "ledger_free()",
)


def read_passwords(directory: Path) -> dict[Part, str]:
    """The passwords that `directory` has, in files PART.password. Raises `BadInput` for one that can be guessed."""
    found: dict[Part, str] = {}
    for part in PARTS:
        path = directory / f"{part}.password"
        try:
            password = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeError) as error:
            raise Unreadable(f"password {path}", f"cannot be read ({error}).") from None
        if len(password) < SHORTEST:
            raise WrongForm(f"password {path}", f"has fewer than {SHORTEST} characters.", "32 random ones")
        found[part] = password
    return found


def separate(url: str, passwords: Mapping[Part, str]) -> dict[Part, str]:
    """Give each role that there is its rights, and no other; returns their names. Idempotent.

    Args:
        url: the ledger's, for the tables' owner. On SQLite there are no roles, and nothing is done.
        passwords: of the roles to make, or to give a new password. The others are left to the database's administrator.

    Raises:
        LedgerError: the owner may not make roles, or a role has rights from elsewhere that would make these useless.
    """
    database = Database(url)
    try:
        if database.path is not None:
            return {}
        with database.engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(7421580926)"))
            owner = _owner(connection)
            names = {part: f"{owner}_{part}" for part in PARTS}
            for part, password in passwords.items():
                _make(connection, names[part], password)
            known = {part: name for part, name in names.items() if _exists(connection, name)}
            place = _place(connection)
            if known:
                _guard(connection, place, owner, names)
            for part, name in known.items():
                _grant(connection, place, part, name)
                if part in passwords:  # the others are their administrator's
                    _limit(connection, part, name)
                _require_apart(connection, name, database.name)
            return known
    except SQLAlchemyError as error:
        raise database.error(error) from error
    finally:
        database.close()


def role_of(connection: Connection) -> tuple[str, Part | Literal["owner"] | None]:
    """(name, part) of the role that is connected; None for one that `separate` does not know."""
    name = str(connection.execute(text("SELECT current_user")).scalar_one())
    owner = _owner(connection)
    special = connection.execute(text("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")).scalar_one()
    if special or name == owner:
        return name, "owner"
    return name, next((part for part in PARTS if name == f"{owner}_{part}"), None)


def _owner(connection: Connection) -> str:
    query = "SELECT tableowner FROM pg_tables WHERE tablename = 'audit' AND schemaname = current_schema()"
    return str(connection.execute(text(query)).scalar_one())


def _exists(connection: Connection, name: str) -> bool:
    query = text("SELECT 1 FROM pg_roles WHERE rolname = :name")
    return connection.execute(query, {"name": name}).first() is not None


def _make(connection: Connection, name: str, password: str) -> None:
    """Make a role, or give it another password, of which the database and its log see only the verifier."""
    from psycopg import Connection as Link

    link = connection.connection.driver_connection
    assert isinstance(link, Link)
    verifier = link.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
    verb = "ALTER" if _exists(connection, name) else "CREATE"
    _run(connection, f"{verb} ROLE {_name(connection, name)} LOGIN PASSWORD '{verifier}'")


def _guard(connection: Connection, place: tuple[str, str], owner: str, names: Mapping[Part, str]) -> None:
    """Make the guards, and close what PUBLIC could get round them with: temporary tables, and names of its own."""
    database, schema = place
    words = {"schema": schema, "setting": CALLER, "owner": _literal(owner)}
    words |= {part: _literal(name) for part, name in names.items()}
    # Tuples of plain words, which Python writes as SQL does.
    words |= {"coordinator actions": str(COORDINATOR_ACTIONS), "charge actions": str(CHARGE_ACTIONS)}
    words |= {"admin actions": str(ADMIN_ACTIONS), "office actions": str(OFFICE_ACTIONS)}
    words |= {"skew": str(SKEW), "held": HELD}
    functions = _FUNCTIONS
    for word, value in words.items():
        functions = functions.replace(f"<{word}>", value)
    _run(connection, functions)
    # The guard of earlier versions, when roles inserted rows themselves.
    _run(connection, "DROP TRIGGER IF EXISTS audit_role ON audit")
    _run(connection, "DROP FUNCTION IF EXISTS ledger_audit_role()")
    for function in _OF_THE_OWNER:
        _run(connection, f"REVOKE ALL ON FUNCTION {function} FROM PUBLIC")
    _run(connection, "DROP TRIGGER IF EXISTS tokens_journaled ON tokens")
    _run(
        connection,
        "CREATE CONSTRAINT TRIGGER tokens_journaled AFTER INSERT OR UPDATE ON tokens DEFERRABLE INITIALLY DEFERRED "
        f"FOR EACH ROW WHEN (current_user = {_literal(names['api'])}) EXECUTE FUNCTION ledger_token_journaled()",
    )
    for table in _ASKED:
        _run(connection, f"DROP TRIGGER IF EXISTS {table}_role ON {table}")
        _run(
            connection,
            f"CREATE TRIGGER {table}_role BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW "
            f"WHEN (current_user = {_literal(names['api'])}) EXECUTE FUNCTION ledger_asked_role()",
        )
    _run(connection, f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC")
    _run(connection, f"REVOKE TEMPORARY, CREATE ON DATABASE {database} FROM PUBLIC")


def _place(connection: Connection) -> tuple[str, str]:
    """(database, schema) of the ledger, quoted."""
    database, schema = connection.execute(text("SELECT current_database(), current_schema()")).one()
    return _name(connection, str(database)), _name(connection, str(schema))


def _grant(connection: Connection, place: tuple[str, str], part: Part, name: str) -> None:
    role, tables = _name(connection, name), ", ".join(_TABLES)
    database, schema = place
    _run(connection, f"REVOKE ALL ON {tables} FROM {role}")
    _run(connection, f"GRANT CONNECT ON DATABASE {database} TO {role}")
    _run(connection, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    _run(connection, f"GRANT SELECT ON {tables} TO {role}")
    # For a backup: `pg_dump` reads where each sequence stands.
    _run(connection, f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}")
    for grant in (*_GRANTS[part], *(f"EXECUTE ON FUNCTION {function}" for function in _OF_THE_OWNER)):
        _run(connection, f"GRANT {grant} TO {role}")


def _limit(connection: Connection, part: Part, name: str) -> None:
    """Give a role its limits, and take back what it may have set for itself, such as another search path."""
    role = _name(connection, name)
    _run(connection, f"ALTER ROLE {role} CONNECTION LIMIT {CONNECTIONS[part]}")
    _run(connection, f"ALTER ROLE {role} RESET ALL")
    for setting, value in LIMITS.items():
        _run(connection, f"ALTER ROLE {role} SET {setting} = '{value}'")


def _require_apart(connection: Connection, name: str, ledger: str) -> None:
    """Raise `LedgerError` if the role could get round its rights."""
    query = text(
        """SELECT r.rolsuper OR r.rolcreaterole OR r.rolbypassrls OR r.rolreplication AS powers,
        EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid) AS member,
        has_schema_privilege(r.oid, current_schema(), 'CREATE') AS creates,
        has_database_privilege(r.oid, current_database(), 'TEMPORARY, CREATE') AS temporary
        FROM pg_roles r WHERE r.rolname = :name"""
    )
    row = connection.execute(query, {"name": name}).one()
    reasons = {
        "it is a superuser, or may make roles, replicate or bypass row security": row.powers,
        "it is a member of another role": row.member,
        "it may make tables in the ledger's schema, or its own": row.creates or row.temporary,
    }
    for why, holds in reasons.items():
        if holds:
            raise LedgerError(
                f"role {name} of ledger {ledger}",
                f"{why}: its rights on the ledger would protect nothing.",
                "a role that has only what `fieldfare migrate` grants",
            )


def _run(connection: Connection, statement: str) -> None:
    # Without parameters, so that a colon or a percent sign is none.
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _name(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote_identifier(name)


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
