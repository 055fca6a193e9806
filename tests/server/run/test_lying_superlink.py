"""A liar between coordinator and nodes, in place of SuperLink or gate: garbage, replays, other nodes' messages.

It reads everything and writes whatever it likes. What it delivers as it was sent, however late, often or mixed up,
releases the very model of an honest link. What it writes itself moves the sum by no more than the users who were asked
are allowed, and the charge by nothing. THREATS.md says what remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from safetensors.torch import load_file

from fieldfare.errors import FieldfareError
from fieldfare_flower.local_grid import FIRST_NODE
from fieldfare_flower.messages import COHORT, HEADER, REPORT, UPDATE, USERS
from fieldfare_server.evidence.verify import recharge, verify
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.views import RoundView
from fieldfare_server.run.presence import patience as patience_module
from fieldfare_server.run.round.aggregation import Aggregate
from fieldfare_server.run.round.strategy import FieldfareStrategy
from fieldfare_server.run.session import Session
from support.federation import LyingGrid, TinyTask, home, plan

Lie = Callable[["LyingLink", list[Message]], Iterable[Message]]
"""(the link, the honest replies of one look) -> what the coordinator gets instead."""


class LyingLink(LyingGrid):
    """Three honest nodes behind a link that lies about training messages; queries for users pass as they are."""

    def __init__(self, lie: Lie, rewrite: Callable[[list[Message]], None] = lambda messages: None) -> None:
        super().__init__(3)
        self._lie, self._rewrite = lie, rewrite
        self.generator = np.random.default_rng(20260101)
        self.earlier: list[Message] = []
        """All training replies that have passed."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        if sent and sent[0].metadata.message_type == "train":
            self._rewrite(sent)
        return super().push_messages(sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        replies = list(super().pull_messages(message_ids))
        if not replies or replies[0].metadata.message_type != "train":
            yield from replies
            return
        delivered = list(self._lie(self, replies))
        self.earlier += replies
        yield from delivered


def under(name: Message, content: RecordDict) -> Message:
    """`content` as the reply to the message that `name` answers."""
    forged = Message(RecordDict(), 2, "train", group_id=name.metadata.group_id)
    forged.metadata.__dict__["_reply_to_message_id"] = name.metadata.reply_to_message_id
    forged.metadata.__dict__["_src_node_id"] = name.metadata.src_node_id
    forged.content = content
    return forged


# -- what was sent, as it was sent ------------------------------------------------------------------------------------


def shuffled(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    return [replies[index] for index in link.generator.permutation(len(replies))]


def ten_times(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    return replies * 10


def with_all_earlier_ones(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    return [*link.earlier, *replies, *link.earlier]


def under_each_others_names(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    """Each says that it comes from the next node; what it answers says whose it is."""
    sources = [reply.metadata.src_node_id for reply in replies]
    for reply, source in zip(replies, sources[1:] + sources[:1], strict=True):
        reply.metadata.__dict__["_src_node_id"] = source
    return replies


def among_replies_to_nothing(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    strangers = [Message(RecordDict(), 2, "train", group_id=f"{index}") for index in range(50)]
    return [*strangers, *replies, *strangers]


VERBATIM = [shuffled, ten_times, with_all_earlier_ones, under_each_others_names, among_replies_to_nothing]


# -- what it writes itself --------------------------------------------------------------------------------------------


def replayed(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    """From the second round on, what the first round's nodes said, as the answers of this round."""
    old = link.earlier or replies
    return [under(reply, old[index % len(old)].content) for index, reply in enumerate(replies)]


def of_another_run(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    for reply in replies:
        reply.content[HEADER] = ConfigRecord({**reply.content.config_records[HEADER], "run": "0123456789ab"})
    return replies


def garbage(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    bytes_ = link.generator.bytes(4096)
    noise = ArrayRecord({"x": Array(dtype="float32", shape=(1024,), stype="numpy.ndarray", data=bytes_)})
    contents = [
        RecordDict(),
        RecordDict({UPDATE: noise}),
        RecordDict({HEADER: ConfigRecord({"version": 2, "run": "", "round": 0, "attempt": 0})}),
    ]
    return [under(reply, contents[index % 3]) for index, reply in enumerate(replies)]


def not_finite(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    return [filled(reply, np.nan) for reply in replies]


def silence(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    return []


def huge(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    return [filled(reply, 1e30) for reply in replies]


def more_users(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    for reply in replies:
        reply.content[REPORT] = MetricRecord({"users": 10**9, "counts": []})
    return replies


def exchanged(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    """Each node's sum as the answer of the next node."""
    contents = [reply.content for reply in replies]
    return [under(r, c) for r, c in zip(replies, contents[1:] + contents[:1], strict=True)]


def copied(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    """The first node's sum as the answer of every node."""
    return [under(reply, replies[0].content) for reply in replies]


def filled(reply: Message, value: float) -> Message:
    record = reply.content.array_records[UPDATE]
    reply.content[UPDATE] = ArrayRecord({k: Array(np.full(a.shape, value, np.float32)) for k, a in record.items()})
    return reply


def honest(link: LyingLink, replies: list[Message]) -> Iterable[Message]:
    return replies


def ask_for_users_of_others(messages: list[Message]) -> None:
    """Ask each node for all users whom it does not host."""
    everybody = TinyTask().users()
    for message in messages:
        hosted = everybody.partition(message.metadata.dst_node_id - FIRST_NODE, 3).pseudonyms
        others = np.setdiff1d(everybody.pseudonyms, hosted)
        message.content[COHORT] = ArrayRecord({USERS: Array(others)})


def run(state_dir: StateDirectory, link: LyingGrid, timeout: float = 5.0) -> tuple[Session, str]:
    """A run to its end; returns why it ended, "" for well. timeout: waited for only where replies are missing."""
    a_plan = plan(run__round_timeout=timeout, run__min_reports=1, run__cohort=6, run__rounds=4)
    session = Session.begin(state_dir, a_plan, identity_is_stable=True)
    try:
        with session:
            FieldfareStrategy(session).start(link)
    except FieldfareError as error:
        return session, str(error)
    return session, ""


def rounds(state_dir: StateDirectory, session: Session) -> list[RoundView]:
    """The run's attempts, after the whole ledger was verified, each charge recomputed."""
    with Ledger.open(state_dir.ledger) as ledger:
        report = verify(ledger, state_dir.root, recompute=recharge, held=[ledger.head()])
        assert report.ok, str(report.fault)
        return sorted(ledger.rounds(session.account.id).items, key=lambda view: (view.index, view.attempt))


def released(state_dir: StateDirectory, session: Session) -> torch.Tensor:
    model = load_file(state_dir.root / session.account.id / "model.safetensors")
    return torch.cat([value.reshape(-1) for value in model.values()])


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Watch every sum: no reply moves it by more than the users whom its node was asked to train may."""
    monkeypatch.setattr(patience_module, "MOST_VOIDS", 3)
    moved: list[float] = []
    add = Aggregate.add

    def watched(self: Aggregate, content: RecordDict, sent: int, node: int = 0) -> bool:
        before, users = self.total.copy(), self.users
        used = add(self, content, sent, node)
        moved.append(float(np.linalg.norm(self.total - before)) / self.clip)
        # The grid adds half a cell a coordinate, which the charge covers (fieldfare.privatise).
        assert moved[-1] <= sent * (1 + 1e-6) + 1e-3
        assert 0 <= self.users - users <= sent
        assert used or (moved[-1], self.users) == (0.0, users)
        return used

    monkeypatch.setattr(Aggregate, "add", watched)
    return moved


@pytest.mark.parametrize("lie", VERBATIM)
def test_what_was_sent_releases_the_model_of_an_honest_link(lie: Lie, tmp_path: Path) -> None:
    state_dir = home(tmp_path)
    reference, why = run(state_dir, LyingGrid(3))
    assert why == ""
    link = LyingLink(lie)
    session, why = run(state_dir, link)
    assert why == ""
    assert len(link.earlier) >= 4, "the lie was told in every round"
    torch.testing.assert_close(released(state_dir, session), released(state_dir, reference), rtol=0, atol=0)
    ours, theirs = rounds(state_dir, session), rounds(state_dir, reference)
    assert [view.epsilon for view in ours] == [view.epsilon for view in theirs]


@pytest.mark.parametrize(
    ("lie", "reasons", "committed"),
    [
        (replayed, {"round"}, 1),
        (of_another_run, {"round"}, 0),
        (garbage, {"schema", "version", "round"}, 0),
        (not_finite, {"non-finite"}, 0),
        (silence, set(), 0),
        (more_users, {"users"}, 0),
        (huge, {"over-norm, clipped again"}, 4),
        (exchanged, {"users", "over-norm, clipped again"}, None),
        (copied, {"users", "over-norm, clipped again"}, None),
    ],
)
def test_what_it_writes_costs_rounds_and_no_charge(
    lie: Lie, reasons: set[str], committed: int | None, tmp_path: Path, bounded: list[float]
) -> None:
    state_dir = home(tmp_path)
    reference, _ = run(state_dir, LyingGrid(3))
    session, why = run(state_dir, LyingLink(lie), timeout=0.5 if lie is silence else 5.0)
    attempts, theirs = rounds(state_dir, session), rounds(state_dir, reference)
    done = [view for view in attempts if view.state == "committed"]
    if committed is not None:
        assert len(done) == committed
        assert bool(why) == (committed < 4)
    # A round that was lost costs nothing, and one that was committed costs what it costs on an honest link.
    assert all((view.epsilon or 0.0) <= other.epsilon * (1 + 1e-12) for view, other in zip(done, theirs, strict=False))
    assert all(view.state == "void" for view in attempts if view not in done)
    counted = {reason for view in attempts for reason in view.rejects}
    assert counted <= reasons
    assert counted or not reasons or committed is None
    assert bounded


def test_a_link_that_asks_nodes_for_users_of_others_gets_nothing_for_them(tmp_path: Path, bounded: list[float]) -> None:
    """A node trains only whom it hosts, so nobody trains for somebody else."""
    state_dir = home(tmp_path)
    session, _ = run(state_dir, LyingLink(honest, ask_for_users_of_others))
    assert rounds(state_dir, session)
    assert set(bounded) == {0.0}
