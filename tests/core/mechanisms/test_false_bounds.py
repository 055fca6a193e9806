"""Published privacy bounds that are false, each with the attack that breaks it (invariant I6).

"Private Stochastic Convex Optimization: Efficient Algorithms for Non-smooth Objectives" (Arora, Marinov and Ullah,
early version) claims that private follow-the-regularised-leader, G_t = G_{t-1} + grad f(w_t, z_t) - xi_t with w_t a
function of G_{t-1}, is more private the longer it runs. Its proofs treat the sum of gradients as independent of the sum
of noises, but gradients react to earlier noise and cancel it. With f_j(w) = L |w| before the last step and f_T(w) = L w
or -L w, the sign of G_T tells the two last users apart. These tests keep anybody from charging those bounds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gamma

from fieldfare.accounting import charge_for
from fieldfare.mechanisms.independent import Independent
from fieldfare.participation import Single

L = 1.0
RUNS = 4000
MARGIN = 5 / math.sqrt(RUNS)
"""More than five standard errors of a difference of two proportions: a false alarm is rarer than one in 10^5."""


def attack(first_std: float, later_std: float, rounds: int, seed: int) -> tuple[float, float]:
    """(true, false positive rate) of "G_T > 0": the last user's loss is +L w, or -L w."""
    rng = np.random.default_rng(seed)
    state = -first_std * rng.standard_normal(RUNS)
    for _ in range(rounds - 2):
        # The minimiser w has the opposite sign of G, so the subgradient of |w| is -sign(G).
        state -= L * np.sign(state)
        if later_std:
            state -= later_std * rng.standard_normal(RUNS)
    last = later_std * rng.standard_normal(RUNS)
    return float(np.mean(state + L - last > 0)), float(np.mean(state - L - last > 0))


@pytest.mark.parametrize(
    ("rho", "sigma", "rounds", "true_positives", "false_positives"),
    [(0.5, 0.1, 800, 0.970, 0.028), (0.1, 0.1, 4000, 0.971, 0.029), (0.02, 0.2, 5000, 0.941, 0.061)],
)
def test_privacy_does_not_grow_with_the_number_of_noisy_steps(
    rho: float, sigma: float, rounds: int, true_positives: float, false_positives: float
) -> None:
    """Claimed (Theorem 5.4): (alpha, 4 alpha L^2 / (T sigma^2))-Renyi DP, hence advantage at most sqrt(rho / 2)."""
    assert 4 * L**2 / (rounds * sigma**2) == pytest.approx(rho)
    tpr, fpr = attack(sigma, sigma, rounds, seed=1)
    assert tpr == pytest.approx(true_positives, abs=MARGIN)
    assert fpr == pytest.approx(false_positives, abs=MARGIN)
    assert tpr - fpr > math.sqrt(rho / 2) + 0.4

    # What is charged for the same noise: s / sigma with s = 2 L (replace-one), whatever the number of steps.
    loss = charge_for(Independent(rounds), Single(), sigma / L, rounds, "replace_one")
    assert loss.mu == pytest.approx(2 * L / sigma)
    assert loss.rho > rounds * rho / 3
    for delta in (1e-3, 1e-2, 0.1):
        assert tpr <= math.exp(min(loss.epsilon(delta), 700)) * fpr + delta + MARGIN


def test_the_claimed_epsilon_of_the_third_row_is_broken() -> None:
    rho, delta = 0.02, 1e-3
    claimed = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert claimed == pytest.approx(0.763, abs=1e-3)
    tpr, fpr = attack(0.2, 0.2, 5000, seed=2)
    assert math.log((tpr - delta) / fpr) > 2.4 > 3 * claimed


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01])
def test_noise_in_the_first_step_alone_is_forgotten(epsilon: float) -> None:
    """Claimed (Theorem 4.4): every iterate is (alpha, epsilon)-Renyi DP with sigma = 2 L / sqrt(epsilon), once."""
    sigma = 2 * L / math.sqrt(epsilon)
    tpr, fpr = attack(sigma / math.sqrt(2), 0.0, 400, seed=3)  # density exp(-x^2 / sigma^2)
    assert (tpr, fpr) == (1.0, 0.0)


def renyi(alpha: float, q: float, shift: float) -> float:
    """D_alpha of two densities proportional to exp(-|x|^q), `shift` apart, by quadrature."""
    norm = q / (2 * gamma(1 / q))

    def integrand(x: float) -> float:
        return norm * math.exp(-alpha * abs(x - shift) ** q - (1 - alpha) * abs(x) ** q)

    total = sum(quad(integrand, a, b, epsabs=1e-14, epsrel=1e-12, limit=500)[0] for a, b in ((-12, 0), (0, shift)))
    total += quad(integrand, shift, 12 + shift, epsabs=1e-14, epsrel=1e-12, limit=500)[0]
    return math.log(total) / (alpha - 1)


@pytest.mark.parametrize(
    ("q", "alpha", "shift", "ratio"),
    [(2, 1.5, 0.3, 1.5), (2, 1.01, 1.0, 1.01), (3, 7 / 6, 0.05, 35), (3, 7 / 6, 1.0, 2.44), (4, 15 / 14, 0.05, 871),
     (4, 15 / 14, 0.3, 25.7)],
)  # fmt: skip
def test_divergence_of_generalised_gaussians_exceeds_the_claim(q: float, alpha: float, shift: float, ratio: float):
    """Claimed (Lemma C.1): D_alpha <= (shift / sigma)^q."""
    assert renyi(alpha, q, shift) / shift**q == pytest.approx(ratio, rel=0.02)
    assert ratio > 1


@pytest.mark.parametrize("rounds", [1, 10, 1000])
def test_what_is_true_the_noise_of_losses_that_ignore_the_model_adds_up(rounds: int) -> None:
    """For linear losses, G_T alone is a Gaussian of variance T sigma^2: s^2 / (2 T sigma^2)-zCDP. Never charged."""
    sigma, shift, rng = 1.5, 2 * L, np.random.default_rng(4)
    noise = sigma * rng.standard_normal((20_000, rounds) if rounds < 100 else (2_000, rounds)).sum(axis=1)
    assert noise.var() == pytest.approx(rounds * sigma**2, rel=0.15)
    last_iterate_rho = shift**2 / (2 * rounds * sigma**2)
    charged = charge_for(Independent(rounds), Single(), sigma / L, rounds, "replace_one").rho
    assert charged == pytest.approx(rounds * last_iterate_rho)
