"""What an optimiser decided, kept by name, so that the same strategy is built again wherever it is read.

An optimum is not a function of the plan: another library, processor or number of threads ends the search
elsewhere (dense, `objective = "max"`: 1.25 % between one and two BLAS threads). So every kind that searches
passes its result through `recall`. A run stores what was recalled and reads it ever after
(`fieldfare_server.files.strategies`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

import numpy as np

from fieldfare.arrays import Floats
from fieldfare.factorization.rational import Exponentials


def recall(cache: MutableMapping[str, bytes], name: str, optimise: Callable[[], Floats]) -> Floats:
    """Return the float64 vector that `cache` has under `name`, or else what `optimise` returns, which is put
    there.

    Raises ValueError where the entry is not whole float64 numbers.
    """
    stored = cache.get(name)
    if stored is None:
        stored = cache[name] = optimise().astype("<f8").tobytes()
    return np.frombuffer(stored, dtype="<f8").astype(np.float64)


def recall_exponentials(cache: MutableMapping[str, bytes], optimise: Callable[[], Exponentials]) -> Exponentials:
    """Do as `recall` for a sum of exponentials: the entry is omega, then theta."""

    def vector() -> Floats:
        optimum = optimise()
        return np.concatenate([optimum.omega, optimum.theta])

    omega, theta = recall(cache, "exponentials", vector).reshape(2, -1)
    return Exponentials(omega=omega, theta=theta)
