"""Coverage-guided fuzzing of everything that reads what a node sends: `make fuzz`, or

    python tests/fuzz/fuzz.py tests/fuzz/corpus -runs=1000000 -max_len=256

The arguments are libFuzzer's. It needs atheris, which `make fuzz` installs. Inputs that reach new code are added to the
first directory; `-merge=1 NEW OLD` makes it small again. `test_replies.py` reads the corpus in every run of the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
with atheris.instrument_imports(include=["fieldfare", "fieldfare_flower", "fieldfare_server", "replies"]):
    import replies


def one(data: bytes) -> None:
    """One execution."""
    replies.read_all(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
