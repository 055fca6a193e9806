"""Print how many lines of Python each room of the product has, and refuse more of them in all than the table allows.

    python deploy/supply/lines.py            # `make check` does it
    python deploy/supply/lines.py --write    # after lines have fallen: the table follows

`lines.toml` has the lines of each room, rounded up to hundreds, and the most that all may have. Rooms may trade lines.
A higher limit needs one line in CHANGELOG.md that names it and says what it is for: "Lines: 51 300, ...".
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("lines.toml")
PACKAGES = ("shared/fieldfare", "shared/fieldfare_flower", "server/fieldfare_server", "client/fieldfare_client")
ADD_ON = "benchmarks/research/fieldfare_research"
"""Is counted beside the product: no user's wheel has it."""
HEAD = """# Lines of Python in each room of the product, rounded up to hundreds; `lines.py --write` makes it.
# The limit only falls where CHANGELOG.md does not explain it ("Lines: LIMIT, why").

"""


def count(root: Path = ROOT) -> dict[str, int]:
    """Room -> lines of its Python files. A package's own files are a room of the package's name."""
    lines: Counter[str] = Counter()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            inside = path.relative_to(root / package).parts
            room = Path(package).name + (f".{inside[0]}" if len(inside) > 1 else "")
            lines[room] += path.read_bytes().count(b"\n")
    return dict(sorted(lines.items()))


def explained(total: int, changelog: str) -> bool:
    """Whether the changelog's newest section says why there are `total` lines."""
    newest = changelog.split("\n## ", 2)[1]
    spelled = "[ ,]?".join(f"{total:,}".split(","))
    return re.search(rf"Lines: {spelled}\b", newest) is not None


def main(arguments: list[str]) -> int:
    """Print the table; 1 where the sum has risen and nothing explains it."""
    lines = count()
    allowed: dict[str, int] = tomllib.loads(TABLE.read_text())
    most, total = allowed.pop("limit"), sum(lines.values())
    for room in sorted(lines.keys() | allowed.keys()):
        now, before = lines.get(room, 0), allowed.get(room, 0)
        print(f"{room:36} {now:7,} {'above' if now > before else 'within'} {before:,}")
    print(f"{'product':36} {total:7,} of {most:,}")
    beside = sum(path.read_bytes().count(b"\n") for path in (ROOT / ADD_ON).rglob("*.py"))
    print(f"{'beside it, ' + Path(ADD_ON).name:36} {beside:7,}")
    rounded = {room: -(-number // 100) * 100 for room, number in lines.items()}
    limit = max(most, -(-total // 100) * 100)
    if limit > most and not explained(limit, (ROOT / "CHANGELOG.md").read_text()):
        print(
            f"refused: {total:,} lines where {most:,} are allowed; if a capability was added, write into CHANGELOG.md"
        )
        print(f'"Lines: {limit:,}, ..." with the reason, and run lines.py --write')
        return 1
    if "--write" in arguments:
        rooms = "".join(f'"{room}" = {number}\n' for room, number in rounded.items())
        TABLE.write_text(f"{HEAD}limit = {limit}\n\n{rooms}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
