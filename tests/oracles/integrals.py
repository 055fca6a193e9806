"""Elliptic integrals (by modulus) and the closed forms of appendix F of Choquette-Choo et al. 2023 (arXiv 2310.06771).

scipy's functions take the parameter m = k^2 (or 1 - m); everything here takes the modulus k, as the paper does.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ellipe, ellipkm1, elliprf, elliprj

from fieldfare.errors import BadInput


def complete_first(k: float) -> float:
    """K(k) = integral_0^{pi/2} dw / sqrt(1 - k^2 sin^2 w), 0 <= k < 1."""
    return float(ellipkm1((1 - k) * (1 + k)))


def complete_second(k: float) -> float:
    """E(k) = integral_0^{pi/2} sqrt(1 - k^2 sin^2 w) dw, 0 <= k <= 1."""
    return float(ellipe(k * k))


def complete_third(alpha_squared: float, k: float) -> float:
    """Pi(alpha^2, k) = integral_0^{pi/2} dw / ((1 - alpha^2 sin^2 w) sqrt(1 - k^2 sin^2 w)), alpha^2 < 1 (Carlson)."""
    rest = 1.0 - k * k
    return float(elliprf(0.0, rest, 1.0) + alpha_squared / 3.0 * elliprj(0.0, rest, 1.0, 1.0 - alpha_squared))


def inverse_root_plus(m: float) -> float:
    """F.8: integral_0^{pi/2} dw / sqrt(1 + m sin^2 w) for m >= 0."""
    return complete_first(float(np.sqrt(m / (1 + m)))) / float(np.sqrt(1 + m))


def inverse_root_plus_third(m: float, alpha_squared: float) -> float:
    """F.9: integral_0^{pi/2} dw / ((1 - alpha^2 sin^2 w) sqrt(1 + m sin^2 w)) for m >= 0, alpha^2 < 1."""
    k, s = float(np.sqrt(m / (1 + m))), m + alpha_squared
    total = m / s * complete_first(k) + alpha_squared / s * complete_third(s / (1 + m), k)
    return total / float(np.sqrt(1 + m))


def inverse_distance(a: float) -> float:
    """F.15: integral_{-pi}^{pi} dw / |1 - a - e^{iw}| = 4 K(1 - a), 0 < a < 1."""
    _open_unit("a", a)
    return 4.0 * float(ellipkm1(a * (2.0 - a)))


def distance_over_squared_distance(a: float, b: float) -> float:
    """F.16: integral_{-pi}^{pi} |1 - a - e^{iw}| / |1 - b - e^{iw}|^2 dw, 0 < a, b < 1."""
    _open_unit("a", a)
    _open_unit("b", b)
    half = 1 - a / 2
    alpha_squared = (b * b * (1 - a) - a * a * (1 - b)) / (b * b * half * half)
    return 2 * a * a / (b * b * half) * complete_third(alpha_squared, float(np.sqrt(1 - a)) / half)


def cosine_over_distance(lag: int, a: float, b: float) -> float:
    """F.12: integral_{-pi}^{pi} cos(lag w) / (a^2 + b^2 - 2 a b cos w) dw for 0 < |b| < a."""
    if not 0 < abs(b) < a:
        raise BadInput(f"b = {b}", f"must satisfy 0 < |b| < a = {a}.")
    return float(2 * np.pi / (a * a - b * b) * (b / a) ** abs(lag))


def inverse_cosine(a: float) -> float:
    """F.13: integral_{-pi}^{pi} dw / (1 + a cos w) = 2 pi / sqrt(1 - a^2), |a| < 1; infinite at |a| = 1 (F.14)."""
    if abs(a) > 1:
        raise BadInput(f"a = {a}", "must be in [-1, 1].")
    return float("inf") if abs(a) == 1 else float(2 * np.pi / np.sqrt(1 - a * a))


def damped_anti_pgd_ratio(nu: float, a: float) -> float:
    """(1/2pi) integral |1 - nu - e^{iw}|^2 / |1 - a - e^{iw}|^2 dw = 1 + (nu - a)^2 / (a (2 - a)), 0 < a < 2."""
    return 1.0 + (nu - a) ** 2 / (a * (2.0 - a))


def _open_unit(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise BadInput(f"{name} = {value}", "must be in (0, 1).", "0.5")
