"""PyTorch, imported when it is first used: prices, ledgers, the service and every `--help` need none of it.

`from fieldfare.lazily import torch` stands for `import torch` wherever a module is imported by what makes
prices. It costs a look-up of an attribute, and says what to install where PyTorch is missing.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from fieldfare.errors import NotInstalled


@lru_cache
def has_torch() -> bool:
    """Return whether PyTorch is installed. Imports it."""
    try:
        import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return False
    return True


class _Lazy:
    """A module by name; each attribute is looked up in it once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        try:
            module = import_module(self._name)
        except ModuleNotFoundError as error:
            if error.name != self._name:  # it is there, and lacks something of its own
                raise
            raise NotInstalled(
                "PyTorch",
                "is not installed, and models, noise and training need it; prices, ledger and page do not.",
                "pip install 'fieldfare[torch]'",
            ) from None
        value = self.__dict__[name] = getattr(module, name)
        return value


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _Lazy("torch")
