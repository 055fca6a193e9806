"""The likelihood-ratio attack on scores of shadow models (Carlini et al. 2022, online), in numbers alone.

Each model is attacked with the help of the others: what is known of an image with and without it comes from all models
but the attacked one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Taken = NDArray[np.bool_]


def ratios(seen: Values, taken: Taken, own: bool = False) -> Values:
    """Log-likelihood ratios of "was trained on" against "was not", (models, images).

    seen: confidence of each model in each image; taken: whether it was trained on it. Both alternatives are normal,
    with the image's mean among the other models, and one spread for all images (own: the image's own).
    """

    def others(which: Taken) -> tuple[Values, Values]:
        kept = np.where(which, seen, 0.0)
        count = which.sum(0) - which
        mean = (kept.sum(0) - kept) / count
        spread = ((kept**2).sum(0) - kept**2 - count * mean**2) / (count - 1)
        return mean, spread if own else spread.mean(1, keepdims=True)

    (mean_in, spread_in), (mean_out, spread_out) = others(taken), others(~taken)
    fits_in = (seen - mean_in) ** 2 / spread_in + np.log(spread_in)
    fits_out = (seen - mean_out) ** 2 / spread_out + np.log(spread_out)
    return np.asarray((fits_out - fits_in) / 2, float)


@dataclass(frozen=True)
class Ordered:
    """Scores of all attacks, the largest first, with what is needed to weigh models and images."""

    right: Taken
    model: NDArray[np.int64]
    image: NDArray[np.int64]

    @classmethod
    def of(cls, scores: Values, taken: Taken) -> Ordered:
        order = np.argsort(-scores, axis=None, kind="stable")
        model, image = np.unravel_index(order, scores.shape)
        return cls(taken.ravel()[order], model, image)

    def rates(self, models: Values, images: Values) -> tuple[Values, Values]:
        """(false, true) positive rates as the threshold falls, with weights of models and images."""
        weight = models[self.model] * images[self.image]
        true, false = np.cumsum(np.where(self.right, weight, 0.0)), np.cumsum(np.where(self.right, 0.0, weight))
        return false / false[-1], true / true[-1]


def at(false: Values, true: Values, rate: float) -> float:
    """The true positive rate of the last threshold whose false positive rate is no more than `rate`."""
    place = int(np.searchsorted(false, rate * (1 + 1e-12), side="right")) - 1
    return float(true[place]) if place >= 0 else 0.0


def area(false: Values, true: Values) -> float:
    """The area under the curve."""
    return float(np.trapezoid(np.concatenate(([0.0], true)), np.concatenate(([0.0], false))))


def judged(scores: Values, taken: Taken, rates: Sequence[float], draws: int = 200) -> dict[str, list[float]]:
    """{figure: (value, lower and upper end)}: "auc", and the true positive rate at each false positive rate.

    One threshold for all models. Intervals: 95 % percentiles over models and images, both drawn with replacement.
    """
    ordered, random = Ordered.of(scores, taken), np.random.default_rng(0)
    measures: dict[str, Callable[[Values, Values], float]] = {"auc": area}
    measures |= {f"{rate:g}": lambda false, true, rate=rate: at(false, true, rate) for rate in rates}  # type: ignore[misc]
    count, images = scores.shape
    drawn: dict[str, list[float]] = {name: [] for name in measures}
    for draw in range(draws + 1):
        weights = (np.ones(count), np.ones(images))
        if draw:
            weights = tuple(random.multinomial(n, np.full(n, 1 / n)).astype(float) for n in (count, images))  # type: ignore[assignment]
        curve = ordered.rates(*weights)
        for name, measure in measures.items():
            drawn[name].append(measure(*curve))
    return {
        name: [values[0], *(float(end) for end in np.quantile(values[1:], (0.025, 0.975)))]
        for name, values in drawn.items()
    }


def allowed(rate: float, epsilon: float, delta: float) -> float:
    """The largest true positive rate at a false positive rate that (epsilon, delta) allows any attack."""
    return max(0.0, min(1.0, math.exp(epsilon) * rate + delta, 1 - math.exp(-epsilon) * (1 - delta - rate)))


def allowed_area(epsilon: float, delta: float) -> float:
    """The largest area under the curve that (epsilon, delta) allows."""
    false = np.linspace(0, 1, 100_001)
    return area(false[1:], np.array([allowed(float(rate), epsilon, delta) for rate in false[1:]]))
