"""What is answered about the journal: its rows, its signed head, and whether it is whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fieldfare.errors import OldCopy
from fieldfare_server.api.cursors import format_cursor, parse_cursor
from fieldfare_server.api.refusal import ProblemError
from fieldfare_server.api.schemas import AuditRow, NewestHead, Page, Verification
from fieldfare_server.ledger import Ledger
from fieldfare_server.ledger.sql import migrate

# Audit rows that one step of a chain check reads: some tenths of a second.
_ROWS_A_CHECK = 20_000


class JournalAnswers:
    """Builds each answer about the journal of `ledger`."""

    _ledger: Ledger
    _root: Path | None

    def ping(self) -> None:
        """Raise `LedgerError` unless the ledger answers and has this version's tables."""
        migrate.check(self._ledger.database)

    def head(self) -> int:
        """Return the id of the newest audit row; 0 for an empty ledger."""
        return self._ledger.head().count

    def signed_head(self, since: int | None) -> NewestHead:
        """Return the newest signed head, and the hash of row `since`. Raises `ProblemError` 404 before the first."""
        with self._ledger.snapshot() as snapshot:
            head = snapshot.signed_head()
            row = None if since is None else snapshot.row_hash(since)
            keys = list(snapshot.head_key_lines().values())
        if head is None:
            raise ProblemError(404, "not-found", "no coordinator has signed a head yet.", nearest="after the first run")
        return NewestHead.model_validate(vars(head) | {"text": str(head), "since": row, "keys": keys})

    def audit(self, cursor: str | None, limit: int, run: str | None) -> Page[AuditRow]:
        """Audit rows, newest first; of one run if given."""
        page = self._ledger.journal_rows(parse_cursor(cursor), limit, run=run)
        return Page[AuditRow](items=tuple(map(AuditRow.of, page.items)), next=format_cursor(page.next))

    def events(self, after: int, limit: int) -> Sequence[AuditRow]:
        """Audit rows after row `after`, oldest first."""
        return [AuditRow.of(view) for view in self._ledger.events(after, limit)]

    def prove(self) -> Verification:
        """Follow the next rows of the journal, a bounded number; at its end, compare the tables with what it proves."""
        checked = self._ledger.proof.advance(_ROWS_A_CHECK)
        behind = self._behind() if checked.whole else None
        progress = None if checked.whole else f"{checked.rows} of {checked.end} rows are checked so far"
        return Verification(
            ok=checked.whole and behind is None,
            complete=checked.whole or not checked.ok,
            rows=checked.rows,
            head=checked.hash if checked.rows else None,
            message=checked.fault or progress or behind,
            table=checked.table or None,
            row=checked.row or None,
            at=datetime.now(UTC),
        )

    def _behind(self) -> str | None:
        """Return why the journal does not go on from the head that this service holds; None if it does, which
        is then held.
        """
        try:
            self._ledger.hold_head()
        except OldCopy as error:  # a database that is away for a moment is no old copy
            return error.why
        return None

    def verify(self) -> Verification:
        """Return what `fieldfare verify` says: everything checked again, from the first row."""
        from fieldfare_server.evidence.verify import recharge, verify

        self._ledger.proof.restart()
        root = self._root if self._root is not None and self._root.is_dir() else None
        report = verify(self._ledger, root, recompute=None if root is None else recharge)
        fault = report.fault
        behind = self._behind()
        return Verification(
            ok=report.ok and behind is None,
            complete=True,
            rows=report.checked.get("audit", 0),
            head=report.head.hash if report.head and report.head.count else None,
            message=behind if fault is None else str(fault),
            table=None if fault is None else fault.table,
            row=None if fault is None else fault.row,
            at=datetime.now(UTC),
        )
