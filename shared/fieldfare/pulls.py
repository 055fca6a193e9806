"""How soon Flower looks again for a part of a message that its sender is still uploading.

A message can be seen before its parts are there, on each of its three hops. Flower 1.41 then waits a second, then two,
and has no setting for it: rare where looks are three seconds apart, but most of a round where they are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FIRST_WAIT = 0.05
"""Seconds before the second look for a part; doubled with every further one, up to Flower's own ten seconds."""


def look_sooner(pull: Callable[..., Any]) -> bool:
    """Shorten the first wait of Flower's function `pull`, in this process; False where it has no such wait (untouched).

    pull: `pull_objects` or `pull_and_inflate_object_from_tree` of `flwr.supercore.inflatable.inflatable_utils`, given
    by the caller because this package does not know Flower. Waits are a default of theirs, which nobody overrides.
    """
    defaults = getattr(pull, "__kwdefaults__", None)
    if not defaults or not isinstance(defaults.get("initial_backoff"), int | float):
        return False
    defaults["initial_backoff"] = min(defaults["initial_backoff"], FIRST_WAIT)
    return True
