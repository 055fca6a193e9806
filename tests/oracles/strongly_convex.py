"""Upper bound for any L-smooth mu-strongly convex objective (arXiv 2310.06771, section 3, Theorem 3.1, appendix E).

F_infinity <= (L d / (2 pi eta^2)) integral (G^2 gamma^2 |B|^2 / rho + sigma_sgd^2) psi(omega) domega

(prefactor as in Theorem E.1 with F <= L/2 ||.||^2) for every psi admitted by Zames-Falb multipliers lambda_t:

    M_lambda(omega) <= diag(-eta^2, psi(omega)),   M_lambda = A^H M~ A,
    A = [[eta, 0], [1 - e^{i omega}, -eta]],   with Lambda = sum_t lambda_t e^{i omega t},
    M~ = [[-mu L (Lambda + Lambda*), mu Lambda + L Lambda*], [mu Lambda* + L Lambda, -(Lambda + Lambda*)]].

**Sign of the multipliers.** The paper asks lambda_t >= 0 and sum lambda_t <= 2 lambda_0. For t != 0 that inequality is
false for gradients that are not odd (F = max(theta, 0)^2/2 is a counter-example, see the tests), so we admit
lambda_0 >= 0, lambda_t <= 0 for t != 0 and sum_{t != 0} |lambda_t| <= lambda_0 (Zames and Falb 1968); both signs only
for `assume_odd=True`. The default uses lambda_0 alone, which is sound under either reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from fieldfare.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vector = NDArray[np.float64]


def frequencies(points: int = 20_000) -> tuple[Vector, Vector]:
    """(omega, weights), shape (points,) each: omega = pi s^3 in (0, pi), midpoint rule, doubled for (-pi, 0)."""
    s = (np.arange(points) + 0.5) / points
    return np.pi * s**3, 2 * 3 * np.pi * s**2 / points


def gamma_squared(power: Vector, weights: Vector) -> float:
    """gamma_infinity^2 = (1/2 pi) integral 1/|B|^2."""
    return float(np.sum(weights / power) / (2 * np.pi))


def check_multipliers(main: float, lags: Mapping[int, float], *, assume_odd: bool = False) -> None:
    """Raises `BadInput` unless {0: main, **lags} are sound Zames-Falb multipliers (see the module)."""
    if not main >= 0:
        raise BadInput(f"lambda_0 = {main}", "must not be negative.", "0")
    for lag, value in lags.items():
        if lag == 0:
            raise BadInput("lags[0]", "is lambda_0 and given apart.")
        if value > 0 and not assume_odd:
            raise BadInput(
                f"lambda_{lag} = {value}", "must not be positive unless every gradient is odd (assume_odd=True).", "0"
            )
    if sum(abs(value) for value in lags.values()) > main * (1 + 1e-12):
        raise BadInput("sum of |lambda_t|, t != 0", f"must not exceed lambda_0 = {main}.", str(main))


@dataclass(frozen=True)
class StronglyConvex:
    """Curvature in [mu, smoothness], learning rate eta; losses G-Lipschitz with G = clip."""

    mu: float
    smoothness: float
    eta: float
    rho: float = 1.0
    clip: float = 1.0
    dimension: int = 1
    sgd_noise: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.mu <= self.smoothness:
            raise BadInput(f"mu = {self.mu}", f"must be in (0, {self.smoothness}].", str(self.smoothness))
        if not 0 < self.eta * self.smoothness < 1 or not self.rho > 0:
            raise BadInput(f"eta = {self.eta}, rho = {self.rho}", "need 0 < eta < 1/smoothness and rho > 0.")

    def psi(
        self, omega: Vector, main: float, lags: Mapping[int, float] | None = None, *, assume_odd: bool = False
    ) -> Vector | None:
        """The least psi >= 0 that multipliers {0: main, **lags} admit, shape of omega; None where they admit none."""
        check_multipliers(main, lags or {}, assume_odd=assume_odd)
        transform = np.full(len(omega), main, dtype=np.complex128)
        for lag, value in (lags or {}).items():
            transform += value * np.exp(1j * lag * omega)
        return self._psi(omega, transform)

    def _psi(self, omega: Vector, transform: NDArray[np.complex128]) -> Vector | None:
        mu, smooth, eta = self.mu, self.smoothness, self.eta
        u = 1 - np.exp(1j * omega)
        real = 2 * transform.real
        cross = mu * transform + smooth * transform.conj()  # M~_12; M~_21 is its conjugate
        m11 = -mu * smooth * real * eta**2 + 2 * eta * (cross * u).real - real * np.abs(u) ** 2
        m12 = -(eta**2) * cross + eta * u.conj() * real
        m22 = -real * eta**2
        room = -(eta**2) - m11
        if (room <= 0).any():
            return None
        return np.asarray(np.maximum(np.abs(m12) ** 2 / room + m22, 0.0))

    def bound_with(self, power: Vector, gamma2: float, psi: Vector, weights: Vector) -> float:
        """The right-hand side for one psi: |B|^2 = `power` on the grid that `weights` integrates."""
        noise = self.clip**2 * gamma2 / self.rho * power + self.sgd_noise**2
        scale = self.smoothness * self.dimension / (2 * np.pi * self.eta**2)
        return float(scale * np.sum(noise * psi * weights))

    def best_main(self, power: Vector, gamma2: float, omega: Vector, weights: Vector) -> tuple[float, float]:
        """(lambda_0, bound) of least bound with lambda_0 alone; convex in lambda_0 > 1/(2 mu L), searched in log."""

        def value(x: float) -> float:
            psi = self._psi(omega, np.full(len(omega), np.exp(x) / (2 * self.mu * self.smoothness), dtype=complex))
            return np.inf if psi is None else self.bound_with(power, gamma2, psi, weights)

        found = [
            minimize_scalar(value, bounds=(a, a + 1.5), method="bounded", options={"xatol": 1e-10})
            for a in np.arange(1e-6, 6.0)
        ]
        best = min(found, key=lambda f: float(f.fun))
        return float(np.exp(best.x)) / (2 * self.mu * self.smoothness), float(best.fun)

    def bound(self, power: Vector, gamma2: float, omega: Vector, weights: Vector) -> float:
        """Least bound over lambda_0 on E(F - F*) at T -> infinity; `power` = |B|^2 and `weights` have omega's shape."""
        return self.best_main(power, gamma2, omega, weights)[1]

    def bound_with_lags(self, power: Vector, gamma2: float, omega: Vector, weights: Vector, reach: int) -> float:
        """Least bound found over sound multipliers with |t| <= reach; never above `bound`.

        lambda_t = -lambda_0 p_t with p in the simplex (one slack), so every iterate is admissible and its value valid.
        """
        main, start = self.best_main(power, gamma2, omega, weights)
        lags = np.array([t for t in range(-reach, reach + 1) if t != 0])
        waves = np.exp(1j * lags[:, None] * omega)

        def value(x: Vector) -> float:
            share = np.exp(x[1:]) / (1.0 + np.exp(x[1:]).sum())
            psi = self._psi(omega, np.exp(x[0]) * (1.0 - share @ waves))
            return 1e6 * start if psi is None else self.bound_with(power, gamma2, psi, weights)

        x0 = np.concatenate([[np.log(main)], np.full(len(lags), -8.0)])
        found = minimize(value, x0, method="L-BFGS-B", bounds=[(None, None)] + [(-20.0, 20.0)] * len(lags))
        return min(start, float(found.fun))

    def optimise(self, omega: Vector, weights: Vector, start: Vector, rounds: int = 200) -> tuple[Vector, float]:
        """Alternate lambda_0 and |B|^2 = 1/sqrt(psi) from |B|^2 = `start` until the bound gains less than 1e-9.

        Returns (|B|^2, bound). Neither half-step can increase the noise part (Cauchy-Schwarz).
        """
        power, best = start, np.inf
        for _ in range(rounds):
            main, value = self.best_main(power, gamma_squared(power, weights), omega, weights)
            if not value < best * (1 - 1e-9):
                break
            best = value
            psi = self._psi(omega, np.full(len(omega), main, dtype=complex))
            assert psi is not None
            power = 1.0 / np.sqrt(np.maximum(psi, 1e-12 * psi.max()))
        return power, best
