"""Arrays as they travel. What crafted ones do to a round: tests/server/run/test_aggregation.py."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array

from fieldfare_flower.npy import read_array, write_array

FORTRAN = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4),
        np.float64(2.5),
        np.array(3, np.int64),
        np.zeros((0, 4), np.float16),
        np.array([True, False]),
        np.arange(12, dtype=np.uint8)[::3],
        FORTRAN,
    ],
    ids=["float32", "scalar", "no dimension", "empty", "bool", "strided", "columns first"],
)
def test_a_written_array_is_flowers_own(values: np.ndarray) -> None:
    written, flowers = write_array(values), Array(np.array(values, order="C"))
    assert (written.dtype, written.shape, written.stype) == (flowers.dtype, tuple(flowers.shape), flowers.stype)
    assert written.data == flowers.data
    read = read_array(written, (str(np.asarray(values).dtype),), np.shape(values))
    np.testing.assert_array_equal(read, values)
