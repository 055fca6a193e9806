"""A SuperLink that fails for a moment ends no task, no node and no look. On Flower's own clients, without a wire."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    GetNodesResponse,
    PullAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
    SendTaskHeartbeatResponse,
)
from flwr.supercore import heartbeat, logger
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.superlink.grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient

from fieldfare_flower import private, server_errors
from fieldfare_flower.server_errors import ask_again, outlast_server_errors, outlasted, repeat_requests_of_nodes

Answers = list[int | bytes]
"""Statuses of errors, and bodies of answers."""


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    """What the SuperLink answers, in order; an empty message after the last. No request leaves this process."""
    left: Answers = []

    def handle(request: httpx.Request) -> httpx.Response:
        answer = left.pop(0) if left else b""
        return httpx.Response(answer) if isinstance(answer, int) else httpx.Response(200, content=answer)

    client = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **rest: client(transport=httpx.MockTransport(handle)))
    monkeypatch.setattr(server_errors, "FIRST_PAUSE", 0.001)
    private.warn.cache_clear()
    yield left
    private.warn.cache_clear()


@pytest.fixture
def grid(answers: Answers) -> HttpGrid:
    grid = HttpGrid("127.0.0.1:1", insecure=True, token="token")
    assert outlast_server_errors(grid)
    return grid


@pytest.mark.parametrize("repaired", [True, False])
def test_the_tasks_heartbeats_go_on_after_an_error_that_would_end_them(
    repaired: bool, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SuperLink takes a task without heartbeats for dead after a minute, and so a run lost its ServerApp."""
    grid, beaten, died = HttpGrid("127.0.0.1:1", insecure=True, token="token"), threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: died.set())
    monkeypatch.setattr(heartbeat, "exponential", lambda max_delay: iter([0.001] * 10))
    if repaired:
        assert outlast_server_errors(grid)
    answers += [500, 507, SendTaskHeartbeatResponse(success=True).SerializeToString()]
    beat = make_task_heartbeat_fn_http(grid._runtime_client)

    def beat_and_note() -> bool:
        succeeded = beat()
        if succeeded:
            beaten.set()
        return succeeded

    sender = HeartbeatSender(beat_and_note)
    sender.start()
    # Without the repair the thread ends at the first answer, which is what the repair is for.
    assert (beaten if repaired else died).wait(60)
    assert answers == ([] if repaired else answers[-2:])
    assert beaten.is_set() == repaired
    if repaired:
        sender.stop()
    assert died.is_set() != repaired


def test_a_heartbeat_that_is_refused_is_not_repeated(grid: HttpGrid, answers: Answers) -> None:
    answers += [404]
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        make_task_heartbeat_fn_http(grid._runtime_client)()


def test_one_part_that_cannot_be_pulled_for_a_moment_loses_no_reply(grid: HttpGrid, answers: Answers) -> None:
    answers += [500, 500, PullObjectResponse(object_found=True, object_content=b"part").SerializeToString()]
    found = grid._runtime_client.PullObject(PullObjectRequest(node=Node(node_id=1), run_id=1, object_id="a"))
    assert found.object_content == b"part"


def test_nodes_are_listed_after_a_moment(grid: HttpGrid, answers: Answers) -> None:
    answers += [500, GetNodesResponse().SerializeToString()]
    assert list(grid.get_nodes()) == []
    assert answers == []


def test_a_part_is_given_up_in_time(grid: HttpGrid, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that always fails holds a round up for `PATIENCE` and no longer."""
    now = SimpleNamespace(at=0.0)
    monkeypatch.setattr(server_errors.time, "monotonic", lambda: now.at)
    monkeypatch.setattr(server_errors.time, "sleep", lambda seconds: setattr(now, "at", now.at + seconds))
    answers += [500] * 1000
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        grid._runtime_client.PullObject(PullObjectRequest(object_id="a"))
    assert server_errors.PATIENCE - server_errors.LONGEST_PAUSE <= now.at <= server_errors.PATIENCE
    assert len(answers) > 970


def test_whole_looks_are_not_repeated_here(grid: HttpGrid, answers: Answers) -> None:
    """Their callers repeat them, and keep the run's lease meanwhile."""
    answers += [500, b""]
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        grid._runtime_client.PullMessages(PullAppMessagesRequest())
    assert answers == [b""]


def test_the_log_goes_on_after_an_error_that_would_end_it(grid: HttpGrid, answers: Answers) -> None:
    answers += [500, b""]
    lines: queue.Queue[str | None] = queue.Queue()
    lines.put("a line")
    uploader = logger.start_log_uploader(lines, 0, 1, grid._runtime_client)
    deadline = time.monotonic() + 60
    while answers and time.monotonic() < deadline:
        time.sleep(0.01)
    logger.stop_log_uploader(lines, uploader, timeout=60)
    assert answers == []


def test_twice_is_once(grid: HttpGrid) -> None:
    ask = grid._runtime_client._unary_unary
    assert outlast_server_errors(grid)
    assert grid._runtime_client._unary_unary is ask


def test_grids_without_a_superlink_and_other_flowers_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    private.warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert not outlast_server_errors(SimpleNamespace())
        assert not caplog.records
        other = type("HttpGrid", (), {"_runtime_client": SimpleNamespace()})
        assert not outlast_server_errors(other())
    (warning,) = caplog.records
    assert warning.getMessage().startswith(private.LACKS)
    private.warn.cache_clear()


def test_a_node_repeats_its_requests_and_leaves_heartbeats_to_their_sender(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Client(FleetHttpClient):
        """So that the installed class stays as it is."""

    assert repeat_requests_of_nodes(Client)
    client = Client("http://127.0.0.1:1")
    answers += [500, 500, b""]
    client.PullMessages(SendTaskHeartbeatRequest())  # type: ignore[arg-type]
    assert answers == []
    answers += [500, b""]
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        client.SendNodeHeartbeat(SendTaskHeartbeatRequest())  # type: ignore[arg-type]
    answers[:] = [403, b""]
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        client.PushMessages(PushTaskOutputRequest())  # type: ignore[arg-type]
    assert answers == [b""]
    assert not repeat_requests_of_nodes(None)
    assert not repeat_requests_of_nodes(SimpleNamespace)


def failing(statuses: Answers) -> Callable[[], Any]:
    def ask() -> str:
        if statuses:
            status = statuses.pop(0)
            assert isinstance(status, int)
            httpx.Response(status, request=httpx.Request("POST", "https://superlink")).raise_for_status()
        return "asked"

    return ask


def test_only_errors_of_the_server_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_errors, "FIRST_PAUSE", 0.001)
    assert ask_again(failing([500, 503]), 60.0) == "asked"
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        ask_again(failing([500, 404]), 60.0)
    with pytest.raises(ZeroDivisionError), outlasted("nothing"):
        1 / 0
    with pytest.raises(httpx.HTTPStatusError, match="404"), outlasted("nothing"):
        failing([404])()
    with outlasted("it is asked later"):
        failing([500])()
