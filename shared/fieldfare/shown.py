"""What `help` and a notebook's completion show of a public class."""

from __future__ import annotations

from abc import ABCMeta
from types import FunctionType


class Shown(ABCMeta):
    """The type of a class of which its own documented names are shown, and none of its bases', nor pydantic's.

    A class that has a `SHOWN` of its own shows those names, its bases' too, in their place.
    """

    def __dir__(cls) -> list[str]:
        if chosen := vars(cls).get("SHOWN"):
            return list(chosen)
        kinds = (FunctionType, property, classmethod, staticmethod)
        named = {name: value for name, value in vars(cls).items() if not name.startswith(("_", "model_"))}
        return [name for name, value in named.items() if isinstance(value, kinds) and value.__doc__]
