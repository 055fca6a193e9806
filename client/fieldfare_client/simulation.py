"""An in-process node behind Flower's Grid interface: the same two apps, no network, no Ray.

`LocalGrid` hands each message straight to a ClientApp. Replies are produced when they are pulled, one at a time, so
the server holds one update at a time whatever the cohort.
"""

from __future__ import annotations

import logging
import traceback
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

log = logging.getLogger("fieldfare.client")

SERVER_NODE = 1


class LocalGrid(Grid):
    """`nodes` nodes in this process, each hosting its share of the task's users (partition-id, num-partitions)."""

    simulated = True
    """User identity is stable by construction: nobody else can claim to be a node."""

    def __init__(
        self, app: ClientApp, nodes: int, run_config: UserConfig, node_config: UserConfig | None = None
    ) -> None:
        self._app = app
        self._contexts = {
            # Node 1 is the server's own id in Flower.
            index + 2: Context(
                run_id=1,
                node_id=index + 2,
                node_config={**(node_config or {}), "partition-id": index, "num-partitions": nodes},
                state=RecordDict(),
                run_config=run_config,
            )
            for index in range(nodes)
        }
        self._waiting: dict[str, Message] = {}
        self._run = Run.create_empty(1)
        # Messages refuse to be made outside of a Flower task; this process is the task.
        if TaskIdentity._run_id is None:
            TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SERVER_NODE

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message_id = uuid.uuid4().hex
            message.metadata.__dict__["_message_id"] = message_id
            self._waiting[message_id] = message
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        for message_id in list(message_ids):
            message = self._waiting.pop(message_id, None)
            if message is not None:
                yield self.answer(message)

    def answer(self, message: Message) -> Message:
        """What the addressed node replies. An exception becomes an error reply, as it does on a real node."""
        context = self._contexts[message.metadata.dst_node_id]
        try:
            return self._app(message, context)
        except Exception as error:
            # Where it happened, not what it says: an error of a task may quote a user's data.
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(at.filename).name}:{at.lineno}"
            log.warning("node %d: %s at %s", context.node_id, type(error).__name__, where)
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, repr(error)), reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return list(self.pull_messages(self.push_messages(messages)))
