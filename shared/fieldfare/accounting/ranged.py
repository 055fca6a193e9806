"""Choices by an exponential mechanism, charged as the Gaussian that dominates them.

Let the log ratio of every output's probabilities in two worlds lie in [t - r, t] for some t: the law has *range* r
(Dong, Durfee, Rogers 2020). Choosing j with probability proportional to exp(eta s_j) has range eta w, where w is the
width max_j d_j - min_j d_j of what a user adds to the scores s: ln (p_j / p'_j) is eta d_j and one number for all j.

**A law of range r is a post-processing of E(mu, 0) (see `filter`) for mu = -2 Phi^-1(1 / (1 + e^(r / 2))).**

*Proof.* The likelihood ratio L has mean 1 in the other world and lies in [e^(t - r), e^t]. Each hockey stick
E (L - e^e)_+ is convex in L, so it is largest for the two values at the ends: every law of this t is a post-processing
of a coin of probability p against one of q, where p / q = e^t and (1 - p) / (1 - q) = e^(t - r) (Blackwell 1953). The
coin's trade-off curve has one vertex, and lies above that of a Gaussian if this vertex does: if Phi^-1(p) - Phi^-1(q)
<= mu. The two equations say logit p - logit q = r. With h(y) = Phi^-1(1 / (1 + e^-y)), which is odd, that is the
largest over x of h(x + r / 2) - h(x - r / 2). h' is even, and h is concave above 0 (below), so h' falls with |y| and
the difference is largest at x = 0: mu = 2 h(r / 2). Swapping the worlds turns t into r - t, and r stays.

*h is concave above 0.* With z = h(y): h' = Phi (1 - Phi) / phi at z, and h'' <= 0 is z h' <= 2 Phi - 1, or F
>= 0 for F(z) = (2 Phi - 1) phi - z Phi (1 - Phi). F(0) = 0 and F' = 2 phi^2 - Phi (1 - Phi), which is
positive at 0. F'' = phi (2 Phi - 1 - 4 z phi): the bracket is 0 at 0, its slope phi (4 z^2 - 2) is first
negative, then positive, and it ends at 1. So F' falls, then rises to its limit 0: it is positive up to some z
and negative beyond. F rises from 0, then falls to its limit 0, and is never negative. QED

r is convex in mu, since h is concave: r(2 mu) >= 2 r(mu). Under `replace_one` a user adds d - d', of width 2 w, and is
charged 2 mu: a choice by eta = r(mu) / w then has range 2 r(mu) <= r(2 mu). One eta serves both adjacencies.
"""

from __future__ import annotations

import math

# mu from which on no more than this is used: float64 would lose the tail, and nobody charges that much.
_LARGEST = 11.0


def range_of(mu: float) -> float:
    """r of the module for a charge of mu, rounded down: 2 ln(Phi(mu / 2) / Phi(-mu / 2))."""
    return 4 * math.atanh(math.erf(min(mu, _LARGEST) / math.sqrt(8))) * (1 - 1e-9)
