"""Tasks that ship with Fieldfare: a model, users' data and a score, one task a file."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import TYPE_CHECKING

from fieldfare.errors import BadInput

if TYPE_CHECKING:
    from fieldfare_client.sources import Source


def sources() -> dict[str, Source]:
    """Where data that are in no installed package come from, by name: the `SOURCES` of the tasks' modules."""
    found: list[Source] = []
    for module in pkgutil.iter_modules(__path__):
        found += getattr(importlib.import_module(f"{__name__}.{module.name}"), "SOURCES", ())
    return {source.name: source for source in sorted(found, key=lambda source: source.name)}


def find_source(name: str) -> Source:
    """The source `name`. Raises `BadInput` with the nearest name."""
    known = sources()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1) or [", ".join(known)]
        raise BadInput(f"data {name!r}", "there is no such data set.", near[0])
    return known[name]
