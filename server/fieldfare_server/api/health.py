"""Readiness: the ledger answers, has this version's schema, and its tables say what its journal proves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from fieldfare.errors import FieldfareError, LedgerError
from fieldfare_server.api.answers import Answers
from fieldfare_server.api.schemas import Health, Verification

# Seconds that a caller waits at most for a check under way.
PATIENCE = 0.5


class Readiness:
    """Checks the journal and the tables in a thread, at most every `seconds`. Ready once a check came to its
    end.

    The first check follows the whole journal, which takes minutes for millions of rows; a caller waits at
    most `PATIENCE` for it. A ledger once found not to fit stays so until an administrator has every row
    checked again (`verification(restart=True)`, which is `fieldfare verify`), or the service restarts.
    """

    def __init__(
        self, answers: Answers, seconds: float, version: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._answers, self._seconds, self._version, self._clock = answers, seconds, version, clock
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._restart = self._closing = False
        self._checked: float | None = None
        self._error: str | None = None
        self._now: Verification | None = None  # the state of the check under way, or of the last one
        self._last: Verification | None = None  # the last check that came to its end, whole or broken

    def check(self) -> Health:
        """Answer a readiness probe."""
        try:
            self._answers.ping()
        except Exception as error:
            why = str(error) if isinstance(error, FieldfareError) else f"cannot be reached ({type(error).__name__})"
            return self._health("unavailable", {"ledger": why})
        self.begin()
        self._idle.wait(PATIENCE)
        with self._lock:
            seen, error_ = self._last or self._now, self._error
        if error_ is not None:
            return self._health("unavailable", {"ledger": "ok", "chain": f"cannot be checked ({error_})"})
        if seen is None or not seen.ok:
            return self._health("unavailable", {"ledger": "ok", "chain": (seen and seen.message) or "not checked yet"})
        return self._health("ok", {"ledger": "ok", "chain": f"{seen.rows} rows verified"})

    def verification(self, restart: bool = False) -> Verification:
        """Return the newest check; a new one starts if it is older than `seconds`. restart: check every row
        again.

        A check that takes longer than `PATIENCE` is answered as it stands, with `complete` false. Raises
        `LedgerError` if the chain cannot be read.
        """
        self.begin(restart)
        self._idle.wait(PATIENCE)
        with self._lock:
            if self._error is not None:
                raise LedgerError("audit chain", f"it cannot be checked ({self._error}).")
            if self._now is None:
                return Verification(ok=False, complete=False, rows=0, message="not checked yet", at=datetime.now(UTC))
            return self._now

    def finished(self) -> Verification | None:
        """Return the last check that came to its end; None without one, or if the ledger cannot be read."""
        self.begin()
        self._idle.wait(PATIENCE)
        with self._lock:
            return None if self._error is not None else self._last

    def stop(self) -> None:
        """Stop a check that is under way."""
        self._closing = True
        self._idle.wait(10)

    def begin(self, restart: bool = False) -> None:
        """Start a check in a thread, unless one is under way or the last one is fresh or found the chain broken."""
        with self._lock:
            if restart:
                self._restart, self._now = True, None
            broken = self._last is not None and not self._last.ok
            fresh = self._checked is not None and self._clock() - self._checked < self._seconds
            # A broken chain is not checked again: only a restart may clear it.
            if not self._idle.is_set() or self._closing or (not self._restart and (broken or fresh)):
                return
            self._idle.clear()
        threading.Thread(target=self._follow, name="fieldfare-chain", daemon=True).start()

    def _follow(self) -> None:
        done = False
        while not done:
            with self._lock:
                restart, self._restart = self._restart, False
            seen, error = None, None
            try:
                seen = self._answers.verify() if restart else self._answers.prove()
            except Exception as problem:
                error = type(problem).__name__
            with self._lock:
                self._error = error
                # A restart that was asked for meanwhile makes this step obsolete.
                if seen is not None and not self._restart:
                    self._now = seen
                    if seen.complete:
                        self._last, self._checked = seen, self._clock()
                done = self._closing or (not self._restart and (seen is None or seen.complete))
                if done:
                    self._idle.set()

    def _health(self, status: str, checks: dict[str, str]) -> Health:
        return Health(status="ok" if status == "ok" else "unavailable", checks=checks, version=self._version)
