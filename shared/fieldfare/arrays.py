"""Names for the arrays of the privacy core. Each function documents the shape."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


# scipy.signal imports all of scipy.stats, which takes longer than most commands: it is imported when it is first used.


def lfilter(b: ArrayLike, a: ArrayLike, x: ArrayLike) -> Floats:
    """`scipy.signal.lfilter`: y of a[0] y[t] = b[0] x[t] + b[1] x[t-1] + ... - a[1] y[t-1] - ..., of the shape of x."""
    from scipy.signal import lfilter as filtered

    return cast(Floats, filtered(b, a, x))


def fftconvolve(first: ArrayLike, second: ArrayLike, mode: Literal["full", "valid"] = "full") -> Floats:
    """`scipy.signal.fftconvolve` of two vectors."""
    from scipy.signal import fftconvolve as convolved

    return cast(Floats, convolved(first, second, mode=mode))
