"""What somebody who knows mechanism and sampler makes of a release: the likelihood ratio of one user's
presence.

A user who contributes s_t in the rounds t of a pattern pi, along one known direction, shifts the release
along it by diag(s) pi. The noise has covariance B B^T = L L^T. With m_t = column t of L^-1 diag(s) and the
whitened release y,

    log P / Q = log E_pi exp(sum_t pi_t u_t - g_pi / 2),      u_t = <m_t, y>,   g_pi = |sum_t pi_t m_t|^2,

and no test of presence is stronger than one that compares it with a threshold (Neyman and Pearson). Where the
pattern is public there is nothing to average over.
"""

from __future__ import annotations

import math

import numpy as np

from fieldfare.accounting import chained
from fieldfare.accounting.importance import Vector
from fieldfare.errors import Unsupported
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import Mechanism
from fieldfare.participation import (
    BallsInBins,
    BMinSep,
    CyclicPoisson,
    Participation,
    Poisson,
    RandomAllocation,
    TruncatedPoisson,
)


def whitening(b: Vector) -> Vector:
    """Lower-triangular L with positive diagonal and L L^T = B B^T.

    From a QR factorisation of B^T: a Cholesky factorisation of B B^T would square the condition number.

    Args:
        b: rows of the noising matrix, shape (rounds, rows of z).
    """
    upper = np.asarray(scipy.linalg.qr(b.T, mode="r")[0])[: b.shape[0]]
    signs = np.where(np.diag(upper) < 0, -1.0, 1.0)
    return np.asarray((upper * signs[:, None]).T)


def public_log_ratios(b: Vector, shifts: Vector, released: Vector) -> Vector:
    """log P / Q of releases whose patterns are known, shape (n,).

    Args:
        b: rows of the noising matrix, (rounds, rows of z).
        shifts: what each user contributes in each round, in standard deviations of z, (rounds, n).
        released: along each user's own direction, in the same unit, (rounds, n).
    """
    factor = whitening(b)
    moved, white = (scipy.linalg.solve_triangular(factor, values, lower=True) for values in (shifts, released))
    return np.asarray((moved * white).sum(axis=0) - (moved**2).sum(axis=0) / 2)


def secret_log_ratios(mechanism: Mechanism, participation: Participation, shifts: Vector, released: Vector) -> Vector:
    """log P / Q of releases whose patterns are secret draws, shape (n,).

    Args:
        mechanism: of at least as many rounds as were released.
        participation: the sampler.
        shifts: what a user contributes in each round, in standard deviations of z, (rounds,).
        released: along each user's own direction, in the same unit, (rounds, n).

    Raises:
        BadInput: no program computes the mean over the patterns of this sampler with this mechanism.
    """
    rounds = len(released)
    factor = whitening(mechanism.noising_matrix(rounds))
    columns = scipy.linalg.solve_triangular(factor, np.diag(shifts), lower=True)
    u = columns.T @ scipy.linalg.solve_triangular(factor, released, lower=True)
    own = np.square(columns).sum(axis=0)[:, None]
    if isinstance(participation, BallsInBins):
        patterns = np.arange(participation.bins)[:, None] == np.arange(rounds) % participation.bins
        squares = np.square(columns @ patterns.T).sum(axis=0)
        return _log_mean(patterns @ u - squares[:, None] / 2)
    if isinstance(participation, Poisson | CyclicPoisson | TruncatedPoisson):
        # Rounds of one group share no noise (`charge`), so the mean over its coins is a product.
        groups = participation.groups if isinstance(participation, CyclicPoisson) else 1
        gains = np.log1p(participation.rate * np.expm1(u - own / 2))
        return _log_mean(np.stack([gains[group::groups].sum(axis=0) for group in range(groups)]))
    strategy = np.abs(mechanism.strategy_matrix(rounds))
    if strategy.shape != (rounds, rounds):
        raise Unsupported(f"attack on kind {mechanism.kind!r}", "its strategy is not square.", "scheme 'balls-in-bins'")
    law = chained.of_matrix(strategy * shifts, participation)
    # Of random allocation the last block is whole; a round beyond the run's end has no column.
    beyond = -rounds % participation.bins if isinstance(participation, RandomAllocation) else 0
    return law.log_power(np.pad(u, ((0, beyond), (0, 0))), 1.0)


def share(participation: Participation) -> float | None:
    """Return the chance that secret draws include a user in a round, the same for all; None for any other
    participation.
    """
    match participation:
        case Poisson(rate) | TruncatedPoisson(rate):
            return rate
        case CyclicPoisson(groups, rate):
            return rate / groups
        case BallsInBins(bins) | RandomAllocation(bins):
            return 1 / bins
        case BMinSep():
            return 1 / participation.period
    return None


def _log_mean(logs: Vector) -> Vector:
    """Return log of the mean of exp over the first axis."""
    return np.asarray(scipy.special.logsumexp(logs, axis=0) - math.log(len(logs)))
