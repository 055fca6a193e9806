"""The SuperNode's waits are shortened where Flower is what it was written for, and left alone elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable import inflatable_utils
from flwr.supernode import fleet_http_connection, start_client_internal

from fieldfare_flower import supernode
from fieldfare_flower.supernode import FIRST_LOOK, LAST_LOOK, REPLY_LOOK, Pace, keep_beating, keep_in_step, quicken
from fieldfare_flower.waits import FIRST_WAIT, LONGEST_WAIT, give_up_after, look_sooner


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(supernode.time, "sleep", seconds.append)
    return seconds


def test_a_node_without_work_keeps_flowers_pace(slept: list[float]) -> None:
    pace = Pace()
    for _ in range(5):
        pace.sleep(3)
    assert slept == [LAST_LOOK] * 5 == [3.0] * 5


def test_after_work_a_node_looks_soon_and_then_ever_later(slept: list[float]) -> None:
    pace = Pace()
    pace.sleep(0.5)
    for _ in range(40):
        pace.sleep(3)
    assert slept[:2] == [REPLY_LOOK, FIRST_LOOK]
    assert slept[1:] == sorted(slept[1:])
    assert max(slept) == LAST_LOOK
    # What the SuperLink has to bear: each look is a write to its database.
    looks = [sum(slept[1 : n + 1]) for n in range(1, 41)]
    assert sum(at < 10.0 for at in looks) <= 11


def test_the_installed_flower_is_quickened_in_this_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_client_internal, "time", time)
    assert quicken(start_client_internal)
    assert isinstance(start_client_internal.time, Pace)
    assert not quicken(start_client_internal)


def test_an_unknown_loop_is_left_alone() -> None:
    loop = ModuleType("loop")
    assert not quicken(loop)
    assert not hasattr(loop, "time")


@pytest.mark.parametrize("name", ["pull_objects", "pull_and_inflate_object_from_tree"])
def test_the_installed_flower_looks_sooner_for_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pull = getattr(inflatable_utils, name)
    monkeypatch.setitem(pull.__kwdefaults__, "initial_backoff", 1)
    monkeypatch.setitem(pull.__kwdefaults__, "backoff_cap", 10)
    for _ in range(2):
        assert look_sooner(pull)
        assert pull.__kwdefaults__["initial_backoff"] == FIRST_WAIT
        assert pull.__kwdefaults__["backoff_cap"] == LONGEST_WAIT


def test_the_installed_flower_gives_up_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inflatable_utils.pull_objects.__kwdefaults__, "max_time", 7200)
    assert give_up_after(inflatable_utils.pull_objects, 3.5)
    assert inflatable_utils.pull_objects.__kwdefaults__["max_time"] == 3.5
    assert not give_up_after(lambda: None, 3.5)


def test_another_function_is_left_alone() -> None:
    def pull(*, patience: float = 1.0, initial_backoff: str = "long") -> None: ...

    before = dict(pull.__kwdefaults__ or {})
    assert not look_sooner(pull)
    assert pull.__kwdefaults__ == before
    assert not look_sooner(lambda: None)


def test_a_reply_too_many_does_not_put_the_loop_out_of_step() -> None:
    inbox, ready, sent = ["first", "second"], [["stale"], ["first"], ["second"]], []

    def pull(*, receive: Callable[[], Any]) -> None:
        receive()

    def push(*, send: Callable[..., Any]) -> None:
        for answered in ready.pop(0):
            send(SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=answered)))

    loop = ModuleType("loop")
    loop._pull_and_store_message, loop._push_messages = pull, push  # type: ignore[attr-defined]
    assert keep_in_step(loop)
    for message in inbox:
        loop._pull_and_store_message(
            receive=lambda m=message: (SimpleNamespace(metadata=SimpleNamespace(message_id=m)),)
        )
        loop._push_messages(send=lambda reply: sent.append(reply.metadata.reply_to_message_id))
        assert sent[-1] == message
    assert not keep_in_step(ModuleType("another"))


@pytest.fixture
def beats() -> Callable[[Exception], Any]:
    """A heartbeat that raises, as Flower's sender would call it."""
    connection = ModuleType("connection")
    connection.httpx, connection.HeartbeatSender = httpx, lambda beat: beat  # type: ignore[attr-defined]
    assert keep_beating(connection)

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


@pytest.mark.parametrize("error", [status(412), RuntimeError("not recognised")])
def test_a_node_that_cannot_beat_any_more_ends(beats: Callable[[Exception], Any], error: Exception) -> None:
    with pytest.raises(KeyboardInterrupt):
        beats(error)


def test_the_installed_flower_goes_on_beating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_http_connection, "HeartbeatSender", HeartbeatSender)
    answers: list[Any] = [status(500), True]

    def beat() -> bool:
        answer = answers.pop(0) if answers else True
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    assert keep_beating(fleet_http_connection)
    made = fleet_http_connection.HeartbeatSender(beat)
    assert isinstance(made, HeartbeatSender)
    assert made.heartbeat_fn() is False
    assert made.heartbeat_fn() is True
    assert not keep_beating(ModuleType("another"))
