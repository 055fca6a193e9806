"""Run pytest twice at the same time, each on half of the folders: `make test`.

    python tests/halves.py [arguments of pytest]

Two processes that collect a half each take half of the processor time that two workers take which collect everything.
`suite.toml` says what the first half is; the second is the rest. Prints the first as it runs and the second at its end.
"""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
NOTHING = 5
"""pytest's status where there was nothing to run."""


def halves() -> tuple[list[str], list[str]]:
    """The two lists of folders and files: together they are all of `tests`, each once."""
    first: list[str] = tomllib.loads((HERE / "suite.toml").read_text())["first"]
    places = {place for place in HERE.iterdir() if place.is_dir() or place.name.startswith("test_")}
    places |= {place for place in (HERE / "server").iterdir() if place.is_dir()}
    places -= {HERE / "server"}
    names = {str(place.relative_to(HERE)) for place in places if place.suffix == ".py" or any(place.rglob("test_*.py"))}
    if unknown := set(first) - names:
        raise SystemExit(f"suite.toml: no such folders of tests: {sorted(unknown)}")
    return sorted(first), sorted(names - set(first))


def main(arguments: list[str]) -> int:
    """Exit status: 0 where both halves passed."""
    began = time.monotonic()
    commands = [
        [sys.executable, "-m", "pytest", "-rsfE", *arguments, *(str(HERE / place) for place in places)]
        for places in halves()
    ]
    with subprocess.Popen(commands[1], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as second:
        first = subprocess.run(commands[0], check=False).returncode
        told, _ = second.communicate()
    print(told, end="")
    print(f"both halves took {time.monotonic() - began:.0f} s")
    return int(not {first, second.returncode} <= {0, NOTHING})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
