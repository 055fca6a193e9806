"""A ServerApp that has its code refused, then coordinates two rounds as it should, and then lies in ten more ways.

What it was told of each lie goes to the file `said.json` in the folder that its run configuration names.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fieldfare.masking.boxes import Purpose
from fieldfare.plan import Plan
from fieldfare.signed_head import SignedHead
from fieldfare.signed_terms import SignedTerms
from fieldfare_client.blinder import Blinder
from fieldfare_flower import logs
from fieldfare_flower.local_grid import copy_records
from fieldfare_flower.masked import HELLO, QUERY_MASKS, Masking, MasksAsked, Seal, digest_of_instruction
from fieldfare_flower.messages import (
    HEAD,
    HEADER,
    MASKING,
    QUERY_USERS,
    SEAL,
    TRAIN,
    read_head,
    read_terms,
    write_head,
    write_terms,
    write_users_query,
)
from fieldfare_flower.waits import limit_part_waits, shorten_part_waits
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import HeadFile
from fieldfare_server.run.presence.identity import identity_is_stable
from fieldfare_server.run.round.strategy import FieldfareStrategy, RoundReport
from fieldfare_server.run.session import Session

NODES, HONEST_ROUNDS = 2, 2
app = ServerApp()


class Enough(Exception):
    """Two honest rounds are committed."""


class Wire:
    """The grid, and the newest instruction and question that an honest coordinator sent through it."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.trains, self.questions = grid, dict[int, RecordDict](), list[MasksAsked]()
        self.blinder, self.lies, self.instruction = 0, False, ""
        push = grid.push_messages

        def keep(messages: Iterable[Message]) -> Iterable[str]:
            messages = list(messages)
            for message in messages:
                if message.metadata.message_type == TRAIN and not self.lies:
                    self.trains[message.metadata.dst_node_id] = copy_records(message.content)
                if message.metadata.message_type == QUERY_MASKS:
                    self.blinder = message.metadata.dst_node_id
                    self.questions.append(MasksAsked.read(message.content))
            return push(messages)

        grid.push_messages = keep  # type: ignore[method-assign]

    def ask(self, contents: dict[int, RecordDict], kind: str) -> dict[int, Message]:
        """The reply of each node to its message."""
        limit_part_waits(200.0)  # a run's own patience with an upload is shorter than a busy machine may need
        messages = [Message(content, node, kind, ttl=200.0) for node, content in contents.items()]
        replies = self.grid.send_and_receive(messages, timeout=200.0)
        return {reply.metadata.src_node_id: reply for reply in replies}

    def put(self, question: MasksAsked) -> str:
        """What the blinder says: "" where it answers."""
        return told(self.ask({self.blinder: question.write()}, QUERY_MASKS)[self.blinder])

    def train(self, round: int, attempt: int, nodes: Iterable[int] = (), **records: Any) -> dict[int, Message]:
        """Instructions as the honest ones, about another round, with other records; the replies."""
        made = {}
        for node in nodes or self.trains:
            made[node] = copy_records(self.trains[node])
            made[node][HEADER]["round"], made[node][HEADER]["attempt"] = round, attempt
            for name, record in records.items():
                made[node][name] = record
        self.instruction = digest_of_instruction(made[node])
        return self.ask(made, TRAIN)

    def question(self, round: int, attempt: int, replies: dict[int, Message]) -> MasksAsked:
        """The honest question about these replies."""
        assert not any(map(told, replies.values())), list(map(told, replies.values()))
        seals = tuple(Seal.unpack(reply.content[HEADER][SEAL]) for reply in replies.values())
        of = {"round": round, "attempt": attempt, "instruction": self.instruction}
        return replace(self.questions[-1], **of, nodes=tuple(replies), seals=seals)


def told(reply: Message) -> str:
    """What an answer says of its refusal."""
    return str(reply.error.reason) if reply.has_error() else ""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Lie."""
    logs.configure("info")
    shorten_part_waits()
    root, state = Path(str(context.run_config["root"])), StateDirectory.of()
    wire, said = Wire(grid), dict[str, list[str]]()
    while len(online := list(grid.get_node_ids())) < NODES + 1:
        time.sleep(0.2)

    # Code that the nodes do not know. Then their operators read their logs, and allow it.
    replies = wire.ask({node: write_users_query("run") for node in online}, QUERY_USERS)
    said["code not pinned"] = [told(r) for r in replies.values() if r.has_error() or HELLO not in r.content]
    for index in range(NODES):
        (digest,) = set(re.findall("SHA-256 ([0-9a-f]{64})", (root / f"executor-{index}.log").read_text()))
        (root / f"code-{index}").write_text(f"{digest}  read and allowed\n")

    def after(report: RoundReport) -> None:
        if report.round + 1 == HONEST_ROUNDS:
            raise Enough

    plan = Plan.from_toml((root / "plan.toml").read_text())
    with suppress(Enough), Session.begin(state, plan, identity_is_stable(grid), "liar", "run") as session:
        FieldfareStrategy(session, after).start(grid)
    wire.lies = True
    key, first = HeadFile(state.head_file).key(), next(iter(wire.trains.values()))
    signed, (head, _) = read_terms(first), read_head(first)
    assert head is not None
    terms = signed.open()

    # The blinder: boxes of a later round, of which the honest question is answered in the end.
    replies = wire.train(3, 0)
    honest = wire.question(3, 0, replies)
    purpose = Purpose(honest.run, 3, 0, 1234, honest.numel, honest.plan, honest.instruction)
    invented = Seal.of(honest.seals[0].box, purpose, honest.bits, bytes(32))
    said["invented nodes"] = [wire.put(replace(honest, nodes=(*honest.nodes, 1234), seals=(*honest.seals, invented)))]
    said["swapped boxes"] = [wire.put(replace(honest, seals=honest.seals[::-1]))]
    said["another plan"] = [wire.put(replace(honest, plan="ab" * 32))]
    said["honest"] = [wire.put(honest), wire.put(honest)]
    second = wire.question(3, 1, wire.train(3, 1))  # as if the first attempt had been void
    said["a second set"] = [wire.put(second)]
    said["an old round"] = [wire.put(replace(honest, round=2))]

    # The nodes.
    def under(**changes: Any) -> list[str]:
        lie = write_terms(SignedTerms.of(replace(terms, **changes), key))
        return [told(reply) for reply in wire.train(5, 0, **lie).values()]

    said["another plan"] += under(plan={**terms.plan, "run": {**terms.plan["run"], "round_timeout": 77.0}})  # type: ignore[dict-item]
    said["another population"] = under(population="friends") + under(identity="0" * 64)
    said["an older log"] = under(row=terms.row - 1)
    said["a user too soon"] = [told(reply) for reply in wire.train(4, 0).values()]
    settings = json.loads(str(first.config_records[HEADER]["settings"]))
    longer = json.dumps({**settings, "clipping": {**settings["clipping"], "norm": 1e3}})
    header = ConfigRecord({**first.config_records[HEADER], "round": 5, "attempt": 0, "settings": longer})
    said["another clip norm"] = [told(reply) for reply in wire.train(5, 0, **{HEADER: header}).values()]
    said["a user again"] = [told(reply) for reply in wire.train(3, 1).values()]
    forked = {HEAD: write_head(SignedHead.of(head.ledger, head.count, "cd" * 32, key), {})}
    said["two heads"] = [told(reply) for reply in wire.train(5, 0, **forked).values()]
    masking, put_back = Masking.read(first), RecordDict({HEADER: ConfigRecord({})})
    assert masking is not None
    replace(masking, head=Blinder(root / "older").hello("run", honest.plan).head).write(put_back)
    replies = wire.train(5, 0, **{MASKING: put_back[MASKING]})
    said["an older blinder"] = [told(reply) for reply in replies.values()]
    (root / "said.json").write_text(json.dumps(said, indent=1))
