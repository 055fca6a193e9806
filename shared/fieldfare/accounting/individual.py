"""What each user has spent: individual accounting over all runs of a population, and its fixed-point unit.

**Odometer.** For user u, run r (noise multiplier sigma_r, adjacency factor f = 1 or 2) and realised pattern P
= P_u,r,

    odo_u = base + sum_r f^2 N_r(P)^2 / sigma_r^2,     N_r(P)^2 = sum_{i,j in P} |G_ij|,                       (1)

with G over *all* rows that the run may still release: a round goes on being revealed by later rows, also if
the user is never asked again. `base` is what all users are charged alike: worst-case runs, and charges by
others whose participation is unknown.

**Theorem (individual filter; Feldman and Zrnic 2021 for Renyi DP, Koskela, Tobaben and Honkela 2023, arXiv
2209.15596, for Gaussian DP).** If no user is ever asked whose odometer would exceed M, everything that all
runs release, with the public record of participation, is a post-processing of E(sqrt M, D) for each user: the
(epsilon, delta) of the population's rectangle (`filter`) holds for every one of them.

*Proof.* In both worlds the same function of the public past decides cohorts, dropouts, starts and stops; only
u's update is replaced. Given the past, each whitened row is normal around b v_t, of which only the component
along v_t knows the world b: a step E(|v_t|, 0). On every path sum |v_t|^2 <= (1) <= M. The filter's theorem
holds path by path.

Conditions, and who sees to them:

* C1 participation depends on public things and on who is available, not on what users train on, except in the
  same way in both worlds. What the record itself tells of a user is not covered: the guarantee is given who
  answered. *Stated.*
* C2 nothing about a user's update decides whether the user takes part: a bad update counts as zero.
  *Enforced*, by nodes or, of Flower apps, by the server. That a reply of another form is refused is not
  covered: *stated*.
* C3 odometers are functions of the public record, never of norms, so their histogram costs nothing. *By
  construction.*
* C4 where presence is secret so is participation: no odometers. *Enforced* by `Plan` and the ledger.
* C5 one M for all users; the epsilon that is reported is M's. *By construction.*

**Unit.** Odometers are whole numbers of 2^-44 mu^2, each increment rounded up. Sums are exact, in any order,
on any machine; a user is overcharged by less than 1.2e-10 in 2 000 participations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange

# mu^2 in units of 2^-44.
Units: TypeAlias = NDArray[np.int64]

# One unit of an odometer, in mu^2.
UNIT = 2.0**-44
# No odometer holds more: mu^2 = 2.6e5, epsilon above 1e5.
MOST_UNITS = 2**62


@dataclass(frozen=True)
class Demand:
    """What a run asks of single users, in units.

    Args:
        most: the most that the run can cost one user.
        costs: what 1, 2, ..., k participations cost a user who takes part as early and as often as allowed.
        rounds: the run's rounds.
        cohort: fewest users with which a round is committed; 0 where a round may have none.
        separation: rounds between two participations of one user.
        newcomers: users who are known to be there, and not registered yet.
        closed: whether no other users will ever come.
        some: whether it asks only some users, and the ledger, which has no names, cannot tell which.
    """

    most: int
    costs: tuple[int, ...]
    rounds: int
    cohort: int
    separation: int
    newcomers: int = 0
    closed: bool = False
    some: bool = False


def units_up(mu_squared: Floats) -> Units:
    """Return mu^2 in units, rounded up. Raises `BadInput` on what is negative, not finite, or above `MOST_UNITS`."""
    values = np.asarray(mu_squared, dtype=np.float64)
    if values.size and not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= MOST_UNITS * UNIT):
        why = f"a user's odometer holds at most {MOST_UNITS * UNIT:g}."
        raise OutOfRange(f"mu^2 = {values.max():.6g} for one user", why, "a larger noise_multiplier")
    # Multiplying by 2^44 is exact.
    return np.ceil(values / UNIT).astype(np.int64)


def from_units(units: int) -> float:
    """Return mu^2 of `units`, rounded up to the next float."""
    value = math.ldexp(float(units), -44)
    return value if int(float(units)) >= units else math.nextafter(value, math.inf)


def round_off(rounds: int) -> float:
    """Bound the relative error of float64 sums of products over `rounds` rounds (Higham 2002, section
    3.1).

    Of a sum of n products, |error| <= n u sum |terms|, u = 2^-53; 16 more for the few operations after it.
    Relative to the product of the two columns' norms, by Cauchy and Schwarz, where terms of a sum have
    opposite signs.
    """
    return (rounds + 16) * 2.0**-53
