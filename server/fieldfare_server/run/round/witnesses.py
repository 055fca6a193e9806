"""What nodes are shown of the journal, so that each can tell whether it goes on from the past that the node
has seen.

Each instruction carries the newest signed head, and the hashes of the rows that its node may remember: those
that ended the journal when it was asked before in this session, and the one that it named itself. So a node
that was away, or that cohorts left out, for any number of rounds is still shown that the journal goes on.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from functools import partial

from flwr.app import ConfigRecord, RecordDict

from fieldfare_flower.messages import HEAD, read_witness, write_head
from fieldfare_server.ledger import Ledger

# Instructions in a row that a node may miss before it has to be asked what it remembers.
RECENT = 32
# Hashes of rows that are kept from round to round.
MOST_HASHES = 4096


class Witnesses:
    """The records that go with the instructions of one session."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # Whether the users are real people on nodes of their own, whose ledger their nodes keep in mind.
        self.people = False
        # Node -> the rows that it may remember.
        self._rows: defaultdict[int, deque[int]] = defaultdict(partial(deque, maxlen=RECENT))
        self._hashes: dict[int, str] = {}
        self._lines: tuple[str, ...] | None = None

    def hear(self, node: int, content: RecordDict) -> None:
        """Note which row `node` remembers, from its answer to the query for its users."""
        number = read_witness(content)
        if number is not None:
            self._rows[node].append(number)

    def records(self, nodes: Iterable[int]) -> dict[int, dict[str, ConfigRecord]]:
        """Return, for each of `nodes`: the record by its name; {} where nothing is signed yet."""
        head = self._ledger.signed_head()
        if head is None:
            return {node: {} for node in nodes}
        known, self._hashes = self._hashes, {}
        if self._lines is None:
            # A change of the key waits until no coordinator works, so that these stay as they are.
            self._lines = self._ledger.head_key_lines()
        made = {}
        for node in nodes:
            rows = self._rows[node]
            # A row that was read once is kept: the journal refuses to write where it does not continue what
            # it has seen.
            for number in rows:
                if number < head.count and number not in self._hashes:
                    self._hashes[number] = known.get(number) or self._ledger.row_hash(number) or ""
            hashes = {n: self._hashes[n] for n in rows if self._hashes.get(n)}
            made[node] = {HEAD: write_head(head, hashes, self._lines, self.people)}
            if not rows or rows[-1] != head.count:
                rows.append(head.count)
        self._hashes = {**known, **self._hashes} if len(known) < MOST_HASHES else self._hashes
        return made
