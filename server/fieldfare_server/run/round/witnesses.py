"""What nodes are shown of the journal, so that each can tell whether it goes on from the past that the node
has seen.

Each instruction carries the newest signed head, and the hashes of the rows that its node may remember: those
that ended the journal when it was asked before in this session, and the one that it named itself. So a node
that was away, or that cohorts left out, for any number of rounds is still shown that the journal goes on.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Iterable
from functools import lru_cache, partial

from flwr.app import ConfigRecord, RecordDict

from fieldfare.errors import BadInput, Refused
from fieldfare.head_keys import successor
from fieldfare.masking.receipts import BlinderHead, BlinderWentBack
from fieldfare.signed_head import FORMAT, REASONS, SignedHead
from fieldfare_flower.messages import HEAD, read_witness, write_head
from fieldfare_server.ledger import Ledger
from fieldfare_server.run.presence.failures import journal_refused

# Instructions in a row that a node may miss before it has to be asked what it remembers.
RECENT = 32
# Hashes of rows that are kept in memory. They do not change: the journal refuses to write after rows that are
# not those it has seen.
MOST_HASHES = 1 << 16


class Witnesses:
    """The records that go with the instructions of one session."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # Whether the users are real people on nodes of their own, whose ledger their nodes keep in mind.
        self.people = False
        # Node -> the rows that it may remember.
        self._rows: defaultdict[int, deque[int]] = defaultdict(partial(deque, maxlen=RECENT))
        self._hash = lru_cache(MOST_HASHES)(ledger.row_hash)
        # A change of the key waits until no coordinator works, so that these stay as they are.
        self._lines = ledger.head_key_lines()

    def hear(self, node: int, content: RecordDict) -> None:
        """Note which row `node` remembers, from its answer to the query for its users."""
        number, _ = read_witness(content)
        if number is not None:
            self._rows[node].append(number)

    def records(self, nodes: Iterable[int]) -> dict[int, dict[str, ConfigRecord]]:
        """Return, for each of `nodes`: the record by its name; {} where nothing is signed yet."""
        head = self._ledger.signed_head()
        if head is None:
            return {node: {} for node in nodes}
        made = {}
        for node in nodes:
            rows = self._rows[node]
            hashes = {number: found for number in rows if number < head.count and (found := self._hash(number))}
            made[node] = {HEAD: write_head(head, hashes, [*self._lines.values()], self.people)}
            if not rows or rows[-1] != head.count:
                rows.append(head.count)
        return made

    def denied(self, line: str, blinder: str) -> Refused | None:
        """Return the refusal of a ledger whose log, or of a blinder whose journal, which ends in `blinder`, cannot have
        had the end `line` that its key signed; None for any other text. The log is read afresh: other runs write, too.
        """
        with contextlib.suppress(BadInput):
            if not line.startswith(FORMAT):
                kept, now = BlinderHead.parse(line), BlinderHead.parse(blinder)
                why = f"it ends in row {now.row}, and a node was shown row {kept.row} before."
                refused = BlinderWentBack("the blinder's journal", why, "its newest copy")
                return refused if kept.key == now.key and now.denies(kept) else None
            log, end = self._ledger, SignedHead.parse(line)
            shown = log.signed_head()
            key, _ = successor(end.ledger, end.key, (text for row, text in self._lines.items() if row > end.count))
            if shown and (end.ledger, key) == (shown.ledger, shown.key) and log.row_hash(end.count) != end.hash:
                why = REASONS["went-back" if end.count > shown.count else "forked"]
                return journal_refused(f"one proves that {why}", end.count, shown.count)
        return None
