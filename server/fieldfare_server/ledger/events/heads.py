"""What happens to the log itself: it is converted, its head's key changes, or rows of its end are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fieldfare_server.ledger.events.base import Event


@dataclass(frozen=True)
class Converted(Event):
    """The log of an earlier format was converted: the rows after this one are its rows, in the one format."""

    action = "ledger.converted"
    ledger: str  # the old log's name
    count: int
    hash: str  # where it ended
    rows: tuple[str, ...]  # SHA-256 of each object that holds its rows as they were, in order
    omitted: int  # how many of its rows these do not hold: those of secret populations


@dataclass(frozen=True)
class HeadKeyChanged(Event):
    """The head's key was replaced, or enrolled a key that is kept offline."""

    action = "head.key"
    line: str  # the signed line of `fieldfare.head_keys`, by which nodes and witnesses know it too


@dataclass(frozen=True)
class Mended(Event):
    """Rows that stopped every budget were dropped, and the rows after them have new numbers."""

    action = "ledger.mend"
    kept: int  # how many rows stayed as they were
    dropped: Mapping[str, object]  # action -> how many rows of it were dropped
    hash: str  # of the row in which the journal ended before
