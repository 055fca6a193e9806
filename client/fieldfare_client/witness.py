"""What a node remembers of the server's journal: the newest signed head that it was shown.

It lies in Flower's state of the node, which lasts as long as the run, and in the file that FIELDFARE_WITNESS
names, which lasts. The file is for one ledger: a node that serves several needs one process, and one file,
for each.

Without that file a node of real people keeps the first head that it was shown, in Flower's directory of its
account: so another ledger, which would give its users their budget again, is refused by default. Processes of
one account share it, so it does not move: the newest head of one would refuse a late instruction to another.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from flwr.app import ConfigRecord, Context, RecordDict

from fieldfare.atomic import make_file, replace_file
from fieldfare.signed_head import HeadRefused, SignedHead, follow
from fieldfare_client import budget
from fieldfare_flower.messages import HEAD, is_of_people, read_head, read_keys, records_of

log = logging.getLogger("fieldfare.client")

VARIABLE = "FIELDFARE_WITNESS"
# A file in the account's Flower directory: the first head of a ledger of real people that a node of it was shown.
FIRST = "fieldfare.ledger"
# Held by the node of this process that looks into these files.
_ONE = threading.Lock()


def remembered(context: Context) -> SignedHead | None:
    """Return the newest head that this node was shown. Raises `HeadRefused` on a file that cannot be read."""
    record = records_of(context.state, ConfigRecord).get(HEAD)
    held = [SignedHead.parse(str(record["head"]))] if record is not None else []
    path = _path()
    if path is not None and path.exists():
        held.append(_read(path, f"{VARIABLE} = {str(path)!r}"))
    return max(held, key=lambda head: head.count, default=None)


def _read(path: Path, what: str) -> SignedHead:
    try:
        return SignedHead.parse(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError, HeadRefused) as error:
        # What was seen is unknown: to begin anew would let a server go back, or another come, unnoticed.
        raise HeadRefused(
            what,
            f"cannot be read ({error}), so that a server that went back would go unnoticed.",
            "write into it the newest head of this ledger that its backup or another node has, one line; or remove "
            "it once `fieldfare verify --head` has compared the ledger with heads that others hold",
            reason="no-memory",
        ) from None


def watch(context: Context, content: RecordDict) -> None:
    """Compare what an instruction shows of the journal with what this node remembers, then remember it.

    Raises `HeadRefused` if the server's journal went back, forked, or is not shown any more, and where real
    people's users of this account belong to another ledger.
    """
    head, rows = read_head(content)
    with _ONE:
        held, keys, path = remembered(context), read_keys(content), _path()
        newest = follow(held, head, rows, keys)
        # A node's own budget names the ledgers that its users agreed to.
        if head is not None and path is None and is_of_people(content) and not budget.is_kept():
            _require_first(head, rows, keys)
        if newest is None or newest == held:
            return
        context.state[HEAD] = ConfigRecord({"head": str(newest)})
        if path is not None:
            keep(path, newest)


def _require_first(head: SignedHead, rows: Mapping[int, str], keys: Sequence[str]) -> None:
    """Refuse a head of another ledger than the first that nodes of this account were shown; keep the first."""
    try:
        path = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr") / FIRST
        if not path.exists():
            keep(path, head, first=True)
    except (OSError, RuntimeError) as error:
        log.warning("this account cannot keep which ledger its users belong to (%s): name a file, %s", error, VARIABLE)
        return
    first = _read(path, f"the ledger of this node's users in {str(path)!r}")
    try:
        # Not asked for by this node, so it may not be shown: of this row only a contradiction counts.
        follow(first, head, {first.count: first.hash, **rows}, keys)
    except HeadRefused as refusal:
        raise HeadRefused(
            f"{refusal.what}, the first that this node's users belonged to",
            refusal.why,
            f"that ledger; if its users never belonged to it, or it is gone for good and somebody answers for what "
            f"they spent there, remove {str(path)!r}. A node that serves two ledgers names a file for each, {VARIABLE}",
            reason=refusal.reason,
            told=f"{first.count} {head.count} {first}",
        ) from None


def keep(path: Path, head: SignedHead | str, first: bool = False) -> None:
    """Replace the file durably: after a power cut it has the old line or the new one, and never a part of one.

    first: keep what is there; of two processes at once, one makes it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (make_file if first else replace_file)(path, f"{head}\n".encode("ascii"), 0o666)


def _path() -> Path | None:
    value = os.environ.get(VARIABLE)
    return Path(value) if value else None
