"""Users whose data this process's owner holds: nothing needs hiding from who can read the rows.

On a real node, that a user's training failed is that user's data: the user counts, and contributes zero, and nobody
beyond the node learns of it. In `LocalGrid` node, server and data are one person's. There an instruction whose users
all fail is a fault of the code, and the run ends before it is charged, with the traceback.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fieldfare.errors import EveryUserFailed

_tally: ContextVar[Tally | None] = ContextVar("fieldfare_own_data", default=None)
"""None on a real node, where nobody counts."""


class Tally:
    """How the users of one grid's nodes fared since the last look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = 0
        self._failed: Counter[str] = Counter()
        self._error: Exception | None = None
        self._alone = 0
        """Rounds of a single user in a row that all failed."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Within, `note` and `note_error` count here."""
        token = _tally.set(self)
        try:
            yield
        finally:
            _tally.reset(token)

    def take(self) -> EveryUserFailed | None:
        """The fault of the users since the last look, if all of them failed; None where one was well, or none asked.

        One user alone who fails may be that user's fault: the second in a row is the code's.
        """
        with self._lock:
            asked, failed, error = self._asked, self._failed, self._error
            self._asked, self._failed, self._error = 0, Counter(), None
            if not asked or failed.total() < asked:
                self._alone = 0 if asked else self._alone
                return None
            self._alone += asked == 1
            if asked == 1 and self._alone < 2:
                return None
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(failed.items()))
        fault = EveryUserFailed(f"the training of every user that was asked failed: {kinds}")
        fault.__cause__ = error
        return fault

    def add(self, asked: int, failed: Counter[str]) -> None:
        """Count users of one instruction."""
        with self._lock:
            self._asked += asked
            self._failed += failed

    def keep(self, error: Exception) -> None:
        """Keep the first error since the last look."""
        with self._lock:
            self._error = self._error or error


def note(asked: int, failed: Counter[str]) -> None:
    """An instruction asked for `asked` users, of whom `failed` contribute zero, by kind of error."""
    tally = _tally.get()
    if tally is not None:
        tally.add(asked, failed)


def note_error(error: Exception) -> None:
    """One user's training raised `error`."""
    tally = _tally.get()
    if tally is not None:
        tally.keep(error)
