"""Names for the arrays of the privacy core. Each function documents the shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfare.lazily import scipy

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


# scipy.signal imports all of scipy.stats, which takes longer than most commands. Its recursive filter is one compiled
# module, which is loaded by itself, and its convolution is three transforms: both give SciPy's bits.


def lfilter(b: ArrayLike, a: ArrayLike, x: ArrayLike) -> Floats:
    """Filter as `scipy.signal.lfilter`: y of a[0] y[t] = b[0] x[t] + b[1] x[t-1] + ... - a[1] y[t-1] - ... of
    vectors.
    """
    b, a, x = np.asarray(b, np.float64), np.asarray(a, np.float64), np.asarray(x, np.float64)
    if a.size == 1:
        return np.convolve(b / a[0], x)[: x.size]
    return _filter()(b, a, x, -1)


def fftconvolve(first: ArrayLike, second: ArrayLike) -> Floats:
    """Convolve a vector with one that is not longer, as `scipy.signal.fftconvolve` in its mode "valid"."""
    first, second = np.asarray(first), np.asarray(second)
    if 1 in (first.size, second.size):
        return np.asarray(first * second, np.float64)
    fft = scipy.fft
    length = fft.next_fast_len(first.size + second.size - 1, real=True)
    product = fft.irfftn(fft.rfftn(first, [length]) * fft.rfftn(second, [length]), [length])
    return cast(Floats, product[second.size - 1 : first.size].copy())


@lru_cache
def _filter() -> Callable[..., Floats]:
    """Return the compiled filter, of vectors and an axis; by way of scipy.signal where SciPy keeps it elsewhere."""
    signal = find_spec("scipy.signal")  # which imports nothing
    spec = PathFinder.find_spec("scipy.signal._sigtools", signal.submodule_search_locations if signal else None)
    if spec is None or spec.loader is None:
        from scipy.signal import lfilter as filtered

        return cast(Callable[..., Floats], filtered)
    compiled = module_from_spec(spec)
    spec.loader.exec_module(compiled)
    return cast(Callable[..., Floats], compiled._linear_filter)
