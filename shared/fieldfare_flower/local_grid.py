"""What an in-process `flwr.serverapp.Grid` needs of Flower's inside.

Flower 1.41 lets only its own tasks make a `Message` (strict task identity, pull request 8175), has no public
way to give a message its id, and asks every Grid for a run of a private class. Upstream no issue is known.
Unnecessary once Flower offers an in-process Grid. Each name has a substitute, but for the task identity where
Flower demands one.
"""

from __future__ import annotations

import abc
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flwr.app import Error, Message, Metadata, RecordDict
from flwr.serverapp import Grid

from fieldfare.errors import Unsupported
from fieldfare_flower import private
from fieldfare_flower.messages import record_of

if TYPE_CHECKING:
    from flwr.supercore.run import Run as Run

# The id of the server itself among the nodes.
SERVER_NODE = 1
# The id of the node with partition 0; the others follow in order.
FIRST_NODE = SERVER_NODE + 1
# Error code of the reply of a ClientApp that raised an exception (`ErrorCode` is private, its numbers travel).
CLIENT_APP_RAISED = 2
# Error code of the reply to a message for a node that does not exist.
NODE_UNAVAILABLE = 5


def assume_task_identity() -> None:
    """Let this process make messages, as one of Flower's tasks may; no change where it is such a task.

    Raises `BadInput` where the installed Flower lets no other process make one.
    """
    identity = private.find("flwr.supercore.task_identity:TaskIdentity")
    if identity is not None and getattr(identity, "_run_id", None) is None:
        identity.task_id, identity.run_id, identity.node_id = 1, 1, SERVER_NODE
    try:
        Message(RecordDict(), SERVER_NODE + 1, "train")
    except RuntimeError as error:
        why = f"the installed Flower lets only its own tasks make messages ({error})"
        raise Unsupported("LocalGrid", why.rstrip(".") + ".", "`flwr run`, or flwr 1.40 to 1.42") from None


def make_run() -> Any:
    """Return an empty run for `Grid.run`: of Flower's class, or an object with the same id where there is no
    such class.
    """
    run = private.find("flwr.supercore.run:Run")
    return SimpleNamespace(run_id=1) if run is None else run.create_empty(1)


def deliver(message: Message) -> Message:
    """Return what the addressed node gets of `message`: the same metadata with a new id, and records that it
    may change.

    The arrays are shared, so a copy costs a few references. A strategy may send one RecordDict to all nodes,
    and one ClientApp may empty what it got (`to_torch_state_dict(keep_input=False)`); over a network each has
    its own.
    """
    known, message_id = message.metadata, uuid.uuid4().hex
    fields = (known.group_id, known.created_at, known.ttl, known.message_type)
    addresses = (known.run_id, message_id, known.src_node_id, known.dst_node_id, known.reply_to_message_id)
    content = copy_records(message.content)
    try:
        return Message(content, metadata=Metadata(*addresses, *fields))  # type: ignore[call-overload, no-any-return]
    except TypeError:  # `metadata=` is not promised; then the id goes to where Flower keeps it
        sent = Message(content, known.dst_node_id, known.message_type, ttl=known.ttl, group_id=known.group_id)
    sent.metadata.__dict__["_message_id"] = message_id
    if sent.metadata.message_id != message_id:
        private.warn("replies do not name their message, so every round lasts until its timeout")
    return sent


def copy_records(content: RecordDict) -> RecordDict:
    """Separate records: to add, replace or remove entries changes no other message. Arrays are shared.

    The entries were checked when the first record got them.
    """

    def copy(record: Any) -> Any:
        entries = {key: list(value) if isinstance(value, list) else value for key, value in record.items()}
        return record_of(type(record), entries)

    return record_of(RecordDict, {name: copy(record) for name, record in content.items()})


def as_reply(reply: Message, message: Message) -> Message:
    """Return `reply` as a network delivers it: its content, under metadata that say what it answers and who
    was asked.

    What the ClientApp wrote into its metadata, such as another node's id, is not looked at.
    """
    if reply.has_error():
        return Message(reply.error, reply_to=message)
    return Message(copy_records(reply.content), reply_to=message)


def raised(error: BaseException, message: Message) -> Message:
    """Return the error reply of a ClientApp that raised `error`, in Flower's form."""
    return Message(Error(CLIENT_APP_RAISED, f"{type(error)}:<'{error}'>"), reply_to=message)


def complete(grid: type[Grid]) -> None:
    """Let `grid` be made under a later Flower: further abstract methods of Grid raise `NotImplementedError`."""
    for name in grid.__abstractmethods__:
        setattr(grid, name, _absent(name))
    abc.update_abstractmethods(grid)


def _absent(name: str) -> object:
    def absent(self: Grid, *args: object, **keywords: object) -> object:
        raise NotImplementedError(f"{type(self).__name__} has no {name}: it is newer than the Flower it was made for")

    return absent
