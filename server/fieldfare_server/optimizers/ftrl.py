"""Private follow-the-regularised-leader: a mirror step from the noisy prefix sum (Arora, Marinov, Ullah
2020).

With U_t the sum of all privatised updates so far (an ascent direction; the paper's G_t is -U_t),

    x_{t+1} = x_0 + projection(grad Psi*(eta_{t+1} U_t)),   Psi(w) = ||w||_p^2 / (2 (p - 1)),  1 < p <= 2,

which is lazy mirror descent: a decreasing eta rescales all of history, and the projection does not feed back
into U. U_t carries exactly the noise of a prefix sum, which tree and matrix mechanisms make small. With p =
2, fixed steps and no ball this is SGD.

The paper's privacy theorems (noise that shrinks with 1 / sqrt(T), or noise in the first step only) are false
as stated; our tests have one-dimensional counter-examples. The charge here is always the mechanism's, for
every round.
"""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from fieldfare.lazily import torch
from fieldfare_server.optimizers.base import State, StepInfo, Stepped, Tensor
from fieldfare_server.optimizers.registry import register


@register
class FTRL(Stepped):
    """The mirror step from the prefix sum.

    | `steps` | eta |
    |---|---|
    | "learning-rate" | learning_rate x schedule |
    | "fixed" | learning_rate D / (G sqrt(T)) |
    | "anytime" | learning_rate D / (G sqrt(t)), t from 1: needs no horizon |

    D = radius / sqrt(2 (p - 1)) bounds sqrt(Psi) on the ball, and G (`dual_bound`) the mean update's dual
    norm.

    State: `total` float64 (d,), U_t; `origin` float32 (d,), x_0; `steps` int64 (); `noise` float64 (), the
    largest noise std so far: with it eta never grows where the noise differs from round to round (trees).
    """

    kind: Literal["ftrl"] = "ftrl"
    p: float = Field(default=2.0, gt=1, le=2, description="norm of the mirror map; 1 + 1 / ln d is near l1")
    radius: float | None = Field(default=None, gt=0, description="l_p ball around the initial model")
    steps: Literal["learning-rate", "fixed", "anytime"] = Field(
        default="learning-rate", description="step size: the learning rate, or what a horizon, or none, allows"
    )
    gradient_bound: float = Field(default=1.0, gt=0, description="bound on the un-noised mean update: the clip norm")

    @model_validator(mode="after")
    def _has_a_diameter(self) -> Self:
        if self.steps != "learning-rate" and self.radius is None:
            raise ValueError(f"steps = {self.steps!r} takes its size from the ball: give a radius")
        if self.steps != "learning-rate" and self.schedule.kind != "constant":
            raise ValueError(f"steps = {self.steps!r} already is a schedule: leave schedule out")
        return self

    def reach(self, rounds: int, noise_std: float, numel: int) -> float | None:
        """Return how far a whole run can move the model along a direction that all parameters share, in
        radii.

        Every mean update is taken to be of length `gradient_bound`, all in that one direction, which is the
        most that can be hoped for: below a thousandth the model stays where it is. None without a ball, or
        with p = 2.

        Args:
            rounds: T.
            noise_std: of a mean update's coordinate; the step sizes other than the learning rate take it into
                account.
            numel: parameters d.
        """
        if self.radius is None or self.p == 2.0:
            return None
        info = StepInfo(rounds - 1, rounds, noise_std)
        step = self._eta(rounds, info, noise_std, numel)
        # ||grad Psi*(y)||_p = (p - 1) ||y||_q, and a vector of equal entries has ||y||_q = d^(1/q - 1/2) ||y||_2.
        spread = float(numel) ** ((self.p - 1.0) / self.p - 0.5)
        return float((self.p - 1.0) * step * rounds * self.gradient_bound * spread / self.radius)

    def init(self, params: Tensor) -> State:
        return {
            "total": torch.zeros_like(params, dtype=torch.float64),
            "origin": params.clone(),
            "steps": torch.zeros((), dtype=torch.int64),
            "noise": torch.zeros((), dtype=torch.float64),
        }

    def step(self, state: State, params: Tensor, update: Tensor, info: StepInfo) -> tuple[Tensor, State]:
        total, steps = state["total"] + update, int(state["steps"]) + 1
        noise = max(float(state["noise"]), info.noise_std)
        moved = gradient_of_conjugate(total * self._eta(steps, info, noise, params.numel()), self.p)
        if self.radius is not None:
            moved = project_radially(moved, self.p, self.radius)
        new = {
            "total": total,
            "origin": state["origin"],
            "steps": torch.tensor(steps),
            "noise": torch.tensor(noise, dtype=torch.float64),
        }
        return (state["origin"] + moved).to(params.dtype), new

    def _eta(self, steps: int, info: StepInfo, noise: float, numel: int) -> float:
        if self.steps == "learning-rate" or self.radius is None:
            return self.rate(info)
        diameter = self.radius / math.sqrt(2.0 * (self.p - 1.0))
        bound = dual_bound(self.p, self.gradient_bound, noise, numel)
        count = info.rounds if self.steps == "fixed" else steps + 1
        return self.learning_rate * diameter / (bound * math.sqrt(count))


def gradient_of_conjugate(dual: Tensor, p: float) -> Tensor:
    """Return grad Psi*(y)_i = (p - 1) ||y||_q^(2 - q) sgn(y_i) |y_i|^(q - 1), 1/p + 1/q = 1; grad Psi*(0) = 0."""
    if p == 2.0:
        return dual
    q = p / (p - 1.0)
    peak = dual.abs().max() if dual.numel() else dual.new_zeros(())
    if not bool(peak > 0):
        return torch.zeros_like(dual)
    # Near p = 1, q is large, and |y_i|^(q - 1) alone would vanish or overflow.
    unit = dual.abs() / peak
    norm = unit.pow(q).sum().pow(1.0 / q)
    return torch.sign(dual) * (unit / norm).pow(q - 1.0) * norm * peak * (p - 1.0)


def project_radially(primal: Tensor, p: float, radius: float) -> Tensor:
    """Return the projection onto the l_p ball. Psi is a function of the same norm, so its Bregman projection
    only rescales.
    """
    peak = float(primal.abs().max()) if primal.numel() else 0.0
    if peak == 0.0:
        return primal
    norm = peak * float((primal.abs() / peak).pow(p).sum().pow(1.0 / p))
    return primal * (radius / norm) if norm > radius else primal


def dual_bound(p: float, bound: float, noise_std: float, numel: int) -> float:
    """Return G with G^2 >= E ||update||_q^2, for an un-noised update of l_2 norm at most `bound` and Gaussian
    noise.

    Exact for p = 2. For p < 2: E ||a + b||^2 <= 2 E ||a||^2 + 2 E ||b||^2, the update's l_q norm is at most
    its l_2 norm (q >= 2), and E ||noise||_q^2 <= (d E |noise_i|^q)^(2/q) by Jensen.

    Args:
        p: of the l_p ball, above 1 and at most 2; q is its dual exponent.
        bound: the largest l_2 norm of an update without noise.
        noise_std: of each coordinate.
        numel: how many coordinates.
    """
    if p == 2.0:
        return math.sqrt(bound**2 + numel * noise_std**2)
    q = p / (p - 1.0)
    # E |N(0,1)|^q = 2^(q/2) Gamma((q + 1) / 2) / sqrt(pi), in logarithms: q is large near p = 1.
    moment = 0.5 * q * math.log(2.0) + math.lgamma(0.5 * (q + 1.0)) - 0.5 * math.log(math.pi)
    noise = noise_std**2 * math.exp(2.0 / q * (math.log(numel) + moment))
    return math.sqrt(2.0 * bound**2 + 2.0 * noise)
