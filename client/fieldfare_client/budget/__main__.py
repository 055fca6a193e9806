"""`python -m fieldfare_client.budget init | show`: init makes the node's charges; both show what users have spent."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

from fieldfare.errors import Refused
from fieldfare_client.budget import VARIABLE
from fieldfare_client.budget.charges import create, gauges
from fieldfare_client.budget.settings import NodeBudget


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code: 2 for what is refused, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m fieldfare_client.budget", description=__doc__)
    parser.add_argument("command", choices=("init", "show"))
    parser.add_argument("--file", default=os.environ.get(VARIABLE), help=f"the node's budget; else {VARIABLE} names it")
    chosen = parser.parse_args(arguments)
    if not chosen.file:
        parser.error(f"which budget? --file, or {VARIABLE}")
    try:
        settings = NodeBudget.read(Path(chosen.file))
        if chosen.command == "init":
            create(settings.charges, settings.mark)
        for name, (users, epsilon, limit) in gauges(settings).items():
            # Rounded up; what the search for it is wrong by, below a thousandth of the last digit, is not.
            most = f"at most epsilon {math.ceil(epsilon * 1e6 - 1e-3) / 1e6:.12g} of {limit:.12g}"
            print(f"{name or 'all together'}: {users} users charged, {most}")
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # whatever was written is whole
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
