"""Noising coefficients by a few exponentials: the fast engine of `nu`, `optimal-cc` and `spectral`.

For B(z) = sqrt(1 - (1 - nu) z) the prefix sums a_t = sum_{s <= t} beta_s are a positive mixture of
exponentials, a_t = sqrt(nu) + integral x^t dmu(x) with mu >= 0 on [0, 1 - nu] (nu = 0: the arcsine law), and
no finite mixture equals it. The fit is

    a^_t = v_0 + sum_{i=1..m} v_i theta_i^t,     v_i > 0,  sum_i v_i = 1,  0 < theta_i < 1,                      (1)

by least squares on log(a^_t / a_t) with equal weight on every octave of t in [1, T). Differences of (1) are
beta^_0 = 1, beta^_t = -sum_i omega_i theta_i^(t-1) with omega_i = v_i (1 - theta_i): m buffers; v_0 costs
none.

Formal guarantee: the approximation is a mechanism, and its C = B^-1 is what is charged. Positivity in (1)
makes B^(z)/(1 - z) a Stieltjes function whose zeros interlace its poles, so c^_t is a positive mixture of
exponentials too: non-negative and decreasing, the condition of the exact sensitivity formula
(`toeplitz.sensitivity` checks the numbers again). theta and omega are rounded to float32 before they are
charged, because a float32 stream multiplies by exactly these values; unrounded, 1 - theta ~ 1/T would be
wrong by up to 6e-8 T.

Source: the integral is Beta(t + 1/2, 1/2); few-buffer streaming follows Dvijotham et al. 2024 (buffered
linear Toeplitz), whose parameters are optimised for an error where these are fitted to the nu coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fieldfare.arrays import Floats, Indices
from fieldfare.errors import OutOfRange
from fieldfare.factorization.toeplitz import evenly_spaced_norm, prefix_row_norms
from fieldfare.lazily import scipy
from fieldfare.participation import Participation

# More buffers are never needed in double precision for up to 1e6 rounds at the tolerances that are offered.
MOST_BUFFERS = 16


@dataclass(frozen=True)
class Exponentials:
    """beta_0 = 1, beta_t = sum_i omega_i theta_i^(t-1); omega < 0, theta in (0, 1), both shape (m,), float32 values."""

    omega: Floats
    theta: Floats

    def coefficients(self, n: int) -> Floats:
        """Return beta_0, ..., beta_{n-1}, shape (n,)."""
        powers = np.power(self.theta[:, None], np.arange(max(n - 1, 0)))
        return np.concatenate([[1.0], self.omega @ powers])[:n]

    def strategy(self, n: int) -> Floats:
        """Return coefficients of C = B^-1, shape (n,): c_0 = 1, c_t = sum_j rho_j eta_j^(t-1) with every
        rho_j >= 0.

        With u = sqrt(-omega), B C = I reads c_t = u^T M^(t-1) u for the symmetric M = diag(theta) + u u^T, so
        eta and rho come from one eigendecomposition without cancellation, in O(m n) instead of O(n^2).
        """
        u = np.sqrt(-self.omega)
        eta, vectors = np.linalg.eigh(np.diag(self.theta) + np.outer(u, u))
        powers = np.power(eta[:, None], np.arange(max(n - 1, 0)))
        # Rounding may lift a coefficient by its last bit where C is flat; the running minimum undoes exactly that.
        return np.minimum.accumulate(np.concatenate([[1.0], np.square(vectors.T @ u) @ powers])[:n])


def fit(noising_coefs: Floats, buffers: int) -> Exponentials:
    """Return the m = `buffers` exponentials nearest to `noising_coefs` (beta_0 = 1, then beta_t <= 0, sum >=
    0) in sense (1).

    Least squares from a fixed start, so the result is deterministic.

    Raises:
        BadInput: coefficients of another sign, fewer than two of them, or `buffers` outside [1, 16].
    """
    if not 1 <= buffers <= MOST_BUFFERS:
        raise OutOfRange(f"buffers = {buffers}", f"must be in [1, {MOST_BUFFERS}].", str(MOST_BUFFERS))
    prefix = np.cumsum(noising_coefs)
    if len(prefix) < 2 or noising_coefs[0] != 1 or (noising_coefs[1:] > 0).any() or prefix[-1] <= 0:
        raise OutOfRange("noising_coefs", "must be 1 followed by non-positive entries with a positive sum.")
    times = _octave_grid(len(prefix))
    target = np.log(prefix[times])
    weight = np.sqrt(np.gradient(np.log(times + 0.5))) if len(times) > 1 else np.ones(1)

    def residual(rate: Floats, logits: Floats) -> Floats:
        return np.asarray(weight * (np.log(_basis(times, rate) @ _softmax(logits)) - target))

    def jacobian(rate: Floats, logits: Floats) -> tuple[Floats, Floats]:
        columns, mixture = _basis(times, rate), _softmax(logits)
        value = (columns @ mixture)[:, None]
        by_rate = -times[:, None] * rate * columns[:, 1:] * mixture[1:] / value
        return weight[:, None] * by_rate, weight[:, None] * (columns - value) * mixture / value

    m = buffers
    log_rate, logits = _start(prefix, m)
    fitted = scipy.optimize.least_squares
    free = fitted(
        lambda x: residual(np.exp(x[:m]), x[m:]),
        np.concatenate([log_rate, logits]),
        lambda x: np.hstack(jacobian(np.exp(x[:m]), x[m:])),
        **_TIGHT,
    )
    # A rate that rounds to theta = 1 would be part of the constant v_0, and one that rounds to theta = 0 the
    # term of t = 0 alone. Both are clipped to representable decays; then the weights are fitted again to the
    # rounded ones.
    theta = _float32(np.exp(-np.exp(free.x[:m])))
    theta = np.unique(np.clip(theta, 2.0**-40, np.nextafter(np.float32(1), np.float32(0)).astype(np.float64)))[::-1]
    rate = -np.log(theta)
    logits = free.x[m:] if len(rate) == m else _start(prefix, len(rate))[1]
    order = np.concatenate([[0], 1 + np.argsort(free.x[:m])]) if len(rate) == m else np.arange(len(rate) + 1)
    bound = fitted(lambda x: residual(rate, x), logits[order], lambda x: jacobian(rate, x)[1], **_TIGHT)
    omega = _float32(_softmax(bound.x)[1:] * (1 - theta))
    return Exponentials(omega=-omega[omega > 0], theta=theta[omega > 0])


_TIGHT: dict[str, object] = {"x_scale": "jac", "max_nfev": 300, "xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}


def _softmax(logits: Floats) -> Floats:
    mixture = np.exp(logits - logits.max())
    return np.asarray(mixture / mixture.sum())


def _basis(times: Indices, rate: Floats) -> Floats:
    """Return the basis: shape (len(times), m + 1)."""
    return np.asarray(np.exp(-times[:, None] * np.concatenate([[0.0], rate])))


def towards_zero(x: Floats) -> Floats:
    """Return x rounded to float32 values of no larger size, as float64; a decay below 1 stays below 1."""
    near = x.astype(np.float32)
    low = np.where(np.abs(near.astype(np.float64)) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    return low.astype(np.float64)


def _float32(x: Floats) -> Floats:
    return x.astype(np.float32).astype(np.float64)


def _octave_grid(n: int) -> Indices:
    """Return rounds 1, ..., 8, then about 12 to a factor e, up to n - 1."""
    spaced = np.geomspace(1, n - 1, int(12 * np.log(n)) + 2)
    return np.unique(np.concatenate([np.arange(1, min(n, 9)), np.rint(spaced).astype(np.int64)]))


def _start(prefix: Floats, buffers: int) -> tuple[Floats, Floats]:
    """Return rates evenly spaced in log between the horizon's and 3, weighted like the square-root law."""
    floor = max(prefix[-1] * 0.3, 1e-12)
    slowest = max(0.5 / len(prefix), 0.5 * prefix[-1] ** 2)
    lo, hi = np.log(slowest), np.log(3.0)
    log_rate = lo + (hi - lo) * (np.arange(buffers) + 0.5) / buffers
    mass = np.exp(log_rate / 2)
    mixture = np.concatenate([[floor], mass / mass.sum() * max(1 - floor, 1e-12)])
    return log_rate, np.log(mixture)


def nearest(c: Floats, beta: Floats, participation: Participation, tolerance: float) -> Exponentials:
    """Return the fit with the fewest buffers whose mean and max error are both within `tolerance` of the
    exact ones.

    The errors are the sensitivity times the root mean square, and the largest, row norm of A B. One of them
    alone can agree by cancellation.

    Args:
        c: exact coefficients of C, shape (n,).
        beta: exact coefficients of B, shape (n,).
        participation: whose sensitivity the errors use.
        tolerance: largest relative deviation of either error.

    Raises:
        BadInput: 16 buffers do not reach the tolerance.
    """
    n = len(c)
    b, k = participation.separation_and_count(n)

    def errors(c: Floats, beta: Floats) -> Floats:
        norms = prefix_row_norms(beta)
        return evenly_spaced_norm(c, b, k) * np.array([np.sqrt(np.mean(norms**2)), norms[-1]])

    exact = errors(c, beta)
    reached = np.inf
    for m in range(1, MOST_BUFFERS + 1):
        few = fit(beta, m)
        deviation = float(np.abs(errors(few.strategy(n), few.coefficients(n)) / exact - 1).max())
        if deviation <= tolerance:
            return few
        reached = min(reached, deviation)
    raise OutOfRange(
        f"mechanism.tolerance = {tolerance}",
        f"is not reached with {MOST_BUFFERS} buffers at {n} rounds.",
        f"{reached:.1e}",
    )
