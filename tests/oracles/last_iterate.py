"""The noise of the last iterate's bound, by equation (4.2) of Bombari, Seroussi and Mondelli 2025."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfare.accounting.informational import _schedule
from fieldfare.errors import BadInput


def last_iterate_noise(step_sizes: ArrayLike, rho: float) -> NDArray[np.float64]:
    """The least total noise for which every step of `last_iterate` costs exactly rho (rho^2/2-zCDP): equation (4.2),

    rho^2 sigma_k^2 = eta_k^2 - eta_{k+1}^2, and eta_n^2 for the last. Shape (n,). Raises `BadInput` when step sizes
    increase: later noise could then not hide earlier steps.
    """
    eta = _schedule(step_sizes, "step_sizes")
    if not 0 < rho < math.inf:
        raise BadInput(f"rho = {rho}", "must be a finite number above 0.", "1.0")
    squared = np.square(eta)
    drops = np.append(squared[:-1] - squared[1:], squared[-1])
    if (drops < 0).any():
        raise BadInput(f"step_sizes[{int(np.argmin(drops)) + 1}]", "is larger than the step before it.")
    return np.asarray(np.sqrt(drops) / rho, dtype=np.float64)
