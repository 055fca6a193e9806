"""Read the arrays of a reply without trusting a byte of them; write arrays with one copy.

Flower carries an array as what `numpy.save` writes. NumPy reads the header of such a file as a Python
literal, which a crafted header of 22 bytes makes fail in ten ways. Here the header must match the grammar of
what NumPy writes, its size must be the size of the data, and nothing is allocated before both were compared.
"""

from __future__ import annotations

import io
import math
import re
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 4096
# What NumPy writes before the values of an array of up to about ten dimensions.
_HEADER_BYTES = 128
_MOST_DIMENSIONS = 32
# What `numpy.save` writes in versions 1 and 2 of the format, for arrays without fields.
_HEADER = re.compile(
    rb"\{'descr': '([<>|=][a-zA-Z]\d{0,4})', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n"
)
_SHAPE = re.compile(rb"(?:|\d+,|\d+(?:, \d+)+)")


class BadReply(ValueError):
    """A message that breaks the contract. `reason` is one of a fixed set of words, safe to count and to show."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}" if detail else reason)


class SharedArray(Array):
    """An array of Flower's that is a reference, and is serialised only where it travels.

    Within a process, `read_array` hands the very values on. The code that makes one must not change `values`
    any more.
    """

    values: NDArray[np.generic]

    def __init__(self, values: NDArray[np.generic]) -> None:
        # Not Flower's __init__, which serialises at once, nor its setter, which forgets what was not serialised yet.
        shared = np.asarray(values).view()
        shared.flags.writeable = False
        named = {"dtype": _name(values.dtype), "shape": shared.shape, "stype": "numpy.ndarray"}
        vars(self).update(named, values=shared)

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """What Flower's own array of these values has as its data."""
        if "_data" not in self.__dict__:
            self.__dict__["_data"] = write_array(self.values).data
        data: bytes = self.__dict__["_data"]
        return data


@lru_cache(maxsize=16)
def _name(dtype: np.dtype[np.generic]) -> str:
    return str(dtype)


# Flower writes the class's name into what travels, and a SuperNode takes no other name than its own class's.
SharedArray.__qualname__ = Array.__qualname__


def data_size(array: Array) -> int:
    """Return how many bytes the data of `array` are, to a header's length; a `SharedArray` is not serialised for it."""
    return _HEADER_BYTES + array.values.nbytes if isinstance(array, SharedArray) else len(array.data)


def read_array(array: Array, dtypes: tuple[str, ...], shape: tuple[int, ...] | None) -> NDArray[Any]:
    """Return the values of `array`, read-only, without a copy.

    Args:
        dtypes: NumPy's names of the types that are allowed, such as "float32", in the machine's byte order.
        shape: the shape that it must have; None: any.

    Raises:
        BadReply: with reason `dtype`, `shape` or `schema`, and nothing else whatever the array holds.
    """
    try:
        return _read(array, dtypes, shape)
    except BadReply:
        raise
    except Exception:
        raise BadReply("schema", "not an array") from None


def _read(array: Array, dtypes: tuple[str, ...], shape: tuple[int, ...] | None) -> NDArray[np.generic]:
    if isinstance(array, SharedArray):  # made in this process: it has one description, its own
        if _name(array.values.dtype) not in dtypes:  # which names another byte order by another name
            raise BadReply("dtype", f"expected {' or '.join(dtypes)}")
        if shape is not None and array.values.shape != shape:
            raise BadReply("shape", "not the model's")
        return array.values
    if array.stype != "numpy.ndarray":
        raise BadReply("dtype", "unknown serialisation")
    data = array.data
    if not isinstance(data, bytes):
        raise BadReply("schema", "not bytes")
    descr, fortran, stored, start = _header(data)
    dtype = np.dtype(descr)
    # Three descriptions must agree: Flower's record, NumPy's header, and the number of bytes.
    if dtype.name not in dtypes or not dtype.isnative or array.dtype != dtype.name:
        raise BadReply("dtype", f"expected {' or '.join(dtypes)}")
    if shape is not None and stored != shape:
        raise BadReply("shape", "not the model's")
    if len(data) - start != math.prod(stored) * dtype.itemsize:
        raise BadReply("shape", "not as many bytes as announced")
    return np.frombuffer(data, dtype, offset=start).reshape(stored, order="F" if fortran else "C")


def write_array(values: NDArray[np.generic]) -> Array:
    """Return `Array(values)`, byte for byte, with one copy of the values where Flower makes two.

    Args:
        values: of any shape, numbers or truth values.
    """
    values = np.asarray(values, order="C")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(values))
    data = b"".join((header.getvalue(), values.reshape(-1).view(np.uint8).data))
    return Array(str(values.dtype), tuple(values.shape), "numpy.ndarray", data)


def _header(data: bytes) -> tuple[str, bool, tuple[int, ...], int]:
    """Return (type, whether columns come first, shape, where the data begin)."""
    width = {b"\x01\x00": 2, b"\x02\x00": 4}.get(data[6:8], 0)
    length = int.from_bytes(data[8 : 8 + width], "little")
    start = 8 + width + length
    if data[:6] != _MAGIC or not width or length > _LONGEST_HEADER or start > len(data):
        raise BadReply("schema", "not an array")
    match = _HEADER.fullmatch(data[8 + width : start])
    if match is None or not _SHAPE.fullmatch(match[3]):
        raise BadReply("schema", "not a header that NumPy writes")
    shape = tuple(int(size) for size in match[3].replace(b",", b" ").split())
    if len(shape) > _MOST_DIMENSIONS:
        raise BadReply("shape", "too many dimensions")
    return match[1].decode(), match[2] == b"True", shape, start
