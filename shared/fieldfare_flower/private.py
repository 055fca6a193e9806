"""Names that Flower does not promise to keep: found where they exist, never imported at the top of a file.

Every module of this package that patches or calls Flower's inside looks its names up here, so that importing the module
never fails because Flower moved one. What happens without the name is the caller's decision: a patch is left out, with
one warning; a question that nothing else can answer raises `FlowerDiffers`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from fieldfare.errors import FieldfareError

log = logging.getLogger("fieldfare.flower")

WRITTEN_FOR = "1.41"
"""The release of Flower whose inside this package knows."""


class FlowerDiffers(FieldfareError):
    """The installed Flower lacks a name for which there is no substitute."""


def find(path: str) -> Any | None:
    """The module "a.b", or the object "a.b:name"; None where the installed Flower does not have it."""
    module, _, name = path.partition(":")
    try:
        found = import_module(module)
    except ImportError:
        return None
    return getattr(found, name, None) if name else found


def require(purpose: str, *paths: str) -> tuple[Any, ...]:
    """The objects at `paths`, in order. Raises `FlowerDiffers`, which quotes `purpose`, where one is missing."""
    found = tuple(find(path) for path in paths)
    missing = [path for path, value in zip(paths, found, strict=True) if value is None]
    if missing:
        raise FlowerDiffers(f"{purpose}: the installed Flower has no {missing[0]}; Fieldfare expects {WRITTEN_FOR}.")
    return found


@lru_cache
def warn(effect: str) -> None:
    """Log, once a process, what the user loses because Flower differs."""
    log.warning("the installed Flower differs from %s: %s", WRITTEN_FOR, effect)


def load_program(name: str) -> Callable[[], Any]:
    """The function behind one of Flower's commands. Ends the process where the command is not installed."""
    # The command's name is public, the module that implements it is not.
    for command in entry_points(group="console_scripts", name=name):
        loaded: Callable[[], Any] = command.load()
        return loaded
    sys.exit(f"{name} is not installed: pip install 'fieldfare[server]'")
