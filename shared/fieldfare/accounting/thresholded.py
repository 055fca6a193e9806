"""Noised counts of items that nobody listed before: what passes a threshold is shown with its name.

Each user has at most k distinct items, of weight 1 each. The sum over users has noise of deviation sigma in each count
of an item that occurred; those above tau are shown with their names, and nothing else.

**Under `zero_out` this is a post-processing of E(mu, d) (see `filter`), mu = sqrt(k) / sigma and
d = 1 - Phi((tau - 1) / sigma)^k** (Wilkins, Kifer, Zhang, Karrer 2022 have an exact analysis).

*Proof.* Items of one user that no other has are k at most, each with count 1. Let W be the world with this user, W0 the
one without, and L the event that one of these items passes. Their noise is independent, so P(L) = d' <= d, and L is
independent of the noise of all other items. Given that L fails, none of the user's own items is shown, so W shows a
function of the other items' noised counts. W0 shows the same function, and those counts differ by a vector of norm at
most sqrt(k). E(mu, d) shows its bit b with probability d, else N(b mu, 1). From it: where b is shown and is 1, draw
from the law of W given L with probability d' / d, and given that L fails else; where it is 0, from W0; where b is not
shown, make the other items' counts from N(b mu, 1) and apply the function. For b = 1 this gives d' (W given L) +
(1 - d') (W given not L) = W, and for b = 0 it gives W0. It is one map, so it serves both orders of the worlds. QED

Under `replace_one` each world has own items that the other lacks, and L and its like may both happen: the
question is refused there.

*What passes by rounding.* On the grid of `privatise` an own item counts at most 1 and half a cell, and what
is shown is above tau after it was rounded by half a cell. Whoever uses tau adds two cells, and takes a d that
is smaller by 2^-17 of itself, since the chance of a tail is right to a factor exp(+-eta), eta <= 2^-19.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def threshold(k: int, sigma: float, leak: float) -> float:
    """tau of the module for a leak of d, rounded up: 1 + sigma Phi^-1((1 - d)^(1 / k)).

    Args:
        k: items of one user, at most.
        sigma: deviation of the noise of a count.
        leak: d, above 0 and at most 1/4.
    """
    # expm1 and log1p keep the digits of a small leak; the quantile of a tail is negative, so a larger one is safe.
    tail = -math.expm1(math.log1p(-leak) / k)  # of one item
    return 1 - sigma * NormalDist().inv_cdf(tail) * (1 + 1e-9)
