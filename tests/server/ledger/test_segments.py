"""The log in files beside the database: either is lost, and the other makes it again."""

from __future__ import annotations

import base64
import errno
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import text
from typer.testing import CliRunner

from fieldfare.accounting.foreign import Foreign
from fieldfare.errors import LedgerError, OldCopy
from fieldfare_server.cli.application import assemble
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger, chain
from fieldfare_server.ledger.sql import leases, rows
from fieldfare_server.ledger.sql import segments as module
from fieldfare_server.ledger.sql.segments import Frame, Segments
from support.fill import fill
from support.ledgers import commit, edit_behind_the_guards, start
from support.postgres import Cluster
from support.refusals import coded
from support.rows import everything


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def full(ledger_url: str, home: Path) -> Iterator[Ledger]:
    """A filled ledger whose coordinator keeps segments."""
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        fill(ledger)
        yield ledger


@pytest.fixture
def other(request: pytest.FixtureRequest, ledger_url: str, tmp_path: Path) -> str:
    """An empty database of the same kind."""
    if ledger_url.startswith("sqlite"):
        return f"sqlite:///{tmp_path / 'other.sqlite3'}"
    cluster: Cluster = request.getfixturevalue("postgres")
    return cluster.new_database()


def restore(url: str, segments: Segments, held: list[chain.Head] | None = None) -> Ledger:
    ledger = Ledger.open(url, create=True)
    try:
        ledger.restore(segments, held=held or [], actor="officer")
    except BaseException:
        ledger.close()
        raise
    return ledger


def all_rows(ledger: Ledger) -> dict[str, list[object]]:
    with ledger.read() as connection:
        return everything(connection)


def beside(home: Path) -> Segments:
    return Segments.beside(home / "ledger.head")


def close_round(ledger: Ledger) -> None:
    """Void the open round: who was selected for it stands in its table alone."""
    run = ledger.runs(state="running").items[0].id
    with ledger.database.engine.begin() as connection:
        row = rows.run_row(connection, run)
        leases.give_back(connection, row.seq)
        commitment = row.key_commitment
    with ledger.resume_run(run, key_commitment=commitment, holder="x") as handle:
        opened = handle.open_round_pending()
        assert opened is not None
        handle.void_round(opened, "none came")


def test_what_a_coordinator_keeps_makes_the_same_ledger_row_for_row(full: Ledger, home: Path, other: str) -> None:
    close_round(full)
    before = all_rows(full)
    with restore(other, beside(home)) as again:
        after = all_rows(again)
        assert verify(again).ok
        start(again, 0.001).finish("stopped")
    # Who holds a run is not in the log.
    assert before.pop("leases")
    assert after.pop("leases")
    assert after == before


def test_an_open_round_is_void_in_a_ledger_that_is_made_again(full: Ledger, home: Path, other: str) -> None:
    with restore(other, beside(home)) as again:
        assert again.head().count == full.head().count + 1
        assert again.rounds(full.runs(state="running").items[0].id).items[0].state == "void"
        assert verify(again).ok


def test_what_others_wrote_and_what_a_crash_left_out_is_caught_up(ledger_url: str, home: Path, other: str) -> None:
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head") as ledger:
        fill(ledger)
        close_round(ledger)
    segments = beside(home)
    assert not segments.there, "an administrator's home keeps none"
    with Ledger.open(ledger_url, head_file=home / "ledger.head", coordinator=True) as ledger:
        first = segments.follow(ledger.database)
        assert first == ledger.head()
        with Ledger.open(ledger_url) as elsewhere:
            elsewhere.close_population("people", reason="done", actor="officer")
            assert segments.follow(ledger.database) == ledger.head() != first
            elsewhere.reopen_population("people", reason="more", actor="officer")
        before = all_rows(ledger)
    # A line that a crash tore was never acknowledged, and comes again.
    (path,) = segments.directory.glob("*.segment")
    os.truncate(path, path.stat().st_size - 7)
    with restore(other, beside(home)) as again:
        assert again.head() == first
    with Ledger.open(ledger_url, head_file=home / "ledger.head"):
        pass  # whoever shares the home catches up
    assert [end for end, _ in beside(home).frames()][-1].count == len(before["audit"])


@pytest.mark.parametrize("tail", [1, 100, 700, 1 << 20])
def test_the_last_line_is_found_from_the_end_of_a_file(
    ledger_url: str, home: Path, tail: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TAIL", tail)
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        for torn in (b"", b"9", b"9 ", b"9 abc", b"x" * 900):
            (path,) = beside(home).directory.glob("*.segment")
            with open(path, "ab") as file:
                file.write(torn)
            ledger.create_token("x", ("read",), actor="officer")
            assert [end for end, _ in beside(home).frames()][-1] == ledger.head()
        # A crash between the first line of a segment and its rows.
        header = path.read_bytes().splitlines(keepends=True)[0]
        for begun in (b"", header[:20], header, header + b"1 ab"):
            (beside(home).directory / "000000000099.segment").write_bytes(begun)
            ledger.create_token("x", ("read",), actor="officer")
            assert [end for end, _ in beside(home).frames()][-1] == ledger.head()


def test_writers_that_share_a_home_append_one_after_another(ledger_url: str, home: Path) -> None:
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")

        def write(_: int) -> None:
            with Ledger.open(ledger_url, head_file=home / "ledger.head") as opened:
                for _ in range(3):
                    opened.create_token("x", ("read",), actor="officer")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        ends = [end.count for end, _ in beside(home).frames()]
        assert ends == sorted(set(ends))
        assert ends[-1] == ledger.head().count == 13


def test_no_copy_holds_anything_of_users_in_the_clear(full: Ledger, home: Path) -> None:
    with full.read() as connection:
        salt = connection.execute(text("SELECT salt FROM populations WHERE name = 'people'")).scalar()
        hashes = connection.execute(text("SELECT hashes FROM users")).scalars().first()
    kept = b"".join(path.read_bytes() for path in beside(home).directory.iterdir())
    key = (home / "ledger.segments.key").read_bytes()
    assert len(key) == 32
    assert (home / "ledger.segments.key").stat().st_mode & 0o777 == 0o600
    for secret in (salt, hashes, key, b"people", b"users.register", b"participant_count"):
        for form in (secret, base64.b64encode(secret)[:-4], secret.hex().encode(), zlib.compress(secret)):
            assert len(form) > 3
            assert form not in kept
    inflated = [zlib.decompress(raw) for raw in opened_lines(beside(home), key)]
    assert any(b"participant_count" in each for each in inflated), "the test looks at what is sealed"


def opened_lines(segments: Segments, key: bytes) -> Iterator[bytes]:
    """The content of each line by the page of the format (docs/log.md), without this program."""
    ledger, last, name = "", 0, ""
    for path in sorted(segments.directory.glob("*.segment")):
        header, *lines = path.read_text().splitlines()
        magic, ledger, first, name, _ = header.split()
        last = int(first) - 1
        for line in lines:
            end, after, sealed = line.split()
            raw = base64.b64decode(sealed)
            place = f"{magic} {ledger} {last} {name} {end} {after}".encode()
            yield AESGCM(key).decrypt(raw[:12], raw[12:], place)
            last, name = int(end), after


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is a segment of its own."""
    monkeypatch.setattr(module, "SEGMENT_BYTES", 1)


def swap(files: list[Path]) -> None:
    """The second segment and the third change places, names and first lines included."""
    second, third = files[1].read_text().splitlines(), files[2].read_text().splitlines()
    files[1].write_text(f"{second[0]}\n{third[1]}\n")
    files[2].write_text(f"{third[0]}\n{second[1]}\n")


DAMAGE: dict[str, tuple[Callable[[list[Path]], object], str]] = {
    "a segment is missing": (lambda files: files[3].unlink(), "row 4 is missing"),
    "the first segment is missing": (lambda files: files[0].unlink(), "row 1 is missing"),
    "segments changed places": (swap, "was changed"),
    "a bit is another": (lambda files: files[2].write_text(flipped(files[2].read_text())), "was changed"),
    "the last segment is missing": (lambda files: files[-1].unlink(), "an old copy was put back"),
    "all are missing": (lambda files: [file.unlink() for file in files], "there is none"),
    "another key": (
        lambda files: files[0].parent.with_suffix(".segments.key").write_bytes(bytes(32)),
        "sealed with another key",
    ),
    "no key": (lambda files: files[0].parent.with_suffix(".segments.key").unlink(), "cannot be read"),
}


def flipped(text: str) -> str:
    place = len(text) // 2 + 200
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", DAMAGE)
def test_segments_that_are_not_whole_are_refused(damage: str, ledger_url: str, home: Path, other: str) -> None:
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        fill(ledger)
    held = chain.HeadFile(home / "ledger.head").read()
    assert held is not None
    files = sorted((home / "ledger.segments").glob("*.segment"))
    assert len(files) > 20
    harm, why = DAMAGE[damage]
    harm(files)
    with pytest.raises(LedgerError, match=why):
        restore(other, beside(home), [held])
    with Ledger.open(other) as empty:
        assert empty.head().count == 0
        assert all(not rows for table, rows in all_rows(empty).items() if table not in ("head", "schema"))


def test_a_copy_that_is_older_than_its_own_signed_head_is_refused(full: Ledger, home: Path, other: str) -> None:
    segments = beside(home)
    exported = Segments(home / "copy", home / "ledger.segments.key")
    with full.read() as connection:
        # The first rows of a ledger whose head is signed further on.
        frame = Frame.after(connection, 0, connection.execute(text("SELECT signed FROM head")).scalar(), 5)
    exported.append(chain.Head(full.head().ledger, 0, chain.genesis(full.head().ledger)), frame)
    with pytest.raises(OldCopy, check=coded("old-copy", "ledger")):
        restore(other, exported)
    assert segments.there


def test_a_ledger_that_has_rows_is_not_imported_over(full: Ledger, home: Path) -> None:
    with pytest.raises(LedgerError, check=coded("ledger-error", "ledger")):
        full.restore(beside(home), actor="officer")


def test_segments_never_go_on_from_another_ledger(full: Ledger, home: Path, other: str) -> None:
    with Ledger.open(other, create=True) as stranger:
        stranger.create_population("people", 4.0, 1e-6, actor="officer")
        with pytest.raises(LedgerError, check=coded("ledger-corrupt", "segments")):
            beside(home).follow(stranger.database)


def test_a_row_that_was_changed_in_the_database_is_never_copied(full: Ledger, home: Path) -> None:
    ends = [end for end, _ in beside(home).frames()]
    with full.database.engine.begin() as connection:
        edit_behind_the_guards(connection, "UPDATE head SET hash = 'x'")
    with pytest.raises(LedgerError, check=coded("ledger-corrupt", "segments")):
        beside(home).follow(full.database)
    with full.database.engine.begin() as connection:
        edit_behind_the_guards(connection, f"UPDATE head SET hash = '{ends[-1].hash}'")
        edit_behind_the_guards(connection, "UPDATE audit SET actor = 'nobody' WHERE id = 3")
    with pytest.raises(LedgerError, check=coded("ledger-corrupt", "segments")):
        Segments(home / "copy", home / "ledger.segments.key").follow(full.database)


def test_a_full_disk_stops_the_coordinator_and_loses_nothing(
    ledger_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(module.os, "fsync", full)
            with pytest.raises(LedgerError, check=coded("ledger-corrupt", "segments")):
                ledger.create_token("x", ("read",), actor="officer")
        ledger.create_token("y", ("read",), actor="officer")
        assert [end for end, _ in beside(home).frames()][-1] == ledger.head()
        assert ledger.head().count == 3


def run_command(*arguments: str) -> str:
    told = CliRunner().invoke(assemble("ledger"), ["ledger", *arguments])
    assert told.exit_code == 0, told.output
    return told.output


def test_a_lost_database_loses_no_charge(ledger_url: str, other: str, tmp_path: Path, home: Path) -> None:
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        fill(ledger)
        before, charges = ledger.population("people"), ledger.charges("people")
        odometers = all_rows(ledger)["odometers"]
    # The database is gone; what is left is the home.
    out = run_command("import", str(home / "ledger.segments"), "--home", str(home), "--ledger", other)
    assert "every table says what they prove" in out
    assert "is void" in out
    with Ledger.open(other, head_file=home / "ledger.head", coordinator=True) as ledger:
        after = ledger.population("people")
        assert after == before
        assert ledger.charges("people") == charges
        assert all_rows(ledger)["odometers"] == odometers
        commit(start(ledger, 0.001), [0], 0.001)
        assert verify(ledger).ok
        assert [end for end, _ in beside(home).frames()][-1] == ledger.head()


def test_a_lost_home_loses_no_charge(ledger_url: str, home: Path, tmp_path: Path) -> None:
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head", coordinator=True) as ledger:
        fill(ledger)
        before = ledger.population("people")
    shutil.rmtree(home)
    with pytest.raises(LedgerError, check=coded("head-missing", "ledger head")):
        Ledger.open(ledger_url, head_file=home / "ledger.head", coordinator=True)
    with Ledger.open(ledger_url) as ledger:  # `fieldfare verify --hold`, once the ledger is checked
        chain.HeadFile(home / "ledger.head").write(ledger.head())
    with Ledger.open(ledger_url, head_file=home / "ledger.head", coordinator=True) as ledger:
        after = ledger.population("people")
        assert after == before
        assert [end for end, _ in beside(home).frames()][-1] == ledger.head(), "the new home keeps all of it"


def test_an_export_goes_on_and_is_imported_with_its_key(
    ledger_url: str, other: str, tmp_path: Path, home: Path
) -> None:
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head") as ledger:
        fill(ledger)
        copy, at = str(tmp_path / "copy"), ("--home", str(home), "--ledger", ledger_url)
        assert f": {ledger.head().count}." in run_command("export", copy, *at)
        ledger.close_population("people", reason="done", actor="officer")
        assert json.loads(run_command("export", copy, *at, "--json"))["rows"] == ledger.head().count
    key = shutil.copy(home / "ledger.segments.key", tmp_path / "kept.key")
    new = str(tmp_path / "new")
    out = run_command("import", copy, "--key", str(key), "--home", new, "--ledger", other, "--json")
    assert len(json.loads(out)["voided"]) == 1
    with Ledger.open(other) as ledger:
        assert ledger.population("people").state == "closed"


def test_an_import_behind_the_head_of_the_home_or_of_its_service_changes_nothing(
    ledger_url: str, other: str, home: Path, tmp_path: Path
) -> None:
    at = ("--home", str(home), "--ledger")
    with Ledger.open(ledger_url, create=True, head_file=home / "ledger.head") as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run_command("export", str(tmp_path / "old"), *at, ledger_url)
        ledger.create_token("x", ("read",), actor="officer")
    chain.HeadFile(home / ".api" / "ledger.head").write(held := chain.HeadFile(home / "ledger.head").read())
    for held_by in ("ledger.head", ".api/ledger.head"):
        told = CliRunner().invoke(assemble("ledger"), ["ledger", "import", str(tmp_path / "old"), *at, other])
        assert told.exit_code == 2, told.output
        assert "row 2 was seen already" in " ".join(told.output.split())
        (home / held_by).unlink()
    assert held is not None
    with Ledger.open(other) as empty:
        assert empty.head().count == 0
    run_command("import", str(tmp_path / "old"), *at, other)


def test_the_service_keeps_what_it_charges(ledger_url: str, other: str, home: Path) -> None:
    with Ledger.open(ledger_url, create=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
    with Ledger.open(ledger_url, head_file=home / ".api" / "ledger.head", segments=True, to_show=True) as service:
        assert not Segments.beside(home / ".api" / "ledger.head").there, "readers do not wait for it"
        service.hold_head()
        service.reserve_charge("people", "k", Foreign(mu=0.1), what="ranker", why="weekly", actor="trainer")
    with restore(other, Segments.beside(home / ".api" / "ledger.head")) as again:
        assert [charge.key for charge in again.charges("people")] == ["k"]
