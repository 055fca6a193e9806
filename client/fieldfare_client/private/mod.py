"""Clipping on the client for apps that know nothing of it: `ClientApp(mods=[ff.private])`."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fieldfare.errors import WrongForm
from fieldfare_client import budget
from fieldfare_client.masking import masking_of
from fieldfare_client.mods import answered, guarding
from fieldfare_client.private.node import CLIPPING_NORM, norm_of
from fieldfare_client.told import Handler
from fieldfare_flower.messages import HEADER, QUERY_USERS, TRAIN, records_of

log = logging.getLogger("fieldfare.client")


def clip_reply(message: Message, context: Context, call_next: Handler) -> Message:
    """Clip what a plain `train` reply changes to the norm under `clipping_norm` of its instruction.

    The norm is that of all floating arrays together, as for Flower's own `fixedclipping_mod`. Other arrays
    leave as they came: integers cannot be shortened. Everything but a plain `train`, and every error reply,
    passes unchanged; but where the node names a blinder or keeps a budget, the app's evaluations and queries are
    refused, too. The server clips again, whatever a node sends.

    Raises:
        NodeBudgetRefused: this node keeps a budget of its own, and a plain message carries no charge.
        NotMasked: this node sends masked sums only, and a plain message has no masks.
        BadInput: the reply's arrays are not those of the instruction, so that they cannot be clipped. Nothing
            leaves.
    """
    content, configs, kind = message.content, records_of(message.content, ConfigRecord), message.metadata.message_type
    trains = kind.partition(".")[0] == TRAIN
    if trains and HEADER in configs:
        return _by_own_loop(message, context, call_next)
    if not guarding.get() and kind != QUERY_USERS:
        budget.refuse_plain()
        masking_of(context, content if trains else RecordDict())
    if not trains:
        return call_next(message, context)
    norms = [norm_of(record) for record in configs.values() if CLIPPING_NORM in record]
    if not norms:
        _warn_of_no_norm()
        return call_next(message, context)
    # Now: the app may empty the record that it gets.
    sent = {name: array for record in records_of(content, ArrayRecord).values() for name, array in record.items()}
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    records = records_of(reply.content, ArrayRecord)
    if len(records) != 1:
        raise WrongForm("the reply", f"has {len(records)} ArrayRecords.", "one, with the arrays of the instruction")
    ((name, record),) = records.items()
    reply.content[name] = _clipped(sent, record, min(norms))
    return reply


def _by_own_loop(message: Message, context: Context, call_next: Handler) -> Message:
    """Return the reply of an own loop in the cohort dialect, which has clipped, charged and masked by itself.

    Raises `BadInput` for the reply of an app of Flower's own: it answers no server that adds a header to its
    instruction, whatever the app calls its arrays.
    """
    answered.set(False)
    reply = call_next(message, context)
    if not (answered.get() or reply.has_error()):
        why = "is of the cohort dialect, and this app is Flower's own."
        raise WrongForm("the instruction", why, "dialect = 'plain'; of mods, ff.budget before ff.private")
    return reply


def _clipped(sent: Mapping[str, Array], replied: ArrayRecord, norm: float) -> ArrayRecord:
    if not replied.keys() <= sent.keys():
        raise WrongForm("the reply", "has arrays that the instruction has not.", "the names that were sent")
    changes = {}
    for name, array in replied.items():
        before, after = sent[name].numpy(), array.numpy()
        if before.shape != after.shape:
            raise WrongForm(f"the reply's array {name!r}", f"has shape {after.shape}.", str(before.shape))
        if before.dtype.kind == "f" and after.dtype.kind == "f":
            changes[name] = after.astype(np.float64) - before
    length = math.sqrt(math.fsum(float(np.vdot(change, change)) for change in changes.values()))
    # A change that is not finite cannot be shortened: nothing of it leaves.
    factor = min(1.0, norm / length) if 0 < length < math.inf else 0.0
    arrays = {}
    for name in replied:
        before = sent[name].numpy()
        moved = name in changes and factor > 0
        # An array of one number, shape (), is still an array.
        arrays[name] = Array(np.asarray(before + factor * changes[name], dtype=before.dtype)) if moved else sent[name]
    return ArrayRecord(arrays)


@lru_cache
def _warn_of_no_norm() -> None:
    log.warning("ff.private is a mod of this app, but instructions hold no %s: nothing is clipped here", CLIPPING_NORM)
