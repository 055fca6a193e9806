"""How often, and for how long, Flower asks again for a part of a message that its sender is still uploading.

A message becomes visible before its parts are uploaded, on each of its three hops. Flower 1.41 then waits one
second, then two, up to ten. That matters little where messages are polled every three seconds; with faster
polling it is most of a round. If the sender dies, Flower asks until the SuperLink gives the upload up, three
minutes after its last part.

Upstream: no issue is known; this is the behaviour of Flower 1.41, which has no setting for either wait (pull
request 5613 made the SuperNode wait at all). Both functions become unnecessary once `pull_objects` takes its
waits from its caller. They change defaults of Flower's functions, which none of Flower's own callers
overrides, in this process only.
"""

from __future__ import annotations

import time

from fieldfare_flower import private

# Seconds before the second request for a part. Each further wait is twice as long.
FIRST_WAIT = 0.05
# Upper bound of a wait, in seconds. A pull may overrun its deadline by this much.
LONGEST_WAIT = 2.0

# Of `time.monotonic`.
_until: float | None = None
_PULLS = ("pull_objects", "pull_and_inflate_object_from_tree")


def shorten_part_waits() -> bool:
    """Ask for missing parts sooner, in this process; False, with a warning, where this Flower waits in another way."""
    shortened = [_lower_defaults(name, initial_backoff=FIRST_WAIT, backoff_cap=LONGEST_WAIT) for name in _PULLS]
    if not all(shortened):
        private.warn("it waits for parts of a message at its own pace")
    return all(shortened)


def limit_part_waits(seconds: float) -> bool:
    """Let later pulls of this process wait at most `seconds` for missing parts; False, with a warning, if
    they cannot.

    Each pull may wait so long; `part_time_left` says what is left for all of them together. Parts that are
    already uploaded are pulled even when no time is left.
    """
    global _until
    _until = time.monotonic() + seconds
    defaults = _defaults("pull_objects")
    if "max_time" not in defaults:
        private.warn("a reply that breaks off in mid-upload may hold its round up for minutes")
        return False
    defaults["max_time"] = seconds
    return True


def part_time_left() -> dict[str, float]:
    """Return the keyword that lets a pull wait until the newest `limit_part_waits` is over; nothing where
    there was none.
    """
    if _until is None or "max_time" not in _defaults("pull_objects"):
        return {}
    return {"max_time": max(0.0, _until - time.monotonic())}


def _lower_defaults(name: str, **wanted: float) -> bool:
    defaults = _defaults(name)
    if not all(isinstance(defaults.get(key), int | float) for key in wanted):
        return False
    defaults.update({key: min(defaults[key], value) for key, value in wanted.items()})
    return True


def _defaults(name: str) -> dict[str, float]:
    """Return the keyword defaults of a pull function of Flower: the live dict, so changing it changes the function."""
    pull = private.find(f"flwr.supercore.inflatable.inflatable_utils:{name}")
    return getattr(pull, "__kwdefaults__", None) or {}
