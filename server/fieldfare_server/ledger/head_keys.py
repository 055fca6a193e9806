"""Change the key that signs the journal's head: by the key itself, or by one that it enrolled and that is kept offline.

The lines that say so are rows of the journal, and go to the nodes with the head.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection

from fieldfare.errors import Differs, LedgerError, NotNow
from fieldfare.head_keys import KeyLine, successor
from fieldfare.signatures import public_key
from fieldfare.signed_head import SignedHead
from fieldfare_server.ledger import chain
from fieldfare_server.ledger.events.heads import HeadKeyChanged
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.sql.journal import Entry, Journal

WHAT = "key of the ledger's head"


class HeadKeys(Reader):
    """What a ledger writes about the key of its head."""

    _journal: Journal

    def enrol_head_key(self, file: Path, key: str, *, actor: str) -> None:
        """Let `key` (public, hex), which is kept offline, name the head's next key.

        Raises `BadInput` unless the coordinator's `file` has the present one.
        """
        head, shown = chain.HeadFile(file), self._shown_head()
        line = KeyLine.of(shown.ledger, "enrol", shown.key, key, _own_key(head, shown))
        self._journal.write(lambda connection, entry: entry.append(HeadKeyChanged(str(line)), actor), signer=head)

    def rotate_head_key(self, file: Path, *, actor: str, offline: bytes | None = None) -> str:
        """Replace the head's key by a new one, and return that (public, hex). What was enrolled stays enrolled.

        Args:
            file: of the coordinator whose key it becomes. A rotation that a crash cut off is completed by another.
            offline: the private key that names the new one; None: the present key does, which `file` must have.

        Raises:
            BadInput: the key that signs is neither the present one nor enrolled by it.
        """
        head, shown = chain.HeadFile(file), self._shown_head()
        ledger, old = shown.ledger, shown.key
        after = head.successor()
        new = public_key(after.key())
        if new != old:  # else a crash came between the transaction and the file
            lines = [line for line in self.head_key_lines().values() if KeyLine.parse(line).old == old]
            _, enrolled = successor(ledger, old, lines)
            signer = _own_key(head, shown) if offline is None else offline
            if public_key(signer) not in {old, *enrolled}:
                why = "the key that is given was never enrolled for it."
                raise Differs(WHAT, why, "the one of `fieldfare head enrol`")
            made = [KeyLine.of(ledger, "rotate", old, new, signer)]
            made += [KeyLine.of(ledger, "enrol", new, each, after.key()) for each in sorted(enrolled)]

            def work(_: Connection, entry: Entry) -> None:
                for line in made:
                    entry.append(HeadKeyChanged(str(line)), actor)

            self._journal.write(work, signer=after)
        after.write(self.head(), again=True)
        try:
            head.adopt()
        except OSError as error:
            why = f"cannot be put in its place ({error.strerror})."
            raise LedgerError(WHAT, why, "the same command again") from error
        return new

    def _shown_head(self) -> SignedHead:
        """The newest signed head, while no coordinator is at work that would sign with the key of before."""
        with self.snapshot() as snapshot:
            shown = snapshot.signed_head()
            held = [run.id for run in snapshot.runs(state="running").items]
        if shown is None:
            raise NotNow(WHAT, "no coordinator has signed a head yet.", "after the first run")
        if held:
            raise NotNow(WHAT, f"run {held[0]} has a coordinator, which signs with it.", "stop it first")
        return shown


def _own_key(file: chain.HeadFile, shown: SignedHead) -> bytes:
    own = file.key()
    if public_key(own) != shown.key:
        raise Differs(
            WHAT, "this home has another one.", "the coordinator's home; or --offline-key, if one is enrolled"
        )
    return own
