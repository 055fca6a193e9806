"""Buffered linear Toeplitz (BLT): a rational generating function, run with a few buffers of model size.

    C(x) = prod_i (1 - h_i x) / (1 - t_i x),    B(x) = 1 / C(x) = 1 + sum_j w_j x / (1 - h_j x)

(Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024, "Efficient and Near-Optimal Noise Generation for
Streaming Differential Privacy"; multi-participation: McMahan, Xu, Zhang 2024, "A Hassle-free Algorithm for
Strong Differential Privacy in Federated Learning Systems".) The decays form one decreasing chain

    1 > t_1 > h_1 > t_2 > h_2 > ... > 0,                                                                       (1)

which makes every residue of C positive: c_t = sum_i o_i t_i^(t-1) with o_i > 0 and c_1 = sum_i (t_i - h_i) <
1.

Formal guarantee: that of `ToeplitzMechanism`. By (1) the coefficients of C are non-negative and decreasing,
so sensitivities under min-separation are exact.

The optimiser's variables are the logits of 1 - (chain), as a start and the logarithms of the steps: the
optimum is close to log-spaced, and (1) holds for any real vector. Coefficients come from a cascade of
first-order filters, which is accurate even where decays nearly coincide. The gradient with respect to a decay
p is a sum over powers of p,

    dC/dt = x / (1 - t x) C,    dC/dh = -x / (1 - h x) C,    and the opposite signs for B,

so one correlation serves all decays.

The optimum is rounded to float32 (`Blt.rounded`) before it is charged and applied. A decay near 1 that is
charged in double precision and applied in single precision is another mechanism: (1 - 6e-8)^T apart after T
rounds.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

import numpy as np
from pydantic import Field, field_validator

from fieldfare.arrays import Floats, lfilter
from fieldfare.errors import OutOfRange
from fieldfare.factorization.objective import Objective, PrefixLoss
from fieldfare.factorization.rational import Exponentials, towards_zero
from fieldfare.factorization.stamping import block_rounds
from fieldfare.lazily import scipy
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.optimum import recall_exponentials
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.toeplitz import ToeplitzMechanism, exponential_mechanism
from fieldfare.participation import Participation

MOST_BUFFERS: Final = 8
# `buffers = "auto"` stops where one more lowers the loss by less than this share (0.05 % of the RMSE).
_ENOUGH: Final = 1e-3
# Largest logit of a decay: 1 - decay >= 2e-12, above float64's own resolution next to 1.
_WIDEST: Final = 27.0
# Logit below which the first decay counts as moving to 1.
_ALMOST_ONE: Final = -12.0
# Bounds of the log steps of the chain: neighbours neither coincide nor leave the range of float64.
_STEPS: Final = (-7.0, 3.5)


@dataclass(frozen=True)
class Blt:
    """A buffered linear Toeplitz strategy: `t` decays of C, `h` decays of B, shape (m,) each, interlacing as
    in (1).

    `one_minus_t`, `one_minus_h` hold 1 - decay to full relative precision: differences of decays near 1 need
    it.
    """

    one_minus_t: Floats
    one_minus_h: Floats

    @classmethod
    def of_chain(cls, logits: Floats) -> Blt:
        """Build from increasing logits of 1 - t_1, 1 - h_1, 1 - t_2, ...; shape (2m,)."""
        q = np.minimum(1.0 / (1.0 + np.exp(-logits)), 1.0 - 1e-12)  # a decay of exactly 0 has no logarithm
        return cls(q[0::2], q[1::2])

    @property
    def t(self) -> Floats:
        return np.asarray(1.0 - self.one_minus_t)

    @property
    def h(self) -> Floats:
        return np.asarray(1.0 - self.one_minus_h)

    @property
    def omega(self) -> Floats:
        """w_j, the (negative) weights of the stream's buffers, shape (m,)."""
        return _residues(self.one_minus_h, self.one_minus_t)

    def rounded(self) -> Exponentials:
        """Return the nearest B whose h_j and w_j a float32 stream holds exactly; the charge comes from its C.

        h is rounded first. The w follow for the same t and are rounded towards zero: then B(1) does not fall,
        so C's largest decay stays below 1. A pair that rounding makes coincide has no weight left and is
        dropped.
        """
        h = towards_zero(self.h)
        omega = towards_zero(_residues(1.0 - h, self.one_minus_t))
        return Exponentials(omega=omega[omega < 0], theta=h[omega < 0])

    def without_idle(self, loss: PrefixLoss) -> Blt:
        """Drop the pairs t_i, h_i that cancel: they are dropped while that costs less than 1e-7 of the loss."""
        best = self
        bound = best.loss(loss) * (1.0 + 1e-7)
        while len(best.one_minus_t) > 1:
            m = len(best.one_minus_t)
            smaller = [Blt(np.delete(best.one_minus_t, i), np.delete(best.one_minus_h, i)) for i in range(m)]
            candidate = min(smaller, key=lambda blt: blt.loss(loss))
            if not candidate.loss(loss) <= bound:
                break
            best = candidate
        return best

    def loss(self, loss: PrefixLoss) -> float:
        """Return the value that `optimise` minimises: squared sensitivity x squared prefix error."""
        c, b = _cascade(self.t, self.h, loss.n)
        return loss.value(c, b)


def optimise(loss: PrefixLoss, buffers: int | Literal["auto"]) -> Blt:
    """Return the best BLT found by L-BFGS from three or four log-spaced chains, the best one polished.

    Args:
        loss: what is minimised, for the plan's rounds and participation.
        buffers: the most buffers, 1 to 8, or "auto": as many as pay. Pairs of decays that cancel at the
            optimum are dropped, so the result may need fewer.
    """
    if loss.n == 1:
        return Blt(np.array([0.5]), np.array([0.75]))
    if buffers != "auto":
        return _best_of(loss, buffers)
    best = _best_of(loss, 1)
    value = best.loss(loss)
    for m in range(2, MOST_BUFFERS + 1):
        candidate = _best_of(loss, m)
        lower = candidate.loss(loss)
        if lower > value * (1.0 - _ENOUGH):
            break
        best, value = candidate, lower
    return best


def _best_of(loss: PrefixLoss, m: int) -> Blt:
    edge = np.log(loss.n)
    starts = [(-edge - np.log(2.0), 2.2), (-edge + np.log(8.0), 2.2), (-edge + np.log(20.0), 1.0)]
    if loss.count > 1:  # with several participations the first decay of an optimum may all but reach 1
        starts.append((-25.0, 2.2))
    ends = [_minimise(loss, _log_spaced(low, high, m), 120) for low, high in starts]
    value, variables = _minimise(loss, min(ends, key=lambda pair: pair[0])[1], 500)
    if variables[0] < _ALMOST_ONE:
        # The optimum has its first decay at 1, and the slope towards it is ever flatter: jump to the bound.
        pushed = variables.copy()
        pushed[:2] = -_WIDEST, np.log(_chain(variables)[1] + _WIDEST)
        value, variables = min((value, variables), _minimise(loss, pushed, 200), key=lambda pair: pair[0])
    return Blt.of_chain(_chain(variables)).without_idle(loss)


def _log_spaced(low: float, high: float, m: int) -> Floats:
    step = (max(high, low + 1.0) - low) / (2 * m - 1)
    return np.concatenate([[low], np.full(2 * m - 1, np.log(step))])


def _minimise(loss: PrefixLoss, start: Floats, iterations: int) -> tuple[float, Floats]:
    bounds = [(-_WIDEST, 8.0)] + [_STEPS] * (len(start) - 1)
    options = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-8}
    result = scipy.optimize.minimize(
        _log_loss, start, args=(loss,), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return float(result.fun), np.asarray(result.x, dtype=np.float64)


def _chain(variables: Floats) -> Floats:
    """Return increasing logits from a first logit and the logs of the steps, shape (2m,)."""
    steps = np.cumsum(np.exp(variables[1:]))
    return np.asarray(variables[0] + np.concatenate([[0.0], steps]), dtype=np.float64)


def _log_loss(variables: Floats, loss: PrefixLoss) -> tuple[float, Floats]:
    """log-loss and its gradient in the optimiser's variables, shape (2m,)."""
    n = loss.n
    logits = _chain(variables)
    log_p = -np.logaddexp(0.0, logits)
    p, q = np.exp(log_p), 1.0 / (1.0 + np.exp(-logits))
    c, b = _cascade(p[0::2], p[1::2], n)
    log_sensitivity, of_c = loss.log_sensitivity_squared(c)
    log_error, of_b = loss.log_error_squared(b)
    # r_k = sum_t of_c_t c_{t-1-k} - of_b_t b_{t-1-k}: then d(loss)/dt_i = sum_k t_i^k r_k, and minus that for h.
    size = scipy.fft.next_fast_len(2 * n, True)
    padded = np.zeros((4, size))
    padded[:, :n] = of_c, c, of_b, b
    first, second, third, fourth = scipy.fft.rfft(padded)  # one call: of four transforms this short, half is calling
    spectrum = first * np.conj(second) - third * np.conj(fourth)
    correlation = scipy.fft.irfft(spectrum, size)[1:n]
    of_decay = np.exp(np.arange(n - 1) * log_p[:, None]) @ correlation
    of_decay[1::2] *= -1.0
    of_logit = of_decay * (-p * q)
    gradient = of_logit[::-1].cumsum()[::-1]
    gradient[1:] *= np.exp(variables[1:])
    return log_sensitivity + log_error, gradient


def _cascade(t: Floats, h: Floats, n: int) -> tuple[Floats, Floats]:
    """Return coefficients of C and B = 1 / C, shape (n,) each, one first-order filter a pair of decays."""
    c = np.zeros(n)
    c[0] = 1.0
    b = c
    for pole, zero in zip(t, h, strict=True):
        c = lfilter([1.0, -zero], [1.0, -pole], c)
        b = lfilter([1.0, -pole], [1.0, -zero], b)
    return c, b


def _residues(poles: Floats, zeros: Floats) -> Floats:
    """Return prod_i (p_j - z_i) / prod_{i != j} (p_j - p_i) for each j, from 1 - p and 1 - z: shape (m,)."""
    m = len(poles)
    to_zeros = zeros[None, :] - poles[:, None]
    to_poles = poles[None, :] - poles[:, None]
    to_poles[np.arange(m), np.arange(m)] = 1.0
    # Pairing each numerator factor with a denominator factor of its size keeps the quotients near 1.
    ratio = to_zeros / to_poles
    return np.asarray(np.prod(ratio, axis=1))


@register
class BltSpec(MechanismSpec):
    """Up to 8 buffers, optimised for the plan's rounds and participation."""

    about: ClassVar[About] = About(
        source="Dvijotham et al. 2024; McMahan, Xu, Zhang 2024",
        memory="buffers (1 to 8)",
        cost="1 draw, 2 passes a buffer",
        anytime=False,
        slow=False,
        example={"kind": "blt"},
    )
    kind: Literal["blt"] = "blt"
    buffers: Literal["auto"] | int = Field(default="auto", description='1 to 8, or "auto": as many as pay')
    objective: Objective = Field(default="mean", description="which prefix error to minimise")

    @field_validator("buffers", mode="before")
    @classmethod
    def _few(cls, buffers: object) -> object:
        number = isinstance(buffers, int | float) and not isinstance(buffers, bool)
        if buffers == "auto" or (number and buffers in range(1, MOST_BUFFERS + 1)):
            return buffers
        nearest = str(min(max(buffers, 1), MOST_BUFFERS)) if isinstance(buffers, int) else "'auto'"
        why = f"must be an integer in [1, {MOST_BUFFERS}] or 'auto'."
        raise OutOfRange(f"mechanism.buffers = {buffers!r}", why, nearest)

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        block = block_rounds(self.restart_every, rounds)
        loss = PrefixLoss.of(block, participation, self.objective)
        optimum = recall_exponentials(cache, lambda: optimise(loss, self.buffers).rounded())
        return stamped(exponential_mechanism("blt", optimum, block), self.restart_every, rounds)


def mechanism(blt: Blt, rounds: int) -> ToeplitzMechanism:
    """Return the mechanism of a given BLT for `rounds` rounds, its decays and weights rounded to float32
    before charging.
    """
    return exponential_mechanism("blt", blt.rounded(), rounds)
