"""A federation in one process, behind Flower's Grid interface: the same two apps, without network or Ray."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fieldfare.errors import EveryUserFailed, OutOfRange, WrongForm
from fieldfare.shown import Shown
from fieldfare_client.main_guard import require_main_guard
from fieldfare_flower import local_grid
from fieldfare_flower.own_data import Tally

if TYPE_CHECKING:
    from fieldfare.blinder_noise import BlinderNoise
    from fieldfare_client.blinder import Blinder
    from fieldfare_flower.local_grid import Run

log = logging.getLogger("fieldfare.client")


class LocalGrid(Grid, metaclass=Shown):
    """Runs any app of Flower's message API, unmodified, in this process: no network, no Ray, no other process.

    Example:
        >>> import fieldfare as ff
        >>> from flwr.app import Message, MetricRecord, RecordDict
        >>> from flwr.clientapp import ClientApp
        >>> from flwr.serverapp import ServerApp
        >>> client, server = ClientApp(), ServerApp()
        >>> @client.query()
        ... def rows(message, context):
        ...     seen = MetricRecord({"rows": 10 + context.node_config["partition-id"]})
        ...     return Message(RecordDict({"seen": seen}), reply_to=message)
        >>> @server.main()
        ... def main(grid, context):
        ...     messages = [grid.create_message(RecordDict(), "query", node, "1") for node in grid.get_node_ids()]
        ...     print(context.run_config, [reply.content["seen"]["rows"] for reply in grid.send_and_receive(messages)])
        >>> grid = ff.LocalGrid(client, nodes=3, run_config={"rounds": 1})
        >>> context = grid.run_app(server)
        {'rounds': 1} [10, 11, 12]

    It behaves as a network does where apps can tell: each message has its own records; a reply answers the
    message that it was made for, whatever the app writes into its metadata; an exception is an error reply of
    code 2, with Flower's text; a node keeps its Context from message to message.

    It differs: a reply is made when it is pulled, so the server holds few updates at a time; timeouts and times
    to live are not enforced; `KeyboardInterrupt` and `SystemExit` of a ClientApp end this process; what the
    app keeps in memory of one node, as a fitted scaler, is there for the next, and no guarantee covers it.

    Args:
        client_app: answers every message.
        nodes: how many nodes there are, at least 1. Their ids are 2, 3, ...; their keys are empty.
        run_config: the run's configuration, which every node sees.
        node_config: further configuration of every node, next to its partition-id and num-partitions.
        at_once: how many nodes answer at the same time, in threads, at least 1; up to twice as many replies wait
            in memory. Results are the same bit for bit, unless the app draws from generators of the process.

    Raises:
        BadInput: no ClientApp, fewer than 1 node or 1 at once, or a Flower whose messages no other process can make.
        RuntimeError: a script without `if __name__ == "__main__":` started this process, in Python's own words.
    """

    SHOWN = ("run_app", "run_config")

    simulated = True  # users cannot be impersonated: all nodes are this process
    tells_faults = True  # not in a sealed trial, which says nothing of users but what it releases
    blinder: Blinder | None = None  # of masked sums: a rehearsal of it, in the same process

    def __init__(
        self,
        client_app: ClientApp,
        nodes: int,
        run_config: UserConfig | None = None,
        node_config: UserConfig | None = None,
        at_once: int = 1,
    ) -> None:
        require_main_guard()
        if not isinstance(client_app, ClientApp):
            raise WrongForm(f"client_app = {client_app!r}"[:200], "answers no message.", "the app of client_app.py")
        for name, count in (("nodes", nodes), ("at_once", at_once)):
            if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
                raise OutOfRange(f"{name} = {count!r}"[:200], "must be a whole number, at least 1.", "1")
        for name, config in (("run_config", run_config), ("node_config", node_config)):
            if not isinstance(config, Mapping | None):
                raise WrongForm(f"{name} = {config!r}"[:200], "is not a table of keys.", '{"num-server-rounds": 3}')
        local_grid.assume_task_identity()
        self._app, self._at_once = client_app, min(at_once, nodes)
        self._run_config: UserConfig = dict(run_config or {})
        first = local_grid.SERVER_NODE + 1
        self._contexts = {
            first + index: self._context(
                first + index, {**(node_config or {}), "partition-id": index, "num-partitions": nodes}
            )
            for index in range(nodes)
        }
        self._waiting: dict[str, Message] = {}
        self._tally = Tally()
        self._shown: set[tuple[str, str]] = set()  # exceptions whose traceback is in the log
        self._run: Run = local_grid.make_run()

    def _context(self, node: int, node_config: UserConfig) -> Context:
        # Own dictionaries: an app that changes its configuration changes it for itself.
        run_config = dict(self._run_config)
        return Context(run_id=1, node_id=node, node_config=node_config, state=RecordDict(), run_config=run_config)

    def rehearse_masks(
        self, directory: Path, plan: str, least_nodes: int, numel: int, noise: BlinderNoise | None = None
    ) -> None:
        """Let all nodes name a blinder of this process, which proves nothing to anybody, but keeps key and journal in
        `directory` as a real one does. It approves `plan` as `Blinder.approve` says.
        """
        from fieldfare_client.blinder import Blinder

        self.blinder = Blinder(directory)
        self.blinder.approve(plan, least_nodes, numel, noise)
        self.name_blinder(self.blinder, directory / "nodes")

    def name_blinder(self, blinder: Blinder, keys: Path) -> None:
        """Let all nodes name `blinder`, which admits them, each with a key of its own in the directory `keys`."""
        from fieldfare_client.masking import BLINDER, NODE_KEY, make_node_key

        keys.mkdir(mode=0o700, exist_ok=True)
        admitted = {}
        for number, context in enumerate(self._contexts.values()):
            file = keys / str(number)
            admitted[make_node_key(file)] = f"node {number}"
            context.node_config |= {BLINDER: blinder.public_key, NODE_KEY: str(file)}
        blinder.admit(admitted)

    def run_app(self, server_app: ServerApp) -> Context:
        """Run a ServerApp on this grid, with the same run_config; returns its context. Raises what the app raises."""
        if not isinstance(server_app, ServerApp):
            raise WrongForm(f"run_app({server_app!r})"[:200], "is not a ServerApp.", "the app of server_app.py")
        context = self._context(local_grid.SERVER_NODE, {})
        server_app(self, context)
        return context

    @property
    def run_config(self) -> UserConfig:
        """The run's configuration, which a strategy cannot ask of Flower's grids."""
        return dict(self._run_config)

    def set_run(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def fault(self) -> EveryUserFailed | None:
        """Return why every user failed who was asked to train since the last call; None where one was well.

        Only a grid whose data are the caller's own may tell.
        """
        return self._tally.take() if self.tells_faults else None

    def get_node_ids(self) -> Iterable[int]:
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = [local_grid.deliver(message) for message in messages]
        self._waiting.update({message.metadata.message_id: message for message in pushed})
        return [message.metadata.message_id for message in pushed]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterator[Message]:
        waiting = (self._waiting.pop(known) for known in list(message_ids) if known in self._waiting)
        return map(self.answer, waiting) if self._at_once == 1 else self._answer_together(waiting)

    def _answer_together(self, messages: Iterator[Message]) -> Iterator[Message]:
        """Yield the replies to `messages` in their order, made in threads."""
        pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="fieldfare-node")
        begun: deque[tuple[Message, Future[Message]]] = deque()
        last: dict[int, Future[Message]] = {}

        def answer(message: Message, before: Future[Message] | None) -> Message:
            if before is not None:  # a node has one Context, and answers one message after another
                wait([before])
            return self.answer(message)

        def begin(messages: Iterable[Message]) -> None:
            for message in messages:
                node = message.metadata.dst_node_id
                # In a copy of this thread's context: lines of the log belong to the same run, and show the same time.
                last[node] = pool.submit(copy_context().run, answer, message, last.get(node))
                begun.append((message, last[node]))

        try:
            begin(islice(messages, 2 * self._at_once))
            while begun:
                reply = begun.popleft()[1].result()
                begin(islice(messages, 1))
                yield reply
        finally:
            # Where it ends early, nodes that train end first: none may still use the data of a run that is over.
            pool.shutdown(wait=True, cancel_futures=True)
            self._waiting.update({message.metadata.message_id: message for message, _ in begun})

    def answer(self, message: Message) -> Message:
        """Return the addressed node's reply. An exception becomes an error reply, as on a real node.

        Example:
            >>> answer = grid.answer(grid.create_message(RecordDict(), "query", next(iter(grid.get_node_ids())), "1"))
            >>> answer.content["seen"]["rows"], grid.fault()
            (10, None)
        """
        context = self._contexts.get(message.metadata.dst_node_id)
        if context is None:
            error = Error(local_grid.NODE_UNAVAILABLE, f"there is no node {message.metadata.dst_node_id}")
            return Message(error, reply_to=message)
        try:
            with self._tally.counting():
                reply: object = self._app(message, context)
            if not isinstance(reply, Message):
                raise TypeError(f"the ClientApp returned {type(reply).__name__}, not a Message")
            return local_grid.as_reply(reply, message)
        except Exception as error:
            # The app and the data are this process's own: its traceback is what a person needs, once a place.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = type(error).__name__, f"{Path(frame.filename).name}:{frame.lineno}"
            log.warning("node %d: %s at %s", context.node_id, *place, exc_info=place not in self._shown)
            self._shown.add(place)
            return local_grid.raised(error, message)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return list(self.pull_messages(self.push_messages(messages)))


local_grid.complete(LocalGrid)
