"""The head that is held elsewhere: signed, remembered, and refused where the journal went back or forked."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from typer.testing import CliRunner

from fieldfare.errors import LedgerError, OldCopy
from fieldfare.signatures import public_key
from fieldfare.signed_head import HeadRefused, SignedHead, follow, read_told
from fieldfare_client import witness
from fieldfare_flower.messages import HEAD, read_head, read_witness, write_head, write_witness
from fieldfare_server.cli import history
from fieldfare_server.cli.application import assemble
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.chain import Head, HeadFile
from fieldfare_server.ledger.sql.segments import Segments
from fieldfare_server.run.round.witnesses import Witnesses
from support.ledgers import commit, start
from support.refusals import Coded, coded

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
LEDGER, HASH = "ab" * 16, "cd" * 32


def head(count: int, hash: str = HASH, key: bytes = KEY, ledger: str = LEDGER) -> SignedHead:
    return SignedHead.of(ledger, count, hash, key)


def test_of_two_first_writers_one_makes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both look for the key before either has made it: who comes second must not replace what the first signs with."""
    first, second = HeadFile(tmp_path / "ledger.head"), HeadFile(tmp_path / "ledger.head")
    draw = secrets.token_bytes

    def meanwhile(size: int) -> bytes:
        monkeypatch.undo()
        first.key()
        return draw(size)

    monkeypatch.setattr("fieldfare_server.ledger.chain.secrets.token_bytes", meanwhile)
    second.write(Head(LEDGER, 2, HASH))
    assert first.key() == second.key()
    assert first.read() == Head(LEDGER, 2, HASH)


def test_of_two_processes_that_hold_a_head_at_once_the_newer_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find an older head. The slower one put its own back, and a copy of that length passed for the newest."""
    HeadFile(tmp_path / "ledger.head").write(Head(LEDGER, 1, HASH))
    slower, faster = (HeadFile(tmp_path / "ledger.head") for _ in range(2))
    other = threading.Thread(target=faster.write, args=(Head(LEDGER, 3, HASH),))
    sign = HeadFile.sign

    def meanwhile(file: HeadFile, head: Head) -> SignedHead:
        if file is slower:
            other.start()
            other.join(0.2)  # it waits for the slower one, or is done
        return sign(file, head)

    monkeypatch.setattr(HeadFile, "sign", meanwhile)
    slower.write(Head(LEDGER, 2, HASH))
    other.join()
    assert slower.read() == Head(LEDGER, 3, HASH)


def test_a_head_is_signed_once_and_read_only_where_another_process_held_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit shows its head to readers and holds it here: one signature more and a check took a quarter of that."""
    ours, other, work = HeadFile(tmp_path / "ledger.head"), HeadFile(tmp_path / "ledger.head"), list[str]()
    of, parse = SignedHead.of, SignedHead.parse

    def sign(ledger: str, count: int, hash: str, key: bytes) -> SignedHead:
        work.append("sign")
        return of(ledger, count, hash, key)

    def read(text: str) -> SignedHead:
        work.append("read")
        return parse(text)

    monkeypatch.setattr(SignedHead, "of", sign)
    monkeypatch.setattr(SignedHead, "parse", read)
    for count in (1, 2):
        ours.sign(Head(LEDGER, count, HASH))
        ours.write(Head(LEDGER, count, HASH))
    assert work == ["sign", "sign"]
    other.write(Head(LEDGER, 4, HASH))
    assert work[2:] == ["read", "sign"]
    ours.write(Head(LEDGER, 3, HASH))
    assert (work[4:], ours.held()) == (["read"], Head(LEDGER, 4, HASH))


def test_what_one_process_saw_no_other_of_its_machine_goes_back_on(tmp_path: Path) -> None:
    """A process that wrote nothing lately has seen less than the file it shares, and wrote into an old copy."""
    path, files = tmp_path / "ledger.sqlite3", tmp_path / "ledger.head"
    with Ledger.open(str(path), create=True, head_file=files) as idle:
        idle.create_population("people", 4.0, 1e-6, actor="officer")
        copy = path.read_bytes(), Path(f"{path}-wal").read_bytes()
        with Ledger.open(str(path), head_file=files) as busy:
            busy.create_population("others", 4.0, 1e-6, actor="officer")
        idle.database.engine.dispose()
        for file, content in zip((path, Path(f"{path}-wal")), copy, strict=True):
            file.write_bytes(content)  # the same file, as a database server sees it
        Path(f"{path}-shm").unlink(missing_ok=True)
        for write in (lambda: idle.create_token("t", ("read",), actor="officer"), idle.hold_head):
            with pytest.raises(OldCopy, check=coded("old-copy", "ledger")):
                write()


def test_the_format_is_one_line_that_openssl_can_check() -> None:
    """Pinned: RFC 8032 is deterministic, so this text never changes."""
    text = str(head(7))
    assert text.split()[:4] == ["fieldfare-head-v1", LEDGER, "7", HASH]
    assert text.split()[4] == public_key(KEY) == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert SignedHead.parse(text + "\n") == head(7)


@pytest.mark.parametrize("at", [25, 51, 60, 130, 200, 300])
def test_a_changed_character_is_refused(at: int) -> None:
    text = str(head(7))
    changed = text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
    with pytest.raises(HeadRefused):
        SignedHead.parse(changed)


@pytest.mark.parametrize(
    "text", ["", "fieldfare-head-v1", str(Head(LEDGER, 3, HASH)), "fieldfare-head-v2 " + "a" * 300]
)
def test_another_format_is_refused(text: str) -> None:
    with pytest.raises(HeadRefused, check=coded("head-refused", "the journal")):
        SignedHead.parse(text)


@pytest.mark.parametrize(
    ("shown", "rows", "why"),
    [
        (None, {}, coded("head-refused", "the journal of ledger")),
        (head(9, ledger="00" * 16), {}, coded("head-refused", "the journal of ledger")),
        (head(9, key=OTHER_KEY), {5: HASH}, coded("head-refused", "the journal of ledger")),
        (head(4), {}, coded("head-refused", "the journal of ledger")),
        (head(5, hash="ee" * 32), {}, coded("head-refused", "the journal of ledger")),
        (head(9), {5: "ee" * 32}, coded("head-refused", "the journal of ledger")),
        (head(9), {}, coded("head-refused", "the journal of ledger")),
    ],
)
def test_what_does_not_continue_is_refused(shown: SignedHead | None, rows: dict[int, str], why: Coded) -> None:
    with pytest.raises(HeadRefused, check=why):
        follow(head(5), shown, rows)


def test_what_continues_is_remembered() -> None:
    assert follow(None, head(5), {}) == head(5)
    assert follow(None, None, {}) is None
    assert follow(head(5), head(5), {}) == head(5)
    assert follow(head(5), head(9), {5: HASH}) == head(9)


# -- the coordinator's file -----------------------------------------------------------------------------------------


def a_ledger_with_a_run(root: Path) -> tuple[str, Path]:
    url, held = f"sqlite:///{root / 'ledger.sqlite3'}", root / "ledger.head"
    with Ledger.open(url, create=True, head_file=held, coordinator=True) as ledger:
        ledger.create_population("people", 4.0, 1e-6, actor="officer")
        run = start(ledger)
        commit(run, [], 0.1)
        run.finish("stopped")
    return url, held


def test_the_head_is_signed_and_its_key_is_private(tmp_path: Path) -> None:
    url, held = a_ledger_with_a_run(tmp_path)
    with Ledger.open(url, head_file=held) as ledger:
        signed = SignedHead.parse(held.read_text())
        assert (signed.count, signed.hash) == (ledger.head().count, ledger.head().hash)
        assert ledger.signed_head() == signed
    assert (tmp_path / "ledger.key").stat().st_mode & 0o777 == 0o600
    assert signed.key == public_key((tmp_path / "ledger.key").read_bytes())


def test_a_forged_head_file_is_refused(tmp_path: Path) -> None:
    url, held = a_ledger_with_a_run(tmp_path)
    right = SignedHead.parse(held.read_text())
    forger = secrets.token_bytes(32)
    for content in (str(SignedHead.of(right.ledger, 1, right.hash, forger)), '{"ledger":"x","count":1,"hash":"y"}', ""):
        held.write_text(content)
        with pytest.raises(LedgerError, check=coded("head-unreadable", "ledger head")):
            Ledger.open(url, head_file=held)
    held.write_text(str(right))
    Ledger.open(url, head_file=held).close()


@pytest.fixture
def charges_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of these tests have no real plan that `verify` could charge again."""
    monkeypatch.setattr(history, "recharge", None)


@pytest.mark.usefixtures("charges_are_compared")
def test_a_missing_head_is_a_fault_where_there_are_runs(tmp_path: Path) -> None:
    """R5: a deleted head file and a consistent forgery passed."""
    url, held = a_ledger_with_a_run(tmp_path)
    kept = held.read_text()
    held.unlink()
    with pytest.raises(LedgerError, check=coded("head-missing", "ledger head", "--head")):
        Ledger.open(url, head_file=held, coordinator=True)
    with Ledger.open(url) as ledger:
        (tmp_path / ledger.runs(limit=1).items[0].id).mkdir()
    with pytest.raises(LedgerError, check=coded("head-missing", "ledger head")):
        Ledger.open(url, head_file=held)  # files of the run lie here, whatever the command is
    elsewhere = tmp_path / "laptop" / "ledger.head"
    Ledger.open(url, head_file=elsewhere).close()  # a machine that only submits holds it from now on
    assert elsewhere.exists()
    run = CliRunner().invoke
    program, where = assemble("verify"), ["--home", str(tmp_path), "--ledger", url]
    assert run(program, ["verify", *where]).exit_code == 2
    for option in (["--head", kept], ["--hold"]):
        held.unlink(missing_ok=True)
        answer = run(program, ["verify", *where, *option])
        assert answer.exit_code == 0, answer.output
        Ledger.open(url, head_file=held, coordinator=True).close()


@pytest.mark.usefixtures("charges_are_compared")
def test_verify_takes_a_head_from_outside(tmp_path: Path) -> None:
    url, held = a_ledger_with_a_run(tmp_path)
    old = tmp_path / "old.sqlite3"
    shutil.copy(tmp_path / "ledger.sqlite3", old)
    with Ledger.open(url, head_file=held, coordinator=True) as ledger:
        ledger.create_population("others", 4.0, 1e-6, actor="officer")
    kept = tmp_path / "witness.txt"
    kept.write_text(f"{head(3)}\n{held.read_text()}")
    run, program = CliRunner().invoke, assemble("verify")
    assert run(program, ["verify", "--home", str(tmp_path), "--ledger", url, "--head", str(kept)]).exit_code == 0
    where = ["--home", str(tmp_path / "other"), "--ledger", f"sqlite:///{old}"]
    refused = run(program, ["verify", *where, "--head", str(kept), "--json"])
    assert refused.exit_code == 2
    # It was two documents: what was checked, and the refusal.
    said = json.loads(refused.stdout)
    assert (said["ok"], said["code"], said["exit_code"]) == (False, "ledger-error", 2)
    assert "was seen once" in said["fault"]
    assert said["checked"]["audit"] > 0
    assert not (tmp_path / "other" / "ledger.head").exists(), "a ledger that does not fit is not held"
    unknown = run(program, ["verify", *where, "--head", str(head(3))])
    assert unknown.exit_code == 2
    assert "not a head of ledger" in unknown.output
    assert run(program, ["verify", *where, "--head", "nonsense"]).exit_code == 2
    assert run(program, ["verify", *where, "--head", "x", "--hold"]).exit_code == 2


@pytest.mark.usefixtures("charges_are_compared")
def test_an_older_head_from_outside_does_not_make_a_home_forget_a_newer_one(tmp_path: Path) -> None:
    """An old copy that was put back passed `verify --head` with a head as old as the copy, which then was held."""
    url, held = a_ledger_with_a_run(tmp_path)
    old, older = tmp_path / "old.sqlite3", held.read_text()
    shutil.copy(tmp_path / "ledger.sqlite3", old)
    with Ledger.open(url, head_file=held, coordinator=True) as ledger:
        ledger.create_population("others", 4.0, 1e-6, actor="officer")
    newer = held.read_text()
    run, program, where = CliRunner().invoke, assemble("verify"), ["--home", str(tmp_path), "--ledger"]
    for option in (["--head", older], ["--head", "no-such-file"]):
        assert run(program, ["verify", *where, f"sqlite:///{old}", *option]).exit_code == 2
        assert held.read_text() == newer
    assert run(program, ["verify", *where, url, "--head", older]).exit_code == 0
    assert held.read_text() == newer
    # Only the word that says so gives up what was seen.
    assert run(program, ["verify", *where, f"sqlite:///{old}", "--hold"]).exit_code == 0
    assert held.read_text() == older
    # The copy beside the head goes on from the ledger that was accepted; the newer one is kept.
    with Ledger.open(f"sqlite:///{old}", head_file=held, coordinator=True) as ledger:
        ledger.create_population("again", 4.0, 1e-6, actor="officer")
    assert (tmp_path / "ledger.segments.before-1").is_dir()
    assert (tmp_path / "ledger.segments").is_dir()


@pytest.mark.usefixtures("charges_are_compared")
def test_every_head_that_a_witness_kept_must_be_in_the_journal(tmp_path: Path) -> None:
    """Of a file of heads only the newest was looked at: a fork that was shown to the witness before stayed unseen."""
    url, held = a_ledger_with_a_run(tmp_path)
    newest = SignedHead.parse(held.read_text())
    forked = SignedHead.of(newest.ledger, newest.count - 1, "ee" * 32, (tmp_path / "ledger.key").read_bytes())
    kept = tmp_path / "witness.txt"
    kept.write_text(f"{forked}\n{newest}\n")
    answer = CliRunner().invoke(
        assemble("verify"), ["verify", "--home", str(tmp_path), "--ledger", url, "--head", str(kept), "--json"]
    )
    assert answer.exit_code == 2
    assert f"audit {forked.count}: it is not the row that was seen" in answer.output


# -- nodes ----------------------------------------------------------------------------------------------------------


def context() -> Context:
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})


NODE = 2


def shown(witnesses: Witnesses) -> RecordDict:
    return RecordDict(dict(witnesses.records([NODE])[NODE]))


def test_nodes_follow_a_journal_and_refuse_a_restored_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, held = a_ledger_with_a_run(tmp_path)
    memory = tmp_path / "node" / "witness"
    monkeypatch.setenv(witness.VARIABLE, str(memory))
    node = context()
    backup = tmp_path / "backup.sqlite3"
    with Ledger.open(url, head_file=held, coordinator=True) as ledger:
        shutil.copy(tmp_path / "ledger.sqlite3", backup)
        witnesses = Witnesses(ledger)
        for _ in range(3):
            ledger.raise_population("people", epsilon=ledger.population("people").epsilon + 1, reason="x", actor="o")
            witness.watch(node, shown(witnesses))
        seen = SignedHead.parse(memory.read_text())
        assert seen == ledger.signed_head()
    # The backup is put back, with a head that its operator accepted: it ends before the row that the node remembers.
    shutil.copy(backup, tmp_path / "ledger.sqlite3")
    for rest in ("-wal", "-shm"):
        (tmp_path / f"ledger.sqlite3{rest}").unlink(missing_ok=True)
    with Ledger.open(url) as ledger:
        HeadFile(held).write(ledger.head(), again=True)
        Segments.beside(held).set_aside()
    with Ledger.open(url, head_file=held, coordinator=True) as ledger:
        witnesses = Witnesses(ledger)
        with pytest.raises(HeadRefused, check=coded("head-refused", "the journal of ledger")):
            witness.watch(context(), shown(witnesses))
        for _ in range(5):
            ledger.raise_population("people", epsilon=ledger.population("people").epsilon + 2, reason="x", actor="o")
        # It has grown past that row: a fork. The node says what it remembers, and the server's own answer convicts it.
        witnesses.hear(NODE, RecordDict(dict(write_witness(witness.remembered(context())))))
        with pytest.raises(HeadRefused, check=coded("head-refused", "the journal of ledger")):
            witness.watch(context(), shown(witnesses))
        assert SignedHead.parse(memory.read_text()) == seen


@pytest.mark.parametrize("left", ["", "fieldfare-head-v1 ab", str(head(5))[:-1], "\0" * 300])
def test_a_witness_that_is_empty_or_torn_is_refused_under_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    memory = tmp_path / "witness"
    memory.write_text(left)
    monkeypatch.setenv(witness.VARIABLE, str(memory))
    with pytest.raises(HeadRefused, check=coded("head-refused", "FIELDFARE_WITNESS")) as refused:
        witness.watch(context(), RecordDict({HEAD: write_head(head(9), {})}))
    assert read_told(refused.value.told) == ("no-memory", 0, 0)
    assert memory.read_text() == left, "what it held may still be mended by hand"
    # The remedy that it names: the line of another node.
    memory.write_text(f"{head(9)}\n")
    witness.watch(context(), RecordDict({HEAD: write_head(head(9), {})}))


def test_a_witness_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, done = tmp_path / "node" / "witness", []
    monkeypatch.setenv(witness.VARIABLE, str(memory))
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        done.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        sync(descriptor)

    def replaced(self: Path, target: Path) -> Path:
        done.append(f"{self.name} -> {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    witness.watch(context(), RecordDict({HEAD: write_head(head(5), {})}))
    temporary = done[0]
    assert temporary != "witness"
    assert done == [temporary, f"{temporary} -> witness", "node"]
    assert [path.name for path in memory.parent.iterdir()] == ["witness"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "went-back 5",
        "went-back 5 3 fieldfare-head-v1",
        "went-back 5 x",
        "else 5 3",
        "went-back 5 3 and a secret",
        "forked -1 3",
    ],
)
def test_what_a_node_may_tell_of_the_journal_is_a_word_and_two_numbers(text: str) -> None:
    assert read_told(text) is None
    assert read_told("went-back 5 3") == ("went-back", 5, 3)


def test_a_node_that_was_away_is_shown_what_it_remembers(tmp_path: Path) -> None:
    url, held = a_ledger_with_a_run(tmp_path)
    with Ledger.open(url, head_file=held, coordinator=True) as ledger:
        node = context()
        witness.watch(node, shown(Witnesses(ledger)))
        for _ in range(40):
            ledger.create_token("x", ("read",), actor="officer")
        again = Witnesses(ledger)
        with pytest.raises(HeadRefused, check=coded("head-refused", "the journal of ledger")):
            witness.watch(node, shown(again))
        again.hear(NODE, RecordDict(dict(write_witness(witness.remembered(node)))))
        witness.watch(node, shown(again))


def test_a_node_that_cohorts_leave_out_for_long_is_shown_what_it_remembers(tmp_path: Path) -> None:
    """One witness of 16 recent heads for all nodes refused every node that was not asked in 16 rounds."""
    url, held = a_ledger_with_a_run(tmp_path)
    with Ledger.open(url, head_file=held, coordinator=True) as ledger:
        witnesses, node = Witnesses(ledger), context()
        witness.watch(node, shown(witnesses))
        for _ in range(40):
            ledger.create_token("x", ("read",), actor="officer")
            witnesses.records([NODE + 1])
        witness.watch(node, shown(witnesses))
        ledger.create_token("x", ("read",), actor="officer")
        witnesses.records([NODE])  # an instruction that the node misses
        ledger.create_token("x", ("read",), actor="officer")
        witness.watch(node, shown(witnesses))


def test_a_record_that_is_no_head_is_refused_and_none_is_fine_at_first() -> None:
    witness.watch(context(), RecordDict())
    content = RecordDict({HEAD: write_head(head(5), {3: HASH})})
    assert read_head(content) == (head(5), {3: HASH})
    node = context()
    witness.watch(node, content)
    with pytest.raises(HeadRefused, check=coded("head-refused", "the journal of ledger")):
        witness.watch(node, RecordDict())
    assert read_witness(RecordDict()) == (None, "")
    assert read_witness(RecordDict(dict(write_witness(head(5))))) == (5, str(head(5)))


def test_a_forged_signed_head_in_the_ledger_is_refused_at_the_next_charge(tmp_path: Path) -> None:
    from sqlalchemy import text

    from fieldfare_server.ledger.sql.proof import Disproved

    url, held = a_ledger_with_a_run(tmp_path)
    with Ledger.open(url, head_file=held, coordinator=True) as ledger, ledger.database.engine.connect() as link:
        link.execute(text("DROP TRIGGER head_forward"))
        for forged in ("x", str(head(1)), str(SignedHead.of(ledger.head().ledger, 1, "0" * 64, OTHER_KEY))):
            link.execute(text("UPDATE head SET signed = :signed"), {"signed": forged})
            with pytest.raises(Disproved, check=coded("disproved")):
                ledger.proof.require(link)
        link.rollback()


def test_nodes_of_one_process_look_into_the_file_one_after_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two at once wrote one temporary file, and the second found it gone."""
    monkeypatch.setenv(witness.VARIABLE, str(tmp_path / "head"))
    inside, keep, seen = [0], witness.keep, list[int]()

    def slowly(path: Path, newest: SignedHead, first: bool = False) -> None:
        inside[0] += 1
        seen.append(inside[0])
        time.sleep(0.05)
        keep(path, newest, first)
        inside[0] -= 1

    monkeypatch.setattr(witness, "keep", slowly)
    shown = RecordDict({HEAD: write_head(head(5), {})})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: witness.watch(context(), shown), range(4)))
    assert seen == [1]
