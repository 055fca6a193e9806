"""The name of the adjacency that hides presence stands in few places; everybody else asks `hides_presence`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from fieldfare.participation import PRESENCE, Adjacency, hides_presence

ROOT = Path(__file__).parents[2]
MOST_FILES = 12
"""The rule, the plan and its schema, the charge's theorems, words for people, and what is never edited (migrations)."""


def test_one_adjacency_hides_presence() -> None:
    assert [name for name in get_args(Adjacency) if hides_presence(name)] == [PRESENCE]


def test_few_files_know_its_name() -> None:
    """Fifty did, and each decided for itself what may be counted."""
    rooms = [ROOT / room for room in ("shared", "server", "client")]
    files = [path for room in rooms for ending in ("py", "js", "html") for path in room.rglob(f"*.{ending}")]
    knowing = [path for path in files if PRESENCE in path.read_text(encoding="utf-8")]
    assert len(files) > 300
    assert len(knowing) <= MOST_FILES, sorted(str(path.relative_to(ROOT)) for path in knowing)
