"""The walks in docs/walks.md name files and functions that exist; so do the map and the commands in CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEP = re.compile(r"`((?:fieldfare\w*/)?[\w/]+\.py)`((?:, `[\w.]+`|,? and `[\w.]+`)*)")


PLACES = (ROOT, ROOT / "shared", ROOT / "shared/fieldfare", ROOT / "server/fieldfare_server")


def require_existing(text: str, at_least: int) -> None:
    """Every file that the text names exists once, and has the functions and classes that follow it."""
    steps = [match.groups() for match in STEP.finditer(text)]
    assert len(steps) >= at_least
    for path, names in steps:
        [file] = [place / path for place in PLACES if (place / path).is_file()]
        source = file.read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            for part in name.split("."):
                assert re.search(rf"^\s*(async def|def|class) {part}\b", source, re.MULTILINE), (path, name)


def test_the_walks_name_what_exists() -> None:
    require_existing((ROOT / "docs/walks.md").read_text(), at_least=18)


def test_the_map_names_what_exists() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| (Where|Who|What|How)\b.*\?", line)]
    assert len(rows) >= 10
    for row in rows:
        require_existing(row, at_least=1)
        assert all(names for _, names in STEP.findall(row)), row


def test_the_commands_are_targets_of_the_makefile() -> None:
    commands = re.findall(r"^\| `make ([\w-]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert len(commands) >= 10
    assert set(commands) <= targets
