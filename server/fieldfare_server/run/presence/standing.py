"""Nodes that fail are asked less and less, then not at all for a while: their standing, from round to round.

| answer of a node to a training instruction | strikes |
|---|---|
| one that sums all users it was asked for | 1 fewer |
| an error, one that breaks the contract or leaves users out, or none in time | 2 more |

After a failure that leaves s strikes the node rests for 2^(s / 2) - 1 attempts: 1, 3, 7, 15. From
`QUARANTINE` strikes on it is in quarantine: it rests for `QUARANTINE_ATTEMPTS`, and then one more failure
puts it back. A node that fails in more than one of three answers gets there, one that fails less often does
not. Where the nodes in good standing cannot fill a round, all are asked, and the first good answer ends a
rest: after an outage of the network, or of this server, nodes that are well are back at once. A quarantine
lasts for one session: a resumed run asks everyone again.

A node that claims very many users, and has them from nowhere, fills cohorts alone. After
`VOIDS_BEFORE_SPREADING` void attempts in a row, and from then on, a node that has never answered well is
therefore asked for its share of a cohort at most: the cohort over the nodes that are online.

**What it may do to privacy.** Nothing here is charged, and no user is charged otherwise for it: a charge
follows from who is in a released sum, and rest only keeps users out of cohorts. Participation limits are
enforced afterwards, by the selector, among those who are left. What decides is a function of who was asked,
who answered, in time or not, and of the reasons that the ledger counts. All that is public under `zero_out`
and `replace_one`, whose promise is about what users sent, given who answered, so a rest tells nothing more;
an update's values decide only whether a reply breaks the contract, and that it did is shown already.

Where presence is secret, and wherever users are sampled, **training decides nothing here** (`counts` is
false): a node may fail because of one user's data or be late because it has one user more, and a rest would
then take the other users of the node out of later rounds, which is more than one user's share. No such run
needs it: without a least number of reports a wrong node cannot void a round. What remains there is a fact of
the node alone: whether it answers the question for its users (`roster`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FOR_FAILURE = 2
# Strikes of a node that is in quarantine: after five failures in a row.
QUARANTINE = 10
# Attempts at rounds that a quarantine lasts.
QUARANTINE_ATTEMPTS = 128
# Strikes after a quarantine: one failure more begins the next.
PROBATION = QUARANTINE - FOR_FAILURE
VOIDS_BEFORE_SPREADING = 2
# The word under which a round's rejects count it.
QUARANTINED = "node put in quarantine"


@dataclass
class _Record:
    strikes: int = 0
    until: int = 0  # the attempt from which on the node is asked again
    in_quarantine: bool = False  # whether it rests for a quarantine, until then


class Standing:
    """How the nodes of one session have answered.

    Args:
        counts: whether failures in training decide whom later rounds ask. False where presence is secret and
            for sampled users: then no node ever rests.
    """

    def __init__(self, counts: bool) -> None:
        self._counts = counts
        self._attempt = 0
        self._records: dict[int, _Record] = {}
        self.proven: set[int] = set()  # nodes that have answered well in this session

    def note_attempt(self, good: Iterable[int], failed: Iterable[int]) -> int:
        """Note that one attempt at a round is over; return how many nodes it put in quarantine.

        Args:
            good: nodes whose reply is summed, with all users that they were asked for.
            failed: the others that were asked, but for those that still had time.
        """
        self._attempt += 1
        if not self._counts:
            return 0
        good = list(good)
        self.proven.update(good)
        for node in good:
            record = self._records.get(node)
            if record is not None:
                record.strikes, record.until = max(0, record.strikes - 1), self._attempt
        return sum(self._strike(node) for node in failed)

    def _strike(self, node: int) -> bool:
        record = self._records.setdefault(node, _Record())
        record.strikes += FOR_FAILURE
        if record.strikes < QUARANTINE:
            record.until, record.in_quarantine = self._attempt + 2 ** (record.strikes // 2) - 1, False
            return False
        record.strikes, record.until, record.in_quarantine = PROBATION, self._attempt + QUARANTINE_ATTEMPTS, True
        return True

    def resting(self) -> frozenset[int]:
        """Return the nodes that the next attempt does not ask, those in quarantine included."""
        return frozenset(node for node, record in self._records.items() if record.until > self._attempt)

    def quarantined(self) -> frozenset[int]:
        """Return the nodes in quarantine: no round is planned with their users."""
        rest = self.resting()
        return frozenset(node for node in rest if self._records[node].in_quarantine)
