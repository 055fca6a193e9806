"""The one fold: which facts an event makes in a state, and the state after it.

A writer asks `decide` before it appends, and writes the facts into the tables; a reader of the log asks it again, and
takes them into its state. So what may happen is said once, and tables and states cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from fieldfare.errors import Refused
from fieldfare_server.ledger.events.base import Event, Record, Unfit, by_kind
from fieldfare_server.ledger.events.log import read
from fieldfare_server.ledger.rules import charges, populations, rounds, runs, tokens
from fieldfare_server.ledger.state.rows import Fact
from fieldfare_server.ledger.state.state import State

Rule: TypeAlias = Callable[[State, Record, Any], Iterator[Fact]]

_MODULES = (populations, runs, rounds, charges, tokens)
# The rule of each event: the function that takes it, by its signature.
RULES: dict[type[Event], Rule] = tokens.NOTES | by_kind(
    (each for module in _MODULES for each in vars(module).values()), "state", "record", "event"
)


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
