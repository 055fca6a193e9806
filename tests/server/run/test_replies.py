"""Waiting for replies."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError, pull_objects

from fieldfare_flower.waits import shorten_part_waits
from fieldfare_server.run.presence.replies import Receiver


def reply_to(name: str) -> SimpleNamespace:
    return SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name, group_id=""), has_error=lambda: False)


class SlowLook:
    """A grid on which the first look takes longer than the round, and finds one broken reply of two."""

    def __init__(self) -> None:
        self.looks = 0

    def push_messages(self, messages: list[str]) -> list[str]:
        return messages

    def pull_messages(self, ids: list[str]) -> list[Any]:
        self.looks += 1
        if self.looks == 1:
            time.sleep(0.05)
        name = "broken" if self.looks == 1 else "good"
        return [reply_to(name)] if name in ids else []


class BrokenReply:
    """A grid of which one reply's sender died in mid-upload, pulled by Flower's own function, as its grid does."""

    def push_messages(self, messages: list[str]) -> list[str]:
        return messages

    def pull_messages(self, ids: list[str]) -> list[Any]:
        def part(name: str) -> bytes:
            if name == "never":
                raise ObjectUnavailableError(name)
            return b"content"

        answers = []
        for name in ids:
            try:
                pull_objects([name], part)
            except ObjectPullError:
                answers.append(reply_to(f"{name} comes no more"))
            else:
                answers.append(reply_to(name))
        return answers


@pytest.mark.timeout(60)
def test_a_reply_that_broke_off_holds_a_round_no_longer_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = pull_objects.__kwdefaults__
    assert "max_time" in defaults, "Flower has another way to say how long"
    for name, value in defaults.items():  # of the whole process, and rounds of earlier tests have changed them
        monkeypatch.setitem(defaults, name, value)
    monkeypatch.setitem(defaults, "max_time", 3600.0)
    assert shorten_part_waits()
    answers = Receiver().receive(BrokenReply(), ["never", "good"], timeout=0.2)  # type: ignore[arg-type,list-item]
    found = [answer.reply.metadata.reply_to_message_id for answer in answers]
    assert found.count("good") == 1
    assert set(found) == {"good", "never comes no more"}


def test_a_reply_that_came_during_a_long_look_is_not_lost() -> None:
    answers = list(Receiver().receive(SlowLook(), ["broken", "good", "never"], timeout=0.01))  # type: ignore[arg-type,list-item]
    assert [answer.reply.metadata.reply_to_message_id for answer in answers] == ["broken", "good"]
    assert [answer.slot for answer in answers] == [0, 1]


class FailingLink(SlowLook):
    """A SuperLink that answers every other request with an HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status, self.requests = status, 0

    def _fail(self) -> None:
        self.requests += 1
        if self.requests % 2:
            request = httpx.Request("POST", "https://superlink/v1/runtime")
            httpx.Response(self.status, request=request).raise_for_status()

    def push_messages(self, messages: list[str]) -> list[str]:
        self._fail()
        return messages

    def pull_messages(self, ids: list[str]) -> list[Any]:
        self._fail()
        return super().pull_messages(ids)


def test_a_superlink_that_fails_for_a_moment_is_asked_again() -> None:
    """Its database is locked while a node uploads a gigabyte: that ended the run."""
    link = FailingLink(500)
    answers = list(Receiver().receive(link, ["broken", "good"], timeout=60.0))  # type: ignore[arg-type,list-item]
    assert [answer.slot for answer in answers] == [0, 1]
    assert link.requests == 6


def test_instructions_that_cannot_be_sent_cost_the_round_and_not_the_run() -> None:
    class Full(FailingLink):
        def push_messages(self, messages: list[str]) -> list[str]:
            self.requests = 0
            return super().push_messages(messages)

    assert list(Receiver().receive(Full(507), ["good"], timeout=0.1)) == []  # type: ignore[arg-type,list-item]


def test_a_superlink_that_refuses_is_not_asked_again() -> None:
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        list(Receiver().receive(FailingLink(403), ["good"], timeout=60.0))  # type: ignore[arg-type,list-item]
