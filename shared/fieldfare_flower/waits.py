"""How soon Flower looks again for a part of a message that its sender is still uploading, and for how long.

A message can be seen before its parts are there, on each of its three hops. Flower 1.41 then waits a second, then two,
up to ten, and has no setting for it: rare where looks are three seconds apart, but most of a round where they are not.
Where the sender died, it goes on until the SuperLink gives the upload up: three minutes after its last part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FIRST_WAIT = 0.05
"""Seconds before the second look for a part; doubled with every further one."""
LONGEST_WAIT = 2.0
"""Seconds between two looks at most: this long after the end of all hope, or of a round, a pull may still wait."""


def look_sooner(pull: Callable[..., Any]) -> bool:
    """Shorten the waits of Flower's function `pull`, in this process; False where it has no such waits (untouched).

    pull: `pull_objects` or `pull_and_inflate_object_from_tree` of `flwr.supercore.inflatable.inflatable_utils`, given
    by the caller because this package does not know Flower. Waits are a default of theirs, which nobody overrides.
    """
    return _lower(pull, initial_backoff=FIRST_WAIT, backoff_cap=LONGEST_WAIT)


def give_up_after(pull: Callable[..., Any], seconds: float) -> bool:
    """Let Flower's `pull_objects`, in this process and from now on, wait for no message's parts longer than `seconds`.

    False where it has no such limit. Parts that are there already are pulled however late it is.
    """
    defaults = getattr(pull, "__kwdefaults__", None)
    if not defaults or "max_time" not in defaults:
        return False
    defaults["max_time"] = seconds
    return True


def _lower(pull: Callable[..., Any], **wanted: float) -> bool:
    defaults = getattr(pull, "__kwdefaults__", None)
    if not defaults or not all(isinstance(defaults.get(name), int | float) for name in wanted):
        return False
    defaults.update({name: min(defaults[name], value) for name, value in wanted.items()})
    return True
