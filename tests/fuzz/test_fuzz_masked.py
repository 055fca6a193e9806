"""Whatever is sent in masked runs, reading it may refuse it and nothing else: replies, questions, answers, orders.

A draw of 3 000 messages in each run of the tests; as many as FIELDFARE_FUZZ says, from another seed, by hand:

    FIELDFARE_FUZZ=100000 pytest tests/fuzz/test_fuzz_masked.py
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, RecordDict

from fieldfare.errors import BadInput
from fieldfare.masking.boxes import read_key
from fieldfare_client.blinder import Blinder
from fieldfare_client.masking import NODE_KEY, make_node_key, mask_reply
from fieldfare_flower.masked import (
    ASK,
    HELLO,
    MASKED,
    MASKS,
    RECEIPT,
    WORDS,
    Hello,
    Masking,
    MasksAsked,
    MasksRefused,
)
from fieldfare_flower.messages import HEADER, MASKING, REPORT, SEAL, Occasion, PlainInstruction
from fieldfare_flower.npy import BadReply
from fieldfare_server.run.round.masked import MaskedSum
from support.federation import plan
from support.masks import INSTRUCTION, masking_of_plan

sys.path.insert(0, str(Path(__file__).parent))
from replies import Stream, edit

MESSAGES = int(os.environ.get("FIELDFARE_FUZZ", "3000"))
RUN, NUMEL = Occasion("run", 3, 1), 6
A_PLAN = plan(aggregation={"kind": "masked", "least_nodes": 2})
PLAN = A_PLAN.digest()
RECORDS = (HEADER, MASKED, REPORT, ASK, MASKS, RECEIPT, HELLO, MASKING, "update")
ENTRIES = (
    *(SEAL, WORDS, "users", "run", "round", "attempt", "version", "box", "key", "signature", "receipt", "bits", "plan"),
    *("numel", "nodes", "seals", "instruction", "noise", "blinder", "spacing_log2", "shares", "weights"),
    *("trained", "settings", "deltas", "counts"),
)


class World:
    """A blinder with one answered round, and honest messages of each kind with what reads them."""

    def __init__(self, root: Path) -> None:
        self.blinder = Blinder(root / "blinder")
        self.blinder.approve(PLAN, 2, NUMEL)
        masking, cost = masking_of_plan(A_PLAN, self.blinder.public_key, NUMEL)
        files = [root / f"{node}.key" for node in range(3)]
        self.blinder.admit({make_node_key(file): file.name for file in files})
        self.replies = []
        for node, file in enumerate(files):
            context = Context(1, node, {NODE_KEY: str(file)}, RecordDict(), {})
            self.replies.append(mask_reply(masking, context, cost, RUN, np.ones(NUMEL, np.float32), 1, ()))
        total = self.sum()
        assert all(total.add(reply, 1, node) for node, reply in enumerate(self.replies))
        self.asked = total.asked
        self.answer = self.blinder.answer(self.asked.write())
        instruction = RecordDict({HEADER: PlainInstruction(RUN, {}, ("w",), (1.0,)).write()})
        masking.write(instruction)
        hello = self.blinder.hello("run", PLAN).write("run", PLAN, self.blinder._receipts)
        self.key = read_key(self.blinder.public_key)[1]
        self.kinds: dict[str, tuple[RecordDict, Callable[[RecordDict], object]]] = {
            "reply": (self.replies[0], self.add),
            "question": (self.asked.write(), self.blinder.answer),
            "answer": (self.answer, lambda content: self.asked.read_answer(content, self.key)),
            "instruction": (instruction, lambda content: (Masking.read(content), PlainInstruction.read(content))),
            "hello": (hello, self.greet),
        }
        self.held = self.journal()

    def sum(self) -> MaskedSum:
        admitted = self.blinder.hello("run", PLAN).nodes
        return MaskedSum(MasksAsked("run", 3, 1, NUMEL, 32, PLAN, INSTRUCTION), admitted)

    def add(self, content: RecordDict) -> None:
        """A reply that is not the honest one adds nothing, and names its reason."""
        total = self.sum()
        if not total.add(content, 1, 0):
            assert total.rejects.total() == 1
            assert not total.words.any()
            assert not total.users + len(total.asked.seals)
            raise BadReply("refused")

    def greet(self, content: RecordDict) -> None:
        said = Hello.read(content, "run", PLAN, self.key)
        if said is None:
            raise BadReply("refused")
        assert said == self.blinder.hello("run", PLAN)

    def journal(self) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.blinder._journal) as journal:
            return journal.execute("SELECT * FROM answers").fetchall()


def copied(content: RecordDict) -> RecordDict:
    return RecordDict({name: type(record)(dict(record)) for name, record in content.items()})  # type: ignore[call-arg]


@pytest.mark.timeout(3600)
def test_no_message_of_a_masked_run_raises_anything_but_a_refusal(tmp_path: Path) -> None:
    world = World(tmp_path)
    generator = np.random.default_rng(35 if MESSAGES == 3000 else None)
    outcomes = Counter[tuple[str, str]]()
    names = list(world.kinds)
    for number in range(MESSAGES):
        kind = names[number % len(names)]
        honest, read = world.kinds[kind]
        content, stream = copied(honest), Stream(generator.bytes(int(generator.integers(0, 24))))
        while stream:
            edit(content, stream, RECORDS, ENTRIES)
        try:
            read(content)
            outcomes[kind, "read"] += 1
        except (BadReply, BadInput, MasksRefused):
            outcomes[kind, "refused"] += 1
    assert world.journal() == world.held  # no question but the honest one was answered
    assert all(outcomes[kind, how] for kind in names for how in ("read", "refused")), outcomes
    print(sum(outcomes.values()), dict(outcomes))


def test_the_honest_messages_are_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    for content, read in world.kinds.values():
        read(copied(content))
    assert isinstance(world.answer[RECEIPT], ConfigRecord)
