"""`ff.private`: many users a node, and your training loop.

**Each user trains in a process of its own**: a copy-on-write child of this one, in which nobody has trained.
So nothing that `train` keeps in memory (an optimizer, a cache, a generator) reaches the next user, and one
user's data move the node's sum by at most the clip norm. Not kept apart are files, the network, databases and
a GPU's state. Make connections inside of `train`; load what is public at import, or each user loads it again.
Where a process cannot be forked (a GPU, JAX, TensorFlow, Windows, macOS) users train one after another in
this one, and the node's log says so: **make everything that changes inside of `train`**, and try it with
`ff.private.check(train, users)`, which compares, bit for bit, what a user gives alone and after another.

The difference that `train` makes to the parameters that require a gradient is clipped and added; a user whose
training raises contributes zero. `config` is the server's `train_config` with "server-round".

Example:
    >>> import fieldfare as ff
    >>> import torch
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp()
    >>> @app.query("users")
    ... @ff.private.users
    ... def users(context):
    ...     return [f"p{i}" for i in range(4)]
    >>> @app.train()
    ... @ff.private.train(lambda: torch.nn.Linear(1, 1), isolation="none")
    ... def train(model, user, context, config):
    ...     with torch.no_grad():
    ...         model.weight += 0.1 * int(user[1:])
    ...     ff.private.metric("done", 1.0)
    >>> @ff.private.measure
    ... def measure(user, name, context):
    ...     return int(user[1:])
    >>> ff.private.check(train, ["p1", "p2"])

As a mod, `ClientApp(mods=[ff.private])`, it clips the replies of any other app to the norm that the server
sends (`clipping_norm`). Put it first in the list, so that it sees what leaves.
"""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, get_args

from flwr.app import Context, Message

from fieldfare.errors import FieldfareError, Unknown
from fieldfare.trees import refuse_trees
from fieldfare_client.private.checking import check
from fieldfare_client.private.mod import clip_reply
from fieldfare_client.private.node import (
    AppNode,
    Build,
    Isolation,
    ListUsers,
    Loop,
    LostDevice,
    Measure,
    UserList,
    WrongDialect,
    metric,
)
from fieldfare_client.task_faults import own_frames
from fieldfare_client.told import TELLING, Handler, refusal, tell
from fieldfare_flower import own_data
from fieldfare_flower.client_apps import is_registered
from fieldfare_flower.npy import BadReply

__all__ = ["check", "measure", "metric", "train", "users"]

log = logging.getLogger("fieldfare.client")

_lists: dict[str, UserList] = {}
"""The last list of users of each module."""
_nodes: dict[str, AppNode] = {}
"""The last training loop of each module."""
_one_node = threading.RLock()
"""Held while a node of this process answers: its loop has the process's random generators, and the app's model."""


def users(function: ListUsers) -> Handler:
    """Answer the server's question for this node's users: `@app.query("users")`, then this decorator below
    it.

    It belongs to the training loop of the same module; of several, the last two definitions belong together.

    Args:
        function: from the Context to the ids of the users that the node hosts: distinct strings, the same at
            every call and on every node that a user may move to.

    Raises:
        TypeError: it is not the lower one of the two decorators, or `function` does not take one argument.
    """
    _require_arguments(function, 1, "@ff.private.users", "users(context)")
    _require_below(function, "@ff.private.users", '@app.query("users")')
    module = getattr(function, "__module__", "")
    listed = _lists[module] = UserList(function)
    node = _nodes.get(module)
    if node is not None and node.user_list is None:
        node.user_list, listed.node = listed, node
    return _handler(function, listed.answer)


def train(build: Build, rebuild: bool = False, isolation: Isolation = "auto") -> Callable[[Loop], Handler]:
    """Train each user of a round by the decorated loop: `@app.train()`, then this decorator below it.

    The loop is called as `train(model, user, context, config)` and changes `model` in place, in a process of
    its own.

    Args:
        build: makes the model; called once a process, always with the same seeds. Its parameters that require
            a gradient must be, by name and shape, what the server trains.
        rebuild: build a model for every user: for loops that wrap it for good (`torch.compile`, Opacus, DDP).
        isolation: "process": each user trains in a copy-on-write child of this process, in which nobody has
            trained; a node that cannot fork refuses. "none": one after another in this process. "auto": as
            "process" where that can be, else as "none", which the node's log says.

    Raises:
        TypeError: it is not the lower one of the two decorators, `build` is not a callable, or the loop does not
            take four arguments.
        BadInput: another `isolation`; `build` is a class of trees.
    """
    if isolation not in get_args(Isolation):
        raise Unknown(
            f"isolation = {isolation!r}", "is unknown.", " or ".join(f'"{one}"' for one in get_args(Isolation))
        )
    refuse_trees("build", build)
    # A module can be called, and makes none.
    if not callable(build) or (hasattr(build, "state_dict") and not isinstance(build, type)):
        made = f"{type(build).__name__} is not a callable that makes the model"
        raise TypeError(f"@ff.private.train(build): {made}, such as its class or lambda: Net(10)")

    def decorate(loop: Loop, *others: object) -> Handler:
        if others:
            raise TypeError("@ff.private.train stands without its model: write @ff.private.train(build)")
        _require_arguments(loop, 4, "@ff.private.train", "train(model, user, context, config)")
        _require_below(loop, "@ff.private.train", "@app.train()")
        module = getattr(loop, "__module__", "")
        node = _nodes[module] = AppNode(loop, build, rebuild, _lists.get(module), isolation)
        if node.user_list is not None:
            node.user_list.node = node
        handler = _handler(loop, node.answer)
        handler.node = node  # type: ignore[attr-defined]
        return handler

    return decorate


def measure(function: Measure) -> Measure:
    """Answer questions about users by the decorated function; it belongs to the training loop above it in its
    module.

    Args:
        function: called as `measure(user, name, context)`, for one user at a time: the user's number, or one
            for each of the user's rows, of what the question names. A user for whom it raises has no value,
            and counts.

    Raises:
        TypeError: `function` does not take three arguments, or there is no training loop above it.
    """
    _require_arguments(function, 3, "@ff.private.measure", "measure(user, name, context)")
    node = _nodes.get(getattr(function, "__module__", ""))
    if node is None:
        raise TypeError("@ff.private.measure: there is no @ff.private.train above it in its module")
    node.measure = function
    return function


def _handler(function: Callable[..., object], answer: Handler) -> Handler:
    def handle(message: Message, context: Context) -> Message:
        with _one_node:
            try:
                return answer(message, context)
            except TELLING as refused:
                return tell(refused, message)
            except Exception as error:
                if _is_ours(error) or own_data.tally_here() is not None:
                    raise
                log.error("this node's app raised an exception, of which the server learns the class", exc_info=True)
                return refusal(type(error).__name__, message)

    # Not functools.wraps: Flower, and readers of the signature, must see (message, context).
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(handle, name, getattr(function, name, None))
    return handle


def _is_ours(error: Exception) -> bool:
    """Return whether no code of the app's raised `error`. Fieldfare's own text quotes nothing of users."""
    return isinstance(error, FieldfareError | BadReply) and own_frames(error) is None


def _require_below(function: Callable[..., object], ours: str, theirs: str) -> None:
    if is_registered(function, getattr(function, "__globals__", {})):
        raise TypeError(f"{ours} must stand below {theirs}: the app has registered the function without it")


def _require_arguments(function: Callable[..., object], count: int, ours: str, form: str) -> None:
    if not callable(function):
        raise TypeError(f"{ours}: {type(function).__name__} is not a function")
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError as error:
        raise TypeError(f"{ours}: the function must be callable as {form}: {error}") from None
    except ValueError:
        return  # a builtin without a signature


if TYPE_CHECKING:
    _Module = object  # of a ModuleType, type checkers let every name pass
else:
    _Module = ModuleType


class Private(_Module):
    """What `ff.private` is: this module, which is also a mod. To type checkers no module can be called."""

    LostDevice = LostDevice
    WrongDialect = WrongDialect
    check = staticmethod(check)
    measure = staticmethod(measure)
    metric = staticmethod(metric)
    train = staticmethod(train)
    users = staticmethod(users)

    def __call__(self, message: Message, context: Context | None = None, call_next: Handler | None = None) -> Message:
        if context is None or call_next is None:
            raise TypeError(
                "ff.private is a mod, ClientApp(mods=[ff.private]); decorators are @ff.private.train(build) and "
                "@ff.private.users"
            )
        return clip_reply(message, context, call_next)


sys.modules[__name__].__class__ = Private  # type: ignore[assignment]
