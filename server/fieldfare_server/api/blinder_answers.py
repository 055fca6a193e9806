"""What is answered about the blinder of a masked run: from the journal alone, whatever process coordinates the run."""

from __future__ import annotations

import time

from fieldfare.aggregation import NO_ANSWER, PLAIN, parse
from fieldfare.errors import BadInput
from fieldfare.masking.receipts import Receipt
from fieldfare_server.api.schemas import BlinderReceipt, BlinderState
from fieldfare_server.ledger import states, views, watch
from fieldfare_server.ledger.events.runs import Committed, RoundClosed
from fieldfare_server.ledger.reads import ReadSource
from fieldfare_server.ledger.views import utc

_KINDS = RoundClosed.action, Committed.action
# Seconds for which a question may wait: as long as a coordinator waits, at least, before it asks again.
SILENT_AFTER = 10.0


def blinder_state(source: ReadSource, run: views.RunView) -> BlinderState | None:
    """Return what the blinder of `run` has said, and whether it answers; None for a run without masks."""
    try:
        aggregation = parse(run.plan.get("aggregation", PLAIN))
    except (ValueError, TypeError):  # of another version
        return None
    if not aggregation.rings:
        return None
    newest, given = (watch.newest_row(source, run.id, *kinds) for kinds in (_KINDS, _KINDS[1:]))
    # A round is closed right before its question is sent, and a run's end withdraws it.
    asked = newest if newest != given and run.state in states.ACTIVE else None
    interrupted = run.state == "interrupted"
    late = asked is not None and (interrupted or time.time() - asked.at >= SILENT_AFTER)
    silent = late or (interrupted and NO_ANSWER in run.message)
    receipt = None if given is None else _receipt(given, aggregation.party)
    said = []
    if silent:
        said.append(f"No blinder has answered about {_when(run, asked)}." if asked else "No blinder answers.")
    if receipt is not None and given is not None:
        said.append(f"Last receipt: {_when(run, given)}, {'' if receipt.signed else 'NOT '}signed by its key.")
    return BlinderState(
        key=aggregation.party,
        least_nodes=aggregation.fewest_nodes,
        asked_at=asked and asked.at,
        silent=silent,
        receipt=receipt,
        message=" ".join(said) or "It has answered about no round yet.",
    )


def _when(run: views.RunView, row: views.JournalView) -> str:
    return f"round {(row.round or 0) + 1} of {run.rounds}, {utc(row.at):%Y-%m-%d %H:%M:%S} UTC"


def _receipt(row: views.JournalView, party: str) -> BlinderReceipt:
    text = row.body.get("receipt")
    try:
        key = Receipt.parse(text).key
        signed = not party or party.endswith(key)
    except BadInput:
        signed = False
    return BlinderReceipt(round=row.round or 0, at=row.at, signed=signed, text=str(text))
