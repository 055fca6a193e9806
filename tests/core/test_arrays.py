"""The two functions of scipy.signal that prices use, without its import: bit for bit its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from scipy import signal

from fieldfare import arrays


def test_the_filter_has_scipys_bits() -> None:
    random = np.random.default_rng(31)
    for _ in range(300):
        rows, forward, back = (int(random.integers(1, most)) for most in (3000, 20, 64))
        b = random.normal(size=forward)
        a = np.concatenate([[random.normal() + 2], 0.1 * random.normal(size=back - 1)])
        x = random.normal(size=rows)[:: random.choice([1, -1])]
        np.testing.assert_array_equal(arrays.lfilter(b, a, x), signal.lfilter(b, a, x))
    np.testing.assert_array_equal(arrays.lfilter([1.0], [2], np.ones(3)), [0.5, 0.5, 0.5])


def test_the_convolution_has_scipys_bits() -> None:
    random = np.random.default_rng(31)
    for _ in range(300):
        rows = int(random.integers(1, 3000))
        x, y = random.normal(size=rows), random.normal(size=int(random.integers(1, rows + 1)))
        np.testing.assert_array_equal(arrays.fftconvolve(x, y), signal.fftconvolve(x, y, mode="valid"))


def test_a_scipy_that_keeps_its_filter_elsewhere_is_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    load: Callable[..., object] = arrays._filter.__wrapped__
    monkeypatch.setattr(arrays.PathFinder, "find_spec", lambda *_: None)
    assert load() is signal.lfilter


def test_the_filter_needs_no_statistics_and_leaves_scipy_signal_to_others() -> None:
    code = (
        "import sys; from fieldfare.arrays import lfilter; lfilter([1.0], [1.0, 0.5], [1.0, 2.0]);"
        "assert not {'scipy.signal', 'scipy.stats'} & set(sys.modules);"
        "from scipy import signal; signal.lfilter([1.0], [1.0, 0.5], [1.0, 2.0])"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
