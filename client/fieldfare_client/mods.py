"""One line for any ClientApp whose node is one user: `mods=[ff.masked]`, `mods=[ff.budget]`, or both.

The app gets Flower's own two records, as from FedAvg, and answers as it always did. What leaves the node is another
matter: before the app is called its user is charged in the file that FIELDFARE_BUDGET names, and what it replies is
clipped to the plan's norm, rounded, and masked for the blinder that the node's own configuration names. The outermost
of these mods does all of it; the others see that it was done. Put them first in the list, so that they see what leaves.

Who the node's user is, the server does not say: it is `user` of the node's configuration, or else its partition-id.
Nodes that share a file of charges and name neither are one user there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from fieldfare.clipping import clip_one
from fieldfare.errors import FieldfareError, WrongForm
from fieldfare.schema import Schema, pseudonym, texts
from fieldfare.signed_terms import NodeBudgetRefused
from fieldfare_client import budget as own_budget
from fieldfare_client import witness
from fieldfare_client.masking import BLINDER, NotMasked, mask_reply, masking_of
from fieldfare_client.settings import TrainingSettings
from fieldfare_client.told import Handler, without_text
from fieldfare_flower import logs
from fieldfare_flower.messages import HEADER, MASKING, TRAIN, UNBOUND, PlainInstruction, read_metrics, records_of

# Whether an outer one of these mods answers the message of just now.
guarding: ContextVar[bool] = ContextVar("guarding", default=False)
# Whether the answer to it was clipped, charged and masked as its header says, whatever it is called.
answered: ContextVar[bool] = ContextVar("answered", default=False)
MASKED, CHARGED = "masked", "charged"


class AppFailed(FieldfareError):
    """The app answered with an error, whose text stays at the node."""


def masked(message: Message, context: Context, call_next: Handler) -> Message:
    """Let nothing leave this node but masked sums: a mod for an app of Flower's whose node is one user.

    The node's configuration names the blinder and the node's key (`blinder`, `node-key`). What the app replies beside
    its arrays stays at the node, but for metrics that the plan lists, which ride under the mask.

    Example:
        >>> import fieldfare as ff
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp(mods=[ff.masked])

    Raises `NotMasked`, `BlinderNotPinned`, `NodeBudgetRefused` and others: the server is told the class alone.
    """
    return _guarded(message, context, call_next, MASKED)


def budget(message: Message, context: Context, call_next: Handler) -> Message:
    """Charge this node's user in the node's own file before the app is called: a mod, as `masked`.

    The server's strategy says what a round costs: `ff.PrivateStrategy(..., charge_on_nodes=True)`, or a masked plan.

    Example:
        >>> import fieldfare as ff
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp(mods=[ff.budget, ff.masked])

    Raises `NodeBudgetRefused`, and the app is not called. The server is told the word alone.
    """
    return _guarded(message, context, call_next, CHARGED)


def _guarded(message: Message, context: Context, call_next: Handler, needed: str) -> Message:
    if not guarding.get():
        return without_text(lambda message, context: _answer(message, context, call_next, needed))(message, context)
    _require(needed, context)
    return call_next(message, context)


def _require(needed: str, context: Context) -> None:
    """Refuse what a node would do in clear, or uncharged, whose configuration is not that of its app's mod."""
    if needed == CHARGED and not own_budget.is_kept():
        raise NodeBudgetRefused(f"mods=[ff.budget] without {own_budget.VARIABLE}", reason="no-memory")
    if needed == MASKED and not context.node_config.get(BLINDER):
        raise NotMasked("an instruction without masks", "this node's app has mods=[ff.masked].")


def _answer(message: Message, context: Context, call_next: Handler, needed: str) -> Message:
    """Answer by the app, under the node's own rules; in clear where no mask is asked for and none needed."""
    logs.configure_app()
    content = message.content
    # Of "train.x", another function of the app, a box says nothing: one that changes nothing leaves others in the sum.
    if message.metadata.message_type != TRAIN or HEADER not in records_of(content, ConfigRecord):
        own_budget.refuse_plain()
        masking_of(context, RecordDict())  # refuses where a blinder is named; where none is, the next two do
    masking = masking_of(context, content)
    _require(needed, context)
    told = PlainInstruction.read(content)
    witness.watch(context, content)
    cost = own_budget.charge(message, np.array([pseudonym(_user(context))], np.uint64))
    for name in (HEADER, MASKING, *UNBOUND):  # what masks do not bind, the app does not see
        content.pop(name, None)
    sent = {name: array for record in records_of(content, ArrayRecord).values() for name, array in record.items()}
    # Now: the app may empty the record that it gets.
    before = {name: np.array(sent[name].numpy()) for name in told.trained}
    token = guarding.set(True)
    try:
        reply = call_next(message, context)
    finally:
        guarding.reset(token)
    if masking is None:
        return reply
    if reply.has_error():
        raise AppFailed(f"the app answered with an error: {reply.error.reason}")
    update, riding = _clipped(told, before, reply.content)
    answered.set(True)
    return Message(mask_reply(masking, context, cost, told.occasion, update, 1, riding), reply_to=message)


def _user(context: Context) -> str:
    node = context.node_config
    user = node.get("user", node.get("partition-id", ""))
    return "" if user == "" else texts([user])[0]


def _clipped(
    told: PlainInstruction, before: Mapping[str, NDArray[np.generic]], content: RecordDict
) -> tuple[NDArray[np.float32], tuple[float, ...]]:
    """Return the user's clipped update, float32 (d,), and what rides beside it, as a node of many users sums them.

    An update that is not finite is zero. Raises `BadInput` for a reply of other arrays.
    """
    records = list(records_of(content, ArrayRecord).values())
    schema = Schema(told.trained, tuple(map(np.shape, before.values())))
    if len(records) != 1 or not set(schema.names) <= set(records[0]):
        raise WrongForm("the reply", "has not one ArrayRecord with the arrays that are trained.", "those sent")
    update = np.empty(schema.numel, np.float32)
    for name, weight, place in zip(schema.names, told.weights, schema.slices(), strict=True):
        after, start = records[0][name].numpy(), before[name]
        if after.shape != start.shape or after.dtype.kind != "f":
            raise WrongForm(f"the reply's array {name!r}", f"is {after.dtype} {after.shape}.", f"{start.shape}")
        change = after.astype(np.float64) - (0.0 if told.deltas else start.astype(np.float64))
        with np.errstate(over="ignore"):
            update[place] = (weight * change).reshape(-1)
    settings = TrainingSettings.parse(told.settings)
    metrics = () if settings.metrics is None else read_metrics(settings.metrics, content)
    return update, (*clip_one(update, settings.clipping, schema.slices()), *metrics)
