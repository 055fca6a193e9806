"""Dyadic nodes: the order in which they close.

Rounds are 1-based in this file only, as in the literature: a node of height h is [a 2^h + 1, (a + 1) 2^h], and it
*closes* in round (a + 1) 2^h.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

# (first round, last round), both inside, 1-based.
Node = tuple[int, int]


def height_of(t: int) -> int:
    """Return the height of the largest node that closes in round t >= 1: the number of trailing zero bits of t."""
    return (t & -t).bit_length() - 1


def closing(t: int) -> list[Node]:
    """Return the nodes that close in round t >= 1, the smallest first."""
    return [(t - (1 << h) + 1, t) for h in range(height_of(t) + 1)]


def nodes(rounds: int) -> Iterator[Node]:
    """Yield all nodes that close by round `rounds`, in order of closing and then of size: 2 n - popcount(n) of them."""
    for t in range(1, rounds + 1):
        yield from closing(t)


def node_count(rounds: int) -> int:
    """Return how many nodes close by round `rounds` >= 0. It is also the index of the leaf of round `rounds` + 1."""
    return 2 * rounds - rounds.bit_count()


def closing_round(node: int) -> int:
    """Return the round, counted from 0, in which node number `node` >= 0 closes: node_count(t) <= node <
    node_count(t + 1).
    """
    return bisect_right(range(node + 2), node, key=node_count) - 1
