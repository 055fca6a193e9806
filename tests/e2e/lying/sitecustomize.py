"""In the containers of masked runs: what the coordinator says that is not so, what nodes' updates are, and where
coordinator and blinder wait to be killed.

Before each honest question to the blinder, and each instruction to a node, the coordinator tells lies, where the file
LIES is there. What was answered to each stands in TOLD, a line of JSON a lie. The honest messages go on, so one run
hears all of them. A node's updates are one word over and over, where the file PLANT says which; PLANTED counts them.
At the point that the file HOLD names a process makes HELD of it, and goes on once that is gone.

Nothing of the product is changed on disk.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

LIES, TOLD = Path("/state/lies"), Path("/state/told")
PLANT, PLANTED = Path("/state/plant"), Path("/state/planted")
HOLD, HELD = Path("/state/hold"), Path("/state/held")
TOLD_NODES = -1
"""Stands among the nodes once one of them was lied to."""
Lies = Iterator[tuple[str, Any]]


class Changer(MetaPathFinder):
    """Changes modules once they are imported."""

    def __init__(self, changes: dict[str, Callable[[Any], None]]) -> None:
        self._changes = changes

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        change = self._changes.pop(fullname, None)
        if change is None:
            return None
        found = importlib.util.find_spec(fullname)
        assert found is not None
        assert found.loader is not None
        honest = found.loader.exec_module

        def execute(module: Any) -> None:
            honest(module)
            change(module)

        found.loader.exec_module = execute  # type: ignore[method-assign]
        return found


def plant(module: Any) -> None:
    """Let `module.encode` make the words of an update that is known."""
    honest = module.encode

    def encode(parts: Any, *ring: float) -> Any:
        words = honest(parts, *ring)
        if PLANT.exists():
            words[:] = int(PLANT.read_text())
            with PLANTED.open("a") as told:
                told.write(f"{words.dtype.str} {len(words)}\n")
        return words

    module.encode = encode


def hold(name: str) -> None:
    """Wait here while HELD is there, where HOLD names this point."""
    if HOLD.exists() and HOLD.read_text() == name:
        HOLD.rename(HELD)
        while HELD.exists():
            time.sleep(0.05)


def hold_coordinator(module: Any) -> None:
    """Let each fault point be one to wait at."""
    honest = module.point

    def point(name: str) -> None:
        hold(name)
        honest(name)

    module.point = point


def hold_blinder(module: Any) -> None:
    """Let the blinder wait before and after a question is in its transaction, and before the answer leaves."""
    write, answer = module._write_down, module.Blinder.answer

    def written(*given: Any) -> Any:
        hold("blinder.opened")
        row = write(*given)
        hold("blinder.written")
        return row

    def answered(*given: Any) -> Any:
        said = answer(*given)
        hold("blinder.durable")
        return said

    module._write_down, module.Blinder.answer = written, answered


def teach(module: Any) -> None:
    """Let `module.Receiver` tell lies first."""
    honest = module.Receiver.receive
    questions: list[Any] = []
    instructions: dict[int, Any] = {}

    def receive(self: Any, grid: Any, messages: Any, timeout: float, *rest: Any, **named: Any) -> Any:
        for message in messages if LIES.exists() else ():
            for lie, content in lies_for(message, questions, instructions):
                note(lie, tell(module, honest, grid, message, content))
        return honest(self, grid, messages, timeout, *rest, **named)

    module.Receiver.receive = receive


def tell(module: Any, honest: Any, grid: Any, message: Any, content: Any) -> str:
    """What the receiver of `message` says to `content` in its place: the reason of its error; "" for an answer."""
    from flwr.app import Message

    run, kind = message.metadata.group_id, message.metadata.message_type
    lie = Message(content, message.metadata.dst_node_id, kind, ttl=120.0, group_id=module.fresh_group(run, "lie"))
    for received in honest(module.Receiver(), grid, [lie], 100.0):
        reply = received.reply
        return str(reply.error.reason) if reply is not None and reply.has_error() else ""
    return "silence"


def note(lie: str, answer: str) -> None:
    with TOLD.open("a") as file:
        file.write(json.dumps([lie, answer]) + "\n")


def lies_for(message: Any, questions: list[Any], instructions: dict[int, Any]) -> Lies:
    """Lies in the place of a message: (what it is, content); once to the blinder, and once to one node.

    questions, instructions: what the honest messages said before, which lies repeat.
    """
    kind, node = message.metadata.message_type, message.metadata.dst_node_id
    if kind == "query.masks":
        yield from of_masks(message.content, questions)
    elif kind == "train":
        if node in instructions and TOLD_NODES not in instructions:
            yield from of_instructions(message.content, instructions[node])
            instructions[TOLD_NODES] = None
        instructions[node] = message.content


def of_masks(content: Any, questions: list[Any]) -> Lies:
    """Lies to the blinder about a round, and about those before it."""
    from fieldfare_flower.masked import MasksAsked, Seal

    asked = MasksAsked.read(content)

    def changed(question: Any, **fields: Any) -> Any:
        return dataclasses.replace(question, **fields).write()

    if asked.round == len(questions) == 2:
        first, last = questions
        stranger = Seal(asked.seals[0].box, "ab" * 32, asked.seals[0].signature)
        yield "a second set", changed(last, nodes=last.nodes[1:], seals=last.seals[1:])
        yield "an old round", changed(first, attempt=first.attempt + 1)
        yield "a round too early", changed(asked, round=asked.round + 1)
        yield "invented nodes", changed(asked, nodes=(*asked.nodes, 77), seals=(*asked.seals, stranger))
        yield "swapped boxes", changed(asked, seals=asked.seals[::-1])
        yield "another plan", changed(asked, plan="ab" * 32)
    if asked.round == len(questions):
        questions.append(asked)


def of_instructions(content: Any, before: Any) -> Lies:
    """Lies to a node. before: the content of the honest instruction that it was sent last."""
    from flwr.app import ConfigRecord, RecordDict

    from fieldfare.signed_head import SignedHead
    from fieldfare.signed_terms import SignedTerms
    from fieldfare_flower.messages import HEAD, TERMS, read_head, read_terms, write_head, write_terms
    from fieldfare_server.files.home import StateDirectory
    from fieldfare_server.ledger.chain import HeadFile

    signed, (head, rows) = read_terms(content), read_head(content)
    assert head is not None
    key = HeadFile(StateDirectory.of(None, None).head_file).key()
    terms = signed.open()

    def terms_of(**fields: Any) -> RecordDict:
        lie = SignedTerms.of(dataclasses.replace(terms, **fields), key, signed.keys)
        return RecordDict({**content, **write_terms(lie)})

    def head_of(shown: SignedHead, hashes: dict[int, str]) -> RecordDict:
        return RecordDict({**content, HEAD: write_head(shown, hashes)})

    faster = {**terms.plan, "client": {**terms.plan["client"], "learning_rate": 0.4}}
    dearer = {**terms.plan, "privacy": {**terms.plan["privacy"], "delta": 1e-7}}
    yield "another population", terms_of(population="friends")
    yield "its name on another", terms_of(identity="0" * 64)
    yield "another plan at a node", terms_of(plan=faster)
    yield "another plan's price", terms_of(plan=dearer)
    yield "an older log", terms_of(row=1)
    yield "a user too soon", RecordDict({**content, "cohort": before["cohort"]})
    yield "no charge", RecordDict({name: each for name, each in content.items() if name != TERMS})
    yield "an older head", RecordDict({**content, HEAD: ConfigRecord(dict(before[HEAD]))})
    yield "two heads", head_of(SignedHead.of(head.ledger, head.count, "ab" * 32, key), rows)


CHANGES = {
    "fieldfare_server.run.presence.replies": teach,
    "fieldfare_server.faults": hold_coordinator,
    "fieldfare_client.masking": plant,
    "fieldfare_client.blinder": hold_blinder,
}
sys.meta_path.insert(0, Changer(dict(CHANGES)))
