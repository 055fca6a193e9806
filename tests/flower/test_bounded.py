"""Replies are pulled up to a size, decoded one by one, and confirmed; on Flower's own grid, without a SuperLink."""

from __future__ import annotations

import json
import logging
import sys
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.superlink.grid import HttpGrid, http_grid

from fieldfare_flower import bounded, private, waits
from fieldfare_flower.bounded import SCHEMA, SIZE, ReplyLimit, limit_replies, refusal
from fieldfare_flower.local_grid import assume_task_identity
from fieldfare_server.run.presence.replies import Receiver, ReplySlots

LIMIT = ReplyLimit(100_000, 2)
Craft = Callable[[str, bytes], bytes]
"""(class of a part, its bytes) -> the bytes that are sent."""


def leave(kind: str, part: bytes) -> bytes:
    return part


class Link:
    """What a SuperLink holds for a run: replies and their parts, as a node has sent them. Delivers each once."""

    def __init__(self) -> None:
        self.replies: dict[str, tuple[Any, Any]] = {}
        """Message that is answered -> reply without content, tree of its parts."""
        self.parts: dict[str, bytes] = {}
        self.pulled: list[str] = []
        self.confirmed: list[str] = []
        self._client = httpx.Client()

    def add(
        self, name: str, content: RecordDict, craft: Callable[[str, bytes], bytes] = lambda kind, part: part
    ) -> None:
        """The reply to the message `name`. craft: (class of a part, its bytes) -> the bytes that are sent."""
        reply = Message(content, 2, "train")
        reply.metadata.__dict__["_reply_to_message_id"] = name
        objects = get_all_nested_objects(reply)
        self.parts.update({key: craft(type(part).__name__, part.deflate()) for key, part in objects.items()})
        reply.metadata.__dict__["_message_id"] = reply.object_id
        self.replies[name] = message_to_proto(reply), get_object_tree(reply)

    def PullMessages(self, request: Any) -> Any:
        found = [self.replies.pop(name) for name in list(request.message_ids) if name in self.replies]
        return SimpleNamespace(
            messages_list=[proto for proto, _ in found], message_object_trees=[tree for _, tree in found]
        )

    def PullObject(self, request: Any) -> Any:
        self.pulled.append(request.object_id)
        content = self.parts.get(request.object_id)
        if content == b"broken":
            raise httpx.ReadError("gone")
        return SimpleNamespace(object_found=content is not None, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.confirmed.append(request.message_object_id)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    assume_task_identity()
    link = Link()
    for name in ("pull_objects", "inflate_object_from_contents"):
        monkeypatch.setattr(http_grid, name, getattr(http_grid, name))
    monkeypatch.setattr(HttpGrid, "_runtime_client", link)
    monkeypatch.setattr(bounded, "_limits", {})
    private.warn.cache_clear()
    return link


@pytest.fixture
def grid(link: Link) -> HttpGrid:
    grid = HttpGrid("127.0.0.1:1", insecure=True, token="token")
    grid._run = SimpleNamespace(run_id=7)  # type: ignore[assignment]
    assert limit_replies(grid, LIMIT)
    return grid


def honest(values: int = 1000) -> RecordDict:
    arrays = ArrayRecord({"w": Array(np.arange(values, dtype=np.float32)), "b": Array(np.full(3, values, np.float32))})
    return RecordDict(
        {"arrays": arrays, "metrics": MetricRecord({"users": values}), "config": ConfigRecord({"a": values})}
    )


def body(kind: str, change: Callable[[bytes], bytes]) -> Craft:
    """Changes what parts of a class say after their head."""

    def craft(name: str, part: bytes) -> bytes:
        head, _, text = part.partition(b"\0")
        words = head.split(b" ")
        text = change(text) if name == kind else text
        return b" ".join([*words[:2], str(len(text)).encode()]) + b"\0" + text

    return craft


def chunks(ids: list[int]) -> Craft:
    return body("Array", lambda text: json.dumps({**json.loads(text), "arraychunk_ids": ids}).encode())


def look(grid: HttpGrid, *names: str) -> dict[str, str | None]:
    """Message -> why its reply was not taken; None: it was."""
    slots = ReplySlots(names)
    receiver = Receiver()
    receiver.limit(grid, LIMIT)
    answers = list(receiver.look(grid, slots))
    return {names[a.slot]: a.reason if a.reply is None else None for a in answers if a.slot is not None}


def test_honest_replies_are_taken_whole_and_confirmed(grid: HttpGrid, link: Link) -> None:
    link.add("a", honest())
    link.add("b", honest(5))
    replies = list(grid.pull_messages(["a", "b"]))
    assert [refusal(reply) for reply in replies] == ["", ""]
    np.testing.assert_array_equal(replies[0].content.array_records["arrays"]["w"].numpy(), np.arange(1000))
    assert replies[1].content.metric_records["metrics"]["users"] == 5
    assert link.confirmed == [reply.metadata.message_id for reply in replies]


CRAFTED = {
    "another chunk": (chunks([7]), SCHEMA),
    "a chunk of no number": (body("Array", lambda text: text.replace(b"[0]", b'["0"]')), SCHEMA),
    "an array of nonsense": (body("Array", lambda text: b"[" * 100_000), SCHEMA),
    "a record of nonsense": (body("ArrayRecord", lambda text: b"\xff" + text), SCHEMA),
    "metrics of nonsense": (body("MetricRecord", lambda text: b"\xff" * 20), SCHEMA),
    "a message of nonsense": (body("Message", lambda text: b"\xff" * 20), SCHEMA),
    "not a message": (lambda kind, part: part.replace(b"Message", b"RecordDict", 1), SCHEMA),
    "no head": (lambda kind, part: b"x", SCHEMA),
    "large metrics": (body("MetricRecord", lambda text: bytes(5 << 20)), SIZE),
    "a large part": (body("ArrayChunk", lambda text: bytes(6 << 20)), SIZE),
}


@pytest.mark.parametrize("lie", CRAFTED)
def test_a_crafted_reply_costs_itself_and_no_other(lie: str, grid: HttpGrid, link: Link) -> None:
    """Flower raises while it decodes one reply, and the SuperLink delivers none of that look again."""
    craft, reason = CRAFTED[lie]
    link.add("first", honest())
    link.add("liar", honest(77), craft)
    link.add("last", honest(5))
    assert look(grid, "first", "liar", "last") == {"first": None, "liar": reason, "last": None}
    assert len(set(link.confirmed)) == 3, "the SuperLink deletes what is confirmed"


@pytest.mark.timeout(60)
def test_a_chunk_that_an_array_repeats_costs_no_memory(grid: HttpGrid, link: Link) -> None:
    """80 kB that become 400 MB."""
    link.add("liar", honest(20_000), chunks([0] * 5000))
    tracemalloc.start()
    try:
        assert look(grid, "liar") == {"liar": SIZE}
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_zeros_may_share_a_chunk(grid: HttpGrid, link: Link) -> None:
    link.add("a", RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(100, np.float32))})}), chunks([0, 0]))
    (reply,) = grid.pull_messages(["a"])
    assert len(reply.content.array_records["arrays"]["w"].data) == 2 * (128 + 400)


def test_no_more_is_pulled_than_may_be_sent(grid: HttpGrid, link: Link) -> None:
    many = RecordDict({f"{index}": MetricRecord({"a": index}) for index in range(LIMIT.parts)})
    link.add("many", many)
    assert look(grid, "many") == {"many": SIZE}
    assert link.pulled == []
    arrays = ArrayRecord({f"{index}": Array(np.full(1 << 18, index, np.float32)) for index in range(30)})
    link.add("large", RecordDict({"arrays": arrays}))
    assert look(grid, "large") == {"large": SIZE}
    assert sum(len(link.parts[part]) for part in link.pulled) < LIMIT.most + (8 << 20)


def response(path: str, length: int) -> httpx.Response:
    headers = {"content-length": str(length)}
    return httpx.Response(200, headers=headers, request=httpx.Request("POST", f"http://link/v1/runtime/{path}"))


@pytest.mark.parametrize("parts", [1, 8])
def test_a_part_that_says_it_is_too_large_is_not_read(
    parts: int, grid: HttpGrid, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor parts that are too large together: several are pulled at once, and each would be read whole."""
    (watch,) = link._client.event_hooks["response"]
    assert limit_replies(grid, LIMIT)
    assert len(link._client.event_hooks["response"]) == 1, "one watches, however often the limit changes"
    pull, read = link.PullObject, []

    def pull_watched(request: Any) -> Any:
        pulled = pull(request)
        size = len(pulled.object_content)
        watch(response("pull-object", size))
        read.append(size)
        return pulled

    monkeypatch.setattr(link, "PullObject", pull_watched)
    content = honest()
    large = [Array(np.full(6 * LIMIT.most // (10 if parts > 1 else 5), n, np.uint8)) for n in range(parts)]
    content["more"] = ArrayRecord({str(n): array for n, array in enumerate(large)})
    patch_chunks(monkeypatch, 2 * LIMIT.most)
    link.add("large", content)
    assert look(grid, "large") == {"large": SIZE}
    assert sum(read) <= LIMIT.most
    link.add("honest", honest())
    assert look(grid, "honest") == {"honest": None}
    watch(response("get-nodes", 10**9))  # only what nodes send has a limit


def test_replies_whose_heads_are_too_large_together_are_pulled_one_by_one(
    grid: HttpGrid, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error with a long reason has no part: it comes with the list of all replies that are there."""
    (watch,) = link._client.event_hooks["response"]
    pull = link.PullMessages
    sizes = {"honest": 1000, "liar": bounded.LOOK_BYTES + 1}

    def pull_watched(request: Any) -> Any:
        watch(response("pull-messages", sum(sizes[name] for name in request.message_ids)))
        return pull(request)

    monkeypatch.setattr(link, "PullMessages", pull_watched)
    for name in sizes:
        link.add(name, honest(len(name)))
    receiver, slots = Receiver(), ReplySlots(list(sizes))
    receiver.limit(grid, LIMIT)
    answers = list(receiver.look(grid, slots))
    assert {answer.slot: answer.reply is not None for answer in answers} == {0: True, 1: False}


def patch_chunks(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let arrays travel in parts of `size` bytes."""
    monkeypatch.setattr(sys.modules[Array.__module__], "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", size)


def test_replies_that_break_off_are_waited_for_together(
    grid: HttpGrid, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty uploads that stop half-way cost a round its timeout once, and not thirty times."""
    clock, waited = SimpleNamespace(now=100.0), []
    monkeypatch.setattr(waits.time, "monotonic", lambda: clock.now)

    def wait_for_parts(ids: list[str], pull_one: Any, *, max_time: float) -> dict[str, bytes]:
        waited.append(max_time)
        clock.now += max_time
        raise http_grid.ObjectPullError(ids[-1], "timeout")

    monkeypatch.setattr(http_grid, "pull_objects", wait_for_parts)
    monkeypatch.setattr(bounded, "_limits", {})
    assert limit_replies(grid, LIMIT)
    names = [f"stalled-{number}" for number in range(30)]
    for number, name in enumerate(names):
        link.add(name, honest(number + 1))
    waits.limit_part_waits(60.0)
    assert [reply.error.code for reply in grid.pull_messages(names)] == [3] * 30
    assert waited == [60.0] + [0.0] * 29


def test_what_is_not_the_nodes_fault_is_raised_or_said_as_before(grid: HttpGrid, link: Link) -> None:
    link.add("missing", honest())
    link.parts.clear()
    (reply,) = grid.pull_messages(["missing"])
    assert reply.error.code == 3
    assert refusal(reply) == ""
    link.add("broken", honest(), lambda kind, part: b"broken")
    with pytest.raises(httpx.ReadError):
        list(grid.pull_messages(["broken"]))
    assert link.confirmed == []


def test_no_node_can_say_that_it_was_refused() -> None:
    assume_task_identity()
    question = Message(RecordDict(), 2, "train")
    question.metadata.__dict__["_message_id"] = "0" * 64
    assert refusal(Message(Error(3, f"{SIZE} {SCHEMA}"), reply_to=question)) == ""
    assert refusal(Message(Error(3, f"{bounded._MARK}{SIZE}"), reply_to=question)) == SIZE


@pytest.mark.parametrize(
    ("limit", "together"),
    # Of 1e7 floats each is as large as the model that it changes: a round holds one. Small ones come as one look.
    [(ReplyLimit(80 << 20, 1), [1] * 5), (ReplyLimit(60 << 20, 2), [2, 2, 1]), (ReplyLimit(8 << 20), [5])],
)
def test_large_replies_are_pulled_a_few_at_a_time(
    grid: HttpGrid, link: Link, monkeypatch: pytest.MonkeyPatch, limit: ReplyLimit, together: list[int]
) -> None:
    asked: list[int] = []
    pull = link.PullMessages
    monkeypatch.setattr(link, "PullMessages", lambda request: asked.append(len(request.message_ids)) or pull(request))
    for name in "abcde":
        link.add(name, honest())
    receiver = Receiver()
    receiver.limit(grid, limit)
    assert [answer.slot for answer in receiver.look(grid, ReplySlots("abcde"))] == [0, 1, 2, 3, 4]
    assert asked == together


@pytest.mark.parametrize(
    "missing",
    [
        "flwr.supercore.inflatable.inflatable_utils:ObjectPullError",
        "flwr.supercore.inflatable.inflatable_object:get_object_head_values_from_object_content",
    ],
)
def test_a_flower_without_these_functions_is_left_alone_with_one_warning(
    missing: str, link: Link, remove: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    grid, pull = HttpGrid("127.0.0.1:1", insecure=True, token="token"), http_grid.pull_objects
    remove(missing)
    with caplog.at_level(logging.WARNING):
        assert not limit_replies(grid, LIMIT)
        assert not limit_replies(grid, LIMIT)
    assert http_grid.pull_objects is pull
    assert [record.args[1] for record in caplog.records] == [  # type: ignore[index]
        "a reply may have any size, and one that cannot be decoded loses others"
    ]


def test_grids_of_this_process_have_no_limit() -> None:
    class Local:
        """A grid without a wire."""

    assert not limit_replies(Local(), LIMIT)  # type: ignore[arg-type]
