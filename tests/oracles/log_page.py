"""The members of each event's body, as the tables of docs/log.md name them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "log.md"


def _members() -> Iterator[tuple[str, tuple[set[str], set[str]]]]:
    """(action, the members that its body always has, those that may be left out), by the tables of the page."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        actions, said = [*line.split("|"), "", ""][1:3]
        always, _, sometimes = said.partition("[")
        for action in re.findall(r"`(\w+\.\w+)`", actions):
            yield action, (set(re.findall(r"`(\w+)`", always)), set(re.findall(r"`(\w+)`", sometimes)))


MEMBERS = dict(_members())
