"""Does one user's training depend on another's? Tried out, before a run does it unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from flwr.app import Context, RecordDict

from fieldfare.errors import BadInput
from fieldfare.schema import pseudonym
from fieldfare_client.private.node import Instruction, Node


def check(
    train: Callable[..., Any],
    users: Iterable[str],
    *,
    config: Mapping[str, Any] | None = None,
    node_config: Mapping[str, Any] | None = None,
    run_config: Mapping[str, Any] | None = None,
) -> None:
    """Train each of `users` twice alone and then after the one before them; compare the updates bit for bit.

    A silent end means that nothing was found with these users: state that a loop carries only under other data stays
    unseen. Starts from the initial model; sends nothing and charges nothing.

    Args:
        train: the function under `@ff.private.train`.
        users: two ids or more that the loop can train.
        config: what the server would send, such as {"lr": 0.1}; "server-round" is 1 unless it says otherwise.
        node_config: the Context's node configuration.
        run_config: the Context's run configuration.

    Raises:
        BadInput: fewer than two users, a function that is not decorated, or updates that differ: which user's, and what
            usually makes them differ.
        Exception: whatever the loop raises.
    """
    node, ids = getattr(train, "node", None), list(users)
    if not isinstance(node, Node):
        raise BadInput("ff.private.check", "needs the function that @ff.private.train has decorated.")
    if len(ids) < 2 or len(set(ids)) < len(ids):
        raise BadInput("ff.private.check", f"needs two users or more, and got {len(set(ids))}.", "a list of two ids")
    context = Context(0, 0, dict(node_config or {}), RecordDict(), dict(run_config or {}))
    node.forget()
    point = node.model.initial()
    instruction = Instruction([point], [1.0], 0, 0, {"server-round": 1, **(config or {})})

    def update(user: str) -> torch.Tensor:
        return node.train_once(instruction, point, pseudonym(user), user, context)

    for other, user in zip([ids[-1], *ids], ids, strict=False):
        node.forget()
        alone = update(user)
        node.forget()
        if not _same(alone, update(user)):
            raise BadInput(
                f"the training of user {user!r}",
                "gives two different updates from the same start: it keeps state between calls (an optimizer, a "
                "generator or a cache outside of train), or draws randomness that the seeds do not reach.",
                "everything that changes made inside of train; seeds from torch, numpy.random or random",
            )
        node.forget()
        update(other)
        if not _same(alone, update(user)):
            raise BadInput(
                f"the training of user {user!r}",
                f"gives another update after the training of user {other!r} than alone: it carries their data on.",
                "optimizer, scheduler and caches made inside of train; or rebuild=True where the model keeps them",
            )


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int32), b.view(torch.int32))
