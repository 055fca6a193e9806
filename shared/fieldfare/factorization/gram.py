"""Optimal factorisations A = B C through the Gram matrix X = C^T C, for prefix sums A.

||row t of A B||^2 = a_t^T X^-1 a_t with a_t the first t + 1 ones, convex in X (Denisov, McMahan, Rush, Smith, Thakurta
2022). Minimised over the positive definite X that satisfy linear constraints under which the sensitivity is known:

- one participation: X_ii = 1;
- fixed order of period b (Choquette-Choo, McMahan, Rush, Thakurta 2023b): X_ij = 0 for i = j mod b, and the
  X_ii of each residue class sum to 1. Orthogonal columns lose nothing: at the optimum M = X^-1 A^T A X^-1 has
  one value v on a class's diagonal and, being positive semidefinite, |M_ij| <= v off it, so an X_ij would
  gain less than it costs;
- minimum separation b (Choquette-Choo et al. 2023a, "(Amplified) Banded Matrix Factorization"): X_ii = 1 and
  X_ij = 0 for |i - j| >= b, so that C has b bands.

**Method.** L-BFGS over X, with directions projected onto the constraints and steps halved until X stays
positive definite. One step is a Cholesky factorisation, an inverse and a symmetric product: 2 T^3 operations.
Near the optimum X^-1 A^T A X^-1 is nearly diagonal, and so is X in the cosine basis, with values l_j ~ 1 / (2
sin(theta_j / 2)). The Hessian is then nearly D -> X^-1 D + D X^-1. Its inverse in that basis, l_i l_j / (l_i
+ l_j), costs two fast cosine transforms and makes the number of steps (30 to 60 for one participation) nearly
independent of T. The maximum over t is reached through p-norms of growing p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fieldfare.arrays import Floats, Indices
from fieldfare.factorization.objective import Objective
from fieldfare.lazily import scipy

# Pairs of steps and gradient changes that L-BFGS keeps.
_MEMORY = 6
_STEPS = 400
# The search ends after three steps in a row whose relative gain is smaller.
_TOLERANCE = 3e-7
# The p-norms that approach the maximum, one after the other.
_POWERS = (8.0, 32.0, 128.0, 512.0)


@dataclass(frozen=True)
class Constraint:
    """Which X are allowed.

    Args:
        free: shape (T, T) of 0 and 1; entries off the diagonal where it is 0 keep their start.
        classes: None where the diagonal keeps its start; else the class of each round, shape (T,), and the
            sum of the diagonal over each class keeps its start.
    """

    free: Floats
    classes: Indices | None

    def project(self, direction: Floats) -> Floats:
        """Return the orthogonal projection of a symmetric matrix onto the directions that keep the
        constraint, in place.
        """
        diagonal = np.diag(direction).copy()
        direction *= self.free
        if self.classes is not None:
            mean = np.bincount(self.classes, diagonal) / np.bincount(self.classes)
            np.fill_diagonal(direction, diagonal - mean[self.classes])
        return direction


def unconstrained(rounds: int) -> Constraint:
    """Constrain nothing off the diagonal, for one participation."""
    return Constraint(1.0 - np.eye(rounds), None)


def fixed_order(rounds: int, period: int) -> Constraint:
    """Keep columns of one residue class orthogonal, and the sum of their squared norms constant."""
    t = np.arange(rounds)
    return Constraint((np.subtract.outer(t, t) % period != 0).astype(np.float64), t % period)


def banded(rounds: int, bands: int) -> Constraint:
    """Keep columns that are `bands` or more apart orthogonal."""
    t = np.arange(rounds)
    lag = np.abs(np.subtract.outer(t, t))
    return Constraint(((lag > 0) & (lag < bands)).astype(np.float64), None)


def start(rounds: int, bands: int, diagonal: Floats) -> Floats:
    """Return the Gram matrix of the square-root Toeplitz matrix cut to `bands` bands, with the given
    diagonal, shape (rounds,).
    """
    k = np.arange(1, min(bands, rounds))
    c = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    strategy = np.zeros((rounds, rounds))
    for lag, value in enumerate(c):
        strategy[np.arange(lag, rounds), np.arange(rounds - lag)] = value
    gram = strategy.T @ strategy
    scale = np.sqrt(diagonal / np.diag(gram))
    gram *= scale[:, None] * scale[None, :]
    return gram


def minimise(gram: Floats, constraint: Constraint, objective: Objective) -> Floats:
    """Return the X of least mean (or largest) squared prefix error, from the feasible `gram`; never worse than it."""
    if objective == "mean":
        return _Search(constraint, 1.0, _TOLERANCE).run(gram)
    best = gram
    for power in _POWERS:
        gram = _Search(constraint, power, 1e-6 if power == _POWERS[-1] else 1e-5).run(gram)
        if prefix_errors(gram).max() <= prefix_errors(best).max():
            best = gram
    return best


def prefix_errors(gram: Floats) -> Floats:
    """Return a_t^T X^-1 a_t, shape (T,): the squared row norms of A B."""
    value = _prefix_parts(gram)
    if value is None:
        raise np.linalg.LinAlgError("the Gram matrix is not positive definite")
    return value[0]


def _prefix_parts(gram: Floats) -> tuple[Floats, Floats] | None:
    """Return (errors, A X^-1), or None where X is not positive definite."""
    factor, failed = scipy.linalg.lapack.dpotrf(gram.T, lower=1, clean=0)
    if failed:
        return None
    inverse, failed = scipy.linalg.lapack.dpotri(factor, lower=1, overwrite_c=1)
    if failed:
        return None
    sums = np.tril(inverse)
    sums += np.tril(inverse, -1).T
    np.cumsum(sums, axis=0, out=sums)
    return np.tril(sums).sum(axis=1), sums


class _Search:
    """L-BFGS for the p-mean of the prefix errors under a constraint."""

    def __init__(self, constraint: Constraint, power: float, tolerance: float) -> None:
        self.constraint, self.power, self.tolerance = constraint, power, tolerance
        n = len(constraint.free)
        spectrum = 1.0 / (2.0 * np.sin(np.pi * (np.arange(n) + 0.5) / (2 * n)))
        self.weights = np.multiply.outer(spectrum, spectrum) / np.add.outer(spectrum, spectrum)
        self.pairs: list[tuple[Floats, Floats, float]] = []
        self.scale = 0.0

    def run(self, gram: Floats) -> Floats:
        """Return the end of the search from the feasible `gram`. Raises `LinAlgError` where that is not
        positive definite.
        """
        start = self.value(gram)
        if start is None:
            raise np.linalg.LinAlgError("the start is not positive definite")
        value, gradient = start
        small = 0
        for _ in range(_STEPS):
            direction = self.direction(gradient)
            slope = float(np.vdot(gradient, direction))
            if not slope < 0:
                break
            # The first direction has no scale yet: move no entry by more than a tenth of the least diagonal entry.
            step = 1.0 if self.pairs else 0.1 * float(np.diag(gram).min()) / max(float(np.abs(direction).max()), 1e-300)
            tried = self.search(gram, value, slope, direction, step)
            if tried is None:
                break
            step, new_value, new_gradient = tried
            direction *= step
            gradient = new_gradient - gradient
            self.remember(direction, gradient)
            gram = gram + direction
            small = small + 1 if value - new_value < self.tolerance * abs(new_value) else 0
            value, gradient = new_value, new_gradient
            if small == 3:
                break
        return gram

    def search(
        self, gram: Floats, value: float, slope: float, direction: Floats, step: float
    ) -> tuple[float, float, Floats] | None:
        """Return the first of step, step / 2, ... that gains enough (Armijo); None when none does."""
        for _ in range(40):
            trial = self.value(gram + step * direction)
            if trial is not None and trial[0] <= value + 1e-4 * step * slope:
                return step, *trial
            step /= 2
        return None

    def value(self, gram: Floats) -> tuple[float, Floats] | None:
        """Return the objective and its projected gradient -X^-1 A^T diag(w) A X^-1, or None outside the domain."""
        parts = _prefix_parts(gram)
        if parts is None:
            return None
        errors, sums = parts
        if not (np.isfinite(errors).all() and errors.min() > 0):
            return None
        top = float(errors.max())  # scaled by the largest, errors ** power cannot overflow
        relative = (errors / top) ** self.power
        mean = float(relative.mean())
        value = top * mean ** (1.0 / self.power)
        slopes = value / mean * relative / errors / len(errors)
        sums *= np.sqrt(slopes)[:, None]
        lower = scipy.linalg.blas.dsyrk(-1.0, sums.T, lower=1)
        gradient = np.tril(lower)
        gradient += np.tril(lower, -1).T
        return value, self.constraint.project(gradient)

    def precondition(self, gradient: Floats) -> Floats:
        """Return the module's approximate inverse Hessian times a symmetric matrix, projected onto the constraint."""
        inside = scipy.fft.dctn(gradient, type=4, norm="ortho")
        inside *= self.weights
        return self.constraint.project(np.asarray(scipy.fft.dctn(inside, type=4, norm="ortho", overwrite_x=True)))

    def direction(self, gradient: Floats) -> Floats:
        """Return the direction -H gradient by the two-loop recursion."""
        q = gradient.copy()
        shares = []
        for moved, turned, inverse in reversed(self.pairs):
            share = inverse * float(np.vdot(moved, q))
            shares.append(share)
            q -= share * turned
        q = self.precondition(q)
        if self.pairs:
            q *= self.scale
        for (moved, turned, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            q += (share - inverse * float(np.vdot(turned, q))) * moved
        return np.negative(q, out=q)

    def remember(self, moved: Floats, turned: Floats) -> None:
        """Keep a step and its gradient change, where the curvature along it is positive as L-BFGS needs."""
        product = float(np.vdot(moved, turned))
        if product > 0:
            self.scale = product / float(np.vdot(turned, self.precondition(turned.copy())))
            self.pairs = [*self.pairs, (moved, turned, 1.0 / product)][-_MEMORY:]
