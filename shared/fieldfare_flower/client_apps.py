"""A question about a ClientApp that its public interface does not answer: which functions it has registered.

`@app.train()` returns the function that it registers unchanged, so a decorator above it cannot know that it
comes too late. Without these names (Flower 1.41) the mistake is found by the first message, as a TypeError.
Upstream no issue is known. Unnecessary once a ClientApp shows what it has registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flwr.clientapp import ClientApp


def is_registered(function: Callable[..., object], names: Mapping[str, object]) -> bool:
    """Return whether a ClientApp among the values of `names` (a module's globals) has registered `function` itself."""
    apps = [value for value in list(names.values()) if isinstance(value, ClientApp)]
    handlers = [handler for app in apps for handler in getattr(app, "_registered_funcs", {}).values()]
    return any(_reaches(handler, function) for handler in handlers)


def _reaches(handler: object, function: Callable[..., object]) -> bool:
    """Return whether `handler` is `function`, or wraps it in mods."""
    if handler is function:
        return True
    if getattr(handler, "__module__", "").partition(".")[0] != "flwr":
        return False
    cells = [cell.cell_contents for cell in getattr(handler, "__closure__", None) or ()]
    return any(_reaches(content, function) for content in cells if callable(content))
