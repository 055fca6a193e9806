"""The key that signs the journal's head changes by a row that the old key, or an enrolled offline key, signs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from flwr.app import RecordDict
from typer.testing import CliRunner

from fieldfare.head_keys import KeyLine, successor
from fieldfare.signatures import public_key
from fieldfare.signed_head import HeadRefused, SignedHead, follow
from fieldfare_client import witness
from fieldfare_flower.messages import write_witness
from fieldfare_server.cli.application import assemble
from fieldfare_server.evidence.verify import verify
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.chain import HeadFile
from fieldfare_server.run.round.witnesses import Witnesses
from support.ledgers import commit, start
from support.refusals import coded

A, B, C, OFFLINE, THIEF = (bytes([number]) * 32 for number in range(1, 6))
LEDGER = "ab" * 16
NODE = 7


def line(verb: Any, old: bytes, new: bytes, signer: bytes, ledger: str = LEDGER) -> str:
    return str(KeyLine.of(ledger, verb, public_key(old), public_key(new), signer))


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        ([], A),
        ([line("rotate", A, B, A)], B),
        ([line("rotate", A, B, A), line("rotate", B, C, B)], C),
        ([line("rotate", B, C, B), line("rotate", A, B, A)], B),  # in their order
        ([line("rotate", A, B, THIEF)], A),
        ([line("rotate", A, B, B)], A),
        ([line("rotate", A, B, OFFLINE)], A),
        ([line("enrol", A, OFFLINE, A), line("rotate", A, B, OFFLINE)], B),
        ([line("enrol", A, OFFLINE, THIEF), line("rotate", A, B, OFFLINE)], A),
        ([line("rotate", A, B, OFFLINE), line("enrol", A, OFFLINE, A)], A),
        # What A had enrolled speaks for B only once B says so.
        ([line("enrol", A, OFFLINE, A), line("rotate", A, B, A), line("rotate", B, C, OFFLINE)], B),
        ([line("rotate", A, B, A), line("enrol", B, OFFLINE, B), line("rotate", B, C, OFFLINE)], C),
        ([line("rotate", A, B, A, ledger="cd" * 16)], A),
    ],
)
def test_a_key_is_followed_by_the_one_that_it_or_its_offline_key_named(lines: list[str], last: bytes) -> None:
    assert successor(LEDGER, public_key(A), lines)[0] == public_key(last)
    held, shown = SignedHead.of(LEDGER, 3, "cd" * 32, A), SignedHead.of(LEDGER, 3, "cd" * 32, last)
    assert follow(held, shown, {}, lines) == shown
    thief = SignedHead.of(LEDGER, 3, "cd" * 32, THIEF)
    with pytest.raises(HeadRefused, check=coded("head-refused", "the journal of ledger")):
        follow(held, thief, {}, lines)


@pytest.mark.parametrize("at", [20, 50, 60, 130, 200, 300])
def test_a_changed_character_is_refused(at: int) -> None:
    text = line("rotate", A, B, A)
    with pytest.raises(ValueError, match=r"line|signature"):
        KeyLine.parse(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])
    assert follow(None, SignedHead.of(LEDGER, 3, "cd" * 32, A), {}, ["nonsense"]) is not None


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A home with a ledger whose head its coordinator has signed; no run has a coordinator now."""
    home = tmp_path / "home"
    with Ledger.open(url(tmp_path), create=True, head_file=home / "ledger.head") as ledger:
        ledger.create_population("people", 8.0, 1e-6, actor="officer")
    work(tmp_path, home)
    return tmp_path


def url(place: Path) -> str:
    return f"sqlite:///{place / 'database' / 'ledger.sqlite3'}"


def work(place: Path, home: Path) -> None:
    with Ledger.open(url(place), head_file=home / "ledger.head", coordinator=True) as ledger:
        run = start(ledger, 0.01)
        commit(run, [], 0.01)
        run.finish("stopped")


def show(place: Path, home: Path, node: Any) -> None:
    """What the coordinator of `home` shows a node; raises `HeadRefused` as the node does."""
    with Ledger.open(url(place), head_file=home / "ledger.head", coordinator=True) as ledger:
        witnesses = Witnesses(ledger)
        witnesses.hear(NODE, RecordDict(dict(write_witness(witness.remembered(node)))))
        witness.watch(node, RecordDict(dict(witnesses.records([NODE])[NODE])))


def fieldfare(place: Path, home: Path, *arguments: str) -> str:
    done = CliRunner().invoke(assemble(), ["head", *arguments, "--home", str(home), "--ledger", url(place)])
    assert done.exit_code == 0, done.output
    return done.output


def test_nodes_follow_a_key_that_the_old_one_named(place: Path) -> None:
    node, home = context(), place / "home"
    show(place, home, node)
    before = held(node).key
    fieldfare(place, home, "rotate")
    show(place, home, node)
    work(place, home)
    show(place, home, node)
    fieldfare(place, home, "rotate")
    show(place, home, node)
    assert held(node).key != before
    with Ledger.open(url(place), head_file=home / "ledger.head", coordinator=True) as ledger:
        assert verify(ledger).ok
        assert len(ledger.head_key_lines()) == 2


def test_a_head_is_an_answer_also_where_output_is_a_log(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work(place, place / "home")
    monkeypatch.setenv("FIELDFARE_LOG", "json")
    shown = CliRunner().invoke(assemble(), ["head", "show", "--home", str(place / "home")])
    assert SignedHead.parse(shown.stdout).ledger


def test_nodes_are_told_the_head_before_the_first_run_and_a_lost_one_is_none(tmp_path: Path) -> None:
    """Where another home made the population, as in containers: the coordinator's is new, and has no head yet."""
    with Ledger.open(url(tmp_path), create=True, head_file=tmp_path / "office" / "ledger.head") as ledger:
        ledger.create_population("people", 8.0, 1e-5, actor="officer")
    asked, home = ["head", "show", "--ledger", url(tmp_path), "--home"], tmp_path / "coordinator"
    told = SignedHead.parse(CliRunner().invoke(assemble(), [*asked, str(home)]).stdout)
    with Ledger.open(url(tmp_path), head_file=home / "ledger.head", coordinator=True) as ledger:
        commit(start(ledger, 0.1), [], 0.1)
        shown = ledger.signed_head()
        assert shown is not None
        assert follow(told, shown, {told.count: told.hash}) == shown
    lost = CliRunner().invoke(assemble(), [*asked, str(tmp_path / "lost")])
    assert lost.exit_code == 2
    assert "it is missing, and the ledger has" in " ".join(lost.output.split())


def test_a_second_coordinator_takes_over_with_the_offline_key(place: Path) -> None:
    node, home, second = context(), place / "home", place / "second"
    made = CliRunner().invoke(assemble(), ["head", "new-key", str(place / "offline")])
    fieldfare(place, home, "enrol", made.output.strip())
    show(place, home, node)
    shutil.rmtree(home)  # its disk is lost
    thief = place / "thief"
    HeadFile(thief / "ledger.head").key()
    (place / "stolen").write_bytes(THIEF)
    refused = CliRunner().invoke(
        assemble(),
        ["head", "rotate", "--home", str(thief), "--ledger", url(place), "--offline-key", str(place / "stolen")],
    )
    assert refused.exit_code == 2
    assert "never enrolled" in " ".join(refused.output.split())
    fieldfare(place, second, "rotate", "--offline-key", str(place / "offline"))
    show(place, second, node)
    work(place, second)
    show(place, second, node)
    # And once more: the offline key speaks for the new one, too.
    third = place / "third"
    fieldfare(place, third, "rotate", "--offline-key", str(place / "offline"))
    show(place, third, node)
    with Ledger.open(url(place), head_file=third / "ledger.head", coordinator=True) as ledger:
        assert verify(ledger).ok


def test_without_a_line_another_key_is_refused(place: Path) -> None:
    node, home = context(), place / "home"
    show(place, home, node)
    (home / "ledger.key").unlink()
    (home / "ledger.head").unlink()
    with Ledger.open(url(place)) as ledger:
        HeadFile(home / "ledger.head").write(ledger.head(), again=True)
    work(place, home)
    with pytest.raises(HeadRefused, check=coded("head-refused", "the journal of ledger")):
        show(place, home, node)


def test_a_rotation_that_a_crash_cut_off_is_completed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node, home = context(), place / "home"
    show(place, home, node)
    with monkeypatch.context() as patch:

        def crash(self: HeadFile) -> None:
            raise KeyboardInterrupt

        patch.setattr(HeadFile, "adopt", crash)
        with Ledger.open(url(place), head_file=home / "ledger.head") as ledger, pytest.raises(KeyboardInterrupt):
            ledger.rotate_head_key(home / "ledger.head", actor="x")
    fieldfare(place, home, "rotate")
    show(place, home, node)
    with Ledger.open(url(place), head_file=home / "ledger.head", coordinator=True) as ledger:
        assert len(ledger.head_key_lines()) == 1, "it was one rotation"
        assert verify(ledger).ok


def test_no_key_changes_while_a_coordinator_signs_with_it(place: Path) -> None:
    home = place / "home"
    with Ledger.open(url(place), head_file=home / "ledger.head", coordinator=True) as ledger:
        run = start(ledger, 0.01)
        refused = CliRunner().invoke(assemble(), ["head", "rotate", "--home", str(home), "--ledger", url(place)])
        assert refused.exit_code == 2
        assert "stop it first" in refused.output
        run.finish("stopped")


def context() -> Any:
    from flwr.app import Context

    return Context(1, NODE, {}, RecordDict(), {})


def held(node: Any) -> SignedHead:
    found = witness.remembered(node)
    assert found is not None
    return found


def test_a_head_that_a_node_shows_proves_what_the_key_of_its_row_signed(place: Path) -> None:
    home, other = place / "home", "ab" * 32
    old, written = HeadFile(home / "ledger.head").key(), HeadFile(home / "ledger.head").read()
    assert written is not None
    fieldfare(place, home, "rotate")
    work(place, home)
    new = HeadFile(home / "ledger.head").key()
    with Ledger.open(url(place), head_file=home / "ledger.head", coordinator=True) as ledger:
        witnesses, now = Witnesses(ledger), ledger.signed_head()
        assert now is not None

        def proves(count: int, hash: str, key: bytes, of: str = now.ledger) -> bool:
            return witnesses.denied(str(SignedHead.of(of, count, hash, key)), "") is not None

        assert all(proves(count, other, new) for count in (now.count, now.count + 1))
        assert proves(written.count, other, old)
        assert not proves(written.count, written.hash, old)
        assert not proves(now.count, now.hash, new)
        # The key of before signs nothing more.
        assert not any(proves(count, other, old) for count in (now.count, now.count + 1))
        assert not any(proves(count, other, THIEF) for count in (1, now.count, 10**19 - 1))
        assert not proves(now.count + 1, other, new, LEDGER)
        ledger.create_token("x", ("read",), actor="officer")
        later = ledger.signed_head()
        assert later is not None
        assert later.count > now.count
        assert not proves(later.count, later.hash, new)
        assert witnesses.denied("no line", "") is None
