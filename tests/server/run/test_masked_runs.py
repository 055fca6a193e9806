"""Runs with masked sums: the same bytes as plain ones, one set a round whatever crashes, and a blinder that keeps to
its rules whatever the server asks."""

from __future__ import annotations

import errno
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fieldfare.errors import BadInput, LedgerError, Refused
from fieldfare.masking.boxes import read_key, write_key
from fieldfare.masking.receipts import BlinderHead, Receipt, Receipts, next_row
from fieldfare.schema import pseudonyms
from fieldfare_client.blinder import Blinder
from fieldfare_client.masking import BLINDER, NODE_KEY, make_node_key, mask_reply
from fieldfare_flower.local_grid import copy_records
from fieldfare_flower.masked import ASK, MASKED, QUERY_MASKS, RECEIPT, Masking, MasksAsked, Seal, digest_of_instruction
from fieldfare_flower.messages import SEAL, UPDATE, Occasion, TrainInstruction
from fieldfare_flower.npy import BadReply
from fieldfare_server import faults
from fieldfare_server.cli.progress import simulated_nodes
from fieldfare_server.evidence.residual_test import run_residual_test
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.round.masked import rehearse_masks
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.deployed import benchmark
from support.federation import LyingGrid, home, plan
from support.masks import masking_of_plan
from support.refusals import coded

NODES = 8
MASKED_TABLE = {"kind": "masked", "least_nodes": 2}


class MaskedGrid(LyingGrid):
    """`LyingGrid` with nodes that name a blinder."""

    def __init__(self, session: Session, nodes: int = NODES, lies: Any = None) -> None:
        super().__init__(nodes, lies)
        rehearse_masks(self, session.plan, session.schema, session.files.directory.parent)  # type: ignore[union-attr]


def run(state: StateDirectory, run_id: str, *, resume: bool = False, lies: Any = None, **changes: Any) -> Session:
    if resume:
        session = Session.resume(state, run_id, identity_is_stable=True)
    else:
        session = Session.begin(state, plan(**changes), identity_is_stable=True, run_id=run_id)
    with session:
        FieldfareStrategy(session).start(MaskedGrid(session, lies=lies))
    return session


def begun(root: Path) -> tuple[StateDirectory, Session, MaskedGrid]:
    """A masked run before its first round."""
    state = home(root)
    session = Session.begin(state, plan(aggregation=MASKED_TABLE), identity_is_stable=True, run_id="run")
    return state, session, MaskedGrid(session)


def model(state: StateDirectory, run_id: str) -> bytes:
    return (state.root / run_id / "model.safetensors").read_bytes()


def questions(state: StateDirectory) -> list[tuple[str, int, str]]:
    with sqlite3.connect(state.root / ".blinder" / "blinder.sqlite3") as journal:
        return journal.execute("SELECT run, round, question FROM answers ORDER BY run, round").fetchall()


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    yield
    faults.load({})


THREE = {"kind": "three-query", "base": {"kind": "sgd", "learning_rate": 1.0}}


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": {"kind": "independent"}},
        {"mechanism": {"kind": "blt"}},
        {"mechanism": {"kind": "tree"}},
        {"mechanism": {"kind": "banded", "bands": 3}},
        {"mechanism": {"kind": "tree", "estimator": "plain"}, "privacy__rounding": "discrete"},
        {"mechanism": {"kind": "independent"}, "privacy__rounding": "discrete", "privacy__adjacency": "replace_one"},
        {"clipping": {"kind": "adaptive-quantile", "norm": 0.5}},
        {"run__over_selection": 1.5},
    ],
    ids=lambda changes: "-".join(
        str(value.get("kind", "")) if isinstance(value, dict) else str(value) for value in changes.values()
    ),
)
def test_masked_and_plain_runs_release_the_same_bytes(tmp_path: Path, changes: dict[str, Any]) -> None:
    released = {}
    for kind in ({"kind": "plain"}, MASKED_TABLE):
        (tmp_path / kind["kind"]).mkdir()
        state = home(tmp_path / kind["kind"], adjacency=changes.get("privacy__adjacency", "zero_out"))
        session = run(state, "run", aggregation=kind, **changes)
        released[kind["kind"]] = model(state, "run"), session.epsilon()
    assert released["plain"] == released["masked"]
    assert len(questions(state)) == 6


@pytest.mark.parametrize("table", [MASKED_TABLE, MASKED_TABLE | {"blinder_noise": 0.5}], ids=["bare", "hidden"])
def test_the_noise_of_a_masked_run_is_tested_as_any_other(tmp_path: Path, table: dict[str, Any]) -> None:
    state = home(tmp_path)
    run(state, "run", aggregation=table, run__noise_seed=None, run__rounds=4)
    with Ledger.open(state.ledger, head_file=state.head_file) as ledger:
        assert run_residual_test(ledger, "run", actor="test", numbers=2**16, root=state.root).residual.passed
        assert verify(ledger, state.root).ok


def test_with_nonces_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real key, and nonces that do not depend on the sum."""
    fixed = SimpleNamespace(token_bytes=lambda size: bytes(range(size)))
    monkeypatch.setattr("fieldfare_server.run.session.secrets", fixed)
    monkeypatch.setattr("fieldfare.noise.SecureNoise.nonce", lambda _, run, index, bits, digest: bytes([index] * 16))
    models = []
    for kind in ({"kind": "plain"}, MASKED_TABLE):
        (tmp_path / kind["kind"]).mkdir()
        state = home(tmp_path / kind["kind"])
        run(state, "run", aggregation=kind, run__noise_seed=None)
        models.append(model(state, "run"))
    assert models[0] == models[1]


def test_the_server_gets_no_update_and_no_count_in_clear(tmp_path: Path) -> None:
    """A reply has nothing but words, how many users it sums, and a box of its own."""
    state = home(tmp_path)
    seen: list[RecordDict] = []

    def keep(_: Message, reply: Message) -> Message:
        seen.append(reply.content)
        return reply

    run(state, "run", aggregation=MASKED_TABLE, lies=dict.fromkeys(range(2, 2 + NODES), keep))
    assert seen
    words = []
    for content in seen:
        assert set(content) == {"fieldfare", MASKED, "report"}
        assert set(content["fieldfare"]) == {"version", "run", "round", "attempt", SEAL}
        assert UPDATE not in content
        assert set(content["report"]) == {"users"}
        words.append(np.array(content[MASKED]["words"].numpy()))  # type: ignore[index]
    # A reply is below 2^22 cells, so under one mask all four words of two replies would be as close. Masks of their own
    # bring two of some 600 pairs that close with a probability below 1e-7.
    for position, one in enumerate(words):
        for other in words[:position]:
            assert np.abs((one - other).view("<i4").astype(np.int64)).max() > 2**23
    assert len({content["fieldfare"][SEAL] for content in seen}) == len(seen)


def test_a_masked_reply_is_at_most_300_bytes_longer_than_a_plain_one() -> None:
    """What a mask takes: a box, a key and a signature. The words are as long as the update."""
    assert 0 < benchmark("masked_sums").measure(1_000, 2, 0)["bytes"] <= 300


def test_a_full_disk_leaves_no_empty_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left one, which was refused ever after."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            make_node_key(tmp_path / "key")
    assert make_node_key(tmp_path / "key") == make_node_key(tmp_path / "key")


@pytest.mark.parametrize("place", [".", ".."])
def test_a_directory_is_no_place_for_a_key(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fieldfare node-key .` was a traceback: a path of one dot has no name."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, check=coded("unreadable", "node-key", "Is a directory")):
        make_node_key(Path(place))
    assert not list(tmp_path.iterdir())


def test_no_two_replies_have_one_mask(tmp_path: Path) -> None:
    """The same update twice: under one mask the words would be equal. By chance one of them is with odds 2^-22."""
    masking, cost = masking_of_plan(plan(aggregation=MASKED_TABLE), write_key(bytes(32)), 1024)
    update = np.linspace(-1, 1, 1024, dtype=np.float32)
    make_node_key(tmp_path / "key")
    node = Context(1, 1, {NODE_KEY: str(tmp_path / "key")}, RecordDict(), {})
    one, two = (mask_reply(masking, node, cost, Occasion("run", 0, 0), update, 1, ()) for _ in range(2))
    words = [np.array(content[MASKED]["words"].numpy()) for content in (one, two)]  # type: ignore[index]
    assert (words[0] != words[1]).all()
    assert one["fieldfare"][SEAL] != two["fieldfare"][SEAL]


def test_a_node_answers_however_large_an_update_is(tmp_path: Path) -> None:
    """An error would tell that this one is larger than the ring. So the node answers: with zeros, under its mask."""
    make_node_key(tmp_path / "key")
    node = Context(1, 1, {NODE_KEY: str(tmp_path / "key")}, RecordDict(), {})
    metrics = {"show": {"accuracy": [0, 1]}}
    masking, cost = masking_of_plan(plan(aggregation=MASKED_TABLE, metrics=metrics), write_key(bytes(32)), 5)
    for size, told in ((0.0, 0.0), (3e38, 0.0), (0.0, 1e308)):
        update = np.full(4, size, np.float32)
        reply = mask_reply(masking, node, cost, Occasion("run", 0, 0), update, 1, (told,))
        assert np.array(reply[MASKED]["words"].numpy()).shape == (5,)  # type: ignore[index]


def test_shares_that_outweigh_the_clip_are_refused() -> None:
    """One share for two sums, each as long as the clip, too."""
    for shares, fits in (((0.5, 0.5), True), ((0.5, 0.6), False), ((1e308, 1e308), False), ((1.0,), False)):
        content = RecordDict({"fieldfare": ConfigRecord({**Occasion("run", 0, 0).to_config(), "queries": 2})})
        masking = Masking(write_key(bytes(32)), -20, 32, "0" * 64, shares)
        masking.write(content)
        if fits:
            assert Masking.read(content) == masking
        else:
            with pytest.raises(BadReply):
                Masking.read(content)


@pytest.mark.parametrize(
    "point",
    ["round.closing.written", "ledger.round.closing", "ledger.round.closed", "strategy.asked", "strategy.summed",
     "strategy.privatised", "checkpoint.pending", "ledger.round.committed", "checkpoint.promoted"],
)  # fmt: skip
@pytest.mark.parametrize("nth", [1, 3])
def test_a_crash_opens_no_other_set(tmp_path: Path, point: str, nth: int) -> None:
    plain = home(tmp_path / "plain")
    run(plain, "run", run__rounds=4)
    state = home(tmp_path / "masked")
    faults.load({faults.VARIABLE: f"{point}:raise:{nth}"})
    with pytest.raises(faults.FaultInjected):
        run(state, "run", run__rounds=4, aggregation=MASKED_TABLE)
    faults.load({})
    before = questions(state)
    run(state, "run", resume=True)
    after = questions(state)
    assert after[: len(before)] == before
    assert [round for _, round, _ in after] == [0, 1, 2, 3]
    with Ledger.open(state.ledger) as ledger:
        assert verify(ledger, state.root).ok
        rows = [row for row in reversed(ledger.journal_rows(limit=1000).items) if row.action.startswith("round.")]
        # Nothing was ever tried a second time once it could have been opened.
        closed = [(row.round, row.body["attempt"]) for row in rows if row.action == "round.close"]
        assert [round for round, _ in closed] == [0, 1, 2, 3]
        voided = {(row.round, row.body["attempt"]) for row in rows if row.action == "round.void"}
        assert not voided & set(closed)
    assert not list((state.root / "run" / "closing").iterdir())


def test_a_closed_round_is_not_made_void(tmp_path: Path) -> None:
    state = home(tmp_path)
    faults.load({faults.VARIABLE: "strategy.asked:raise"})
    with pytest.raises(faults.FaultInjected):
        run(state, "run", aggregation=MASKED_TABLE)
    faults.load({})
    session = Session.resume(state, "run", identity_is_stable=True)
    with session:
        closed = session.rounds.sums.closed
        assert closed is not None
        with pytest.raises(LedgerError):
            session.account.void_round(closed.opened, "a second set")
        with pytest.raises(LedgerError):
            session.account.close_round(closed.opened, "ab" * 32, 5)
    with Ledger.open(state.ledger, head_file=state.head_file, coordinator=True) as ledger:
        assert verify(ledger, state.root).ok
        ended = ledger.abandon("run", reason="the blinder's key is lost", actor="officer")
        assert (ended.state, ended.next_round) == ("stopped", 0)
        assert verify(ledger, state.root).ok


def test_dropouts_cost_no_message(tmp_path: Path) -> None:
    """30 % of the nodes never answer: as many messages as without, and one question a round."""
    state = home(tmp_path)

    def gone(message: Message, _: Message) -> Message:
        return Message(Error(3, "gone"), reply_to=message)

    session = Session.begin(
        state, plan(run__min_reports=1, run__cohort=8, aggregation=MASKED_TABLE), identity_is_stable=True, run_id="run"
    )
    grid = MaskedGrid(session, 10, {2: gone, 5: gone, 9: gone})
    with session:
        FieldfareStrategy(session).start(grid)
    with Ledger.open(state.ledger) as ledger:
        attempts = [row for row in reversed(ledger.journal_rows(limit=1000).items) if row.action == "round.open"]
    assert len(questions(state)) == 6
    assert len(grid.seen) <= sum(row.body["cohort_size"] for row in attempts)


def test_fewer_nodes_than_the_plan_says_open_nothing(tmp_path: Path) -> None:
    state = home(tmp_path)
    table = {"kind": "masked", "least_nodes": 6}
    session = Session.begin(state, plan(aggregation=table), identity_is_stable=True, run_id="run")
    with session, pytest.raises(Refused):
        FieldfareStrategy(session).start(MaskedGrid(session, 4))
    assert questions(state) == []
    assert simulated_nodes(plan(aggregation=table), None) == 24
    with pytest.raises(BadInput):
        simulated_nodes(plan(aggregation=table), 5)


def test_nodes_without_a_blinder_are_refused_before_anything_is_reserved(tmp_path: Path) -> None:
    state = home(tmp_path)
    session = Session.begin(state, plan(aggregation=MASKED_TABLE), identity_is_stable=True, run_id="run")
    with session, pytest.raises(BadInput, check=coded("masked-without-blinder")):
        FieldfareStrategy(session).start(LyingGrid(NODES))


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (lambda content: content["fieldfare"].__setitem__(SEAL, bytes(175)), "schema"),
        (lambda content: content["fieldfare"].__setitem__("more", 1), "schema"),
        (lambda content: content.__setitem__("more", ConfigRecord({"a": 1})), "schema"),
        (lambda content: content["report"].__setitem__("counts", [1.0]), "schema"),
        (lambda content: content["report"].__setitem__("users", 100), "users"),
        (lambda content: content.__setitem__("update", content[MASKED]), "schema"),
        (lambda content: content["fieldfare"].__delitem__(SEAL), "version"),
        (lambda content: content["fieldfare"].__setitem__("attempt", 7), "round"),
        (lambda content: content["fieldfare"].__setitem__("version", 2), "version"),
        (lambda content: content.__setitem__(MASKED, MetricRecord({"a": 1})), "schema"),
    ],
)
def test_a_malformed_reply_costs_itself(tmp_path: Path, lie: Any, reason: str) -> None:
    state = home(tmp_path)

    def tell(_: Message, reply: Message) -> Message:
        lie(reply.content)
        return reply

    run(state, "run", aggregation=MASKED_TABLE, run__min_reports=1, run__rounds=4, lies={2: tell, 3: tell})
    with Ledger.open(state.ledger) as ledger:
        commits = [
            row.body["rejects"]
            for row in reversed(ledger.journal_rows(limit=1000).items)
            if row.action == "round.commit"
        ]
    assert len(commits) == 4
    assert any(reason in rejects for rejects in commits)
    assert all(set(rejects) <= {reason} for rejects in commits)


class Spy:
    """A blinder whose questions are kept."""

    def __init__(self, inner: Blinder) -> None:
        self.inner, self.public_key, self.asked = inner, inner.public_key, list[RecordDict]()
        self.hello = inner.hello

    def answer(self, content: RecordDict) -> RecordDict:
        self.asked.append(content)
        return self.inner.answer(content)


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Blinder, list[MasksAsked]]:
    """A blinder, and the honest questions of four rounds, which it has answered."""
    state = home(tmp_path)
    session = Session.begin(state, plan(aggregation=MASKED_TABLE, run__rounds=4), identity_is_stable=True, run_id="run")
    grid = MaskedGrid(session)
    spy = Spy(grid.blinder)  # type: ignore[arg-type]
    grid.blinder = spy  # type: ignore[assignment]
    with session:
        FieldfareStrategy(session).start(grid)
    return spy.inner, [MasksAsked.read(content) for content in spy.asked]


def changed(question: MasksAsked, **fields: Any) -> MasksAsked:
    return MasksAsked(**{**vars(question), **fields})


def test_the_same_question_has_the_same_answer(asked: tuple[Blinder, list[MasksAsked]]) -> None:
    blinder, questions = asked
    key, receipts = read_key(blinder.public_key)[1], list[Receipt]()
    for question in questions:
        (one, first, _), (two, second, _) = (
            question.read_answer(blinder.answer(question.write()), key) for _ in range(2)
        )
        assert one.tobytes() == two.tobytes()
        assert first == second
        receipts.append(first)
    assert [receipt.row for receipt in receipts] == [1, 2, 3, 4]
    for order in (receipts, receipts[::-1]):
        Receipts(receipt.text for receipt in order)
    # One that went back to an old copy stands at a row that it signed before, for another question.
    for row, before in ((4, receipts[2].hash), (5, "ab" * 32), (3, receipts[1].hash)):
        said = ("ab" * 32, "ab" * 32, 8, row, next_row(before, "ab" * 32))
        with pytest.raises(BadInput, check=coded("blinder-went-back")):
            Receipts(receipt.text for receipt in receipts).add(Receipt.of(blinder._receipts, *said))
    # So does one that ends before such a row, or in another one, whatever it wrote since.
    own, last = blinder._receipts, receipts[3]
    ends = ((4, last.hash, own), (9, "ab" * 32, own), (0, "0" * 64, bytes(32)), (3, receipts[2].hash, own))
    said = [BlinderHead.of(by, row, hash, 0).text for row, hash, by in (*ends, (4, "ab" * 32, own))]
    denied = [Receipts([last.text]).denied_by(end) is not None for end in ("", *said)]
    assert denied == [False, False, False, False, True, True]
    forged = Receipt.of(bytes(32), "ab" * 32, "ab" * 32, 8, 9, "ab" * 32)
    with pytest.raises(BadInput, check=coded("receipt")):
        Receipt.parse(forged.text.replace(forged.key, key))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a second set", "masks-answered"),
        ("an attempt more", "masks-answered"),
        ("an old round", "masks-order"),
        ("an invented node", "masks-node"),
        ("a node under two ids", "masks-node"),
        ("another width of words", "masks-box"),
        ("a node twice", "masks-few"),
        ("one node", "masks-few"),
        ("swapped boxes", "masks-box"),
        ("boxes of another round", "masks-box"),
        ("boxes of another run", "masks-box"),
        ("another plan", "masks-plan"),
        ("fewer words", "masks-plan"),
    ],
)
def test_a_lying_server_is_refused_by_name(
    asked: tuple[Blinder, list[MasksAsked]], name: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    blinder, (first, _, _, third) = asked
    later = changed(third, round=third.round + 1)
    old = changed(first, run="other", round=5)
    with sqlite3.connect(blinder._journal) as journal:
        journal.execute("INSERT INTO answers VALUES (90, 'other', 9, '', 8, 0, '')")
    stranger = Seal(third.seals[0].box, "ab" * 32, third.seals[0].signature)
    lies = {
        "a second set": changed(third, nodes=third.nodes[:-1], seals=third.seals[:-1]),
        "an attempt more": changed(third, attempt=third.attempt + 1),
        "an old round": old,
        "an invented node": changed(third, nodes=(*third.nodes, 77), seals=(*third.seals, stranger)),
        "a node under two ids": changed(later, nodes=(*later.nodes, 77), seals=(*later.seals, later.seals[0])),
        "another width of words": changed(later, bits=64),
        "a node twice": changed(later, nodes=(later.nodes[0],) * len(later.nodes)),
        "one node": changed(later, nodes=later.nodes[:1], seals=later.seals[:1]),
        "swapped boxes": changed(later, seals=later.seals[::-1]),
        "boxes of another round": later,
        "boxes of another run": changed(first, run="third"),
        "another plan": changed(third, plan="ab" * 32),
        "fewer words": changed(third, numel=third.numel - 1),
    }
    with sqlite3.connect(blinder._journal) as journal:
        before = journal.execute("SELECT * FROM answers").fetchall()
    with pytest.raises(Refused, check=coded(code)):
        blinder.answer(lies[name].write())
    # Its operator finds the word, which the page explains, and nothing that only the server's operator can do.
    assert blinder.reply(Message(lies[name].write(), 1, QUERY_MASKS)).error.reason.endswith(f" {code}")
    assert f"tells the server '{code}': " in caplog.text
    assert "abandon" not in caplog.text
    assert f"| `{code}` |" in (Path(__file__).parents[3] / "docs" / "masked-sums.md").read_text()
    with sqlite3.connect(blinder._journal) as journal:
        assert journal.execute("SELECT * FROM answers").fetchall() == before


def test_a_box_that_its_node_did_not_sign_is_not_opened(asked: tuple[Blinder, list[MasksAsked]]) -> None:
    """Boxes that open, for a round that is not answered: what the node did not sign are who it is, and the width."""
    blinder, (first, *_) = asked
    with sqlite3.connect(blinder._journal) as journal:
        journal.execute("DELETE FROM answers")
    seals = first.seals
    forged = Seal(seals[0].box, seals[0].key, bytes(64))
    for lie in (changed(first, bits=64), changed(first, seals=(forged, *seals[1:]))):
        with pytest.raises(Refused, check=coded("masks-box")):
            blinder.answer(lie.write())
    blinder.answer(first.write())


@pytest.fixture
def told(tmp_path: Path) -> tuple[MaskedGrid, dict[int, RecordDict]]:
    """The nodes of a run whose coordinator lies from its first question on, and what each of them was told."""
    _, session, grid = begun(tmp_path)
    faults.load({faults.VARIABLE: "strategy.asked:raise"})
    with session, pytest.raises(faults.FaultInjected):
        FieldfareStrategy(session).start(grid)
    return grid, {message.metadata.dst_node_id: message.content for message in grid.seen}


def answers_of(grid: MaskedGrid, told: dict[int, RecordDict]) -> list[Message]:
    return [grid.answer(Message(content, node, "train")) for node, content in told.items()]


@pytest.mark.parametrize(
    "lie",
    [
        lambda content: content["fieldfare"].__setitem__("weights", [0.0]),
        lambda content: content["fieldfare"].__setitem__("batches", 9),
        lambda content: content["masking"].__setitem__("shares", [0.0]),
        lambda content: content["model.0"].__setitem__("0.bias", Array(np.full(1, np.nan, np.float32))),
        lambda content: content.__setitem__("config", ConfigRecord({"lr": 0.0})),
    ],
    ids=["weights", "batches", "shares", "model", "config"],
)
def test_no_sum_is_opened_of_nodes_that_were_told_different_things(
    told: tuple[MaskedGrid, dict[int, RecordDict]], lie: Any
) -> None:
    """Nodes that train from a model that is no number, or with a weight of 0, contribute nothing: what is left is the
    update of the one that was told the truth."""
    grid, honest = told
    contents = {node: copy_records(content) for node, content in honest.items()}
    for content in list(contents.values())[1:]:
        lie(content)
    assert len({digest_of_instruction(content) for content in honest.values()}) == 1
    for each, opened in ((contents, False), (honest, True)):
        replies = [reply.content for reply in answers_of(grid, each)]
        seals = tuple(Seal.unpack(reply["fieldfare"][SEAL]) for reply in replies)
        masking = Masking.read(honest[next(iter(honest))])
        assert masking is not None
        about = "run", 0, 0, 4, masking.bits, masking.plan
        for digest in {digest_of_instruction(content) for content in each.values()}:
            asked = MasksAsked(*about, digest, tuple(each), seals)
            if opened:
                grid.blinder.answer(asked.write())  # type: ignore[union-attr]
            else:
                with pytest.raises(Refused, check=coded("masks-box")):
                    grid.blinder.answer(asked.write())  # type: ignore[union-attr]


def test_a_node_that_was_given_another_run_configuration_is_in_no_sum(
    told: tuple[MaskedGrid, dict[int, RecordDict]],
) -> None:
    """No instruction holds it: SuperLink hands it to each node. An app that trains by it would contribute nothing."""
    grid, honest = told
    odd = next(iter(honest))
    grid._contexts[odd].run_config["lr"] = 0.0
    for reply in answers_of(grid, honest):
        other = reply.metadata.src_node_id == odd
        assert reply.has_error() == other
        assert not other or reply.error.reason.startswith("<class 'ConfigurationDiffers'>")


def test_an_instruction_has_one_digest_on_both_sides_of_the_wire() -> None:
    """As one message, and as the parts in which Flower sends a long one."""
    lists = {"none": [], "floats": [1.0, math.inf], "words": ["é"], "bytes": [b"a"], "truths": [True]}
    config = ConfigRecord({"z": 1, "lr": 0.1, "zero": -0.0, "raw": b"\x00\xff", "truth": True, **lists})
    point, users = {"w": np.ones((2, 3), np.float32), "b": np.zeros((), np.float32)}, np.arange(3, dtype=np.uint64)
    content = TrainInstruction(Occasion("run", 3, 1), (point,), (1.0,), users, {"a": 1}, config=config).write()
    Masking(write_key(bytes(32)), -20, 32, "ab" * 32).write(content)
    whole = recorddict_from_proto(Proto.FromString(recorddict_to_proto(content).SerializeToString()))
    parts = {name: part.deflate() for name, part in get_all_nested_objects(content).items()}
    inflated = inflate_object_from_contents(content.object_id, parts)
    assert isinstance(inflated, RecordDict)
    assert {digest_of_instruction(each) for each in (content, whole, inflated)} == {digest_of_instruction(content)}
    content["model.0"]["b"] = Array(np.ones((), np.float32))  # type: ignore[index]
    assert digest_of_instruction(content) != digest_of_instruction(whole)


def test_a_node_that_is_asked_for_nobody_is_in_no_sum(told: tuple[MaskedGrid, dict[int, RecordDict]]) -> None:
    """For users whom it does not host, or for none: it would count as one of the nodes that a sum must have."""
    grid, honest = told
    for names in (np.zeros(0, np.uint64), pseudonyms(["nobody"])):
        for content in honest.values():
            content["cohort"]["users"] = Array(names)  # type: ignore[index]
        for reply in answers_of(grid, honest):
            assert reply.error.reason == "<class 'NodeBudgetRefused'> not-planned"


def test_a_node_without_a_budget_trains_in_no_round_that_the_plan_does_not_have(
    told: tuple[MaskedGrid, dict[int, RecordDict]],
) -> None:
    grid, honest = told
    for round, reason in ((6, "out-of-turn"), (-1, "out-of-turn"), (5, "")):
        for content in honest.values():
            content["fieldfare"]["round"] = round
        for reply in answers_of(grid, honest):
            assert reply.has_error() == bool(reason)
            assert not reason or reply.error.reason == f"<class 'NodeBudgetRefused'> {reason}"


def test_a_wrong_box_does_not_take_the_place_of_the_right_one(tmp_path: Path) -> None:
    state, session, grid = begun(tmp_path)
    honest = grid.blinder

    class Meddler:
        public_key, hello = honest.public_key, honest.hello  # type: ignore[union-attr]

        def answer(self, content: RecordDict) -> RecordDict:
            question = MasksAsked.read(content)
            with pytest.raises(Refused, check=coded("masks-box")):
                honest.answer(changed(question, seals=question.seals[::-1]).write())  # type: ignore[union-attr]
            return honest.answer(content)  # type: ignore[union-attr]

    grid.blinder = Meddler()  # type: ignore[assignment]
    with session:
        FieldfareStrategy(session).start(grid)
    assert len(questions(state)) == 6


def test_the_blinder_writes_down_before_it_answers(
    asked: tuple[Blinder, list[MasksAsked]], monkeypatch: pytest.MonkeyPatch
) -> None:
    blinder, (first, *_) = asked
    question = changed(first, run="fresh")
    monkeypatch.setattr(Blinder, "_open", lambda self, asked: [bytes(32)] * len(asked.nodes))

    def disk_full(*_: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr("fieldfare_client.blinder._write_down", disk_full)
        with pytest.raises(OSError, match="no space"):
            blinder.answer(question.write())
    written: list[str] = []
    monkeypatch.setattr("fieldfare_client.blinder.sum_masks", lambda *_: written.append("summed") or np.zeros(4, "<u4"))
    with sqlite3.connect(blinder._journal) as journal:
        blinder.answer(question.write())
        assert written == ["summed"]
        assert journal.execute("SELECT question FROM answers WHERE run = 'fresh'").fetchone() == (question.digest(),)


def test_a_blinder_answers_wrongly(tmp_path: Path) -> None:
    """A receipt for another answer is seen, and the round stays closed."""
    state, session, grid = begun(tmp_path)
    honest = grid.blinder

    class Careless:
        public_key, hello = honest.public_key, honest.hello  # type: ignore[union-attr]

        def answer(self, content: RecordDict) -> RecordDict:
            answer = honest.answer(content)  # type: ignore[union-attr]
            said = Receipt.parse(answer[RECEIPT]["receipt"])
            false = (said.question, "00" * 32, said.nodes, said.row, said.hash)
            answer[RECEIPT] = ConfigRecord({"receipt": Receipt.of(honest._receipts, *false).text})  # type: ignore[union-attr]
            return answer

    grid.blinder = Careless()  # type: ignore[assignment]
    with session, pytest.raises(Refused):
        FieldfareStrategy(session).start(grid)
    run(state, "run", resume=True)
    assert len(questions(state)) == 6


def test_a_node_that_names_a_blinder_sends_nothing_in_clear(tmp_path: Path) -> None:
    """A plain instruction, and one for another blinder: no node answers, and the errors have their names."""
    state = home(tmp_path)
    replies: list[Message] = []

    def keep(_: Message, reply: Message) -> Message:
        replies.append(reply)
        return reply

    for number, aggregation in enumerate(({"kind": "plain"}, MASKED_TABLE)):
        session = Session.begin(state, plan(aggregation=aggregation), identity_is_stable=True, run_id=f"run{number}")
        grid = MaskedGrid(session)
        other = Blinder(tmp_path / "other").public_key
        replies.clear()
        for context in grid._contexts.values():
            context.node_config[BLINDER] = other
        grid.lies = dict.fromkeys(range(2, 2 + NODES), keep)
        with session, pytest.raises(Refused):
            FieldfareStrategy(session).start(grid)
        expected = ("NotMasked", "BlinderNotPinned")[number]
        assert replies
        assert all(reply.has_error() and expected in str(reply.error.reason) for reply in replies)


def test_the_blinders_file_is_its_own(tmp_path: Path) -> None:
    blinder = Blinder(tmp_path / "blinder")
    assert Blinder(tmp_path / "blinder").public_key == blinder.public_key
    assert Blinder(tmp_path / "second").public_key != blinder.public_key
    with pytest.raises(BadInput):
        blinder.approve("ab" * 32, 1, 10)
    (tmp_path / "blinder" / "blinder.sqlite3").chmod(0o644)
    with pytest.raises(BadInput):
        Blinder(tmp_path / "blinder")


def test_fuzzed_questions_cost_themselves(asked: tuple[Blinder, list[MasksAsked]]) -> None:
    """No exception but the two that the blinder names; nothing is written down."""
    blinder, (question, *_) = asked
    generator = np.random.default_rng(3)
    values: list[Any] = [-1, 0, 2**63, 2**64, 1.5, "", "x", "9" * 30, b"", bytes(80), [], [1], ["1"], [b"1"], True]
    with sqlite3.connect(blinder._journal) as journal:
        before = journal.execute("SELECT * FROM answers").fetchall()
    honest = dict(question.write()[ASK])
    for _ in range(2_000):
        record = dict(honest)
        for name in generator.choice(list(record), generator.integers(1, 4), replace=False):
            if generator.random() < 0.2:
                del record[name]
            else:
                record[name] = values[generator.integers(len(values))]
        try:
            content = RecordDict({ASK: ConfigRecord(record)})
        except (TypeError, ValueError):
            continue
        try:
            blinder.answer(content)
        except (BadReply, Refused):
            continue
        assert MasksAsked.read(content) == question
    with sqlite3.connect(blinder._journal) as journal:
        assert journal.execute("SELECT * FROM answers").fetchall() == before


def test_a_planted_update_is_in_no_file_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell of every update is 0x5EED, and the run stops where the masked sum is durable and opened.

    By chance the pattern of 16 bytes stands in some file with a probability below 2^-100.
    """

    def plant(parts: list[tuple[Any, float]], *ring: float) -> Any:
        return np.full(sum(values.size for values, _ in parts), 0x5EED, "<u4")

    monkeypatch.setattr("fieldfare_client.masking.encode", plant)
    state = home(tmp_path)
    for point in ("strategy.asked", "strategy.summed"):
        faults.load({faults.VARIABLE: f"{point}:raise"})
        with pytest.raises(faults.FaultInjected):
            run(state, "run", resume=point == "strategy.summed", aggregation=MASKED_TABLE)
        held = [path for path in state.root.rglob("*") if path.is_file()]
        assert any(path.parent.name == "closing" for path in held)
        for nodes in range(1, NODES + 1):  # an update, and every sum of them
            pattern = np.full(4, nodes * 0x5EED, "<u4").tobytes()
            assert not [path for path in held if pattern in path.read_bytes()]


def test_a_blinder_that_tells_a_wrong_sum_ruins_the_model_and_changes_no_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its receipt is right, of words that are not the masks' sum: nobody can tell, and nobody loses more."""
    made = {}
    for lies in (False, True):
        if lies:
            monkeypatch.setattr(
                "fieldfare_client.blinder.sum_masks", lambda seeds, numel, bits: np.full(numel, 0x01234567, "<u4")
            )
        (tmp_path / str(lies)).mkdir()
        state = home(tmp_path / str(lies))
        session = run(state, "run", aggregation=MASKED_TABLE, run__rounds=4)
        with Ledger.open(state.ledger) as ledger:
            assert verify(ledger, state.root).ok
            view = ledger.run("run")
        made[lies] = model(state, "run"), (view.state, view.spent_epsilon, session.epsilon())
    assert made[True][0] != made[False][0]
    assert made[True][1] == made[False][1]
