"""A journal that one row stops: mended, it charges again, and no charge has fallen."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from typer.testing import CliRunner

from fieldfare.errors import BadInput, LedgerError, OldCopy
from fieldfare_server.cli.application import assemble
from fieldfare_server.evidence.recompute import recomputed
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, Outcome, chain
from fieldfare_server.ledger.history import history
from fieldfare_server.ledger.sql import roles
from fieldfare_server.ledger.sql.mend import Mending
from fieldfare_server.ledger.sql.segments import Segments
from support.fill import ONE, fill
from support.ledgers import commit, demand, digest, edit_behind_the_guards, gaussian, start
from support.postgres import Cluster
from support.refusals import coded


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def url(ledger_url: str, home: Path) -> str:
    """A filled ledger whose coordinator keeps segments."""
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        fill(ledger)
    return ledger_url


def coordinator(url: str, home: Path) -> Ledger:
    return Ledger.open(url, head_file=home / "ledger.head", coordinator=True)


def mend(url: str, home: Path, *, sure: bool = True) -> Mending:
    with Ledger.open(url, to_show=True) as ledger:
        return ledger.mend((home / "ledger.head", home / ".api" / "ledger.head"), actor="officer", sure=sure)


def harm(url: str, *statements: str) -> None:
    with Ledger.open(url, to_show=True) as ledger, ledger.database.engine.begin() as connection:
        for statement in statements:
            edit_behind_the_guards(connection, statement)


def append(url: str, action: str, body: dict[str, Any], **where: Any) -> None:
    """A row that is chained and that no rule allows, as whoever has a service's password can append one."""
    with Ledger.open(url) as ledger, ledger.database.engine.begin() as connection:
        head = ledger.head()
        row = {"at": 1e9, "actor": "x", "action": action, "population": None, "run": None, "round": None, **where}
        row |= {"id": head.count + 1, "event": f"{head.count:032x}", "body": json.dumps(body), "previous": head.hash}
        row["hash"] = chain.row_hash(row)
        columns = ", ".join(row)
        connection.execute(text(f"INSERT INTO audit ({columns}) VALUES ({', '.join(f':{c}' for c in row)})"), row)
        connection.execute(text("UPDATE head SET count = :id, hash = :hash"), row)


def charges_again(url: str, home: Path) -> None:
    with coordinator(url, home) as ledger:
        commit(start(ledger, 0.001), [0], 0.001)
        ledger.reopen_population("others", reason="more", actor="officer")
        assert verify(ledger).ok
        assert list(Segments.beside(home / "ledger.head").frames())[-1][0] == ledger.head()


def stuck(url: str, home: Path) -> None:
    with pytest.raises(LedgerError), coordinator(url, home) as ledger:
        start(ledger, 0.001)


def committed(url: str) -> tuple[float, float]:
    with Ledger.open(url, to_show=True) as ledger:
        view = ledger.population("people")
    return view.spent_epsilon, view.committed_epsilon


FORGED = "INSERT INTO audit SELECT id + 1, at, actor, 'token.use', NULL, NULL, NULL, '{e:032x}', '{{}}', hash, '{h}' "
FORGED += "FROM audit WHERE id = (SELECT count FROM head)"
HARM = {
    "the head says one more": ("UPDATE head SET count = count + 1",),
    "the head names another row": ("UPDATE head SET hash = 'x'",),
    "a row was changed": ("UPDATE audit SET body = '{}' WHERE action = 'round.commit'",),
    "a row was changed, hash and head too": (
        "UPDATE audit SET actor = 'x', hash = 'y' WHERE id = (SELECT count FROM head)",
        "UPDATE head SET hash = 'y'",
    ),
    "the last rows are gone": (
        "DELETE FROM audit WHERE id > 20",
        "UPDATE head SET count = 20, hash = (SELECT hash FROM audit WHERE id = 20)",
    ),
    "a first row is gone": ("DELETE FROM audit WHERE id = 1",),
    "all rows are gone": ("DELETE FROM audit", "UPDATE head SET count = 0"),
}


@pytest.mark.parametrize("what", HARM)
def test_what_was_done_to_the_journal_is_undone_from_the_copy(what: str, url: str, home: Path) -> None:
    before = committed(url)
    harm(url, *HARM[what])
    stuck(url, home)
    said = mend(url, home, sure=False)
    assert said.needed
    stuck(url, home)
    done = mend(url, home)
    assert (done.dropped, done.whole, done.closed) == ([], [], [])
    assert committed(url) == before
    charges_again(url, home)
    assert mend(url, home).needed is False


def test_a_row_without_a_place_in_the_chain_is_dropped(url: str, home: Path) -> None:
    before = committed(url)
    harm(url, FORGED.format(e=7, h="f" * 64), "UPDATE head SET count = count + 1, hash = '" + "f" * 64 + "'")
    stuck(url, home)
    done = mend(url, home)
    assert [(row.action, row.why) for row in done.dropped] == [("token.use", "nothing ties it to the rows before it")]
    if url.startswith("sqlite"):
        # Every writer of this ledger has this home, whose copy has each row that was written.
        assert (done.whole, done.closed) == ([], [])
        assert committed(url) == before
    else:
        assert len(done.whole) == 2
        assert done.closed == ["people"]
        assert committed(url) >= before
        with coordinator(url, home) as ledger:
            ledger.reopen_population("people", reason="nothing was lost", actor="officer")
    charges_again(url, home)


ILL_FITTING = {
    "a token that nobody made": ("token.use", {"id": "none", "what": "x"}, {}),
    "a finish of no run": ("run.finish", {"state": "done"}, {"population": "people", "run": "none"}),
    "no action at all": ("made.up", {}, {}),
    "a release of no charge": ("charge.release", {"key": "none"}, {"population": "people"}),
}


@pytest.mark.parametrize("what", ILL_FITTING)
def test_a_row_of_a_role_that_fits_nothing_is_dropped_and_the_rows_after_it_stay(
    what: str, url: str, home: Path
) -> None:
    before = committed(url)
    action, body, where = ILL_FITTING[what]
    append(url, action, body, **where)
    with Ledger.open(url) as ledger:
        # What charges nothing goes on after it.
        _, later = ledger.create_token("later", ("read",), actor="officer")
    stuck(url, home)
    said = mend(url, home, sure=False)
    assert [(row.action, row.number) for row in said.dropped] == [(action, said.kept + 1)]
    done = mend(url, home)
    assert done == said
    assert (done.whole, done.closed) == ([], [])
    assert committed(url) == before
    with coordinator(url, home) as ledger:
        assert later in ledger.tokens()
        newest = ledger.journal_rows(limit=1).items[0]
        assert (newest.action, newest.body["dropped"], newest.body["kept"]) == ("ledger.mend", {action: 1}, done.kept)
    charges_again(url, home)


def test_a_dropped_commit_charges_its_run_in_full(url: str, home: Path) -> None:
    """A coordinator went on after a row that fits nothing, and one of its commits does not fit either."""
    with coordinator(url, home) as ledger:
        run = start(ledger, 0.3, rounds=3)
        commit(run, [1], 0.1)
        run.hand_back()
        single = start(ledger, 0.2, rounds=3, noise_source="secure", demand=demand(2 * ONE, rounds=3))
        single.commit_round(
            single.open_round([3]),
            Outcome([3], gaussian(0.1), nonce=bytes([5] * 16), charges=np.array([ONE])),
            digest("s"),
        )
        single.hand_back()
        first = start(ledger, 0.25, rounds=3)
        first.hand_back()
        before = ledger.population("people")
        reserved = before.committed_epsilon
    for name in (run.id, single.id, first.id):
        append(url, "round.commit", {"attempt": 5}, population="people", run=name, round=1)
    stuck(url, home)
    said = mend(url, home, sure=False)
    assert said.whole == [run.id, single.id, first.id]
    done = mend(url, home)
    assert done.whole == said.whole
    with coordinator(url, home) as ledger:
        for name in done.whole:
            view = ledger.run(name)
            assert view.ended_at is not None
            assert view.spent == view.planned
        after = ledger.population("people")
        # What was reserved is spent, to the last bit.
        assert after.committed_epsilon == reserved
        assert after.spent_epsilon > before.spent_epsilon
        newest = history(ledger, "people").moments[-1]
        assert newest.committed_epsilon == pytest.approx(reserved, rel=1e-12)
        assert newest.spent_epsilon == pytest.approx(after.spent_epsilon, rel=1e-12)
    charges_again(url, home)


def test_a_run_that_was_charged_whole_is_not_recomputed_by_its_rounds(url: str, home: Path) -> None:
    """What it released besides them is not known: its users' odometers would hold the one round that is."""
    with coordinator(url, home) as ledger:
        run = start(ledger, 0.3, rounds=3)
        commit(run, [1], 0.1)
        run.hand_back()
    append(url, "round.commit", {"attempt": 5}, population="people", run=run.id, round=1)
    assert mend(url, home).whole == [run.id]
    with coordinator(url, home) as ledger:
        before = ledger.head()
        with pytest.raises(BadInput, check=coded("not-now", run.id)):
            ledger.keep_odometers("people", {run.id: [np.array([ONE])]}, actor="officer")
        assert ledger.head() == before
        charges, left = recomputed(ledger, home, "people")
        assert run.id in left
        assert run.id not in charges


def test_a_row_that_this_home_has_seen_and_no_copy_has_is_not_forgotten(url: str, home: Path) -> None:
    shutil.rmtree(home / "ledger.segments")
    harm(url, *HARM["the last rows are gone"])
    with pytest.raises(OldCopy, check=coded("old-copy", "mending the ledger")):
        mend(url, home)
    stuck(url, home)


def test_without_a_copy_what_proves_nothing_may_have_been_anything(url: str, home: Path) -> None:
    shutil.rmtree(home / "ledger.segments")
    before = committed(url)
    harm(url, FORGED.format(e=7, h="f" * 64), "UPDATE head SET count = count + 1, hash = '" + "f" * 64 + "'")
    done = mend(url, home)
    assert (len(done.whole), done.closed) == (2, ["people"])
    assert committed(url) >= before
    with coordinator(url, home) as ledger:
        ledger.reopen_population("people", reason="nothing was lost", actor="officer")
    charges_again(url, home)


def test_a_finish_with_other_odometers_is_found_by_their_fold(url: str, home: Path) -> None:
    with coordinator(url, home) as ledger:
        single = start(ledger, 0.2, rounds=3, noise_source="secure", demand=demand(2 * ONE, rounds=3))
        single.hand_back()
        row = next(row for row in ledger.journal_rows(limit=100).items if row.action == "run.finish")
    body = {**row.body, "state": "stopped", "message": "", "odometers": "0" * 64, "spent": single.spent.to_json()}
    append(url, "run.finish", body, population="people", run=single.id)
    stuck(url, home)
    done = mend(url, home)
    assert [row.why for row in done.dropped] == ["the odometers are not what the runs have cost"]
    assert done.whole == [single.id]
    charges_again(url, home)


def test_the_command_says_what_it_would_do_and_does_it(url: str, home: Path) -> None:
    append(url, "token.use", {"id": "none", "what": "x"})
    at = ["ledger", "mend", "--home", str(home), "--ledger", url]
    told = CliRunner().invoke(assemble("ledger"), at)
    assert told.exit_code == 0, told.output
    assert "would be dropped: a token is used that was never created" in " ".join(told.output.split())
    assert "Nothing was changed" in told.output
    stuck(url, home)
    told = CliRunner().invoke(assemble("ledger"), [*at, "--yes", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["done"] is True
    told = CliRunner().invoke(assemble("ledger"), at)
    assert "rows fit" in told.output
    kept = sorted(path.name for path in home.iterdir() if "segments" in path.name)
    assert kept == ["ledger.segments", "ledger.segments.before-1", "ledger.segments.key"]
    charges_again(url, home)


PASSWORDS = {part: f"{part}-is-long-and-random" for part in roles.PARTS}


@pytest.fixture
def apart(postgres: Cluster, home: Path) -> str:
    url = postgres.new_database()
    with Ledger.open(url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        fill(ledger)
    roles.separate(url, PASSWORDS)
    return url


@pytest.mark.postgres
@pytest.mark.parametrize("part", ["coordinator", "admin"])
def test_a_row_that_a_role_may_write_and_no_rule_allows_stops_charges_only_until_it_is_mended(
    apart: str, home: Path, part: str
) -> None:
    before = committed(apart)
    engine = create_engine(make_url(apart).set(username=f"fieldfare_{part}", drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(
            text("SELECT ledger_append(1.0, 'x', 'run.finish', 'people', 'none', NULL, md5('x'), '{}', NULL)")
        )
    engine.dispose()
    stuck(apart, home)
    assert [row.action for row in mend(apart, home).dropped] == ["run.finish"]
    assert committed(apart) == before
    roles.separate(apart, PASSWORDS)
    role = make_url(apart).set(username="fieldfare_coordinator").render_as_string()
    with coordinator(role, home) as ledger:
        commit(start(ledger, 0.001), [0], 0.001)
        assert verify(ledger).ok


@pytest.mark.postgres
@pytest.mark.parametrize("part", ["coordinator", "admin"])
def test_whatever_a_role_appends_of_its_own_actions_is_mended(apart: str, home: Path, part: str) -> None:
    """Every action that the role may append, with bodies and places that fit nothing, and with those of real rows."""
    before = committed(apart)
    with Ledger.open(apart) as ledger:
        real = ledger.journal_rows(limit=100).items
    bodies = ["{}", "[]", "null", '"x"', '{"id": "none", "what": "x"}', '{"attempt": -1, "reports": 1e999}']
    places: list[tuple[str | None, str | None, int | None]] = [(None, None, None), ("people", "none", -1)]
    places += [(row.population, row.run, row.round) for row in real if row.action == "round.commit"][:2]
    own = {"coordinator": roles.COORDINATOR_ACTIONS, "admin": roles.OFFICE_ACTIONS}[part]
    engine = create_engine(make_url(apart).set(username=f"fieldfare_{part}", drivername="postgresql+psycopg"))
    call = (
        "SELECT ledger_append(1.0, 'x', :action, :population, :run, CAST(:round AS int), md5(random()::text), :body, "
    )
    statement = text(f"{call}NULL)")
    done = 0
    for action in own:
        copied = [chain.canonical(row.body) for row in real if row.action == action][:2]
        for body in (*bodies, *copied):
            for population, run, index in places:
                values = {"action": action, "population": population, "run": run, "round": index, "body": body}
                with contextlib.suppress(DBAPIError), engine.begin() as connection:
                    connection.execute(statement, values)
                    done += 1
    engine.dispose()
    assert done > 20 * len(own) / 2
    stuck(apart, home)
    mending = mend(apart, home)
    assert len(mending.dropped) > done / 2
    after = committed(apart)
    assert after >= before
    roles.separate(apart, PASSWORDS)
    with Ledger.open(apart, head_file=home / "ledger.head", coordinator=True) as ledger:
        assert verify(ledger).ok
        ledger.create_population("next", 4.0, 1e-6, actor="officer")
        commit(start(ledger, 0.001, population="next"), [], 0.001)
