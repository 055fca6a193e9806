"""A federation in one process, behind Flower's Grid interface: the same two apps, without network or Ray."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fieldfare_flower import local_grid

if TYPE_CHECKING:
    from fieldfare_flower.local_grid import Run

log = logging.getLogger("fieldfare.client")


class LocalGrid(Grid):
    """Hands each message straight to a ClientApp.

    A reply is made when it is pulled, so the server holds one update at a time, however large the cohort is.

    Args:
        app: answers every message.
        nodes: how many nodes there are; each hosts its share of the task's users (partition-id, num-partitions).
        run_config: the run's configuration, which every node sees.
        node_config: further configuration of every node.
    """

    simulated = True
    """Users cannot be impersonated: all nodes are this process."""

    def __init__(
        self, app: ClientApp, nodes: int, run_config: UserConfig, node_config: UserConfig | None = None
    ) -> None:
        local_grid.assume_task_identity()
        self._app = app
        first = local_grid.SERVER_NODE + 1
        self._contexts = {
            first + index: Context(
                run_id=1,
                node_id=first + index,
                node_config={**(node_config or {}), "partition-id": index, "num-partitions": nodes},
                state=RecordDict(),
                run_config=run_config,
            )
            for index in range(nodes)
        }
        self._waiting: dict[str, Message] = {}
        self._run: Run = local_grid.make_run()

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
        pushed = {local_grid.assign_message_id(message): message for message in messages}
        self._waiting.update(pushed)
        return list(pushed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        for message_id in list(message_ids):
            message = self._waiting.pop(message_id, None)
            if message is not None:
                yield self.answer(message)

    def answer(self, message: Message) -> Message:
        """The addressed node's reply. An exception becomes an error reply, as on a real node."""
        context = self._contexts[message.metadata.dst_node_id]
        try:
            return self._app(message, context)
        except Exception as error:
            # Log the place, not the text: an error of a task may quote a user's data.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(frame.filename).name}:{frame.lineno}"
            log.warning("node %d: %s at %s", context.node_id, type(error).__name__, place)
            return Message(Error(local_grid.CLIENT_APP_RAISED, repr(error)), reply_to=message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return list(self.pull_messages(self.push_messages(messages)))
