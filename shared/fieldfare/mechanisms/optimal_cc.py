"""The square-root factorisation of prefix sums: `nu` at nu = 0.

Fichtenberger, Henzinger and Upadhyay 2023 ("Constant matters"): with c_t = binom(2t, t) 4^-t the prefix sums
factor as A = C C, so A B = C and the largest prefix error under one participation is sum_t c_t^2, the least
of all Toeplitz factorisations. It grows like log(T)/pi, so the mechanism needs a horizon. With `window` it is
the banded inverse square root (BISR).

Formal guarantee: that of `nu` at nu = 0.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import ClassVar, Literal

from fieldfare.mechanisms.base import About, Mechanism
from fieldfare.mechanisms.nu import SquareRootSpec
from fieldfare.mechanisms.registry import register
from fieldfare.participation import Participation


@register
class OptimalCCSpec(SquareRootSpec):
    """Optimal continual counting; `engine`, `window` and `tolerance` as for `nu`."""

    about: ClassVar[About] = About(
        source="Fichtenberger, Henzinger, Upadhyay 2023",
        memory="3 to 16 (fast)",
        cost="1 draw, 2 passes a buffer",
        anytime=False,
        slow=False,
        example={"kind": "optimal-cc"},
    )
    kind: Literal["optimal-cc"] = "optimal-cc"

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        return self._build(0.0, rounds, participation, cache)
