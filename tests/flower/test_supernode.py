"""The SuperNode is repaired where Flower is what the repairs were written for, and left alone elsewhere."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

from fieldfare_flower import private, supernode
from fieldfare_flower.local_grid import assume_task_identity, deliver
from fieldfare_flower.supernode import (
    FIRST_POLL,
    LAST_POLL,
    REPLY_POLL,
    FastTime,
    answer_before_pull,
    answer_here,
    patch_poll_interval,
    survive_http_500,
)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(supernode.time, "sleep", seconds.append)
    return seconds


def test_a_node_without_work_keeps_flowers_pace(slept: list[float]) -> None:
    pace = FastTime()
    for _ in range(5):
        pace.sleep(3)
    assert slept == [LAST_POLL] * 5 == [3.0] * 5


def test_after_work_a_node_polls_soon_and_then_ever_later(slept: list[float]) -> None:
    pace = FastTime()
    pace.sleep(0.5)
    for _ in range(40):
        pace.sleep(3)
    assert slept[:2] == [REPLY_POLL, FIRST_POLL]
    assert slept[1:] == sorted(slept[1:])
    assert max(slept) == LAST_POLL
    # What it costs the SuperLink: each poll is a write to its database.
    polls = [sum(slept[1 : n + 1]) for n in range(1, 41)]
    assert sum(at < 10.0 for at in polls) <= 11


def test_the_installed_flower_polls_sooner_in_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_client_internal, "time", time)
    assert patch_poll_interval(start_client_internal)
    assert isinstance(start_client_internal.time, FastTime)
    assert not patch_poll_interval(start_client_internal)


def test_an_unknown_loop_is_left_alone() -> None:
    loop = ModuleType("loop")
    assert not patch_poll_interval(loop)
    assert not hasattr(loop, "time")


def test_a_reply_too_many_does_not_put_the_loop_out_of_step() -> None:
    inbox, ready, sent = ["first", "second"], [["stale"], ["first"], ["second"]], []

    def pull(*, receive: Callable[[], Any]) -> None:
        receive()

    def push(*, send: Callable[..., Any]) -> None:
        for answered in ready.pop(0):
            send(SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=answered)))

    loop = ModuleType("loop")
    loop._pull_and_store_message, loop._push_messages = pull, push  # type: ignore[attr-defined]
    assert answer_before_pull(loop)
    for message in inbox:
        loop._pull_and_store_message(
            receive=lambda m=message: (SimpleNamespace(metadata=SimpleNamespace(message_id=m)),)
        )
        loop._push_messages(send=lambda reply: sent.append(reply.metadata.reply_to_message_id))
        assert sent[-1] == message
    assert not answer_before_pull(ModuleType("another"))


@pytest.fixture
def beats() -> Callable[[Exception], Any]:
    """A heartbeat that raises, as Flower's sender would call it."""
    connection = ModuleType("connection")
    connection.httpx, connection.HeartbeatSender = httpx, lambda beat: beat  # type: ignore[attr-defined]
    assert survive_http_500(connection)

    def beat(error: Exception) -> Any:
        def raises() -> bool:
            raise error

        return connection.HeartbeatSender(raises)()

    return beat


def status(code: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "https://gate:8000/")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(code, request=request))


def test_a_superlink_in_trouble_is_asked_again(beats: Callable[[Exception], Any]) -> None:
    assert beats(status(500)) is False
    assert beats(status(507)) is False


def test_a_node_that_answers_by_itself_fetches_and_starts_no_app(caplog: pytest.LogCaptureFixture) -> None:
    """Every message is answered; what is no message costs itself; a Flower that works otherwise is refused."""
    state = InMemoryNodeState(ObjectStoreFactory().store())
    assume_task_identity()
    question, stored = deliver(Message(RecordDict({"a": ConfigRecord({"b": 1})}), 2, "query.masks")), list[Message]()
    loop = ModuleType("loop")
    with pytest.raises(private.FlowerDiffers):
        answer_here(loop, lambda message: message)
    loop._pull_and_store_message = lambda **_: pytest.fail("an app is fetched")  # type: ignore[attr-defined]
    loop._insert_message = lambda message, state, store: stored.append(message)  # type: ignore[attr-defined]
    loop.RunNotRunningException = RuntimeError  # type: ignore[attr-defined]
    answer_here(loop, lambda message: Message(message.content, reply_to=message))
    objects = {key: each.deflate() for key, each in get_all_nested_objects(question).items()}
    confirmed: list[str] = []

    def pull(received: Any) -> Any:
        return loop._pull_and_store_message(
            state=state,
            object_store="store",
            receive=lambda: received,
            pull_object=lambda run, known: objects[known],
            confirm_message_received=lambda run, known: confirmed.append(known),
            node_config={},
            get_fab=lambda *_: pytest.fail("code is fetched"),
        )

    assert pull(None) is None
    tree = get_object_tree(question)
    assert pull((question, tree)) == question.metadata.run_id
    assert confirmed
    assert [dict(reply.content["a"]) for reply in stored] == [{"b": 1}]
    assert stored[0].metadata.reply_to_message_id == question.metadata.message_id
    # Flower's loop asks for it before it sends the answer, and logs an error where it does not know the app's start.
    assert state.get_message_processing_duration(message_id=question.metadata.message_id) == 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    objects.clear()
    assert pull((question, tree)) is None
    assert len(stored) == 1


ENDED = """
import threading, time
from fieldfare_flower import private, supernode
private.load_program = lambda name: threading.Thread(target=time.sleep, args=(3600,)).start
supernode.main()
"""


def test_the_process_of_a_node_ends_with_its_loop_whatever_its_servers_do() -> None:
    ended = subprocess.run([sys.executable, "-Pc", ENDED], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert "asks for no more messages" in ended.stderr


@pytest.mark.parametrize("error", [status(412), RuntimeError("not recognised")])
def test_a_node_that_can_send_no_more_heartbeats_ends(beats: Callable[[Exception], Any], error: Exception) -> None:
    # A SuperNode has Flower's own handler. Python's is not there where a shell started the tests in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            beats(error)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_installed_flower_goes_on_sending_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_http_connection, "HeartbeatSender", HeartbeatSender)
    answers: list[Any] = [status(500), True]

    def beat() -> bool:
        answer = answers.pop(0) if answers else True
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    assert survive_http_500(fleet_http_connection)
    made = fleet_http_connection.HeartbeatSender(beat)
    assert isinstance(made, HeartbeatSender)
    assert made.heartbeat_fn() is False
    assert made.heartbeat_fn() is True
    assert not survive_http_500(ModuleType("another"))


def test_a_flower_without_any_of_these_names_runs_as_it_is_with_one_warning(
    remove: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []

    def program() -> None:
        ran.append("flower-supernode")
        raise SystemExit

    remove("flwr.supernode.start_client_internal", "flwr.supernode.fleet_http_connection:HeartbeatSender")
    remove("flwr.supernode.fleet_http_client:FleetHttpClient")
    monkeypatch.setattr(private, "load_program", {"flower-supernode": program}.get)
    monkeypatch.setattr(supernode.logs, "configure", lambda level: None)
    monkeypatch.setattr(supernode, "shorten_part_waits", lambda: True)
    with caplog.at_level(logging.WARNING), pytest.raises(SystemExit):
        supernode.main()
    assert ran == ["flower-supernode"]
    (warning,) = caplog.records
    assert warning.getMessage().startswith(f"{private.LACKS}: ")
    assert len(warning.getMessage().split(";")) == 4
