"""Users whose data this process's owner holds: nothing needs hiding from who can read the rows.

On a real node, that a user's training failed is that user's data: the user counts, and contributes zero, and
nobody beyond the node learns of it. In `LocalGrid` and in Flower's simulation node, server and data are one
person's. There an instruction whose users all fail is a fault of the code, and the run ends before it is
charged, with the traceback.

In Flower's simulation a node is an actor of Ray in another process, and says so in a record of its reply.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fieldfare.errors import EveryUserFailed

# The record of a simulated node's reply that says how its users fared.
RECORD = "fieldfare.own-data"
# Characters of a traceback that travel: its end.
LONGEST = 4000

# None on a real node, where nobody counts.
_tally: ContextVar[Tally | None] = ContextVar("fieldfare_own_data", default=None)


class FailedThere(Exception):
    """The traceback of an exception of another process."""


def is_flowers_simulation(grid: Grid | None) -> bool:
    """Return whether this is the grid of Flower's simulation: its ServerApp's process makes the nodes."""
    return (type(grid).__module__.partition(".")[0], type(grid).__name__) == ("flwr", "InMemoryGrid")


def in_flowers_simulation() -> bool:
    """Return whether this process is an actor of Flower's simulation. A SuperNode's process is none, whatever
    it is sent.
    """
    ray = sys.modules.get("ray")
    if ray is None or "flwr.simulation.ray_transport.ray_actor" not in sys.modules or not ray.is_initialized():
        return False
    return bool(ray.get_runtime_context().get_actor_id())


class Tally:
    """How the users of one grid's nodes fared since the last look."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = 0
        self._failed: Counter[str] = Counter()
        self._error: Exception | None = None
        self._alone = 0  # rounds of a single user in a row that all failed

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what `note` and `note_error` say inside the block."""
        token = _tally.set(self)
        try:
            yield
        finally:
            _tally.reset(token)

    def take(self) -> EveryUserFailed | None:
        """Return the fault of the users since the last look, if all of them failed; None where one was well,
        or none asked.

        One user alone who fails may be that user's fault: the second in a row is the code's.
        """
        with self._lock:
            # One look takes all: what comes meanwhile belongs to the next.
            asked, failed, error = self._asked, self._failed, self._error
            self._asked, self._failed, self._error = 0, Counter(), None
            if not asked or failed.total() < asked:
                self._alone = 0 if asked else self._alone
                return None
            self._alone += asked == 1
            if asked == 1 and self._alone < 2:
                return None
        # The ledger keeps this: not for how many users which kind was.
        fault = EveryUserFailed(f"the training of every user that was asked failed: {', '.join(sorted(failed))}")
        fault.__cause__ = error
        return fault

    def add(self, asked: int, failed: Counter[str]) -> None:
        """Count users of one instruction."""
        with self._lock:
            self._asked += asked
            self._failed += failed

    def write(self) -> ConfigRecord:
        """Return what was counted since the last look, for the server's `read`; counting begins anew."""
        with self._lock:
            record = ConfigRecord({"asked": self._asked, "kinds": list(self._failed)})
            record["counts"] = list(self._failed.values())
            if self._error is not None:
                record["error"] = "".join(traceback.format_exception(self._error))[-LONGEST:]
            self._asked, self._failed, self._error = 0, Counter(), None
        return record

    def read(self, reply: Message) -> None:
        """Add what a simulated node's reply says; without such a record, or with an odd one, nothing."""
        from fieldfare_flower.messages import records_of  # training alone knows no messages

        record = (records_of(reply.content, ConfigRecord) if reply.has_content() else {}).get(RECORD, ConfigRecord())
        asked, kinds, counts = record.get("asked"), record.get("kinds"), record.get("counts")
        if isinstance(asked, int) and isinstance(kinds, list) and isinstance(counts, list):
            self.add(asked, Counter(dict(zip(map(str, kinds), map(int, counts), strict=False))))
        if isinstance(error := record.get("error"), str):
            self.keep(FailedThere(f"\n{error}"))

    def keep(self, error: Exception) -> None:
        """Keep the first error since the last look."""
        with self._lock:
            self._error = self._error or error


@contextmanager
def first_error(kept: list[str]) -> Iterator[None]:
    """Let `note_error` add the first error's text to `kept` alone: for a process that tells another."""
    tally = Tally()
    with tally.counting():
        yield
    if isinstance(text := tally.write().get("error"), str):
        kept.append(text)


# Of this process, where it is an actor of Flower's simulation: it answers one message at a time.
_actor = Tally()


def tally_here() -> Tally | None:
    """Return who counts in this process, whose owner holds the users' data and has the server; None on a real node."""
    return _tally.get() or (_actor if in_flowers_simulation() else None)


def note(asked: int, failed: Counter[str], reply: RecordDict) -> None:
    """Count an instruction for `asked` users, of whom `failed` contribute zero, by kind of error.

    reply: what the node answers; in Flower's simulation it says so.
    """
    if tally := tally_here():
        tally.add(asked, failed)
        if tally is _actor:
            reply[RECORD] = _actor.write()


def note_error(error: Exception) -> None:
    """Remember that one user's training raised `error`."""
    if tally := tally_here():
        tally.keep(error)
