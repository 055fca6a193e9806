"""Masked runs whose blinder is a node of its own: what the server believes of it, waits for, and never does."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fieldfare.blinder_noise import BlinderNoise, terms_of
from fieldfare.errors import BadInput, CheckpointError, Interrupted, Refused
from fieldfare.masking.boxes import receipt_key, write_key
from fieldfare.masking.receipts import BlinderHead, BlinderWentBack, Receipt
from fieldfare.plan import Plan
from fieldfare.text import up
from fieldfare_client import masking as masking_of_nodes
from fieldfare_client import private
from fieldfare_client.blinder import Blinder
from fieldfare_client.masking import BLINDER, NODE_KEY, make_node_key
from fieldfare_client.told import without_text
from fieldfare_flower.masked import HELLO, MASKED, QUERY_MASKS, RECEIPT, Hello, Masking, digest_of_config
from fieldfare_flower.messages import HEADER, QUERY_USERS, write_users_query
from fieldfare_server import faults
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.blinder_answers import blinder_state
from fieldfare_server.api.population_schemas import WhatIf
from fieldfare_server.api.schemas import BlinderState
from fieldfare_server.evidence.guarantee import CURATOR, guarantee
from fieldfare_server.evidence.plan_facts import plan_facts
from fieldfare_server.evidence.statement import privacy_statement
from fieldfare_server.evidence.verify import verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.pricing import blinder_noise_of, numbers_released
from fieldfare_server.run.private.plan import plan_from
from fieldfare_server.run.round import distant_blinder
from fieldfare_server.run.round.masked import MaskedSums
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, home, plan
from support.refusals import coded

NODES, BLINDER_NODE = 6, 77
Answer = Callable[[Message], Message]


class Federation(LyingGrid):
    """Real nodes, as far as the server can tell, and a blinder that is one of them. `answer`: what it replies."""

    simulated = False

    def __init__(self, root: Path, blinder: Blinder, answer: Answer | None = None) -> None:
        super().__init__(NODES)
        self.name_blinder(blinder, root / "keys")
        self.reply = answer or blinder.reply
        self.asked: list[str] = []

    def get_node_ids(self) -> list[int]:
        return [*self._contexts, BLINDER_NODE]

    def answer(self, message: Message) -> Message:
        if message.metadata.dst_node_id == BLINDER_NODE:
            self.asked.append(message.metadata.message_type)
            return self.reply(message)
        return super().answer(message)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distant_blinder, "LEAST_PATIENCE", 0.2)


@pytest.fixture
def blinder(tmp_path: Path) -> Blinder:
    return Blinder(tmp_path / "blinder")


def masked(blinder: Blinder, noise: float = 0.0, **changes: Any) -> Plan:
    aggregation = {"kind": "masked", "least_nodes": 2, "blinder": blinder.public_key, "blinder_noise": noise}
    usual = {"run__trust_node_ids": True, "run__round_timeout": 1.0, "run__rounds": 4}
    return plan(aggregation=aggregation, **{**usual, **changes})


def begin(state: StateDirectory, a_plan: Plan, blinder: Blinder | None = None, run_id: str = "run") -> Session:
    session = Session.begin(state, a_plan, identity_is_stable=True, run_id=run_id)
    if blinder is not None:
        words = numbers_released(a_plan, session.schema)
        noise = blinder_noise_of(a_plan, words)
        blinder.approve(a_plan.digest(), a_plan.aggregation.fewest_nodes, words, noise)
    return session


def resume(state: StateDirectory, grid: Federation, run_id: str = "run") -> None:
    with Session.resume(state, run_id, identity_is_stable=True) as session:
        FieldfareStrategy(session).start(grid)


def actions(state: StateDirectory) -> list[tuple[str, int | None]]:
    with Ledger.open(state.ledger) as ledger:
        rows = reversed(ledger.journal_rows(limit=1000).items)
        return [(row.action, row.round) for row in rows if row.action.startswith("round.")]


def test_the_same_bytes_as_a_plain_run_and_a_receipt_a_round(tmp_path: Path, blinder: Blinder) -> None:
    plain = home(tmp_path / "plain")
    with Session.begin(
        plain, plan(run__trust_node_ids=True, run__rounds=4), identity_is_stable=True, run_id="run"
    ) as session:
        FieldfareStrategy(session).start(LyingGrid(NODES))
    state = home(tmp_path / "masked")
    grid = Federation(tmp_path, blinder)
    with begin(state, masked(blinder), blinder) as session:
        FieldfareStrategy(session).start(grid)
    model = Path("run") / "model.safetensors"
    assert (state.root / model).read_bytes() == (plain.root / model).read_bytes()
    assert grid.asked == [QUERY_USERS, *[QUERY_MASKS] * 4]
    with Ledger.open(state.ledger) as ledger:
        assert verify(ledger, state.root).ok
        rows = [row for row in reversed(ledger.journal_rows(limit=1000).items) if row.action == "round.commit"]
        run = ledger.run("run")
        card = guarantee(run, ledger.population("people"), plan_facts(run, state.root))
    assert [Receipt.parse(row.body["receipt"]).row for row in rows] == [1, 2, 3, 4]
    facts, left_out = {fact.name: fact.value for fact in card.facts}, " ".join(card.not_covered)
    assert "did not check" in facts["The server sees"]
    assert facts["The server sees"].startswith("sums of at least 2 nodes, without noise")
    assert blinder.public_key[:21] in facts["The server sees"]
    assert "Against the server" not in facts
    with Ledger.open(plain.ledger) as ledger:
        run = ledger.run("run")
        bare = guarantee(run, ledger.population("people"), plan_facts(run, plain.root))
    assert {fact.name: fact.value for fact in bare.facts}["The server sees"].startswith("each node's update")
    assert "not to work together" in facts["Trust"]
    assert CURATOR not in left_out
    assert all(words in left_out for words in ("together with the blinder's", "several runs", "nobody checked"))
    # A round is closed before it is opened, and opened before it is committed.
    assert actions(state) == [(f"round.{step}", n) for n in range(4) for step in ("open", "close", "commit")]


class OneByOne(Federation):
    """Its nodes come one by one, the blinder first."""

    looks = 0

    def get_node_ids(self) -> list[int]:
        self.looks += 1
        return [BLINDER_NODE, *list(self._contexts)[: self.looks // 10]]


def test_the_first_round_waits_for_as_many_nodes_as_a_sum_must_have(
    tmp_path: Path, blinder: Blinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node hosts a cohort, and a round on one would be void. A blinder is no node that is asked."""
    monkeypatch.setattr("fieldfare_server.run.presence.counts.NODE_POLL", 0.01)
    spread = {"scheme": "min-separation", "separation": 1}
    few = {"run__cohort": 4, "run__min_reports": 3, "run__round_timeout": 30.0}
    state, a_plan = home(tmp_path), masked(blinder, participation=spread, **few)
    sent: list[tuple[int, int]] = []
    with begin(state, a_plan, blinder) as session:
        FieldfareStrategy(session, on_sent=lambda *counts: sent.append(counts)).start(OneByOne(tmp_path, blinder))
    assert all(step != "round.void" for step, _ in actions(state))
    assert sent[0][1] == 2


def test_a_keyword_plan_counts_no_blinder_among_its_users(blinder: Blinder) -> None:
    keywords = {"noise_multiplier": 1.0, "delta": 1e-5, "cohort": 2, "population": "p", "mechanism": "independent"}
    masks = {"aggregation": {"kind": "masked", "least_nodes": 2, "blinder": blinder.public_key}}
    plans = [plan_from(None, keywords | more, {}, rounds=9, nodes=6) for more in ({}, masks)]
    assert [each.participation.separation for each in plans] == [3, 2]


def test_a_plan_that_was_not_approved_trains_nobody(tmp_path: Path, blinder: Blinder) -> None:
    state, grid = home(tmp_path), Federation(tmp_path, blinder)
    with begin(state, masked(blinder)) as session, pytest.raises(Refused):
        FieldfareStrategy(session).start(grid)
    assert not grid.seen
    with Ledger.open(state.ledger) as ledger:
        assert (ledger.run("run").state, ledger.run("run").spent_epsilon) == ("failed", 0.0)


def test_a_blinder_that_is_not_there_is_waited_for_and_trains_nobody(tmp_path: Path, blinder: Blinder) -> None:
    state = home(tmp_path)
    grid = Federation(tmp_path, blinder, lambda message: Message(Error(3, "gone"), reply_to=message))
    with begin(state, masked(blinder), blinder) as session, pytest.raises(Refused):
        FieldfareStrategy(session).start(grid)
    assert not grid.seen


def test_a_silent_blinder_leaves_the_round_closed_and_the_run_resumable(tmp_path: Path, blinder: Blinder) -> None:
    """Also in the first round, which other runs do not survive: its sum may have been opened."""
    state = home(tmp_path)

    def silent(message: Message) -> Message:
        if message.metadata.message_type == QUERY_USERS:
            return blinder.reply(message)
        return Message(Error(3, "gone"), reply_to=message)

    with begin(state, masked(blinder), blinder) as session, pytest.raises(Interrupted):
        FieldfareStrategy(session).start(Federation(tmp_path, blinder, silent))
    assert actions(state) == [("round.open", 0), ("round.close", 0)]
    assert blinder.rows("answers") == []
    resume(state, Federation(tmp_path, blinder))
    assert [row[1:3] for row in blinder.rows("answers")] == [("run", 0), ("run", 1), ("run", 2), ("run", 3)]
    assert ("round.void", 0) not in actions(state)


def test_the_interface_says_what_the_blinder_said_last_and_that_none_answers(
    tmp_path: Path, blinder: Blinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer in the run and in lists, from the journal alone: before, while the question waits, and after."""
    state, during = home(tmp_path), list[BlinderState]()

    def said() -> BlinderState:
        with Ledger.open(state.ledger) as ledger:
            answers = Answers(ledger)
            found = answers.run("run").blinder
            assert found == answers.runs(None, 10, None).items[0].blinder
            assert found is not None
            return found

    def answers_once(message: Message) -> Message:
        if message.metadata.message_type == QUERY_USERS:
            return blinder.reply(message)
        during.append(said())
        return blinder.reply(message) if len(during) == 1 else Message(Error(3, "gone"), reply_to=message)

    with begin(state, masked(blinder), blinder) as session, pytest.raises(Interrupted):
        FieldfareStrategy(session).start(Federation(tmp_path, blinder, answers_once))
    before, asked, silent = during[0], during[1], said()
    assert (before.receipt, before.silent, before.asked_at is None) == (None, False, False)
    assert asked.receipt is not None
    assert (asked.receipt.round, asked.receipt.signed, asked.silent) == (0, True, False)
    assert (silent.silent, silent.asked_at, silent.receipt) == (True, asked.asked_at, asked.receipt)
    assert silent.message.startswith("No blinder has answered about round 2 of 4")
    with monkeypatch.context() as patch:
        patch.setattr("fieldfare_server.api.blinder_answers.SILENT_AFTER", 0.0)
        resume(state, Federation(tmp_path, blinder, lambda message: during.append(said()) or blinder.reply(message)))
    assert during[-1].silent
    done = said()
    assert done.receipt is not None
    assert (done.silent, done.asked_at, done.receipt.round, done.receipt.signed) == (False, None, 3, True)
    assert (done.key, done.least_nodes) == (blinder.public_key, 2)
    with Ledger.open(state.ledger) as ledger:
        run = ledger.run("run")
        other = {**run.plan["aggregation"], "blinder": Blinder(tmp_path / "other").public_key}
        strange = blinder_state(ledger, run.model_copy(update={"plan": {**run.plan, "aggregation": other}}))
        assert strange is not None
        assert strange.receipt is not None
        assert (strange.receipt.signed, "NOT signed" in strange.message) == (False, True)
        assert blinder_state(ledger, run.model_copy(update={"plan": {}})) is None


def test_a_run_that_waits_for_its_blinder_to_come_back_says_so(tmp_path: Path, blinder: Blinder) -> None:
    """No round is closed: the blinder went between two sessions."""
    state = home(tmp_path)
    faults.load({faults.VARIABLE: "strategy.sent:raise:2"})
    with begin(state, masked(blinder), blinder) as session, pytest.raises(faults.FaultInjected):
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    faults.load({})
    gone = Federation(tmp_path, blinder, lambda message: Message(Error(3, "gone"), reply_to=message))
    with pytest.raises(Interrupted):
        resume(state, gone)
    with Ledger.open(state.ledger) as ledger:
        found = Answers(ledger).run("run").blinder
    assert found is not None
    assert (found.silent, found.asked_at) == (True, None)


def test_an_answer_that_was_lost_is_asked_for_again(tmp_path: Path, blinder: Blinder) -> None:
    """The blinder has written the question down, and ends before its answer is sent."""
    state, lost = home(tmp_path), list[Message]()

    def loses_the_first(message: Message) -> Message:
        reply = blinder.reply(message)
        if message.metadata.message_type == QUERY_MASKS and not lost:
            lost.append(reply)
            return Message(Error(3, "gone"), reply_to=message)
        return reply

    with begin(state, masked(blinder), blinder) as session:
        FieldfareStrategy(session).start(Federation(tmp_path, blinder, loses_the_first))
    assert lost
    assert [row[0] for row in blinder.rows("answers")] == [1, 2, 3, 4]


@pytest.mark.parametrize("point", ["strategy.asked", "strategy.summed", "checkpoint.pending"])
def test_killed_after_the_round_is_closed_the_same_set_is_opened(tmp_path: Path, blinder: Blinder, point: str) -> None:
    state = home(tmp_path)
    faults.load({faults.VARIABLE: f"{point}:raise:2"})
    try:
        with begin(state, masked(blinder), blinder) as session, pytest.raises(faults.FaultInjected):
            FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    finally:
        faults.load({})
    resume(state, Federation(tmp_path, blinder))
    assert [step for step in actions(state) if step[0] == "round.close"] == [("round.close", n) for n in range(4)]
    assert [row[0] for row in blinder.rows("answers")] == [1, 2, 3, 4]


def heads(grid: Federation) -> dict[int, BlinderHead]:
    """Node -> the end of the blinder's journal that it remembers."""
    files = {node: Path(f"{context.node_config[NODE_KEY]}.blinder") for node, context in grid._contexts.items()}
    return {node: BlinderHead.parse(file.read_text().strip()) for node, file in files.items() if file.exists()}


@pytest.mark.parametrize("remember", [NODES, 1])
def test_a_blinder_that_was_put_back_is_refused_by_the_nodes_of_a_ledger_that_never_met_it(
    tmp_path: Path, blinder: Blinder, remember: int
) -> None:
    """The coordinator has no receipt of it: nodes have, and what one of them shows ends the run at its first attempt,
    though there are enough others for a round."""
    shutil.copytree(tmp_path / "blinder", tmp_path / "older")
    first, second = (home(tmp_path / name) for name in ("first", "second"))
    grid = Federation(tmp_path, blinder)
    everybody = {"run__cohort": 24, "participation": {"scheme": "min-separation", "separation": 1}}
    with begin(first, masked(blinder, **everybody), blinder) as session:
        FieldfareStrategy(session).start(grid)
    seen = heads(grid)
    assert [head.row for head in seen.values()] == [3] * NODES  # a round's instruction shows the answers before it
    older = Blinder(tmp_path / "older")
    grid = Federation(tmp_path, older)
    for context in [*grid._contexts.values()][remember:]:
        Path(f"{context.node_config[NODE_KEY]}.blinder").unlink()
    with (
        begin(second, masked(older, **everybody), older, "again") as session,
        pytest.raises(BlinderWentBack, check=coded("blinder-went-back", "the blinder's journal")),
    ):
        FieldfareStrategy(session).start(grid)
    assert older.rows("answers") == []
    assert [heads(grid)[node] for node in [*seen][:remember]] == [*seen.values()][:remember]
    assert actions(second) == [("round.open", 0), ("round.void", 0)]
    with Ledger.open(second.ledger) as ledger:
        assert (ledger.run("again").state, ledger.run("again").next_round) == ("failed", 0)


def test_a_run_under_way_whose_blinder_was_put_back_waits_for_its_newest_copy(tmp_path: Path, blinder: Blinder) -> None:
    """One node proves it, by what another ledger's run showed it. What a node that lies can tell proves nothing."""
    state, elsewhere, grid = home(tmp_path), home(tmp_path / "elsewhere"), Federation(tmp_path, blinder)
    everybody = {"run__cohort": 24, "participation": {"scheme": "min-separation", "separation": 1}}
    faults.load({faults.VARIABLE: "strategy.sent:raise:3"})
    with begin(state, masked(blinder, **everybody), blinder) as session, pytest.raises(faults.FaultInjected):
        FieldfareStrategy(session).start(grid)
    faults.load({})
    shutil.copytree(tmp_path / "blinder", tmp_path / "older")
    with begin(elsewhere, masked(blinder, **everybody), blinder, "else") as session:
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))  # other processes of the same nodes
    first, *others = heads(grid)
    for node in others:
        Path(f"{grid._contexts[node].node_config[NODE_KEY]}.blinder").unlink()
    older = Federation(tmp_path, Blinder(tmp_path / "older"))
    with pytest.raises(Interrupted, match="ends in row 2, and a node was shown row 5 before"):
        resume(state, older)
    assert older.asked == [QUERY_USERS]

    # Another key's, and one that it had.
    lies = {first: BlinderHead.of(receipt_key(bytes(32)), 99, "a" * 64, 1), others[0]: heads(grid)[first]}
    honest, told = grid.answer, list[int]()

    def lying(message: Message) -> Message:
        node = message.metadata.dst_node_id
        if message.metadata.message_type != "train" or node not in lies:
            return honest(message)
        told.append(node)
        return Message(Error(2, f"<class 'BlinderWentBack'> {lies[node].text}"), reply_to=message)

    grid.answer = lying  # type: ignore[method-assign]
    resume(state, grid)
    assert set(told) == {*lies}
    with Ledger.open(state.ledger) as ledger:
        assert ledger.run("run").state == "done"


def test_what_a_node_makes_of_an_end_of_the_blinders_journal(tmp_path: Path, blinder: Blinder) -> None:
    """Only what no journal can have had is refused: another run's coordinator may know less, and says so later."""
    file, key, other = tmp_path / "key", bytes(32), bytes([1] * 32)
    make_node_key(file)
    context: Any = SimpleNamespace(node_config={BLINDER: write_key(key), NODE_KEY: str(file)}, run_config={})

    def shown(row: int, at: int, past: str = "a", by: bytes = key) -> str:
        return BlinderHead.of(receipt_key(by), row, past * 64, at).text

    def show(head: str, by: bytes = key) -> None:
        content = RecordDict({HEADER: ConfigRecord({})})
        Masking(write_key(by), -20, 32, "ab" * 32, config=digest_of_config({}), head=head).write(content)
        masking_of_nodes.masking_of(context, content)

    kept = Path(f"{file}.blinder")
    show("")  # of an earlier version, and nothing was seen yet
    assert not kept.exists()
    for head in (shown(0, 10), shown(5, 50), shown(3, 30), shown(5, 70)):  # the third is late
        show(head)
    assert kept.read_text().strip() == shown(5, 50)
    for went_back in (shown(4, 51), shown(0, 99), shown(5, 50, "b"), "", "no line", shown(9, 99, by=other)):
        with pytest.raises(BlinderWentBack):
            show(went_back)
    assert kept.read_text().strip() == shown(5, 50)
    kept.write_text(shown(5, 50)[:-1])
    with pytest.raises(BlinderWentBack):
        show(shown(6, 60))
    kept.write_text(shown(5, 50))
    context.node_config[BLINDER] = write_key(other)  # its operator has named another one
    show(shown(1, 99, by=other), by=other)
    assert kept.read_text().strip() == shown(1, 99, by=other)


@pytest.mark.parametrize("answering", [without_text, lambda handler: private._handler(handler, handler)])
def test_nodes_with_a_task_and_with_a_loop_of_their_own_show_what_they_saw(
    answering: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    anybody = SimpleNamespace(task_id=1, run_id=1, node_id=1)
    monkeypatch.setattr("flwr.app.message.message.TaskIdentity", anybody, raising=False)

    def refuse(message: Message, context: object) -> Message:
        refused = BlinderWentBack("the blinder's journal", "it ends in row 0.")
        refused.told = "a line"
        raise refused

    reply = answering(refuse)(Message(RecordDict(), 1, "train"), None)
    assert reply.error.reason == "<class 'BlinderWentBack'> a line"


def test_a_refusal_has_its_name_and_the_round_stays_closed(tmp_path: Path, blinder: Blinder) -> None:
    """Another coordinator has asked about another set of this run's round: what an old copy of a ledger does."""
    first, second = home(tmp_path / "first"), home(tmp_path / "second")
    with begin(first, masked(blinder), blinder) as session:
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    with begin(second, masked(blinder), blinder) as session, pytest.raises(Refused, check=coded("masks-answered")):
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    assert actions(second) == [("round.open", 0), ("round.close", 0)]
    with Ledger.open(second.ledger, head_file=second.head_file, coordinator=True) as ledger:
        assert ledger.abandon("run", reason="asked twice", actor="officer").state == "stopped"


def test_nodes_that_the_blinder_has_not_admitted_are_in_no_sum(tmp_path: Path, blinder: Blinder) -> None:
    """A server makes nodes up as it likes; and a node that has no key of its own signs with another's."""
    state, grid = home(tmp_path), Federation(tmp_path, blinder)
    make_node_key(tmp_path / "made-up")
    first, second, third, *_ = grid._contexts.values()
    first.node_config[NODE_KEY] = str(tmp_path / "made-up")
    second.node_config[NODE_KEY] = third.node_config[NODE_KEY]
    with begin(state, masked(blinder, run__min_reports=1), blinder) as session:
        FieldfareStrategy(session).start(grid)
    with Ledger.open(state.ledger) as ledger:
        commits = [row.body for row in ledger.journal_rows(limit=1000).items if row.action == "round.commit"]
    assert len(commits) == 4
    assert sum(commit["rejects"].get("node-key", 0) for commit in commits) >= 1
    assert all(set(commit["rejects"]) <= {"node-key"} for commit in commits)


def test_a_key_that_cannot_be_read_sends_nothing(tmp_path: Path, blinder: Blinder) -> None:
    state, grid = home(tmp_path), Federation(tmp_path, blinder)
    for context in grid._contexts.values():
        context.node_config[NODE_KEY] = str(tmp_path / "nowhere")
    with begin(state, masked(blinder), blinder) as session, pytest.raises(BadInput):
        FieldfareStrategy(session).start(grid)
    assert QUERY_MASKS not in grid.asked


def test_who_says_to_be_the_blinder_and_is_not(tmp_path: Path, blinder: Blinder) -> None:
    """Another's hello, and the right one's for another run: nobody is asked for masks, or trains."""
    other = Blinder(tmp_path / "other")
    old = Hello.write(blinder.hello("run", "ab" * 32), "another run", "ab" * 32, blinder._receipts)
    for number, said in enumerate((other.reply, lambda message: Message(old, reply_to=message))):
        state = home(tmp_path / str(number))
        grid = Federation(tmp_path, blinder, said)
        with begin(state, masked(blinder), blinder) as session, pytest.raises(Refused):
            FieldfareStrategy(session).start(grid)
        assert set(grid.asked) == {QUERY_USERS}
        assert not grid.seen


def test_a_hello_that_was_changed_on_its_way_is_none(blinder: Blinder) -> None:
    key, plan_ = blinder.public_key[-64:], "cd" * 32
    blinder.admit({"ffn1:" + "ab" * 32: "a"})
    blinder.approve(plan_, 2, 4)
    for asked, noise in ((plan_, ()), ("12" * 32, None)):
        said = blinder.hello("run", asked)
        assert said.noise == noise
        content = said.write("run", asked, blinder._receipts)
        assert Hello.read(content, "run", asked, key) == said
        assert Hello.read(content, "run-2", asked, key) is None
        assert Hello.read(content, "run", "34" * 32, key) is None
        for name, changed in (
            ("noise", [1.0, -20.0]),
            ("noise", [] if noise is None else None),
            ("noise", "1.0"),
            ("nodes", ["ab" * 32, "cd" * 32]),
        ):
            content = said.write("run", asked, blinder._receipts)
            content[HELLO].pop(name, None)
            content[HELLO].update({} if changed is None else {name: changed})
            assert Hello.read(content, "run", asked, key) is None
    assert Hello.read(write_users_query("run"), "run", plan_, key) is None


def test_what_a_hello_costs_does_not_grow_with_the_plans_and_runs_before(tmp_path: Path, blinder: Blinder) -> None:
    """Counted in steps of the database's machine, which are those of the rows that it reads."""
    a_plan = masked(blinder, 0.5)
    noise = blinder_noise_of(a_plan, 4)
    assert noise is not None
    real, steps = sqlite3.connect, list[int]()

    def counting(*given: Any, **named: Any) -> sqlite3.Connection:
        journal: sqlite3.Connection = real(*given, **named)
        journal.set_progress_handler(lambda: steps.append(1), 1)
        return journal

    taken, read = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fieldfare_client.blinder.BlinderNoise", lambda **table: read.append(1) or noise)
        for approved in range(0, 200, 99):
            for number in range(approved):
                blinder.approve(f"{number:064x}", 2, 4, noise)
            blinder.approve(a_plan.digest(), 2, 4, noise)
            steps.clear()
            read.clear()
            with patch.context() as counted:
                counted.setattr(sqlite3, "connect", counting)
                terms = terms_of(noise.multiplier, noise.privatiser)
                for asked, known in ((a_plan.digest(), terms), ("ab" * 32, None)):
                    assert blinder.hello("run", asked).noise == known
            taken.append((len(steps), len(read)))
    assert taken == [taken[0]] * 3
    assert taken[0][1] == 1


def test_a_blinder_that_went_back_to_an_old_copy_is_seen(tmp_path: Path, blinder: Blinder) -> None:
    """It would answer a second question about a round that it has forgotten. Its nodes are new, and saw nothing: the
    ledger has its receipts, and the run ends when it is greeted."""
    shutil.copytree(tmp_path / "blinder", tmp_path / "copy")
    old = Blinder(tmp_path / "copy")
    state = home(tmp_path)
    with begin(state, masked(blinder), blinder, "one") as session:
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    (tmp_path / "new").mkdir()
    grid = Federation(tmp_path / "new", old)
    refused = pytest.raises(BlinderWentBack, check=coded("blinder-went-back", "ends in row 0"))
    with begin(state, masked(old, run__seed=5), old, "two") as session, refused:
        FieldfareStrategy(session).start(grid)
    assert (grid.asked, grid.seen, old.rows("answers")) == ([QUERY_USERS], [], [])
    with Ledger.open(state.ledger) as ledger:
        assert (ledger.run("two").state, ledger.run("two").next_round) == ("failed", 0)


def test_a_closed_round_is_not_opened_by_a_blinder_that_went_back(tmp_path: Path, blinder: Blinder) -> None:
    """None of the rows that it writes again stands beside one of which this ledger has a receipt."""
    shutil.copytree(tmp_path / "blinder", tmp_path / "copy")
    old, other, state = Blinder(tmp_path / "copy"), home(tmp_path / "other"), home(tmp_path)
    for root, run in ((other, "zero"), (state, "one")):
        with begin(root, masked(blinder), blinder, run) as session:
            FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    a_plan = masked(blinder, run__seed=5)
    faults.load({faults.VARIABLE: "strategy.asked:raise:1"})
    with begin(state, a_plan, blinder, "two") as session, pytest.raises(faults.FaultInjected):
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    faults.load({})
    old.approve(a_plan.digest(), 2, numbers_released(a_plan, session.schema))
    with pytest.raises(CheckpointError, check=coded("checkpoint-error", "receipt of row")):
        resume(state, Federation(tmp_path, old), "two")
    assert len(old.rows("answers")) == 1
    with Ledger.open(state.ledger) as ledger:
        assert ledger.run("two").next_round == 0


def test_receipts_of_an_old_copy_or_of_a_stranger_are_seen_later(
    tmp_path: Path, blinder: Blinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever verifies the ledger of a coordinator that did not look."""
    shutil.copytree(tmp_path / "blinder", tmp_path / "copy")
    old, state = Blinder(tmp_path / "copy"), home(tmp_path)
    with begin(state, masked(blinder), blinder, "one") as session:
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    with Ledger.open(state.ledger) as ledger, monkeypatch.context() as patch:
        patch.setattr("fieldfare_server.evidence.verify.read_key", lambda text: (None, "00" * 32))
        report = verify(ledger)
        assert report.fault is not None
        assert (report.fault.table, report.fault.row) == ("runs", "one")
    with monkeypatch.context() as patch:
        patch.setattr("fieldfare_server.run.round.masked.Receipts.add", lambda self, receipt, again=False: None)
        (tmp_path / "new").mkdir()
        with begin(state, masked(old, run__seed=5), old, "two") as session:
            FieldfareStrategy(session).start(Federation(tmp_path / "new", old))
    with Ledger.open(state.ledger) as ledger:
        report = verify(ledger)
        assert report.fault is not None
        assert report.fault.table == "audit"


def test_a_round_without_a_receipt_was_not_opened_by_the_plans_blinder(
    tmp_path: Path, blinder: Blinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receipts came with the plans that name a blinder, so every ledger has one for each of their rounds."""
    state, open_, later = home(tmp_path), MaskedSums.open, [False, False, False, True]

    def lie(self: Any, *given: Any) -> Any:
        found = open_(self, *given)
        return replace(found, receipt=None) if later.pop(0) else found

    monkeypatch.setattr(MaskedSums, "open", lie)
    with begin(state, masked(blinder), blinder, "one") as session:
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    with Ledger.open(state.ledger) as ledger:
        report = verify(ledger)
    assert report.fault is not None
    assert (report.fault.table, report.fault.row) == ("runs", "one")
    assert "not signed by the blinder" in report.fault.why


def test_a_receipt_stands_for_one_round_alone(
    tmp_path: Path, blinder: Blinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that never asked about a round shows what was signed of another one."""
    state, open_, first = home(tmp_path), MaskedSums.open, list[str]()

    def lie(self: Any, *given: Any) -> Any:
        found = open_(self, *given)
        first.append(found.receipt)
        return replace(found, receipt=first[0])

    monkeypatch.setattr(MaskedSums, "open", lie)
    with begin(state, masked(blinder), blinder, "one") as session:
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    monkeypatch.undo()
    with Ledger.open(state.ledger) as ledger:
        report = verify(ledger)
        assert report.fault is not None
        assert report.fault.table == "audit"
        assert "two rounds" in report.fault.why
    refused = pytest.raises(BadInput, check=coded("receipt", "two rounds"))
    with begin(state, masked(blinder, run__seed=5), blinder, "two") as session, refused:
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))


def test_plans_that_name_the_wrong_kind_of_blinder_are_refused(tmp_path: Path, blinder: Blinder) -> None:
    state = home(tmp_path)
    rehearsed = Federation(tmp_path, blinder)
    rehearsed.blinder = blinder
    rehearsed.simulated = True
    with begin(state, masked(blinder)) as session, pytest.raises(BadInput, check=coded("masked-not-rehearsed")):
        FieldfareStrategy(session).start(rehearsed)
    nobody = plan(aggregation={"kind": "masked", "least_nodes": 2}, run__trust_node_ids=True)
    with begin(state, nobody, run_id="two") as session, pytest.raises(BadInput, check=coded("masked-without-blinder")):
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    simulated = Federation(tmp_path, blinder)
    simulated.simulated = True
    refused = pytest.raises(BadInput, check=coded("masked-without-blinder"))
    with begin(state, masked(blinder), run_id="three") as session, refused:
        FieldfareStrategy(session).start(simulated)
    with pytest.raises(BadInput, check=coded("blinder-key")):
        plan(aggregation={"kind": "masked", "least_nodes": 2, "blinder": "ffb1:00"})


def test_the_blinder_trains_nobody_and_tells_no_text(blinder: Blinder, monkeypatch: pytest.MonkeyPatch) -> None:
    # Alone, too: no run of another test has said who this process is, without which Flower makes no message.
    anybody = SimpleNamespace(task_id=1, run_id=1, node_id=1)
    monkeypatch.setattr("flwr.app.message.message.TaskIdentity", anybody, raising=False)
    for kind in ("train", "evaluate", "query", "query.users", QUERY_MASKS):
        reply = blinder.reply(Message(RecordDict(), 1, kind))
        assert reply.has_error()
        assert reply.error.reason in (
            "<class 'Unsupported'>",
            "<class 'fieldfare_flower.npy.BadReply'>",
            "<class 'BadReply'>",
        )


def test_a_plain_run_beside_a_blinder_takes_it_for_no_node(tmp_path: Path, blinder: Blinder) -> None:
    state, grid = home(tmp_path), Federation(tmp_path, blinder)
    for context in grid._contexts.values():
        del context.node_config["blinder"]
    with Session.begin(state, plan(run__trust_node_ids=True), identity_is_stable=True, run_id="run") as session:
        FieldfareStrategy(session).start(grid)
    assert set(grid.asked) == {QUERY_USERS}
    assert not any(MASKED in message.content for message in grid.seen)
    assert RECEIPT not in str(actions(state))


# -- with noise of the blinder's own -------------------------------------------------------------------------


def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any]]:
    """(the sums of what nodes encoded, the words that the server opened), a round each, in cells."""
    encoded, opened = [], []
    encode, open_ = masking_of_nodes.encode, MaskedSums.open

    def see(*given: Any) -> Any:
        words = encode(*given)
        if words.size:  # nothing rides beside the update
            encoded.append(words.copy())
        return words

    def read(self: Any, *given: Any) -> Any:
        found = open_(self, *given)
        opened.append((np.sum(encoded, axis=0, dtype=np.uint32), found.words.copy()))
        encoded.clear()
        return found

    monkeypatch.setattr(masking_of_nodes, "encode", see)
    monkeypatch.setattr(MaskedSums, "open", read)
    return encoded, opened


def test_the_server_opens_no_sum_without_the_blinders_noise(
    tmp_path: Path, blinder: Blinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, a_plan = home(tmp_path), masked(blinder, 0.5, run__noise_seed=None)
    _, opened = watched(monkeypatch)
    with begin(state, a_plan, blinder) as session:
        assert session.rounds.running_noise.std(0) == pytest.approx(
            math.hypot(1, 0.5) * session.rounds.running_noise.privatiser.std
        )
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    assert len(opened) == 4
    noise = [(words - known).view(np.int32) for known, words in opened]
    assert all((cells != 0).all() for cells in noise)
    with sqlite3.connect(blinder._journal) as journal:
        (terms,) = journal.execute("SELECT noise FROM noises").fetchone()
    own = BlinderNoise(**json.loads(terms))
    assert own.privatiser.grid is not None
    std = own.privatiser.std / own.privatiser.grid.spacing
    assert all((np.abs(cells) < 8 * std).all() for cells in noise)
    with Ledger.open(state.ledger) as ledger, ledger.snapshot() as snapshot:
        assert verify(ledger, state.root).ok
        run = snapshot.run("run")
        card = guarantee(run, snapshot.population("people"), plan_facts(run, state.root))
        document = privacy_statement(snapshot, "run", state.root)
        receipts = [
            Receipt.parse(row.body["receipt"])
            for row in snapshot.journal_rows(limit=1000).items
            if "receipt" in row.body
        ]
        answers = Answers(ledger)
        shown, listed = answers.run("run").against_server, answers.runs(None, 10, None).items[0].against_server
        priced = answers.what_if("people", WhatIf())
    server = a_plan.aggregation.against_server(run.planned, run.plan["charged_resolution"])
    assert server is not None
    assert server == run.against_server
    epsilon = server.epsilon(run.delta)
    assert shown == listed
    assert (shown.epsilon, shown.delta, priced.epsilon_server) == (epsilon, run.delta, pytest.approx(epsilon))
    assert epsilon > run.planned_epsilon
    facts, left_out = {fact.name: fact.value for fact in card.facts}, " ".join(card.not_covered)
    assert f"{up(epsilon):g}" in card.statement
    assert f"{up(epsilon):g}" in facts["Against the server"]
    assert "with the blinder's noise" in facts["The server sees"]
    assert "trusted to follow the protocol" in facts["Trust"]
    assert CURATOR not in left_out
    assert "deviates" in left_out
    assert document.data["epsilon_server"] == epsilon
    assert {receipt.noise for receipt in receipts} == {own.multiplier}


def test_a_killed_run_opens_the_same_noised_sum(
    tmp_path: Path, blinder: Blinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, a_plan = home(tmp_path), masked(blinder, 0.5)
    _, opened = watched(monkeypatch)
    faults.load({faults.VARIABLE: "strategy.summed:raise:2"})
    with begin(state, a_plan, blinder) as session, pytest.raises(faults.FaultInjected):
        FieldfareStrategy(session).start(Federation(tmp_path, blinder))
    faults.load({})
    assert len(opened) == 2
    # Its operator starts the blinder again, too.
    resume(state, Federation(tmp_path, Blinder(tmp_path / "blinder")))
    assert (opened[1][1] == opened[2][1]).all()
    assert len(opened) == 5
    assert len(blinder.rows("charges")) == 1
    assert [row[2] for row in blinder.rows("answers")] == [0, 1, 2, 3]


def test_a_run_does_not_begin_without_the_noise_that_its_plan_names(tmp_path: Path, blinder: Blinder) -> None:
    """None; less; on another grid; and of a budget that has no room."""
    a_plan = masked(blinder, 0.5)
    words = 4
    whole = blinder_noise_of(a_plan, words)
    assert whole is not None
    less, coarser = replace(whole, multiplier=whole.multiplier / 2), replace(whole, spacing=2 * whole.spacing)
    for number, noise in enumerate((None, less, coarser, whole)):
        other = Blinder(tmp_path / f"blinder {number}")
        its_plan = masked(other, 0.5)
        other.approve(its_plan.digest(), 2, words, noise)
        if noise is whole:
            other.limit(1e-3, 1e-6)
        state = home(tmp_path / str(number))
        grid = Federation(tmp_path, other)
        with begin(state, its_plan) as session, pytest.raises(Refused):
            FieldfareStrategy(session).start(grid)
        assert set(grid.asked) == {QUERY_USERS}
        assert not grid.seen


def test_an_answer_with_less_noise_than_was_said_is_none(tmp_path: Path, blinder: Blinder) -> None:
    """Its receipt says so, and nothing is released or charged."""
    state, a_plan = home(tmp_path), masked(blinder, 0.5)
    multiplier = []

    def less(message: Message) -> Message:
        if message.metadata.message_type == QUERY_MASKS:
            with sqlite3.connect(blinder._journal) as journal:
                ((plan, text),) = journal.execute("SELECT plan, noise FROM noises").fetchall()
                told = json.loads(text)
                multiplier.append(told["multiplier"])
                told["multiplier"] = multiplier[0] / 2
                journal.execute("UPDATE noises SET noise = ? WHERE plan = ?", (json.dumps(told), plan))
        return blinder.reply(message)

    with begin(state, a_plan, blinder) as session, pytest.raises(CheckpointError):
        FieldfareStrategy(session).start(Federation(tmp_path, blinder, less))
    with Ledger.open(state.ledger) as ledger:
        assert ledger.run("run").next_round == 0
