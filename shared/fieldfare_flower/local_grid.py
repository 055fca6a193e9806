"""What an in-process `flwr.serverapp.Grid` needs of Flower's inside.

Flower 1.41 lets only its own tasks make a `Message` (strict task identity, pull request 8175), has no public way to
give a message its id, and asks every Grid for a run of a private class. Upstream no issue is known. Unnecessary once
Flower offers an in-process Grid. A Flower without these names is used as it is.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from flwr.app import Message

from fieldfare_flower import private

if TYPE_CHECKING:
    from flwr.supercore.run import Run as Run

SERVER_NODE = 1
"""The id of the server itself among the nodes."""
FIRST_NODE = SERVER_NODE + 1
"""The id of the node with partition 0; the others follow in order."""
CLIENT_APP_RAISED = 2
"""Error code of the reply of a ClientApp that raised an exception."""


def assume_task_identity() -> None:
    """Let this process make messages, as one of Flower's tasks may; no change where it is such a task."""
    identity = private.find("flwr.supercore.task_identity:TaskIdentity")
    if identity is not None and getattr(identity, "_run_id", None) is None:
        identity.task_id, identity.run_id, identity.node_id = 1, 1, SERVER_NODE


def make_run() -> Any:
    """An empty run for `Grid.run`; None where this Flower has no such class."""
    run = private.find("flwr.supercore.run:Run")
    return None if run is None else run.create_empty(1)


def assign_message_id(message: Message) -> str:
    """Give `message` a new id, which its reply will quote; returns it."""
    message_id = uuid.uuid4().hex
    message.metadata.__dict__["_message_id"] = message_id
    if message.metadata.message_id != message_id:
        private.warn("replies do not name their message, so every round lasts until its timeout")
    return message_id
