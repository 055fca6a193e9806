"""Names that Flower does not promise to keep: looked up when they are needed, never imported at the top of a
file.

So importing this package never fails because Flower moved a name. A patch whose name is gone is left out,
with one warning. A question that nothing else can answer raises `FlowerDiffers`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from fieldfare.errors import FieldfareError

log = logging.getLogger("fieldfare.flower")

LACKS = "the installed Flower lacks a name that Flower 1.40 to 1.42 have"


class FlowerDiffers(FieldfareError):
    """The installed Flower lacks a name for which there is no substitute."""


@contextmanager
def required(loss: str) -> Iterator[None]:
    """Guard imports of private names: raises `FlowerDiffers`, which says `loss`, where one of them fails."""
    try:
        yield
    except ImportError as error:
        raise FlowerDiffers(f"{loss}: {LACKS} ({error}).") from None


def find(path: str) -> Any | None:
    """Return the module "a.b", or the object "a.b:name"; None where the installed Flower does not have it."""
    module, _, name = path.partition(":")
    try:
        found = import_module(module)
    except ImportError:
        return None
    return getattr(found, name, None) if name else found


@lru_cache
def warn(loss: str) -> None:
    """Log, once a process, what is lost because Flower differs."""
    log.warning("%s: %s", LACKS, loss)


def load_program(name: str) -> Callable[[], Any]:
    """Return the function behind one of Flower's commands. Ends the process where the command is not installed."""
    # The command's name is public, the module that implements it is not.
    for command in entry_points(group="console_scripts", name=name):
        loaded: Callable[[], object] = command.load()
        return loaded
    sys.exit(f"{name} is not installed: pip install 'fieldfare[server]'")
