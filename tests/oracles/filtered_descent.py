"""The convergence bound of gradient descent behind DiSK's fixed-gain filter (Zhang et al. 2024, Theorem 2).

For an L-smooth F, plain descent with rate eta on the filtered gradient, clipping inactive, white noise:

    mean over rounds of E ||grad F||^2  <=  2 (F(x_0) - F* + beta ||grad F(x_0)||^2) / (M eta T)
                                          + 2 (beta + eta^2 L) kappa^2 / (M eta) x noise.

Proven for gamma = -1 and for quadratics; the paper's proof drops a term elsewhere. Its premise on clipping matters more
than the bound: C >= (|a| + |1 - a|) G, a = (1 - kappa) / (kappa gamma). At gamma = -1 the norm, and the noise with it,
must grow by (2 - kappa) / kappa, which takes back all that the filter gives. A combination with 0 <= a <= 1 needs no
growth, and that is where a filter pays.
"""

from __future__ import annotations

from dataclasses import dataclass

from fieldfare.errors import BadInput


def clip_growth(kappa: float, gamma: float) -> float:
    """|a| + |1 - a|: by how much the combined gradient can exceed a single one; 1 if gamma >= (1 - kappa) / kappa."""
    share = (1.0 - kappa) / (kappa * gamma)
    return abs(share) + abs(1.0 - share)


@dataclass(frozen=True)
class FilteredDescent:
    """`smoothness` L, `rate` eta, gain `kappa` in (0, 1], radius `gamma` (not 0).

    Raises `BadInput` where the theorem's conditions fail: 1 - (1 - kappa)^2 Q > 0 and M > 0. (Its printed conditions
    on eta differ between text and appendix; these two are what the proof uses.)
    """

    smoothness: float
    rate: float
    kappa: float
    gamma: float = -1.0

    def __post_init__(self) -> None:
        if not 0 < self.kappa <= 1 or self.gamma == 0 or not self.smoothness * self.rate > 0:
            raise BadInput(f"{self}", "need 0 < kappa <= 1, gamma other than 0, and a positive rate and smoothness.")
        if not self._kept < 1 or not self._descent > 0:
            raise BadInput(f"rate = {self.rate}", "too large for this gain and smoothness.", "a smaller one")

    @property
    def _apart(self) -> float:
        """|1 + gamma|: what a radius other than -1 costs."""
        return abs(1.0 + self.gamma)

    @property
    def difference_factor(self) -> float:
        """M_gamma = 1 + 4 (2 + 1/kappa + |1 + gamma|) / gamma^2."""
        return 1.0 + 4.0 * (2.0 + 1.0 / self.kappa + self._apart) / self.gamma**2

    @property
    def _kept(self) -> float:
        """(1 - kappa)^2 Q: what one round leaves of the filter's squared error (Lemma 1)."""
        moved = (self.rate * self.smoothness) ** 2
        q = 1.0 + 4.0 * moved + self._apart * (self.kappa + 2.0 * moved * self.difference_factor)
        return (1.0 - self.kappa) ** 2 * q

    @property
    def beta(self) -> float:
        """Weight of the filter's squared error in the potential: the least that the proof allows."""
        kept = self._kept
        return (self.rate * (1.0 - self.kappa) / 2.0 + self.rate**2 * self.smoothness * kept) / (1.0 - kept)

    @property
    def _descent(self) -> float:
        """M_1."""
        eta, smooth = self.rate, self.smoothness
        lost = (1.0 - self.kappa) ** 2 * smooth**2 * eta * (2.0 + self._apart * self.difference_factor)
        return (1.0 + self.kappa - 2.0 * eta * smooth) - 4.0 * (self.beta + eta**2 * smooth) * lost

    def bound(self, gap: float, gradient_squared: float, rounds: int, dp_noise: float, sgd_noise: float = 0.0) -> float:
        """Bound on the mean of E ||grad F||^2 over `rounds` rounds.

        gap = F(x_0) - F*, gradient_squared = ||grad F(x_0)||^2, dp_noise = d sigma^2, sgd_noise = sigma_sgd^2 / batch.
        """
        start = 2.0 * (gap + self.beta * gradient_squared) / (self._descent * self.rate * rounds)
        noise = (2.0 + self._apart) * sgd_noise + dp_noise
        weight = 2.0 * (self.beta + self.rate**2 * self.smoothness) * self.kappa**2 / (self._descent * self.rate)
        return start + weight * noise
