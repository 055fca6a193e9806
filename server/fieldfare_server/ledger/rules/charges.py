"""What may happen to a charge of another trainer: it is reserved before it happens, then committed, or
released if it never did.

Which users another trainer touched is unknown, so each charge is one common term in every user's account, never n
updates. A reservation counts like a charge until it is released: a trainer that dies between the two stays charged. A
request may be repeated after a lost answer: the same key names the same charge. The same key with another loss or other
words, from another trainer, or after the charge was committed or released, is refused: a second training
needs a second charge. A trainer closes its own charges only: what another has reserved may have happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price
from fieldfare.errors import Differs, NotAllowed, NotFound, NotGiven, NotNow, WrongForm
from fieldfare.names import is_line
from fieldfare_server.ledger.events import charges as events
from fieldfare_server.ledger.events.base import Record, require
from fieldfare_server.ledger.rules.populations import committed_of, find
from fieldfare_server.ledger.state import budget
from fieldfare_server.ledger.state.rows import ChargeRow, Fact, said
from fieldfare_server.ledger.state.state import State
from fieldfare_server.ledger.state.windows import Window

LONGEST_KEY = 100
End: TypeAlias = events.ChargeCommitted | events.ChargeReleased
_FINAL = {"commit": "committed", "release": "released"}


def check(key: str, what: str, why: str) -> None:
    """Raise `BadInput` unless a charge has a usable key, and says what was trained and why."""
    if len(key) > LONGEST_KEY or not is_line(key):
        raise WrongForm(f"key {key[:80]!r}", f"a key is 1 to {LONGEST_KEY} printable characters.", "my-training-1")
    for field, text in (("what", what), ("why", why)):
        if not text:
            raise NotGiven(f"{field} of charge {key!r}", "the journal needs it: what was trained, and why.")


def reserve(state: State, name: str, price: Price | None, asked: Mapping[str, str]) -> events.ChargeReserved | None:
    """Set a loss aside for every user of a population; None where it is reserved already.

    Args:
        price: what it takes; None where a charge of that key was known.
        asked: `key`, `who`, `what`, `why` and `loss` of the charge.

    Raises:
        BadInput: a key of another's charge, of another loss or of a charge that is closed.
    """
    population = find(state, name)
    earlier = population.charges.get(asked["key"])
    if earlier is not None:
        _require_same(earlier, asked)
        return None
    assert price is not None
    largest = population.largest(population.terms) if population.row.individual else None
    return events.ChargeReserved(**asked, price=price.to_json(), largest=largest)


def reserved(state: State, record: Record, event: events.ChargeReserved) -> Iterator[Fact]:
    """Yield a charge that is held. Raises `BudgetRefused` if it does not fit, `BadInput` for a closed population."""
    population = state.populations[record.place]
    require(event.key not in population.charges, "its key names another charge")
    if population.row.state != "open":
        raise NotNow(f"a charge to population {record.place!r}", f"it is {population.row.state}.", "another population")
    price, terms = Price.from_json(event.price), population.terms
    # Negative parts would give back what others have spent.
    require(price.mu_squared >= 0 and price.leak >= 0, "its price is below 0")
    require_room(record.place, price, committed_of(population, event.largest), terms, population.window(record.at))
    yield _row(record, event)


def carried(state: State, record: Record, event: events.ChargeCarried) -> Iterator[Fact]:
    """Yield a charge that is spent. What was spent stays charged, even where it does not fit."""
    require(event.key not in state.populations[record.place].charges, "its key names another charge")
    price = Price.from_json(event.price)
    require(price.mu_squared >= 0 and price.leak >= 0, "its price is below 0")
    row = _row(record, event)
    yield row
    yield row._replace(state="committed", closed_at=record.at)


def _row(record: Record, event: events.ChargeReserved | events.ChargeCarried) -> ChargeRow:
    """A charge that is held."""
    return ChargeRow(**said(ChargeRow, event), population=record.place, state="reserved", reserved_at=record.at)


def close(state: State, name: str, event: End, actor: str, anyones: bool) -> End | None:
    """Return `event`, which ends a reserved charge; None where it was closed so already.

    anyones: also one that another than `actor` reserved, which is for administrators.

    Raises `BadInput` for an unknown key, another's charge, and a charge that was closed the other way: what
    was committed is spent.
    """
    charge, key, how = find(state, name).charges.get(event.key), event.key, event.action.partition(".")[2]
    if charge is None:
        raise NotFound(f"charge {key[:80]!r}", f"population {name!r} has none with that key.", "reserve it first")
    if not anyones and charge.who != actor:
        raise NotAllowed(f"to {how} charge {key!r}", f"{charge.who} reserved it.", f"{charge.who}, or an administrator")
    if charge.state == _FINAL[how]:
        return None
    return event


def closed(state: State, record: Record, event: End) -> Iterator[Fact]:
    """Yield a charge that is spent, or that returns. Raises `BadInput` for one that is closed."""
    charge = state.populations[record.place].charges[event.key]
    how = event.action.partition(".")[2]
    if charge.state != "reserved":
        why = "what is spent never returns." if charge.state == "committed" else "it was released, and is not held."
        raise NotNow(f"to {how} charge {event.key!r}, which is {charge.state}", why, "another key")
    yield charge._replace(state=_FINAL[how], closed_at=record.at)


def _require_same(earlier: ChargeRow, asked: Mapping[str, str]) -> None:
    """Raise `BadInput` unless the charge is reserved, and `asked` for by the same trainer in the same words."""
    words = {"who": "trainer's charge", "loss": "loss", "what": "training", "why": "reason"}
    for column, value in asked.items():
        if getattr(earlier, column) != value:
            why = f"that key names another {words[column]}, {getattr(earlier, column)!r}; nothing was charged."
            raise Differs(f"charge {earlier.key!r}", why, "another key")
    if earlier.state != "reserved":
        why = f"it is {earlier.state}, and one charge pays for one training; nothing was charged."
        raise NotNow(f"charge {earlier.key!r}", why, "another key for another training")


def require_room(name: str, price: Price, committed: Price, terms: budget.Terms, window: Window | None) -> None:
    """Raise `BudgetRefused` unless a charge of `price` fits beside what is committed of the user who has least left."""
    what, planned = f"a charge of mu {price.mu:.6g} on population {name!r}", PrivacyLoss(price.mu_squared)
    if not terms.hold(committed + price):
        refused = budget.refusal(name, planned, price, committed, terms, what)
        if window is not None and refused.code != "leak-spent" and window.holds_less(committed, terms):
            window.require(what, planned, price)
        raise refused
    if window is not None:
        window.require(what, planned, price)
