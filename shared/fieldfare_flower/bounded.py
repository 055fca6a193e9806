"""Pull no reply that is larger than it may be, and lose no reply to another one that cannot be decoded.

`HttpGrid.pull_messages` of Flower 1.41 takes all replies that are there off the SuperLink, pulls every part
of each into memory, and then decodes them. Three things follow from that:

* A reply may be of any size. One part may have a gigabyte, and an array of 5 MB that names its one chunk a
  million times becomes terabytes when it is decoded.
* An exception while one is decoded loses all others of the same look: the SuperLink delivers a reply once.
* A reply that was not pulled whole stays in the SuperLink's database until the run ends.

`limit_replies` puts a bound on the bytes that are pulled and on the bytes that they become, decodes each
reply where an exception costs that reply alone, and confirms to the SuperLink what was refused, so that it is
deleted there. Flower itself then answers for the node with an error, whose text `refusal` reads.

Upstream: no issue is known. The module becomes unnecessary once Flower has a limit for replies and decodes
them one by one. It replaces two functions in the module of Flower's grid, in this process only.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fieldfare_flower import private
from fieldfare_flower.server_errors import outlasted
from fieldfare_flower.waits import part_time_left

# Bytes of everything in a reply that is not the data of an array: names, metrics, the message itself.
HEADS = 4 << 20
HEADS_PER_ARRAY = 1 << 10
# Arrays travel in chunks of 5 MB; a node may be set to smaller ones, down to about this.
SMALLEST_CHUNK = 64 << 10
# The replies of one look: the largest answer that brings them, and how many bytes of arrays they may hold together.
LOOK_BYTES, LOOK_DATA = 512 << 20, 128 << 20
# Why a reply was refused: it, or what it would become, is too large; it cannot be decoded.
SIZE, SCHEMA = "size", "schema"
# In the text of an error that this process made, which no node can write.
_MARK = secrets.token_hex(16)
_UTILITIES = "flwr.supercore.inflatable.inflatable_utils"
_OBJECTS = "flwr.supercore.inflatable.inflatable_object"


@dataclass(frozen=True)
class ReplyLimit:
    """What one reply may hold.

    Args:
        data: bytes of all its arrays.
        arrays: about how many arrays.
    """

    data: int
    arrays: int = 1

    @property
    def heads(self) -> int:
        """Bytes of all that is not the data of an array."""
        return HEADS + HEADS_PER_ARRAY * self.arrays

    @property
    def parts(self) -> int:
        """How many objects it may be made of."""
        return 64 + 4 * self.arrays + self.data // SMALLEST_CHUNK

    @property
    def most(self) -> int:
        """Bytes of the whole reply."""
        return self.data + self.heads


class _Refused(Exception):
    """A reply that is not taken; the argument is `SIZE` or `SCHEMA`."""


class _Budget:
    """The bytes that one reply may still bring. Its parts are pulled by several threads at once."""

    def __init__(self, most: int) -> None:
        self._left, self._lock = most, threading.Lock()

    def take(self, size: int) -> None:
        """Count `size` bytes, negative ones back. Raises `_Refused` where they are more than are left."""
        with self._lock:
            self._left -= size
            if self._left < 0:
                raise _Refused(SIZE)


class _Pulling(threading.local):
    """What this thread pulls: the budget of its reply, and the bytes that its present request has announced."""

    budget: _Budget | None = None
    announced = 0


_pulling = _Pulling()


class _Decoded(dict[str, bytes]):
    """What `pull_objects` returns for a reply that was decoded already."""

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.message = message


# By name of a module of Flower's: its grid, and the limit of that grid's next pulls.
_limits: dict[str, tuple[Grid, ReplyLimit]] = {}


def limit_replies(grid: Grid, limit: ReplyLimit) -> bool:
    """Let no pull of `grid` take a reply beyond `limit` from now on; False where `grid` pulls in another way.

    Flower's simulation and grids of this process have no wire, and no such limit: they return False without a
    warning.
    """
    module = sys.modules[type(grid).__module__]
    if type(grid).__name__ not in ("HttpGrid", "GrpcGrid"):
        return False
    if module.__name__ not in _limits and not _replace_functions(module):
        private.warn("a reply may have any size, and one that cannot be decoded loses others")
        return False
    _limits[module.__name__] = grid, limit
    _watch_responses(grid, module.__name__)
    return True


def refusal(reply: Message) -> str:
    """Return why this process refused the reply that `reply` stands for, `SIZE` or `SCHEMA`; empty: it did not."""
    if not reply.has_error():
        return ""
    _, mark, reason = str(reply.error.reason or "").partition(_MARK)
    return reason if mark and reason in (SIZE, SCHEMA) else ""


def _replace_functions(module: ModuleType) -> bool:
    """Replace what `module` pulls and decodes with; False where it has no such functions."""
    pull, inflate = getattr(module, "pull_objects", None), getattr(module, "inflate_object_from_contents", None)
    read_head = private.find(f"{_OBJECTS}:get_object_head_values_from_object_content")
    error = private.find(f"{_UTILITIES}:ObjectPullError")
    if pull is None or inflate is None or read_head is None or error is None:
        return False

    def pull_objects(
        object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: object
    ) -> dict[str, bytes]:
        """Pull and decode one reply. Post-order: the last id is the message's."""
        grid, limit = _limits[module.__name__]
        try:
            contents = _pull_bounded(pull, object_ids, pull_object_fn, limit, options)
            _require_small(contents, read_head, limit)
            message = inflate(object_ids[-1], contents)
            if not isinstance(message, Message) or message.metadata is None:
                raise _Refused(SCHEMA)
            return _Decoded(message)
        except error:
            raise
        except Exception as reason:
            if is_of_connection(reason):
                raise
            _confirm(grid, object_ids[-1])
            # Whatever a crafted object makes Flower raise, it is one reply that cannot be used.
            kind = str(reason) if isinstance(reason, _Refused) else SCHEMA
            raise error(object_ids[-1], f"{_MARK}{kind}") from None

    def inflate_object_from_contents(object_id: str, object_contents: dict[str, bytes], **options: object) -> object:
        if isinstance(object_contents, _Decoded):
            return object_contents.message
        return inflate(object_id, object_contents, **options)

    module.pull_objects = pull_objects  # type: ignore[attr-defined]
    module.inflate_object_from_contents = inflate_object_from_contents  # type: ignore[attr-defined]
    return True


def _pull_bounded(
    pull: Callable[..., dict[str, bytes]],
    ids: list[str],
    pull_one: Callable[[str], bytes],
    limit: ReplyLimit,
    options: dict[str, object],
) -> dict[str, bytes]:
    """Return all parts of one reply. Raises `_Refused` as soon as they are more, or larger, than `limit` says."""
    if len(ids) > limit.parts:
        raise _Refused(SIZE)
    budget = _Budget(limit.most)

    def pull_counted(object_id: str) -> bytes:
        _pulling.budget, _pulling.announced = budget, 0
        try:
            content = pull_one(object_id)
        finally:
            # Announced by this part, or by answers that said that it is not there yet.
            budget.take(-_pulling.announced)
            _pulling.budget = None
        budget.take(len(content))
        return content

    # Else each of several replies that break off in one look would be waited for as long as all of them.
    return pull(ids, pull_counted, **{**part_time_left(), **options})


def _require_small(contents: Mapping[str, bytes], read_head: Callable[[bytes], Any], limit: ReplyLimit) -> None:
    """Raise `_Refused` if decoding would take more memory than `limit` says: an array may repeat its chunks."""
    heads = {part: read_head(content) for part, content in contents.items()}
    bodies = {part: contents[part] for part, (kind, _, _) in heads.items() if kind != "ArrayChunk"}
    if sum(map(len, bodies.values())) > limit.heads:
        raise _Refused(SIZE)
    data = 0
    for part, body in bodies.items():
        kind, children, _ = heads[part]
        if kind != "Array":
            continue
        for chunk in json.loads(body[body.index(b"\0") + 1 :])["arraychunk_ids"]:
            data += len(contents[children[chunk]])
            if data > limit.most:
                raise _Refused(SIZE)


def is_of_connection(error: Exception) -> bool:
    """Return whether `error` comes from the connection to the SuperLink, not from a reply."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("httpx", "httpcore", "grpc")


def _confirm(grid: object, message_id: str) -> None:
    """Tell the SuperLink that a reply has arrived, so that it deletes what it keeps of it."""
    request = private.find("flwr.proto.message_pb2:ConfirmMessageReceivedRequest")
    send = getattr(getattr(grid, "_runtime_client", None), "ConfirmMessageReceived", None)
    run, node = getattr(grid, "_run", None), getattr(grid, "node", None)
    if request is None or send is None or run is None or node is None:
        private.warn("a reply that was refused stays in the SuperLink's database until the run ends")
        return
    with outlasted("a reply that was refused stays in its database until the run ends"):
        send(request(node=node, run_id=run.run_id, message_object_id=message_id))


def _watch_responses(grid: object, module: str) -> None:
    """Refuse parts that say that they are together too large before they are read into memory."""
    hooks = getattr(getattr(getattr(grid, "_runtime_client", None), "_client", None), "event_hooks", {})
    watching = hooks.get("response")
    if watching is None:
        private.warn("one part of a reply may have any size")
    elif not any(getattr(hook, "__module__", "") == __name__ for hook in watching):

        def require_small(response: Any) -> None:
            length, budget = response.headers.get("content-length", ""), _pulling.budget
            if not length.isdecimal():
                return
            if response.request.url.path.endswith("pull-messages") and int(length) > LOOK_BYTES:
                # The replies of this look are lost with it; the caller pulls later ones one by one.
                raise _Refused(SIZE)
            if budget is not None:
                # First, because `take` counts what it refuses.
                _pulling.announced += int(length)
                budget.take(int(length))

        watching.append(require_small)
