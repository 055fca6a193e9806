"""Readiness: the ledger answers, has this version's schema, and its audit chain is whole as far as it was checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fieldfare.errors import FieldfareError
from fieldfare_server.api.schemas import Health, Verification
from fieldfare_server.api.store import Store


class Readiness:
    """Checks at most every `seconds`; a chain once found broken stays broken until the service restarts."""

    def __init__(self, store: Store, seconds: float, version: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._seconds, self._version, self._clock = store, seconds, version, clock
        self._lock = threading.Lock()
        self._checked: float | None = None
        self._last: Verification | None = None

    def check(self) -> Health:
        """One probe. The first one checks the whole chain, later ones only new rows."""
        try:
            self._store.ping()
        except FieldfareError as error:
            return self._health("unavailable", {"ledger": str(error)})
        except Exception as error:
            # The class only: a driver's message may carry the address it was given.
            return self._health("unavailable", {"ledger": f"cannot be reached ({type(error).__name__})"})
        try:
            verification = self.verification()
        except Exception as error:
            return self._health("unavailable", {"ledger": "ok", "chain": f"cannot be checked ({type(error).__name__})"})
        if not verification.ok:
            return self._health("unavailable", {"ledger": "ok", "chain": verification.message or "is broken"})
        return self._health("ok", {"ledger": "ok", "chain": f"{verification.rows} rows verified"})

    def verification(self) -> Verification:
        """The newest check of the chain, made now if it is older than `seconds`."""
        with self._lock:
            now = self._clock()
            if self._last is not None and not self._last.ok:
                return self._last
            if self._last is None or self._checked is None or now - self._checked >= self._seconds:
                self._last, self._checked = self._store.verify(), now
            return self._last

    def verify_all(self) -> Verification:
        """Check every row again, now."""
        with self._lock:
            self._last, self._checked = self._store.verify_all(), self._clock()
            return self._last

    def _health(self, status: str, checks: dict[str, str]) -> Health:
        return Health(status="ok" if status == "ok" else "unavailable", checks=checks, version=self._version)
