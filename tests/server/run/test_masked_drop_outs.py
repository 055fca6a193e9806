"""Nodes that drop out in every round cost a masked run no message and no wait that a plain one would not have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fieldfare_client.blinder import Blinder
from fieldfare_flower.masked import QUERY_MASKS
from fieldfare_flower.messages import QUERY_USERS
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.pricing import numbers_released
from fieldfare_server.run.round import distant_blinder
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.clock import FakeClock
from support.federation import home, plan
from support.timed_grid import TimedGrid

NODES, DROP_OUTS, ROUNDS, TIMEOUT, BLINDER_NODE = 10, 3, 6, 60.0, 77


class Federation(TimedGrid):
    """Of its nodes, others drop out in each round: they take the instruction and never answer."""

    def __init__(self, clock: FakeClock, drop_outs: int, blinder: Blinder | None, keys: Path) -> None:
        super().__init__(NODES, clock, takes=self._seconds)
        self.blinding, self._drop_outs, self._gone = blinder, drop_outs, set[int]()
        self._rounds = np.random.default_rng(35)
        if blinder is not None:
            self.name_blinder(blinder, keys)

    def get_node_ids(self) -> list[int]:
        return [*super().get_node_ids(), *([] if self.blinding is None else [BLINDER_NODE])]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        if any(message.metadata.message_type == "train" for message in messages):
            nodes = list(self._contexts)
            self._gone = set(self._rounds.choice(nodes, self._drop_outs, replace=False).tolist())
        return super().push_messages(messages)

    def _seconds(self, node: int, kind: str) -> float:
        return math.inf if kind == "train" and node in self._gone else 0.5

    def answer(self, message: Message) -> Message:
        if message.metadata.dst_node_id == BLINDER_NODE:
            assert self.blinding is not None
            return self.blinding.reply(message)
        return super().answer(message)


@dataclass(frozen=True)
class Ran:
    sent: Counter[tuple[int, str]]
    """(node, message type) -> how many messages."""
    waits: list[float]
    """Seconds of the run's clock from each round's instructions to its commit."""
    users: list[int]
    """In each round's sum."""
    model: bytes


def run(root: Path, clock: FakeClock, drop_outs: int, masks: bool, over_selection: float) -> Ran:
    root.mkdir()
    state, blinder = home(root), Blinder(root / "blinder") if masks else None
    grid = Federation(clock, drop_outs, blinder, root / "keys")
    changes: dict[str, Any] = {
        "run__rounds": ROUNDS,
        "run__cohort": 24 if over_selection == 1 else 12,
        "run__over_selection": over_selection,
        "run__round_timeout": TIMEOUT,
        "run__trust_node_ids": True,
        "participation": {"scheme": "min-separation", "separation": 1, "max_participations": ROUNDS},
        "mechanism": {"kind": "independent"},
    }
    if blinder is not None:
        changes["aggregation"] = {"kind": "masked", "least_nodes": 2, "blinder": blinder.public_key}
    a_plan = plan(**changes)
    committed: list[float] = []
    with Session.begin(state, a_plan, identity_is_stable=True, run_id="run") as session:
        if blinder is not None:
            blinder.approve(a_plan.digest(), 2, numbers_released(a_plan, session.schema))
        FieldfareStrategy(session, lambda report: committed.append(grid.now)).start(grid)
    began = sorted({at for at, _, kind in grid.asked if kind == "train"})
    with Ledger.open(state.ledger) as ledger:
        rounds = ledger.rounds("run", limit=100).items
    assert [each.state for each in rounds] == ["committed"] * ROUNDS == ["committed"] * len(began)
    waits = [end - start for start, end in zip(began, committed, strict=True)]
    users = [each.reports for each in sorted(rounds, key=lambda each: each.index)]
    sent = Counter((node, kind) for _, node, kind in grid.asked)
    return Ran(sent, waits, users, (state.root / "run" / "model.safetensors").read_bytes())


@pytest.mark.parametrize("over_selection", [1.0, 2.0], ids=["until the deadline", "until enough have answered"])
def test_drop_outs_cost_a_masked_round_no_message_and_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_selection: float
) -> None:
    """Three of ten nodes drop out of each round, others each time. A round ends by its deadline or its quorum, masked
    or not; and the blinder is asked once, of however many nodes."""
    ran = {}
    for drop_outs, masks in ((0, True), (DROP_OUTS, True), (DROP_OUTS, False)):
        with monkeypatch.context() as patch:
            clock = FakeClock(1.7e9)
            clock.install(patch)
            patch.setattr(distant_blinder, "time", clock)
            ran[drop_outs, masks] = run(tmp_path / f"{drop_outs} {masks}", clock, drop_outs, masks, over_selection)
    whole, masked, plain = ran.values()
    to_blinder = {(BLINDER_NODE, QUERY_USERS): 1, (BLINDER_NODE, QUERY_MASKS): ROUNDS}
    assert masked.sent == plain.sent + Counter(to_blinder)
    assert masked.sent <= whole.sent  # who dropped out is asked less often than who answers
    assert masked.users == plain.users
    assert masked.model == plain.model
    for name, one in (("nobody drops out", whole), ("masked", masked), ("plain", plain)):
        print(f"{name}: {sum(one.sent.values())} messages, users {one.users}, waits {np.round(one.waits, 2)}")
    # All that masks add to a wait is the blinder's answer, whose 0.5 s are seen at the next look.
    added = np.subtract(masked.waits, plain.waits)
    assert (added >= 0).all()
    assert (added < 1.0).all()
    if over_selection == 1:
        assert min(plain.waits) >= TIMEOUT
    else:
        assert max(masked.waits) < TIMEOUT / 10
