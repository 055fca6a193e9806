"""What a node remembers of the server's journal: the newest signed head that it was shown.

It lies in Flower's state of the node, which lasts as long as the run, and in the file that FIELDFARE_WITNESS
names, which lasts. The file is for one ledger: a node that serves several needs one process, and one file,
for each.
"""

from __future__ import annotations

import os
from pathlib import Path

from flwr.app import ConfigRecord, Context, RecordDict

from fieldfare.signed_head import HeadRefused, SignedHead, follow
from fieldfare_flower.messages import HEAD, read_head, read_keys, records_of

VARIABLE = "FIELDFARE_WITNESS"


def remembered(context: Context) -> SignedHead | None:
    """Return the newest head that this node was shown. Raises `HeadRefused` on a file that cannot be read."""
    record = records_of(context.state, ConfigRecord).get(HEAD)
    held = [SignedHead.parse(str(record["head"]))] if record is not None else []
    path = _path()
    if path is not None and path.exists():
        try:
            held.append(SignedHead.parse(path.read_text(encoding="ascii")))
        except (OSError, UnicodeDecodeError, HeadRefused) as error:
            # What was seen last is unknown: to begin anew would let a server go back unnoticed.
            raise HeadRefused(
                f"{VARIABLE} = {str(path)!r}",
                f"cannot be read ({error}), so that a server that went back would go unnoticed.",
                "write into it the newest head of this ledger that its backup or another node has, one line; or remove "
                "it once `fieldfare verify --head` has compared the ledger with heads that others hold",
                reason="no-memory",
            ) from None
    return max(held, key=lambda head: head.count, default=None)


def watch(context: Context, content: RecordDict) -> None:
    """Compare what an instruction shows of the journal with what this node remembers, then remember it.

    Raises `HeadRefused` if the server's journal went back, forked, or is not shown any more.
    """
    head, rows = read_head(content)
    held = remembered(context)
    newest = follow(held, head, rows, read_keys(content))
    if newest is None or newest == held:
        return
    context.state[HEAD] = ConfigRecord({"head": str(newest)})
    path = _path()
    if path is not None:
        _keep(path, newest)


def _keep(path: Path, head: SignedHead) -> None:
    """Replace the file durably: after a power cut it has the old line or the new one, and never a part of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="ascii") as file:
        file.write(f"{head}\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _path() -> Path | None:
    value = os.environ.get(VARIABLE)
    return Path(value) if value else None
