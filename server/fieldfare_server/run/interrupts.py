"""Ctrl-C while a run is under way: it is never lost, and it never breaks a step of the ledger in two.

Python raises `KeyboardInterrupt` between any two instructions of the main thread: in the middle of a commit,
where the database is a step ahead of memory, or in a finaliser or a callback, where exceptions are dropped.
So while a run is under way a Ctrl-C is noted, and raised where nothing is half done: at once while nodes of
this process train, else at the next look (`check`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """The Ctrl-C's of one session. As a context manager it takes them from Python, where Python has them."""

    def __init__(self) -> None:
        self._pending = False
        self._at_once = False  # whether one is raised where it comes
        self._taken: list[int] = []  # signals that Python answered with a `KeyboardInterrupt`
        self._depth = 0  # how many parts are open that it is entered for: what prepares a run, and the run

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        own = threading.current_thread() is threading.main_thread()
        # A handler of somebody else's goes on: it may not mean an exception at all.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if own else ():
            if signal.getsignal(number) is signal.default_int_handler:
                self._taken.append(number)
                signal.signal(number, self._note)

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self._depth -= 1
        if self._depth:
            return
        while self._taken:
            signal.signal(self._taken.pop(), signal.default_int_handler)
        pending, self._pending = self._pending, False
        if pending and kind is None:
            raise KeyboardInterrupt  # what is to come after this run is not begun

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending = True
        if self._at_once:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise the `KeyboardInterrupt` that has come, also one that was raised and dropped."""
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    @contextmanager
    def allowed(self, at_once: bool = True) -> Iterator[None]:
        """Let a Ctrl-C be raised where it comes, inside the block; or, within such a part, wait for its end."""
        before = self._at_once
        try:
            self._at_once = at_once
            self.check()
            yield
        finally:
            self._at_once = before
        self.check()
