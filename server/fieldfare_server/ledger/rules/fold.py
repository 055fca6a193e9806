"""The one fold: which facts an event makes in a state, and the state after it.

A writer asks `decide` before it appends, and writes the facts into the tables; a reader of the log asks it again, and
takes them into its state. So what may happen is said once, and tables and states cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from fieldfare.errors import Refused
from fieldfare_server.ledger.events import charges as c
from fieldfare_server.ledger.events import heads as h
from fieldfare_server.ledger.events import nodes as n
from fieldfare_server.ledger.events import populations as p
from fieldfare_server.ledger.events import runs as r
from fieldfare_server.ledger.events import tokens as t
from fieldfare_server.ledger.events.base import Event, Record, Unfit
from fieldfare_server.ledger.events.log import read
from fieldfare_server.ledger.rules import charges, populations, rounds, runs, tokens
from fieldfare_server.ledger.state.rows import Fact
from fieldfare_server.ledger.state.state import State

Rule: TypeAlias = Callable[[State, Record, Any], Iterator[Fact]]

RULES: dict[type[Event], Rule] = {
    p.Created: populations.created,
    p.Proposed: populations.proposed,
    p.Raised: populations.raised,
    p.Withdrawn: populations.withdrawn,
    p.Tightened: populations.tightened,
    p.WindowSet: populations.window_set,
    p.Noted: populations.noted,
    p.Closed: populations.closed,
    p.Reopened: populations.closed,
    p.Registered: populations.registered,
    p.Recomputed: populations.recomputed,
    r.SeedDrawn: runs.certified,
    r.Started: runs.started,
    r.Resumed: runs.resumed,
    r.RunInterrupted: runs.interrupted,
    r.Requested: runs.requested,
    r.Finished: runs.finished,
    r.KeyDestroyed: runs.key_destroyed,
    r.Audited: runs.audited,
    r.Opened: rounds.opened,
    r.RoundClosed: rounds.closed,
    r.Voided: rounds.voided,
    r.Committed: rounds.committed,
    c.ChargeReserved: charges.reserved,
    c.ChargeCarried: charges.carried,
    c.ChargeCommitted: charges.closed,
    c.ChargeReleased: charges.closed,
    t.TokenCreated: tokens.created,
    t.TokenRevoked: tokens.revoked,
    t.TokenUsed: tokens.used,
    n.NodeAdmitted: tokens.node_admitted,
    n.NodeReleased: tokens.node_released,
    h.HeadKeyChanged: tokens.head_key_changed,
    h.Converted: tokens.converted,
    h.Mended: tokens.mended,
}


def decide(state: State, record: Record) -> tuple[Fact, ...]:
    """Return the facts that an event makes in `state`, which stays. Raises `Refused` if it is not allowed."""
    return tuple(RULES[type(record.event)](state, record, record.event))


def apply(
    state: State, row: Mapping[str, object], before: Callable[[State, Record, tuple[Fact, ...]], None] | None = None
) -> Record:
    """Take one row of the log into `state`, and return its event.

    before: is shown the event and what it makes, once it is known to be allowed, while `state` is what it was.

    Raises `Unfit` if what it says was not allowed at that point.
    """
    record = read(row)
    try:
        facts = decide(state, record)
        if before is not None:
            before(state, record, facts)
        state.take(facts)
    except Refused as refused:
        raise Unfit("audit", str(record.number), refused.why) from None
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        why = f"it cannot be applied ({type(error).__name__}: {error})"
        raise Unfit("audit", str(record.number), why) from None
    return record
