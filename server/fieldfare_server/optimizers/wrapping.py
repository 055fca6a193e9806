"""An optimizer in front of another: its table in the plan, and the state of both in one."""

from __future__ import annotations

from collections.abc import Mapping

from fieldfare.errors import WrongForm
from fieldfare_server.optimizers.base import ServerOptimizer, State
from fieldfare_server.optimizers.registry import parse

_PREFIX = "base."


def parse_wrapped(value: object, nearest: str) -> ServerOptimizer:
    """Return the table `server_optimizer.base`; `nearest` is an example of its kind. Raises `BadInput`."""
    if not isinstance(value, Mapping | ServerOptimizer):
        example = f'{{ kind = "{nearest}" }}'
        raise WrongForm(f"server_optimizer.base = {value!r}", "must be a table with a kind.", example)
    return parse(value)


def join_state(own: State, wrapped: State) -> State:
    """Return one state of both: the wrapped optimizer's entries are called `base.*`."""
    return own | {_PREFIX + name: value for name, value in wrapped.items()}


def split_state(state: State) -> tuple[State, State]:
    """Return the inverse of `join_state`."""
    own = {name: value for name, value in state.items() if not name.startswith(_PREFIX)}
    return own, {name.removeprefix(_PREFIX): value for name, value in state.items() if name not in own}
