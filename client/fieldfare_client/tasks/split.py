"""Made-up users for data that have none, and users to hold out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def by_labels(
    labels: NDArray[np.generic], users: int, concentration: float | None, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Deal rows to made-up users, class by class.

    Each class is dealt out in shares drawn from a symmetric Dirichlet distribution over the users (Hsu et al.
    2019, "Measuring the Effects of Non-Identical Data Distribution", by class).

    Args:
        labels: the class of each row, (rows,).
        users: how many users.
        concentration: of the distribution; a small one may leave a user without rows. None deals all rows out
            evenly.
        generator: the source of randomness.

    Returns:
        The user (0 to users - 1) of each row, (rows,).
    """
    owner = np.empty(len(labels), np.int64)
    if concentration is None:
        owner[generator.permutation(len(labels))] = np.arange(len(labels)) % users
        return owner
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum(generator.dirichlet(np.full(users, concentration)))[:-1] * len(rows)
        owner[rows] = np.searchsorted(ends, np.arange(len(rows)), side="right")
    return owner


def by_hash(pseudonyms: NDArray[np.uint64], count: int) -> NDArray[np.bool_]:
    """Choose the users to hold out, (users,): the `count` smallest pseudonyms, which are hashes of the ids."""
    chosen = np.zeros(len(pseudonyms), bool)
    chosen[np.argsort(pseudonyms)[:count]] = True
    return chosen
