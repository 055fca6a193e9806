"""Rows of the log as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fieldfare_server.ledger.events import charges, heads, nodes, populations, runs, tokens
from fieldfare_server.ledger.events.base import Event, Record, Unfit, loads

# Every event by its action.
EVENTS: Mapping[str, type[Event]] = {
    each.action: each
    for module in (populations, runs, charges, tokens, nodes, heads)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Event) and each is not Event
}


def read(row: Mapping[str, Any]) -> Record:
    """A row of the log, by column name, as an event. Raises `Unfit` on an unknown action or a malformed body."""
    action = row["action"]
    kind = EVENTS.get(action)
    if kind is None:
        raise Unfit("audit", str(row["id"]), f"there is no action {action!r}")
    try:
        body = loads(row["body"])
        # Random bits, so that nobody can try counts of users on the row's hash.
        body.pop("blind", None)
        event = kind.of(body)
    except (AttributeError, TypeError, ValueError) as error:
        raise Unfit("audit", str(row["id"]), f"it cannot be read ({type(error).__name__}: {error})") from None
    return Record(row["id"], row["at"], row["actor"], event, row["population"], row["run"], row["round"])
