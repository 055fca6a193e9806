"""Pairs of secret patterns from the definition alone: every pattern listed, by quadrature and by plain Monte Carlo.

P is the mixture of N(|C| pi, sigma^2 I) over patterns pi with their probabilities, Q is N(0, sigma^2 I). Nothing of the
product is used: neither its dynamic programs, nor its proposals, nor its generator.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Matrix = NDArray[np.float64]
Laws = dict[tuple[int, ...], float]


def allocation(rounds: int, bins: int) -> Laws:
    """One uniform round in each block; one beyond the end is none."""
    blocks, law = -(-rounds // bins), Laws()
    for chosen in itertools.product(range(bins), repeat=blocks):
        pattern = tuple(t for t in (j * bins + s for j, s in enumerate(chosen)) if t < rounds)
        law[pattern] = law.get(pattern, 0.0) + bins**-blocks
    return law


def min_sep(rounds: int, separation: int, rate: float) -> Laws:
    """A coin of this rate in each round, but none for `separation` - 1 rounds after a participation; warm start."""
    law = Laws()

    def follow(t: int, pattern: tuple[int, ...], probability: float) -> None:
        if t >= rounds:
            law[pattern] = law.get(pattern, 0.0) + probability
            return
        follow(t + separation, (*pattern, t), probability * rate)
        if rate < 1:
            follow(t + 1, pattern, probability * (1 - rate))

    whole = 1 + (separation - 1) * rate
    for start in range(separation):
        follow(start, (), (rate if start else 1.0) / whole)
    return law


def centres(c: Matrix, law: Laws, sigma: float) -> tuple[Matrix, Matrix]:
    """(probabilities, |C| pi / sigma, one row each)."""
    means = np.array([np.abs(c)[:, list(pattern)].sum(axis=1) for pattern in law]) / sigma
    return np.array(list(law.values())), means


def integrated(c: Matrix, law: Laws, sigma: float, epsilon: float, step: float) -> tuple[float, float]:
    """(delta of removing, delta of adding): exact along the last row, by the trapezoid rule over all others.

    The likelihood ratio rises along every axis, as all means are at least 0: P - e^epsilon Q changes sign once.
    """
    weight, means = centres(c, law, sigma)
    reach = 8 + means.max()
    line = np.arange(-8, reach + step, step)
    axes = np.meshgrid(*[line] * (len(c) - 1), indexing="ij")
    y = np.stack([axis.ravel() for axis in axes], axis=1)
    mass = np.exp(-(y**2).sum(axis=1) / 2) * (step / math.sqrt(2 * math.pi)) ** y.shape[1]
    rest, last = means[:, :-1], means[:, -1]
    # ratio(x) = sum_pi part_pi exp(last_pi x); under Q with exp(m x) as a weight, x is N(m, 1).
    part = weight * np.exp(y @ rest.T - (means**2).sum(axis=1) / 2)
    scaled = part * np.exp(last**2 / 2)
    out = []
    for add, threshold in ((False, math.exp(epsilon)), (True, math.exp(-epsilon))):
        low, high = np.full(len(y), -40.0), np.full(len(y), 40.0)
        for _ in range(44):
            middle = (low + high) / 2
            below = (part * np.exp(middle[:, None] * last)).sum(axis=1) < threshold
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        if add:
            value = ndtr(low) - math.exp(epsilon) * (scaled * ndtr(low[:, None] - last)).sum(axis=1)
        else:
            value = (scaled * ndtr(last - low[:, None])).sum(axis=1) - math.exp(epsilon) * ndtr(-low)
        out.append(float((mass * np.maximum(value, 0.0)).sum()))
    return out[0], out[1]


def sampled(
    c: Matrix, law: Laws, sigma: float, epsilon: float, rng: np.random.Generator, count: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """((mean, standard error) of removing, of adding) by samples of P and of Q themselves."""
    weight, means = centres(c, law, sigma)
    found = []
    for present in (True, False):
        y = rng.standard_normal((count, len(c)))
        if present:
            y += means[rng.choice(len(weight), count, p=weight / weight.sum())]
        ratio = np.concatenate(
            [np.exp(part @ means.T - (means**2).sum(axis=1) / 2) @ weight for part in np.array_split(y, 64)]
        )
        x = np.maximum(0.0, 1 - math.exp(epsilon) / ratio if present else 1 - math.exp(epsilon) * ratio)
        found.append((float(x.mean()), float(x.std() / math.sqrt(count))))
    return found[0], found[1]
