"""A node starts only code that its operator allows: FIELDFARE_CODE names a file, a SHA-256 a line.

Flower sends an app's code (its FAB) to nodes, and a node starts what comes. With this variable set where
tasks start, a task whose FAB has none of these digests is refused before it is unpacked: the server learns
`CodeRefused`, and the node's log the digest. A line may go on as `sha256sum` writes it; `#` begins a comment.

    python -Pm fieldfare_flower.pinned flwr-clientapp ARGUMENT ...      (what the executor of `warm` starts by itself)

Upstream: flower-supernode's --trusted-entities needs a licence that an open SuperLink never sends (1.40 to 1.42).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

from fieldfare.errors import FieldfareError
from fieldfare_flower import private

log = logging.getLogger("fieldfare.flower")

VARIABLE = "FIELDFARE_CODE"
_RUN = "flwr.supernode.runtime.run_clientapp"
_LINE = re.compile(r"([0-9a-f]{64})(\s.*)?")


class CodeRefused(FieldfareError):
    """The code that the server sent is not among those that this node's operator allows."""


def allowed(path: Path) -> frozenset[str]:
    """Return the digests in `path`. Raises `CodeRefused` where it cannot be read, or a line is none."""
    try:
        lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise CodeRefused(f"{VARIABLE} = {str(path)!r} cannot be read: {type(error).__name__}") from None
    found = [_LINE.fullmatch(line) for line in lines if line]
    if not all(found):
        raise CodeRefused(f"{VARIABLE} = {str(path)!r} has a line without a SHA-256 in hex")
    return frozenset(match[1] for match in found if match)


def require_allowed(content: bytes, claimed: str) -> None:
    """Raise `CodeRefused` unless the FAB `content` is allowed (without the variable all is), and `claimed`, by which
    Flower finds the unpacked code again, is its digest.
    """
    if (path := os.environ.get(VARIABLE)) is None:
        return
    digest = hashlib.sha256(content).hexdigest()
    if digest not in allowed(Path(path)):
        log.error("the server sent code with SHA-256 %s, which %s does not allow", digest, path)
        raise CodeRefused("code that this node does not allow")
    if claimed != digest:
        raise CodeRefused("code under another digest than its own")


def pin() -> None:
    """Check the code of every task of this process before it is unpacked. No change without the variable.

    Raises `FlowerDiffers` where the installed Flower unpacks code elsewhere: then no task may start.
    """
    if VARIABLE not in os.environ:
        return
    runner = private.find(_RUN)
    pull, install = getattr(runner, "pull_task_input", None), getattr(runner, "install_from_fab", None)
    if runner is None or pull is None or install is None:
        raise private.FlowerDiffers(f"{VARIABLE} is set, and code cannot be checked: {private.LACKS}.")
    claimed = ""

    def pull_and_note(*arguments: Any, **named: Any) -> Any:
        nonlocal claimed
        pulled = pull(*arguments, **named)
        claimed = pulled[3].hash_str
        return pulled

    def check_and_install(content: bytes, *arguments: Any, **named: Any) -> Any:
        # Here, and not where it is pulled: a refusal is answered only once the message is known.
        require_allowed(content, claimed)
        return install(content, *arguments, **named)

    runner.pull_task_input, runner.install_from_fab = pull_and_note, check_and_install


def main() -> None:
    """Run one of Flower's programs, whose tasks' code is checked."""
    sys.argv = sys.argv[1:]
    pin()
    sys.exit(private.load_program(Path(sys.argv[0]).name)())


if __name__ == "__main__":
    main()
