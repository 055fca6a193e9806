"""What nodes are shown of the journal, so that each can tell whether it goes on from the past that the node has seen.

Each instruction carries the newest signed head, the hashes of the rows that ended the journal in recent rounds, and of
the rows that nodes said they remember. It is the same for all nodes.
"""

from __future__ import annotations

from collections import deque

from flwr.app import ConfigRecord, RecordDict

from fieldfare_flower.messages import HEAD, read_witness, write_head
from fieldfare_server.ledger import Ledger

RECENT = 16
"""Rounds that a node may miss, within one session, before it has to be asked what it remembers."""
MOST_ASKED = 256
"""Rows that nodes remember from earlier sessions; the newest are kept."""


class Witnesses:
    """The record that goes with every instruction of one session."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._asked: set[int] = set()
        self._hashes: dict[int, str] = {}

    def hear(self, content: RecordDict) -> None:
        """Note which row a node remembers, from its answer to the query for its users."""
        number = read_witness(content)
        if number is not None and (len(self._asked) < MOST_ASKED or number > min(self._asked)):
            self._asked.add(number)
            if len(self._asked) > MOST_ASKED:
                self._asked.remove(min(self._asked))

    def record(self) -> dict[str, ConfigRecord]:
        """The record by its name; {} where nothing is signed yet."""
        head = self._ledger.signed_head()
        if head is None:
            return {}
        wanted = {number for number in (*self._asked, *self._recent) if number < head.count}
        # A row that was read once is kept: the journal refuses to write where it does not continue what it has seen.
        self._hashes = {number: self._hashes.get(number) or self._ledger.row_hash(number) or "" for number in wanted}
        if not self._recent or self._recent[-1] != head.count:
            self._recent.append(head.count)
        return {HEAD: write_head(head, {number: hash_ for number, hash_ in self._hashes.items() if hash_})}
