"""PostgreSQL's roles: each password opens what its service needs, and no statement beyond it. R4 of the findings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError
from typer.testing import CliRunner

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import BadInput, LedgerError
from fieldfare_server.api import Settings, create_app
from fieldfare_server.cli.application import assemble
from fieldfare_server.doctor.ledger import check_ledger
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.rules.populations import Rules
from fieldfare_server.ledger.sql import roles
from fieldfare_server.ledger.sql.database import Database
from fieldfare_server.ledger.sql.proof import Disproved
from support.ledgers import commit, demand, start
from support.postgres import Cluster
from support.refusals import coded

pytestmark = pytest.mark.postgres
CHECK = "role of the ledger"
PASSWORDS = {part: f"{part}-is-long-and-random" for part in roles.PARTS}


@dataclass
class Apart:
    """A ledger whose roles are separated, as each of them opens it."""

    url: str

    def of(self, part: str) -> str:
        return make_url(self.url).set(username=f"fieldfare_{part}").render_as_string()

    def open(self, part: str, **options: Any) -> Ledger:
        return Ledger.open(self.of(part), **options)


@pytest.fixture
def apart(postgres: Cluster) -> Apart:
    url = postgres.new_database()
    Ledger.open(url, create=True).close()
    names = roles.separate(url, PASSWORDS)
    assert names == {part: f"fieldfare_{part}" for part in roles.PARTS}
    return Apart(url)


def refused(ledger: Ledger, statement: str, secret: str | None = None) -> str:
    """Why the database refuses a statement of this role; the transaction is rolled back."""
    with ledger.database.engine.connect() as connection:
        if secret is not None:
            connection.execute(text("SELECT set_config('fieldfare.token', :secret, true)"), {"secret": secret})
        with pytest.raises(DBAPIError) as caught:
            connection.execute(text(statement))
        connection.rollback()
    assert getattr(caught.value.orig, "sqlstate", None) == "42501", (statement, caught.value.orig)
    return str(caught.value.orig)


def append(
    action: str, population: str | None = "people", body: str = "{}", actor: str = "x", run: str | None = None
) -> str:
    """The statement of an attacker who appends a journal row that fits the chain."""

    def quoted(value: str | None) -> str:
        return "NULL" if value is None else f"'{value}'"

    words = ", ".join(map(quoted, (actor, action, population, run)))
    return f"SELECT ledger_append(1.0, {words}, NULL, md5(random()::text), {quoted(body)}, NULL)"


EVERYONE = (
    "UPDATE audit SET body = '{}'",
    "DELETE FROM audit",
    "TRUNCATE audit",
    "UPDATE head SET ledger = 'another'",
    "DELETE FROM head",
    "DELETE FROM populations",
    "DELETE FROM tokens",
    "DELETE FROM charges",
    "DELETE FROM rounds",
    "UPDATE populations SET leak = 0",
    "UPDATE populations SET ceiling_epsilon = NULL",
    "UPDATE alembic_version SET version_num = '0001'",
    "ALTER TABLE audit DISABLE TRIGGER ALL",
    "DROP TRIGGER audit_append ON audit",
    "INSERT INTO audit SELECT count + 1, 1.0, 'x', 'token.use', NULL, NULL, NULL, 'e', '{}', hash, hash FROM head",
    "UPDATE head SET count = count + 1",
    "UPDATE head SET hash = 'x', signed = 'x'",
    "SELECT * FROM head FOR UPDATE",
    "CREATE OR REPLACE FUNCTION ledger_free() RETURNS bigint LANGUAGE sql AS 'SELECT CAST(1 AS bigint)'",
    "DROP TABLE tokens",
    "CREATE TABLE tokens2 (id int)",
    "CREATE TEMPORARY TABLE head (count int)",
    "CREATE FUNCTION ledger_may(text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "CREATE OR REPLACE FUNCTION ledger_may(scope text, place text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
    "COPY audit TO PROGRAM 'true'",
    "COPY (SELECT 1) TO '/tmp/fieldfare-roles'",
    "SET session_replication_role = replica",
    "SET ROLE fieldfare",
    "SET SESSION AUTHORIZATION fieldfare",
    "CREATE ROLE mallory",
    "GRANT fieldfare TO CURRENT_USER",
)
"""What no role but the owner may do; the administrator's may change limits that the journal names."""

COORDINATOR = (
    "UPDATE populations SET epsilon = 1000",
    "UPDATE populations SET delta = 0.5",
    "UPDATE populations SET state = 'open'",
    "UPDATE populations SET two_persons = false",
    "UPDATE populations SET bound_epsilon = 1000",
    "INSERT INTO populations SELECT * FROM populations",
    "INSERT INTO tokens SELECT * FROM tokens",
    "UPDATE tokens SET scopes = 'read admin'",
    "UPDATE tokens SET revoked_at = NULL",
    "INSERT INTO proposals SELECT * FROM proposals",
    "UPDATE proposals SET state = 'approved'",
    "UPDATE users SET count = 0",
    "DELETE FROM participations",
    "DELETE FROM runs",
    "UPDATE charges SET price = '[0.0, 0.0]'",
    *(
        append(action)
        for action in (
            *("population.create", "population.raise", "population.propose", "population.withdraw"),
            *("population.tighten", "population.window", "population.note", "population.close"),
            *("population.reopen", "population.odometers"),
            *("token.create", "token.revoke", "token.use", "node.admit", "node.release", "charge.release"),
        )
    ),
)

API = (
    "UPDATE populations SET epsilon = 1000",
    "UPDATE populations SET state = 'closed'",
    "UPDATE populations SET users = 0",
    "UPDATE populations SET settled = '{}'",
    "INSERT INTO populations SELECT * FROM populations",
    "INSERT INTO tokens SELECT 'aaaaaaaaaaaa', 'x', 'd', 'read admin', 1.0, 'x', NULL, NULL, NULL",
    "UPDATE tokens SET scopes = 'read admin'",
    "UPDATE tokens SET revoked_at = NULL",
    "UPDATE tokens SET revoked_at = 1.0",
    "INSERT INTO charges SELECT id, 'k', 'w', 'w', 'w', '{}', '[0.0, 0.0]', 'reserved', 1.0, NULL FROM populations",
    "UPDATE charges SET state = 'released'",
    "UPDATE charges SET price = '[0.0, 0.0]'",
    "INSERT INTO proposals SELECT 'p', id, 9.0, 1e-6, 'r', 'waiting', 1.0, 'x', 'x', NULL, NULL FROM populations",
    "UPDATE runs SET request = 'stop'",
    "UPDATE runs SET spent = '{}'",
    "INSERT INTO runs SELECT * FROM runs",
    "INSERT INTO rounds SELECT * FROM rounds",
    "INSERT INTO participations SELECT * FROM participations",
    "INSERT INTO users SELECT * FROM users",
    "DELETE FROM users",
    "UPDATE odometers SET count = 0",
    "DELETE FROM pledges",
    "UPDATE leases SET token = token + 1",
    "UPDATE head SET signed = NULL",
    append("token.create", None, '{"scopes": ["read", "admin"]}'),
    append("token.create", None, '{"scopes": ["read"], "scopes": ["admin"]}'),
    append("token.create", None, "{}"),
    append("token.revoke", None, '{"id": "none"}'),
    *(append(action) for action in roles.CHARGE_ACTIONS),
    *(append(action) for action in roles.ADMIN_ACTIONS),
    *(
        append(action)
        for action in (
            *("population.create", "population.odometers", "node.admit", "node.release", "users.register"),
            *("run.start", "run.resume", "run.finish", "round.open", "round.commit", "run.key_destroyed", "made.up"),
        )
    ),
)
ADMIN = ("UPDATE users SET count = 0", "DELETE FROM participations", "UPDATE participations SET users = charges")


def test_each_role_is_refused_every_statement_that_is_not_its_own(apart: Apart) -> None:
    with Ledger.open(apart.url) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        _, office = ledger.create_token("office", ("admin",), actor="officer")
        ledger.reserve_charge("people", "k1", Foreign(mu=0.1), what="x", why="y", actor="z")
        run = start(ledger, 0.2, demand=demand(1000))
        run.register_users(np.arange(5, dtype=np.uint64))
    for part, own in (("coordinator", COORDINATOR), ("api", API), ("admin", ADMIN)):
        with apart.open(part) as opened:
            for statement in (*EVERYONE, *own):
                if part == "admin" and statement.startswith("UPDATE populations"):
                    continue
                refused(opened, statement)
            # The rows themselves are well made: what a role may append is taken.
            with opened.database.engine.connect() as connection:
                allowed = {
                    "coordinator": append("run.audit"),
                    "api": append("token.use", None, f'{{"id": "{office.id}", "what": "read"}}'),
                    "admin": append("population.raise"),
                }[part]
                connection.exec_driver_sql(allowed, execution_options={"no_parameters": True})
                connection.rollback()
    with Ledger.open(apart.url) as ledger:
        assert verify(ledger).ok


def test_each_role_does_its_own_work(apart: Apart) -> None:
    with apart.open("admin") as admin:
        admin.create_population("people", 4.0, 1e-6, actor="officer")
        admin.raise_population("people", epsilon=5.0, reason="agreed", actor="officer")
        admin.revoke_token(admin.create_token("old", ("read",), actor="officer")[1].id, actor="officer")
        admin.admit_node("a" * 64, "clinic", 10, actor="officer")
    with apart.open("coordinator", coordinator=True) as coordinator:
        coordinator.draw_seed("r", "people", "d" * 64, "e" * 64, actor="test")
        run = start(coordinator, 0.2, rounds=2)
        run.register_users(np.arange(5, dtype=np.uint64))
        run.void_round(run.open_round([0, 1]), "too few", reports=1)
        commit(run, [0, 1], 0.1)
        run.hand_back()
        coordinator.abandon(run.id, reason="enough", actor="supervisor")
        coordinator.record_key_destroyed(run.id, actor="test")
        single = start(coordinator, 0.2, demand=demand(1000))
        single.register_users(np.arange(9, dtype=np.uint64))
        single.finish("stopped")
        coordinator.reserve_charge("people", "k", Foreign(mu=0.1), what="x", why="y", actor="ranker")
        coordinator.commit_charge("people", "k", actor="ranker")
        with pytest.raises(LedgerError, check=coded("database-no-right", "admin/ledger.url")):
            coordinator.create_population("more", 4.0, 1e-6, actor="x")
    with apart.open("api") as api:
        page, _ = api.create_token("page", ("read",), actor="service")
        view = api.check_token(page)
        assert view is not None
        api.record_token_use(view.id, "read", actor="token page")
        assert verify(api).ok


def test_the_api_changes_nothing_but_in_the_name_of_a_token(apart: Apart) -> None:
    with apart.open("admin") as admin:
        for name in ("people", "others"):
            admin.create_population(name, 4.0, 1e-6, actor="officer")
        chief, _ = admin.create_token("chief", ("admin",), actor="officer")
        reader, _ = admin.create_token("reader", ("read",), actor="officer")
        charger, _ = admin.create_token("charger", ("charge",), actor="officer")
        rival, _ = admin.create_token("rival", ("charge",), actor="officer")
        local, _ = admin.create_token("local", ("admin",), actor="officer", populations=("others",))
        old, _ = admin.create_token("old", ("admin",), actor="officer")
        admin.revoke_token("old", actor="officer")
        run = start(admin, 0.1)
    with apart.open("admin", clock=lambda: 1000.0) as long_ago:
        late, late_view = long_ago.create_token("late", ("admin",), actor="officer", expires_at=1010.0)
    with apart.open("api") as api:

        def more(secret: str | None, actor: str) -> None:
            with api.database.presenting(secret):
                api.raise_population("people", epsilon=5.0, reason="more", actor=actor, person=actor)

        forged = chief[:-1] + ("0" if chief[-1] != "0" else "1")
        for secret, name in (
            *((None, "chief"), ("", "chief"), (forged, "chief"), (reader, "reader"), (charger, "charger")),
            *((local, "local"), (old, "old"), (late, "late"), (chief, "reader")),
        ):
            with pytest.raises(LedgerError, check=coded("database-no-right")) as caught:
                more(secret, f"token {name}")
            assert not secret or secret not in str(caught.value)
        more(chief, "token chief")
        assert api.population("people").epsilon == 5.0
        # A token for other populations cannot reach this one by a row that names both.
        for action in ("population.close", "charge.release"):
            refused(api, append(action, "people", actor="token local", run=run.id), local)
        with api.database.presenting(local), pytest.raises(LedgerError, check=coded("database-no-right")):
            api.request(run.id, "stop", "token local")
        with api.database.presenting(chief):
            api.request(run.id, "stop", "token chief")
        with api.database.presenting(charger):
            api.reserve_charge("people", "k", Foreign(mu=0.1), what="x", why="y", actor="token charger")
        with api.database.presenting(rival), pytest.raises(LedgerError, check=coded("database-no-right")):
            api.release_charge("people", "k", actor="token rival", anyones=True)
        with api.database.presenting(charger):
            api.release_charge("people", "k", actor="token charger")
        with pytest.raises(LedgerError, check=coded("database-no-right")):
            api.reserve_charge("people", "k2", Foreign(mu=0.1), what="x", why="y", actor="token charger")
        # An expired token is revoked by whoever sees it, and no other.
        assert api.check_token(late) is None
        assert {token.id for token in api.tokens() if token.revoked_at} >= {late_view.id}
        with pytest.raises(LedgerError, check=coded("database-no-right")):
            api.revoke_token("reader", actor="x")
        assert verify(api).ok


def test_the_service_does_its_work_with_its_own_role(apart: Apart) -> None:
    with apart.open("admin") as admin:
        admin.create_population("people", 4.0, 1e-6, actor="officer")
        secret, _ = admin.create_token("chief", ("admin",), actor="officer")
        run = start(admin, 0.1)
    settings = Settings(verify_seconds=0, metrics_seconds=0)
    headers = {"Authorization": f"Bearer {secret}"}
    with TestClient(create_app(apart.of("api"), settings), base_url="http://localhost", headers=headers) as client:
        answers = [
            client.post("/v1/populations/people/raise", json={"epsilon": 5.0, "reason": "agreed"}),
            client.post("/v1/populations/people/tighten", json={"epsilon": 4.5, "reason": "agreed"}),
            client.post("/v1/populations/people/close", json={"reason": "agreed"}),
            client.post("/v1/populations/people/reopen", json={"reason": "agreed"}),
            client.post(f"/v1/runs/{run.id}/stop"),
            client.post(
                "/v1/populations/people/charges",
                json={"action": "reserve", "key": "k", "loss": {"mu": 0.1}, "what": "x", "why": "y"},
            ),
            client.post("/v1/populations/people/charges", json={"action": "release", "key": "k"}),
            client.get("/v1/populations/people"),
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 202, 200, 200, 200], answers
        assert answers[-1].json()["epsilon"] == 4.5
    with Ledger.open(apart.url) as ledger:
        assert verify(ledger).ok


def test_one_stolen_token_is_not_two_persons(apart: Apart) -> None:
    with apart.open("admin") as admin:
        admin.create_population("people", 4.0, 1e-6, rules=Rules(two_persons=True), actor="officer")
        first, one = admin.create_token("first", ("admin",), actor="officer")
        second, two = admin.create_token("second", ("admin",), actor="officer")
    with apart.open("api") as api:
        with api.database.presenting(first):
            for person in ("another", two.id):
                with pytest.raises(LedgerError, check=coded("database-no-right")):
                    api.raise_population("people", epsilon=9.0, reason="r", actor="token first", person=person)
            api.raise_population("people", epsilon=9.0, reason="r", actor="token first", person=one.id)
            (proposal,) = api.population("people").proposals
            with pytest.raises(LedgerError, check=coded("database-no-right")):
                api.approve_raise(proposal.id, actor="token first", person=two.id)
        with api.database.presenting(second):
            assert api.approve_raise(proposal.id, actor="token second", person=two.id).epsilon == 9.0
        assert verify(api).ok


def test_an_admin_column_that_is_changed_without_its_row_stops_every_charge(apart: Apart) -> None:
    with apart.open("admin") as admin:
        admin.create_population("people", 4.0, 1e-6, actor="officer")
        with admin.database.engine.begin() as connection:
            connection.execute(text("UPDATE populations SET epsilon = 1000"))
    with (
        apart.open("coordinator") as coordinator,
        pytest.raises(Disproved, check=coded("disproved", "populations people: epsilon")),
    ):
        start(coordinator, 0.1)


def test_a_role_without_guards_takes_no_charge(apart: Apart) -> None:
    with Ledger.open(apart.url) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        with ledger.database.engine.begin() as connection:
            connection.execute(text("DROP TRIGGER tokens_journaled ON tokens"))
        start(ledger, 0.1).finish("stopped")
    with (
        apart.open("coordinator") as coordinator,
        pytest.raises(Disproved, check=coded("disproved", "schema tokens_journaled")),
    ):
        start(coordinator, 0.1)
    roles.separate(apart.url, {})
    with apart.open("coordinator") as coordinator:
        start(coordinator, 0.1).finish("stopped")


def test_a_ledger_with_one_role_works_as_before(postgres: Cluster) -> None:
    with Ledger.open(postgres.new_database(), create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        commit(start(ledger, 0.1), [], 0.1)
        assert verify(ledger).ok


def test_a_role_that_could_get_round_its_rights_is_refused(postgres: Cluster) -> None:
    """Its rights come from elsewhere: what the ledger grants would protect nothing."""
    url = postgres.new_database()
    Ledger.open(url, create=True).close()
    database = Database(url)
    try:
        for gives, takes in (
            ("ALTER ROLE fieldfare_api CREATEROLE", "ALTER ROLE fieldfare_api NOCREATEROLE"),
            ("GRANT fieldfare TO fieldfare_api", "REVOKE fieldfare FROM fieldfare_api"),
            ("GRANT CREATE ON SCHEMA public TO fieldfare_api", "REVOKE CREATE ON SCHEMA public FROM fieldfare_api"),
        ):
            roles.separate(url, PASSWORDS)
            with database.engine.begin() as connection:
                connection.execute(text(gives))
            try:
                with pytest.raises(LedgerError, check=coded("ledger-error", "role fieldfare_api of ledger")):
                    roles.separate(url, {})
            finally:
                with database.engine.begin() as connection:
                    connection.execute(text(takes))
    finally:
        database.close()


def test_the_owner_need_not_be_a_superuser(postgres: Cluster) -> None:
    url = make_url(postgres.new_database())
    database = Database(url.render_as_string())
    with database.engine.begin() as connection:
        connection.execute(text("CREATE ROLE books LOGIN CREATEROLE"))
        connection.execute(text(f"ALTER DATABASE {url.database} OWNER TO books"))
    database.close()
    owner = url.set(username="books").render_as_string()
    Ledger.open(owner, create=True).close()
    assert roles.separate(owner, PASSWORDS) == {part: f"books_{part}" for part in roles.PARTS}
    with Ledger.open(url.set(username="books_admin").render_as_string()) as admin:
        admin.create_population("people", 4.0, 1e-6, actor="officer")
    with Ledger.open(url.set(username="books_coordinator").render_as_string()) as coordinator:
        commit(start(coordinator, 0.1), [], 0.1)
        refused(coordinator, append("population.raise"))


def test_passwords_are_checked_and_never_sent(apart: Apart, tmp_path: Path) -> None:
    assert roles.read_passwords(tmp_path) == {}
    (tmp_path / "api.password").write_text("short\n")
    with pytest.raises(BadInput, check=coded("wrong-form", "password", "16")):
        roles.read_passwords(tmp_path)
    (tmp_path / "api.password").write_text("long enough to be one\n")
    assert roles.read_passwords(tmp_path) == {"api": "long enough to be one"}
    with Ledger.open(apart.url) as ledger, ledger.database.read() as connection:
        stored = connection.execute(text("SELECT rolpassword FROM pg_authid WHERE rolname = 'fieldfare_api'"))
        assert str(stored.scalar_one()).startswith("SCRAM-SHA-256$")


def test_doctor_says_which_role_a_service_has(apart: Apart, postgres: Cluster, tmp_path: Path) -> None:
    def role(url: str) -> tuple[str, str]:
        return next((f.state, f.said) for f in check_ledger(StateDirectory(tmp_path, url)) if f.check == CHECK)

    for part in roles.PARTS:
        assert role(apart.of(part)) == ("ok", f"fieldfare_{part} has the rights of the part {part}, and no other.")
    state, said = role(apart.url)
    assert state == "warning"
    assert "fieldfare owns the ledger's tables" in said


def test_doctor_finds_a_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    Ledger.open(str(path), create=True).close()
    home = StateDirectory(tmp_path, f"sqlite:///{path}")
    assert path.stat().st_mode & 0o777 == 0o600
    for mode, state in ((0o600, "ok"), (0o640, "fault"), (0o602, "fault")):
        path.chmod(mode)
        assert next(f.state for f in check_ledger(home) if f.check == CHECK) == state


def test_migrate_makes_the_roles(postgres: Cluster, tmp_path: Path) -> None:
    url = postgres.new_database()
    for part, password in PASSWORDS.items():
        (tmp_path / f"{part}.password").write_text(password)
    command = ["migrate", "--ledger", url, "--home", str(tmp_path / "h"), "--roles", str(tmp_path)]
    answer = CliRunner().invoke(assemble("migrate"), [*command, "--json"])
    assert json.loads(answer.output)["roles"] == {part: f"fieldfare_{part}" for part in roles.PARTS}
    assert "fieldfare_api" in CliRunner().invoke(assemble("migrate"), command).output
    with Ledger.open(Apart(url).of("coordinator")) as ledger:
        assert ledger.populations() == ()
