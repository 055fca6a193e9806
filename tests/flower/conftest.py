"""Flowers that lack a private name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from fieldfare_flower import private

Remove = Callable[..., None]


@pytest.fixture
def remove(monkeypatch: pytest.MonkeyPatch) -> Iterator[Remove]:
    """Remove modules ("a.b") and names in modules ("a.b:name") from the installed Flower, for one test."""
    private.warn.cache_clear()

    def remove(*paths: str) -> None:
        for path in paths:
            module, _, name = path.partition(":")
            if name:
                monkeypatch.delattr(sys.modules[module], name)
            else:
                monkeypatch.setitem(sys.modules, module, None)

    yield remove
    private.warn.cache_clear()
