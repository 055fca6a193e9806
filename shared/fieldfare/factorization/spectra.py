"""Coefficients from a power spectrum |B(omega)|^2, and the optimal spectrum for a known quadratic.

B(omega) = sum_t beta_t e^{i omega t}. Source: Choquette-Choo et al. 2023 (arXiv 2310.06771), section 2 and
appendix C; the factorisation is the classical cepstral one (Kolmogorov).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange, WrongForm

_LARGEST_GRID = 1 << 22


def minimum_phase(power: Floats, n: int) -> Floats:
    """Return the causal, causally invertible beta, shape (n,), with |B|^2 = `power` on the FFT grid 2 pi j /
    len(power).

    beta_0 > 0 is not normalised. Exact up to aliasing of the cepstrum, which falls with N.

    Args:
        power: positive and symmetric (the spectrum of real coefficients), of even length N.
        n: how many coefficients to return, at most N.

    Raises:
        BadInput: `power` or `n` is out of range.
    """
    size = len(power)
    if size % 2 or not (np.isfinite(power) & (power > 0)).all() or not 1 <= n <= size:
        raise WrongForm("power spectrum", f"must be {size} (even) positive finite numbers for n = {n} coefficients.")
    cepstrum = np.fft.ifft(0.5 * np.log(power)).real
    folded = np.zeros(size)
    folded[0], folded[size // 2] = cepstrum[0], cepstrum[size // 2]
    folded[1 : size // 2] = 2.0 * cepstrum[1 : size // 2]
    return np.asarray(np.fft.ifft(np.exp(np.fft.fft(folded))).real[:n], dtype=np.float64)


def eigenvalue_vector(eigenvalues: ArrayLike, learning_rate: float) -> Floats:
    """Return the Hessian's eigenvalues, shape (d,). Raises `BadInput` unless all are positive and
    learning_rate x max < 1.
    """
    lam = np.atleast_1d(np.asarray(eigenvalues, dtype=np.float64))
    if lam.ndim != 1 or lam.size == 0 or not np.isfinite(lam).all() or (lam <= 0).any():
        raise OutOfRange("eigenvalues", "must be positive finite numbers.")
    if not 0 < learning_rate * lam.max() < 1:
        raise OutOfRange(
            f"learning_rate = {learning_rate}",
            f"must be in (0, 1 / largest eigenvalue) = (0, {1 / lam.max():.6g}).",
            f"{0.5 / lam.max():.3g}",
        )
    return lam


def response(omega: Floats, eigenvalues: ArrayLike, learning_rate: float) -> Floats:
    """Return h(omega) = sum_j lambda_j / |1 - e^{i omega} - eta lambda_j|^2 (equation 21), shape of omega.

    Args:
        omega: frequencies, in radians a round.
        eigenvalues: of the Hessian, positive, shape (d,).
        learning_rate: eta, above 0.
    """
    lam = eigenvalue_vector(eigenvalues, learning_rate)
    total = np.zeros_like(omega)
    haversine = 4.0 * np.sin(omega / 2) ** 2  # 2 - 2 cos(omega) without cancellation near 0
    values, counts = np.unique(lam, return_counts=True)
    for value, count in zip(values, counts, strict=True):
        a = learning_rate * value
        total += count * value / (a * a + (1 - a) * haversine)
    return total


def optimal_coefficients(eigenvalues: ArrayLike, learning_rate: float, n: int) -> Floats:
    """Return the Toeplitz beta, shape (n,), beta_0 = 1, of least stationary error on a known quadratic: |B|^2
    = 1/sqrt(h).

    The printed condition 1/h is an erratum: equality in Cauchy-Schwarz needs 1/sqrt(h) (then one eigenvalue
    gives nu = eta lambda, Theorem 2.1). The FFT grid doubles until the coefficients agree to 1e-12.

    Args:
        eigenvalues: of the Hessian, positive, shape (d,).
        learning_rate: eta, above 0.
        n: how many coefficients.
    """
    lam = eigenvalue_vector(eigenvalues, learning_rate)
    slowest = learning_rate * float(lam.min())
    if 32.0 / slowest > _LARGEST_GRID:  # the cepstrum decays like (1 - eta lambda_min)^t and must not wrap around
        raise OutOfRange(
            f"eigenvalues from {lam.min()} at learning_rate = {learning_rate}",
            "need a finer frequency grid than 2^22 points.",
            f"eigenvalues above {32.0 / _LARGEST_GRID / learning_rate:.1e}",
        )
    size = 1 << (max(1 << 12, 8 * n, int(32.0 / slowest)) - 1).bit_length()
    previous = None
    while True:
        omega = 2 * np.pi * np.arange(size // 2 + 1) / size
        half = 1.0 / np.sqrt(response(omega, lam, learning_rate))
        beta = minimum_phase(np.concatenate([half, half[-2:0:-1]]), n)
        beta /= beta[0]
        if size >= _LARGEST_GRID or (previous is not None and np.abs(beta - previous).max() < 1e-12):
            return beta
        previous, size = beta, 2 * size
