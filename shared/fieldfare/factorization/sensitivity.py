"""A sensitivity that says whether it is exact, and the patterns that it is taken over."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal

from fieldfare.errors import OutOfRange

Bound = Literal["exact", "upper bound"]


class Sensitivity(float):
    """An L2 sensitivity; `bound` says whether it is exact or a proven upper bound, `how` names the argument."""

    bound: Bound
    how: str

    def __new__(cls, value: float, bound: Bound, how: str) -> Sensitivity:
        self = super().__new__(cls, value)
        self.bound, self.how = bound, how
        return self


def require_increasing(pattern: Sequence[int]) -> None:
    """Raise `BadInput` unless `pattern` consists of increasing rounds from 0."""
    if any(t < 0 for t in pattern[:1]) or any(a >= b for a, b in itertools.pairwise(pattern)):
        raise OutOfRange(f"pattern {tuple(int(t) for t in pattern)}", "must be increasing rounds from 0.")
