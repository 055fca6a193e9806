"""nu-DP-FTRL: B(z) = sqrt(1 - (1 - nu) z) (Choquette-Choo et al. 2023, arXiv 2310.06771, equation 7).

    beta_t = (-1)^t binom(1/2, t) (1 - nu)^t,   c_t = binom(2t, t) 4^-t (1 - nu)^t   (C = B^-1)

nu = 0 is the square-root factorisation of prefix sums (Fichtenberger, Henzinger and Upadhyay 2023: kind
`optimal-cc`), nu = 1 is independent noise.

Formal guarantee: that of `ToeplitzMechanism`. c is positive and decreasing, so sensitivities under
min-separation are exact. For nu > 0 and one participation they stay bounded as T grows: sensitivity^2 ->
(2/pi) K(1 - nu), K the complete elliptic integral of the first kind.

Applying B as written costs O(T d) a round. The stream does it in one of three ways:

- `engine = "fast"` (default): the few-buffer approximation of `factorization/rational.py`. It takes as many
  buffers as keep mean and max error (under the plan's participation) within `tolerance` of the exact
  mechanism's, relatively. The charge comes from the approximation's C, exactly.
- `engine = "replay"` (also called `"exact"`): past noise is drawn again from the key, O(d) memory, O(t)
  draws. `engine = "memory"`: past noise is kept, O(T d) memory. Both give the same bits.
- `window = p`: beta cut to its first p entries (at nu = 0 the banded inverse square root, BISR, of Kalinin,
  McKenna, Upadhyay and Lampert 2025), p - 1 vectors. C is the inverse of the *cut* beta, so its sensitivity
  differs from the full one.

Buffers that the fast engine chooses, measured by `benchmarks/nu_buffers.py` for tolerance 1e-3 / 1e-6:

| T | (k, b) | nu = 0 | nu = "auto" |
|---|---|---|---|
| 100 | (1, 100) | 3 / 6 | 3 / 6 |
| 100 | (4, 25) | 3 / 6 | 3 / 7 |
| 2000 | (1, 2000) | 4 / 9 | 4 / 10 |
| 2000 | (20, 100) | 5 / 10 | 5 / 9 |
| 20000 | (1, 20000) | 5 / 11 | 5 / 12 |
| 20000 | (20, 1000) | 6 / 11 | 6 / 12 |
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange
from fieldfare.factorization import rational
from fieldfare.factorization.stamping import block_rounds
from fieldfare.factorization.toeplitz import inverse, round_to_float32
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.optimum import recall, recall_exponentials
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, exponential_mechanism, row_mechanism, window_stream
from fieldfare.participation import Participation, Single
from fieldfare.streams.base import Stream

Engine = Literal["fast", "exact", "memory", "replay"]


def noising_coefficients(nu: float, n: int) -> Floats:
    """Return beta_0, ..., beta_{n-1} by beta_t = beta_{t-1} (1 - nu)(t - 3/2)/t, shape (n,)."""
    t = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((1 - nu) * (t - 1.5) / t)])


def strategy_coefficients(nu: float, n: int) -> Floats:
    """Return c_0, ..., c_{n-1} of C = B^-1 by c_t = c_{t-1} (1 - nu)(t - 1/2)/t, shape (n,)."""
    t = np.arange(1, n)
    return np.concatenate([[1.0], np.cumprod((1 - nu) * (t - 0.5) / t)])


def _parse_nu(nu: object) -> object:
    if nu == "auto":
        return nu
    if isinstance(nu, bool) or not isinstance(nu, int | float) or not 0 <= nu <= 1:
        raise ValueError('must be a number in [0, 1] or "auto"')
    return float(nu)


class SquareRootSpec(MechanismSpec):
    """Fields that `nu` and `optimal-cc` share."""

    engine: Engine = Field(default="fast", description="fast: few buffers; exact = replay; memory. Unused by window")
    window: int | None = Field(default=None, ge=1, description="cut beta to this many entries, in rounds")
    tolerance: float = Field(default=1e-3, ge=1e-8, le=0.1, description="fast: relative change of mean and max error")

    def _build(
        self,
        nu: float | Literal["auto"],
        rounds: int,
        participation: Participation | None,
        cache: MutableMapping[str, bytes],
    ) -> Mechanism:
        block = block_rounds(self.restart_every, rounds)
        if self.window is not None and self.window > block:
            raise OutOfRange(
                f"mechanism.window = {self.window}", f"must be in [1, {block}], the rounds of a block.", str(block)
            )
        schedule = participation or Single()
        if nu == "auto":
            nu = float(recall(cache, "nu", lambda: np.array([self.tuned(rounds, schedule)]))[0])
        return stamped(self._block(nu, block, schedule, cache), self.restart_every, rounds)

    def _coefficients(self, nu: float, n: int) -> tuple[Floats, Floats]:
        """Return (c, beta) of the exact or cut mechanism."""
        beta = noising_coefficients(nu, n)
        if self.window is None or self.window >= n:
            return strategy_coefficients(nu, n), beta
        beta[self.window :] = 0.0
        # The stream applies these very numbers, and the charge is that of their inverse.
        beta = round_to_float32(beta)
        return inverse(beta[: self.window], n), beta

    def _block(
        self, nu: float, n: int, participation: Participation, cache: MutableMapping[str, bytes]
    ) -> ToeplitzMechanism:
        c, beta = self._coefficients(nu, n)
        if self.window is not None or nu == 1.0 or n == 1:
            width = 1 if nu == 1.0 else min(n, self.window or n)
            return ToeplitzMechanism(self.kind, n, c, beta, window_stream(width), buffers=width - 1)
        if self.engine != "fast":
            return row_mechanism(self.kind, c, beta, self.engine)
        fit = recall_exponentials(cache, lambda: rational.nearest(c, beta, participation, self.tolerance))
        return exponential_mechanism(self.kind, fit, n)

    def tuned(self, rounds: int, participation: Participation) -> float:
        """Return the argmin over nu of sensitivity^2 x ||A B||_F^2, for the stamped and cut mechanism that will run."""
        n = block_rounds(self.restart_every, rounds)

        def loss(nu: float) -> float:
            c, beta = self._coefficients(nu, n)
            exact = ToeplitzMechanism(self.kind, n, c, beta, _no_stream, buffers=0)
            return stamped(exact, self.restart_every, rounds).mean_error(rounds, participation)

        return least_nu(loss, n)


def least_nu(loss: Callable[[float], float], rounds: int) -> float:
    """Return the argmin of `loss` over nu in [0, 1]: a geometric grid from 1e-3/rounds to 1, then Brent; or 0."""
    # Below the grid (1 - nu)^rounds is 1 to a thousandth: as good as 0.
    exponents = np.linspace(np.log(1e-3 / rounds), 0.0, 24)
    values = [loss(float(np.exp(x))) for x in exponents]
    best = int(np.argmin(values))
    bracket = (float(exponents[max(best - 1, 0)]), float(exponents[min(best + 1, len(exponents) - 1)]))
    search = scipy.optimize.minimize_scalar(
        lambda x: loss(float(np.exp(x))), bounds=bracket, method="bounded", options={"xatol": 1e-6}
    )
    candidates = {0.0: loss(0.0), 1.0: values[-1], float(np.exp(search.x)): float(search.fun)}
    return min(candidates, key=lambda nu: (candidates[nu], nu))


def _no_stream(*_: object, **__: object) -> Stream:
    raise TypeError("a mechanism that is only compared has no stream")


@register
class NuSpec(SquareRootSpec):
    """`nu`: a number in [0, 1], or "auto" for the least squared prefix error of the plan's rounds and participation."""

    about: ClassVar[About] = About(
        source="Choquette-Choo et al. 2023 (ICLR 2024)",
        memory="3 to 16 (fast)",
        cost="1 draw, 2 passes a buffer",
        anytime=True,
        slow=False,
        example={"kind": "nu", "nu": "auto"},
    )
    kind: Literal["nu"] = "nu"
    nu: float | Literal["auto"] = Field(
        default="auto", description="in [0, 1]: how fast old noise is forgotten; auto: the least squared prefix error"
    )

    _nu = field_validator("nu", mode="before")(_parse_nu)

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        return self._build(self.nu, rounds, participation, cache)
