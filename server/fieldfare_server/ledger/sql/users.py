"""Users of a population: a salted hash each, and a number in order of first appearance.

A user arrives as a 64-bit pseudonym. The ledger keeps BLAKE2b(pseudonym, key = the population's salt), 8 bytes. A
reader of a copied ledger cannot match users across populations, and has to guess pseudonyms one by one. Two users
whose hashes collide (odds 3e-8 among a million) are counted as one, which can only overstate participation.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fieldfare.hashing import all_differ

_PERSON = b"fieldfare.ledger"


def pseudonyms(ids: ArrayLike) -> NDArray[np.uint64]:
    """`ids` as a one-dimensional uint64 array. Raises ValueError on anything else (negative, float, 2-d)."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError("user ids are a one-dimensional array of 64-bit integers")
    if array.size and np.issubdtype(array.dtype, np.signedinteger) and int(array.min()) < 0:
        raise ValueError("user ids are not negative")
    return array.astype(np.uint64)


def salted(ids: NDArray[np.uint64], salt: bytes) -> NDArray[np.uint64]:
    """The salted hash of each pseudonym, shape of `ids`."""
    keyed, digests = hashlib.blake2b(digest_size=8, key=salt, person=_PERSON), list[bytes]()
    for name in np.ascontiguousarray(ids, dtype="<u8").view("V8").tolist():
        one = keyed.copy()
        one.update(name)
        digests.append(one.digest())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def distinct(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The values in the order in which they first occur, each once."""
    return values if all_differ(values) else values[np.sort(np.unique(values, return_index=True)[1])]


class SortedIndex:
    """A growing map from uint64 to user numbers, as two sorted arrays: 12 bytes an entry, vectorised look-up."""

    def __init__(self) -> None:
        self._keys = np.empty(0, dtype=np.uint64)
        self._values = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return int(self._keys.size)

    def get(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The value of each key, -1 where there is none."""
        found = np.full(keys.shape, -1, dtype=np.int64)
        if self._keys.size:
            order = np.argsort(keys)  # a search from one key to the next stays in the cache
            found[order] = self._find(keys[order])[1]
        return found

    def _find(self, ordered: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Where each of the sorted keys is or would be, and its value, -1 where there is none."""
        place = np.searchsorted(self._keys, ordered)
        if not self._keys.size:
            return place, np.full(ordered.shape, -1, dtype=np.int32)
        at = np.minimum(place, self._keys.size - 1)
        return place, np.where(self._keys[at] == ordered, self._values[at], np.int32(-1))

    def add(self, keys: NDArray[np.uint64], values: NDArray[np.int64]) -> None:
        """Add entries. A known key keeps its value; of equal new keys the first counts."""
        first = np.argsort(keys)
        new = keys[first]
        if (new[1:] == new[:-1]).any():
            new, first = np.unique(keys, return_index=True)
        place, known = self._find(new)
        if not (fresh := known < 0).any():
            return
        place, new, kept = place[fresh], new[fresh], values[first[fresh]].astype(np.int32)
        self._keys, self._values = np.insert(self._keys, place, new), np.insert(self._values, place, kept)
