"""What `help` and a notebook's completion show of a public class."""

from __future__ import annotations

from abc import ABCMeta


class Shown(ABCMeta):
    """The type of a class whose `help` fits a screen: of its names, those of its own `SHOWN` are shown.

    A class derived from it has no `SHOWN` of its own, and shows all that it has.
    """

    def __dir__(cls) -> list[str]:
        return list(vars(cls).get("SHOWN") or type.__dir__(cls))
