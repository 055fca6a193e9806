"""Does one user's training depend on another's? Tried out, before a run does it unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict
from numpy.typing import NDArray

from fieldfare.errors import BadInput, TooFew, Unsupported, WrongForm
from fieldfare.schema import pseudonym
from fieldfare_client.independence import Dependent, TrainingRaised, require_independent
from fieldfare_client.private.node import AppNode, Instruction


def check(
    train: Callable[..., object],
    users: Iterable[str],
    *,
    config: Mapping[str, object] | None = None,
    node_config: Mapping[str, Any] | None = None,
    run_config: Mapping[str, Any] | None = None,
) -> None:
    """Train each of `users` alone, and after the others in several orders; compare the updates bit for bit.

    Each time in a process that is forked from this one, where nobody may have trained yet: several trainings
    in one, as on machines that cannot fork, unless the loop says `isolation = "process"`; and each training
    in one of its own. A silent end means that nothing was found with these users: state that a loop carries
    only under other data, what it keeps outside of the machine, files that were there before, and those that
    compiled code reads (safetensors, Parquet, HDF5) stay unseen. Sends nothing and charges nothing.

    Args:
        train: the function under `@ff.private.train`.
        users: two ids or more that the loop can train.
        config: what the server would send, such as {"lr": 0.1}; "server-round" is 1 unless it says otherwise.
        node_config: the Context's node configuration.
        run_config: the Context's run configuration.

    Raises:
        BadInput: fewer than two users; a function that is not decorated; users have trained in this process;
            a loop that raises, with its traceback; or updates that differ: which user's, and what usually
            makes them differ.
    """
    node, ids = getattr(train, "node", None), list(users)
    if not isinstance(node, AppNode):
        raise WrongForm("ff.private.check", "needs the function that @ff.private.train has decorated.")
    if len(ids) < 2 or len(set(ids)) < len(ids):
        raise TooFew("ff.private.check", f"needs two users or more, and got {len(set(ids))}.", "a list of two ids")
    if node.has_trained:
        why = "users have trained in this process, and what they left would be there in every comparison."
        raise Unsupported("ff.private.check", why, "a fresh process, such as a kernel that was restarted")
    context = Context(0, 0, dict(node_config or {}), RecordDict(), dict(run_config or {}))
    point = node.model.initial()
    instruction = Instruction([point], [1.0], 0, 0, {"server-round": 1, **(config or {})})

    def update(place: int) -> NDArray[np.float32]:
        return node.train_once(instruction, point, pseudonym(ids[place]), ids[place], context)

    try:
        for apart in (True,) if node.isolation == "process" else (False, True):
            require_independent(update, ids, apart=apart)
    except Dependent as found:
        user = f"the training of user {ids[found.place]!r}"
        raise BadInput(user, found.why, found.nearest, code="users-dependent") from None
    except TrainingRaised as found:
        user = f"the training of user {ids[found.place]!r}"
        raise BadInput(
            user, f"raises {found.kind}:\n{found}", "a loop that trains each user", code="training-raises"
        ) from None
