"""Rows of the log as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fieldfare_server.ledger.events import charges, heads, nodes, populations, runs, tokens
from fieldfare_server.ledger.events.base import Event, Record, Unfit, loads

EVENTS: Mapping[str, type[Event]] = {
    each.action: each
    for module in (populations, runs, charges, tokens, nodes, heads)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Event) and each is not Event
}
"""Every event by its action."""

_BEFORE: Mapping[str, Mapping[str, Any]] = {
    "population.create": {
        **{"accounting": "worst-case", "ceiling_epsilon": None, "ceiling_delta": None},
        **{"two_persons": False, "reservation_seconds": None},
    },
    "population.close": {"state": "closed", "old": {"state": "open"}, "reason": ""},
    "run.start": {"price": None, "format": 0, "strategy": None, "accounting": "worst-case", "most": None},
    "token.create": {"populations": None},
}
"""What bodies of earlier versions do not say."""


def read(row: Mapping[str, Any]) -> Record:
    """A row of the log, by column name, as an event. Raises `Unfit` on an unknown action or a malformed body."""
    action = row["action"]
    kind = EVENTS.get(action)
    if kind is None:
        raise Unfit("audit", str(row["id"]), f"there is no action {action!r}")
    try:
        body = loads(row["body"])
        if action in _BEFORE:
            body = {**_BEFORE[action], **body}
        # Random bits, so that nobody can try counts of users on the row's hash.
        body.pop("blind", None)
        event = kind.of(body)
    except (AttributeError, TypeError, ValueError) as error:
        raise Unfit("audit", str(row["id"]), f"it cannot be read ({type(error).__name__}: {error})") from None
    return Record(row["id"], row["at"], row["actor"], event, row["population"], row["run"], row["round"])
