"""Passes of numpy as one loop of machine code, with the same bits, where numba is installed (`fieldfare[compiled]`).

Compiling a loop takes about half a second of CPU, and importing numba a quarter. So a process goes on with numpy until
it has done with it what could have paid for that: whoever draws little waits for no compiler, and whoever draws much
loses no more than was saved. On the arrays with which the loop is compiled numpy makes the result, too. Unless both
are equal to the bit, numpy goes on, with a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Numbers after which compiling pays: a loop saves about 2 ns a number.
WORTH: Final = 1 << 28

_log = logging.getLogger(__name__)


class Pass:
    """A function of arrays that changes the first of them.

    Args:
        passes: it, by numpy. May use the other arrays as scratch.
        loop: it, in what numba compiles: no fused multiply-add, and no sum that may be done in another order.
        signature: of both, in numba's words.
    """

    def __init__(self, passes: Callable[..., Any], loop: Callable[..., Any], signature: str) -> None:
        self._passes, self._loop, self._signature = passes, loop, signature
        self._fastest, self._left, self._once = passes, WORTH, threading.Lock()

    def __call__(self, out: NDArray[np.float64], *others: Any) -> Any:
        self._left -= out.size
        # The lock is never given back: one thread tries once in the life of the process, and no other waits.
        if self._left <= 0 and self._once.acquire(blocking=False):
            return self._compile(out, *others)
        return self._fastest(out, *others)

    def _compile(self, out: NDArray[np.float64], *others: Any) -> Any:
        copies = [each.copy() if isinstance(each, np.ndarray) else each for each in (out, *others)]
        said = self._passes(out, *others)
        try:
            from numba import njit
        except ImportError:
            return said
        compiled = njit(self._signature, nogil=True, error_model="numpy")(self._loop)
        if compiled(*copies) == said and copies[0].tobytes() == out.tobytes():
            self._fastest = compiled
        else:
            _log.warning("numba's %s differs from numpy's on this machine: numpy goes on", self._loop.__name__)
        return said
