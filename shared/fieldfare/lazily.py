"""PyTorch and SciPy, imported when first used: a `--help` needs neither, and ledgers, service and prices no PyTorch.

`from fieldfare.lazily import torch` stands for `import torch` wherever a module is imported by what trains nothing,
and `scipy` for `import scipy`. It costs a look-up of an attribute, and says what to install where one is missing.
"""

from __future__ import annotations

from functools import lru_cache, partial
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import TYPE_CHECKING

from fieldfare.errors import NotInstalled

_listing = RLock()


@lru_cache
def has_torch() -> bool:
    """Return whether PyTorch is installed. Imports it."""
    try:
        _ = torch.Tensor
    except NotInstalled:
        return False
    return True


class _Lazy:
    """A module by name; each attribute is looked up in it once."""

    def __init__(self, module: str, title: str, why: str, extra: str) -> None:
        self._module, self._lacking = module, (title, why, f"pip install 'fieldfare[{extra}]'")

    def __getattr__(self, name: str) -> object:
        try:
            module = import_module(self._module)
        except ModuleNotFoundError as error:
            if error.name != self._module:  # it is there, and lacks something of its own
                raise
            raise NotInstalled(*self._lacking) from None
        value = self.__dict__[name] = self._taken(module, name)
        return value

    def _taken(self, module: ModuleType, name: str) -> object:
        return getattr(module, name)


class _SciPy(_Lazy):
    """SciPy copies all that NumPy lists, and so imports a compiler's front end and tools of tests: 8 MB.

    While it is imported NumPy lists what is loaded.
    """

    def _taken(self, module: ModuleType, name: str) -> object:
        with _listing:
            numpy = vars(import_module("numpy"))
            listed = {each: numpy[each] for each in ("__all__", "__dir__")}
            numpy.update(__all__=[each for each in numpy["__all__"] if each in numpy], __dir__=partial(list, numpy))
            try:
                return getattr(module, name)
            finally:
                numpy.update(listed)


if TYPE_CHECKING:
    import scipy as scipy
    import torch as torch
else:
    scipy = _SciPy("scipy", "SciPy", "is not installed, and prices need it.", "accounting")
    _why = "is not installed, and models, noise and training need it; prices, ledger and page do not."
    torch = _Lazy("torch", "PyTorch", _why, "torch")
