"""Change the key that signs the journal's head: by the key itself, or by one that it enrolled and that is kept offline.

The lines that say so are rows of the journal, and go to the nodes with the head.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from fieldfare.errors import Differs, LedgerError
from fieldfare.head_keys import KeyLine, successor
from fieldfare.signatures import public_key
from fieldfare.signed_head import SignedHead
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.heads import HeadKeyChanged
from fieldfare_server.ledger.sql.journal import Entry, Journal, read_head

WHAT = "key of the ledger's head"


def enrol(journal: Journal, file: chain.HeadFile, shown: SignedHead, key: str, actor: str) -> None:
    """Let `key`, kept offline, name the head's next key. Raises `BadInput` unless `file` has the present one."""
    own = _own_key(file, shown)
    line = KeyLine.of(shown.ledger, "enrol", shown.key, key, own)
    journal.write(lambda connection, entry: entry.append(HeadKeyChanged(str(line)), actor), signer=file)


def rotate(
    journal: Journal,
    file: chain.HeadFile,
    shown: SignedHead,
    lines: Sequence[str],
    actor: str,
    *,
    offline: bytes | None = None,
) -> str:
    """Replace the head's key by a new one, and return that (public, hex). What was enrolled stays enrolled.

    Args:
        file: of the coordinator whose key it becomes. A rotation that a crash cut off is completed by another.
        shown: the newest signed head of the ledger, whose key is replaced.
        lines: by which the key changed before.
        offline: the private key that names the new one; None: the present key does, which `file` must have.

    Raises:
        BadInput: the key that signs is neither the present one nor enrolled by it.
    """
    ledger, old = shown.ledger, shown.key
    after = file.successor()
    new = public_key(after.key())
    if new != old:  # else a crash came between the transaction and the file
        _, enrolled = successor(ledger, old, [line for line in lines if KeyLine.parse(line).old == old])
        signer = _own_key(file, shown) if offline is None else offline
        if public_key(signer) not in {old, *enrolled}:
            raise Differs(WHAT, "the key that is given was never enrolled for it.", "the one of `fieldfare head enrol`")
        made = [KeyLine.of(ledger, "rotate", old, new, signer)]
        made += [KeyLine.of(ledger, "enrol", new, each, after.key()) for each in sorted(enrolled)]

        def work(_: Connection, entry: Entry) -> None:
            for line in made:
                entry.append(HeadKeyChanged(str(line)), actor)

        journal.write(work, signer=after)
    with journal.database.read() as connection:
        end = read_head(connection)
    after.write(end, again=True)
    try:
        file.adopt()
    except OSError as error:
        raise LedgerError(WHAT, f"cannot be put in its place ({error.strerror}).", "the same command again") from error
    return new


def _own_key(file: chain.HeadFile, shown: SignedHead) -> bytes:
    own = file.key()
    if public_key(own) != shown.key:
        raise Differs(
            WHAT, "this home has another one.", "the coordinator's home; or --offline-key, if one is enrolled"
        )
    return own
