"""What the server is told of an exception at a node: its class. Flower would send its text, which may quote data."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from flwr.app import Context, Error, Message

from fieldfare.masking.receipts import BlinderWentBack
from fieldfare.signed_head import HeadRefused
from fieldfare.signed_terms import NodeBudgetRefused
from fieldfare_flower.local_grid import CLIENT_APP_RAISED

log = logging.getLogger("fieldfare.client")

Handler = Callable[[Message, Context], Message]
# Of these the server learns more than the class: fixed words and numbers, and what a ledger or a blinder signed.
TELLING = (HeadRefused, NodeBudgetRefused, BlinderWentBack)


def refusal(kind: str, message: Message, told: str = "") -> Message:
    """Answer in Flower's form of an exception's class; only of `TELLING` is there more to tell."""
    return Message(Error(CLIENT_APP_RAISED, f"<class '{kind}'> {told}".rstrip()), reply_to=message)


def tell(refused: HeadRefused | NodeBudgetRefused | BlinderWentBack, message: Message) -> Message:
    """Answer with a refusal of `TELLING`. The node's log says which word the server is told, and the reason in full."""
    log.warning("this node refuses, and tells the server %r: %s", refused.told, refused)
    return refusal(type(refused).__name__, message, refused.told)


def without_text(handler: Handler) -> Handler:
    """Answer an exception with its class alone."""

    @wraps(handler)
    def answer(message: Message, context: Context) -> Message:
        try:
            return handler(message, context)
        except TELLING as refused:
            return tell(refused, message)
        except Exception as error:
            kind = type(error).__name__
            frame = traceback.extract_tb(error.__traceback__)[-1]
            log.warning("this node does not answer: %s at %s:%s", kind, Path(frame.filename).name, frame.lineno)
            log.debug("the exception", exc_info=True)
            return refusal(kind, message)

    return answer
