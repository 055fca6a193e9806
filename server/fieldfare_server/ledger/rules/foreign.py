"""Charges by other trainers: a loss is reserved before it happens, then committed, or released if it never did.

Which users another trainer touched is unknown, so each charge is one common term in every user's account
(`rows.base`), never n updates. A reservation counts like a charge until it is released: a trainer that dies between the
two stays charged. A request may be repeated after a lost answer: the same key names the same charge. The same key with
another loss or other words, from another trainer, or after the charge was committed or released, is refused: a second
training needs a second charge. A trainer closes its own charges only: what another has reserved may have happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from fieldfare.accounting.filter import Price
from fieldfare.accounting.foreign import Loss, priced
from fieldfare.errors import BadInput, BudgetRefused
from fieldfare.text import decimal
from fieldfare_server.ledger.chain import canonical
from fieldfare_server.ledger.sql import models, rows
from fieldfare_server.ledger.sql.journal import Entry, Journal, clean
from fieldfare_server.ledger.state import budget
from fieldfare_server.ledger.state.replay import Replay
from fieldfare_server.ledger.states import ChargeState

LONGEST_KEY = 100
_FINAL: Mapping[str, ChargeState] = {"commit": "committed", "release": "released"}


def reserve(journal: Journal, name: str, key: str, loss: Loss, *, what: str, why: str, actor: str) -> None:
    """Set `loss` aside for every user of a population, durably, before anything is released.

    Raises:
        BudgetRefused: it does not fit.
        BadInput: an impossible loss, a key of another's charge, of another loss or of a charge that is closed, a closed
            population, no reason.
    """
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable() or key.strip() != key:
        raise BadInput(f"key {key[:80]!r}", f"a key is 1 to {LONGEST_KEY} printable characters.", "my-training-1")
    what, why, actor = clean(what, 200).strip(), clean(why, 2000).strip(), clean(actor, 200)
    for field, text in (("what", what), ("why", why)):
        if not text:
            raise BadInput(f"{field} of charge {key!r}", "the journal needs it: what was trained, and why.")
    described = canonical(loss.model_dump(mode="json", exclude_none=True))
    # Priced before the transaction: under sampling a price is a numerical convolution, and other writers wait.
    with journal.database.read() as connection:
        population = rows.population_row(connection, name)
        known = _find(connection, population.id, key)
    left = max(0.0, population.leak - journal.proof.ask(lambda replay: replay.populations[name].base()).leak)
    price = None if known is not None else priced(loss, population.adjacency, left)

    def work(connection: Connection, entry: Entry, replay: Replay) -> None:
        row = rows.population_row(connection, name)
        earlier = _find(connection, row.id, key)
        if earlier is not None:
            _require_same(earlier, {"who": actor, "loss": described, "what": what, "why": why})
            return
        if row.state != "open":
            raise BadInput(f"a charge to population {name!r}", "it is closed.", "another population")
        assert price is not None
        proven = replay.populations[name]
        committed, terms = proven.committed(), proven.terms
        if not terms.hold(committed + price):
            raise _refusal(name, price, committed, terms)
        values: dict[str, Any] = {
            "key": key,
            "who": actor,
            "what": what,
            "why": why,
            "loss": described,
            "price": price.to_json(),
        }
        state = {"state": "reserved", "reserved_at": entry.now, "closed_at": None}
        connection.execute(insert(models.charges).values({**values, **state, "population_id": row.id}))
        # What is committed of the user who has least left: the journal's reader has no odometers at hand.
        largest = {"largest": proven.largest(terms)} if proven.individual else {}
        entry.append("charge.reserve", actor, {**values, **largest}, population=name)

    journal.admit(work)


def close(journal: Journal, name: str, key: str, how: str, *, actor: str, anyones: bool = False) -> None:
    """Commit or release a reserved charge; repeating it changes nothing.

    anyones: also one that another than `actor` reserved, which is for administrators.

    Raises `BadInput` for an unknown key, another's charge, and a charge that was closed the other way: what was
    committed is spent.
    """
    state, actor = _FINAL[how], clean(actor, 200)

    def work(connection: Connection, entry: Entry, _: Replay) -> None:
        population = rows.population_row(connection, name)
        charge = _find(connection, population.id, key)
        if charge is None:
            raise BadInput(f"charge {key[:80]!r}", f"population {name!r} has none with that key.", "reserve it first")
        if not anyones and charge.who != actor:
            raise BadInput(
                f"to {how} charge {key!r}", f"{charge.who} reserved it.", f"{charge.who}, or an administrator"
            )
        if charge.state == state:
            return
        if charge.state != "reserved":
            why = "what is spent never returns." if charge.state == "committed" else "it was released, and is not held."
            raise BadInput(f"to {how} charge {key!r}, which is {charge.state}", why, "another key")
        c = models.charges.c
        where = (c.population_id == population.id, c.key == key)
        connection.execute(update(models.charges).where(*where).values(state=state, closed_at=entry.now))
        entry.append(f"charge.{how}", actor, {"key": key}, population=name)

    journal.admit(work)


def find(connection: Connection, population: Row[Any], key: str) -> Row[Any]:
    """The row of a charge. Raises `BadInput` if there is none."""
    row = _find(connection, population.id, key)
    if row is None:
        raise BadInput(f"charge {key[:80]!r}", f"population {population.name!r} has none with that key.")
    return row


def _find(connection: Connection, population_id: int, key: str) -> Row[Any] | None:
    c = models.charges.c
    return connection.execute(select(models.charges).where(c.population_id == population_id, c.key == key)).first()


def _require_same(earlier: Row[Any], asked: Mapping[str, str]) -> None:
    """Raise `BadInput` unless the charge is reserved, and `asked` for by the same trainer in the same words."""
    words = {"who": "trainer's charge", "loss": "loss", "what": "training", "why": "reason"}
    for column, value in asked.items():
        if earlier._mapping[column] != value:
            raise BadInput(
                f"charge {earlier.key!r}",
                f"that key names another {words[column]}, {earlier._mapping[column]!r}; nothing was charged.",
                "another key",
            )
    if earlier.state != "reserved":
        raise BadInput(
            f"charge {earlier.key!r}",
            f"it is {earlier.state}, and one charge pays for one training; nothing was charged.",
            "another key for another training",
        )


def _refusal(name: str, price: Price, committed: Price, terms: budget.Terms) -> BudgetRefused:
    if committed.leak + price.leak > terms.leak:
        left = max(0.0, terms.leak - committed.leak)
        return BudgetRefused(
            f"a charge on population {name!r}",
            f"it takes {decimal(price.leak, 3)} of the population's leak, of which {decimal(left, 3)} is left.",
            "a loss without delta, or a population that was created with a leak (--leak)",
        )
    left_mu = budget.room(committed, terms).mu
    return BudgetRefused(
        f"a charge of mu {price.mu:.6g} on population {name!r}",
        f"with what is spent and reserved of the user who has least left (epsilon {terms.gauge(committed):.6g}) it "
        f"would come to epsilon {terms.gauge(committed + price):.6g}, and the budget is {terms.epsilon:.6g} at delta "
        f"{decimal(terms.delta, 3)}.",
        f"mu {left_mu:.6g}" if left_mu > 0 else "wait for a run to end, or have the budget raised",
    )
