"""The walks in docs/one-*.md name files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STEP = re.compile(r"`((?:fieldfare\w*/)?[\w/]+\.py)`((?:, `[\w.]+`|,? and `[\w.]+`)*)")


@pytest.mark.parametrize("walk", sorted((ROOT / "docs").glob("one-*.md")), ids=lambda path: path.stem)
def test_a_walk_names_what_exists(walk: Path) -> None:
    steps = [match.groups() for match in STEP.finditer(walk.read_text())]
    assert len(steps) >= 9
    for path, names in steps:
        places = [ROOT / path, ROOT / "shared" / path, ROOT / "server/fieldfare_server" / path]
        [file] = [place for place in places if place.is_file()]
        source = file.read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            for part in name.split("."):
                assert re.search(rf"^\s*(async def|def|class) {part}\b", source, re.MULTILINE), (path, name)
