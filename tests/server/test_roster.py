"""Waiting for replies."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from fieldfare_server.roster import replies_as_they_come


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
        return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=name))] if name in ids else []


def test_a_reply_that_came_during_a_long_look_is_not_lost() -> None:
    replies = replies_as_they_come(SlowLook(), ["broken", "good", "never"], timeout=0.01)  # type: ignore[arg-type]
    assert [reply.metadata.reply_to_message_id for reply in replies] == ["broken", "good"]
