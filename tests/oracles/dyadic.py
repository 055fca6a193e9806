"""How a range of rounds is composed of dyadic nodes.

COMPOSE of Tran and Cutkosky, "Momentum Aggregation for Private Non-convex ERM" (NeurIPS 2022), appendix A, Algorithm 3.
"""

from __future__ import annotations

from fieldfare.errors import BadInput
from fieldfare.factorization.dyadic import Node, height_of


def compose(first: int, last: int) -> list[Node]:
    """The fewest disjoint dyadic nodes whose union is [first, last], from left to right.

    At most 2 (1 + ceil(log2(last - first + 1))) of them (Proposition 18); for first = 1 as many as `last` has one bits.

    Raises:
        BadInput: not 1 <= first <= last.
    """
    if not 1 <= first <= last:
        raise BadInput(f"rounds [{first}, {last}]", "need 1 <= first <= last.", f"[1, {max(last, 1)}]")
    parts = []
    while first <= last:
        fits = (last - first + 1).bit_length() - 1
        aligned = height_of(first - 1) if first > 1 else fits
        size = 1 << min(fits, aligned)
        parts.append((first, first + size - 1))
        first += size
    return parts
