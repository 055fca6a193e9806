"""Compute the vectors of questions, choices, thresholds and sealed trials again, sharing no code with the product.

    python tests/reference/questions.py        # writes questions.json beside it, in half a minute

From definitions: integrals on fine grids, roots by bisection, matrices entry by entry, draws of the noise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import bisect, minimize_scalar
from scipy.stats import norm

Floats = NDArray[np.float64]
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0)
# Of a normal coordinate: the trapezoid rule on it errs by less than 1e-9 here.
Z = np.linspace(-12, 12, 120_001)
STEP = Z[1] - Z[0]


def delta(mu: float, epsilon: float | Floats) -> Any:
    """delta of N(mu, 1) against N(0, 1)."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))


def mu_of(epsilon: float, at: float) -> float:
    return float(bisect(lambda mu: delta(mu, epsilon) - at, 1e-4, 20, xtol=1e-14))


def epsilon_of(mu: float, at: float) -> float:
    return float(bisect(lambda epsilon: delta(mu, epsilon) - at, 0, 60, xtol=1e-13))


def prefix_errors(c: Floats) -> tuple[float, float, float]:
    """(sensitivity, rms, largest) of a cumulative count at mu 1, from C x + z, least squares: A C^+."""
    sensitivity = float(np.linalg.norm(c, axis=0).max())
    rows = np.linalg.norm(np.tril(np.ones((c.shape[1],) * 2)) @ np.linalg.pinv(c), axis=1) * sensitivity
    return sensitivity, float(np.sqrt((rows**2).mean())), float(rows.max())


def toeplitz(first: list[float]) -> Floats:
    return np.array([[first[i - j] if i >= j else 0.0 for j in range(len(first))] for i in range(len(first))])


def tree(bins: int) -> Floats:
    rows, size = [], 1
    while size <= bins:
        rows += [np.repeat(np.eye(bins // size)[i], size) for i in range(bins // size)]
        size *= 2
    return np.array(rows)


def least_rms(bins: int) -> tuple[float, float, float]:
    """As `prefix_errors`, of coefficients binom(2t, t) 4^-t (1 - nu)^t with the nu of the least rms."""

    def errors(nu: float) -> tuple[float, float, float]:
        return prefix_errors(toeplitz([math.comb(2 * t, t) / 4**t * (1 - nu) ** t for t in range(bins)]))

    found = minimize_scalar(lambda nu: errors(nu)[1], bounds=(0, 0.5), method="bounded", options={"xatol": 1e-5})
    return errors(found.x)


def quantiles() -> list[dict[str, Any]]:
    found = []
    for bins in (16, 64, 256):
        root = toeplitz([math.comb(2 * t, t) / 4**t for t in range(bins)])
        kinds = {"independent": np.eye(bins), "tree, full": tree(bins), "optimal-cc": root}
        errors = {name: prefix_errors(c) for name, c in kinds.items()}
        sensitivity, rms, largest = errors.pop("optimal-cc")
        row = {"bins": bins, "sensitivity": sensitivity, "rms": rms, "largest": largest}
        errors["nu, auto"] = least_rms(bins)
        found.append(row | {name: {"rms": each[1], "largest": each[2]} for name, each in errors.items()})
    return found


def range_price(width: float) -> float:
    """The largest Phi^-1(p) - Phi^-1(q) of coins whose log ratios are t and t - width, over t."""

    def needed(t: Floats) -> Floats:
        q = (1 - np.exp(t - width)) / (np.exp(t) - np.exp(t - width))
        return np.asarray(norm.ppf(q * np.exp(t)) - norm.ppf(q))

    return float(needed(np.linspace(0, width, 200_003)[1:-1]).max())


def area(positive: Floats, negative: Floats) -> Floats:
    """AUC of counts by bins, of the last axis, scores of one bin being ties."""
    below = np.cumsum(negative, axis=-1) - negative / 2
    return np.asarray((positive * below).sum(axis=-1) / (positive.sum(axis=-1) * negative.sum(axis=-1)))


def areas() -> dict[str, Any]:
    """7 000 users with N(0, 1) and 3 000 with N(.7, 1), as evenly as their laws say; bins of equal shares of all.

    The counts are expected ones, so no sample of users enters; the noise is drawn 200 000 times.
    """
    users, positive, apart, rows = 10_000, 0.3, 0.7, []
    draw = np.random.default_rng(22)

    def below(x: float) -> float:
        return float((1 - positive) * norm.cdf(x) + positive * norm.cdf(x - apart))

    for bins in (16, 32, 64):
        edges = [-np.inf, *(bisect(lambda x, q=i / bins: below(x) - q, -9, 9) for i in range(1, bins)), np.inf]
        counts = [users * positive * np.diff(norm.cdf(edges, apart)), users * (1 - positive) * np.diff(norm.cdf(edges))]
        binned = float(area(*counts))
        for epsilon in (0.1, 0.5):
            sd = 1 / mu_of(epsilon, 1e-5)
            noised = np.concatenate(
                [area(*(each + sd * draw.standard_normal((20_000, bins)) for each in counts)) for _ in range(10)]
            )
            rows.append(
                {"bins": bins, "epsilon": epsilon, "binned": binned, "mean": noised.mean(), "sd": float(noised.std())}
            )
    exact = float(norm.cdf(apart / math.sqrt(2)))
    return {"users": users, "positive": positive, "apart": apart, "area": exact, "rows": rows}


def thresholds() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    def leak(k: int, sigma: float, tau: float) -> float:
        return float(-np.expm1(k * np.log1p(-norm.sf((tau - 1) / sigma))))

    shown, needed = [], []
    for k, sigma, tau in ((1, 10, 60), (1, 20, 110), (5, 20, 120), (5, 20, 60), (10, 50, 280)):
        row = {"k": k, "sigma": sigma, "threshold": tau, "mu": math.sqrt(k) / sigma, "leak": leak(k, sigma, tau)}
        shown.append(row)
    for k, sigma, at in ((1, 10, 1e-7), (5, 20, 1e-7), (10, 50, 1e-8)):
        tau = bisect(lambda t, k=k, s=sigma, at=at: math.log(leak(k, s, t) / at), sigma, 12 * sigma, xtol=1e-11)
        needed.append({"k": k, "sigma": sigma, "leak": at, "threshold": float(tau)})
    return shown, needed


# -- Sealed trials: f' by its closed form, z the normal coordinate of u = Phi(z).

Slope = Callable[[Floats], Floats]


def law(kind: str, expected: int) -> tuple[dict[str, float], Slope]:
    """(parameters, f') of the law of K with this mean."""
    if kind == "logarithmic":
        g = float(bisect(lambda g: (1 / g - 1) / math.log(1 / g) - expected, 1e-9, 1 - 1e-9, xtol=1e-15))
        return {"gamma": g}, lambda u: ((1 - g) / math.log(1 / g)) / (1 - (1 - g) * u)
    g = 1 / expected
    return {"gamma": g}, lambda u: g / (1 - (1 - g) * u) ** 2


def first_bound(mu: float, slope: Slope, epsilon: float) -> float:
    """int_0^1 f'(u) (1 - exp(e - L(u)) / r(u))_+ du."""
    whole = slope(np.asarray(norm.cdf(Z)))
    ratio = np.maximum.accumulate(whole / slope(np.asarray(norm.cdf(Z - mu))))
    kept = np.maximum(0, 1 - np.exp(epsilon - mu * mu / 2 - mu * Z) / ratio)
    return float((norm.pdf(Z) * whole * kept).sum() * STEP)


def seen(mu: float, slope: Slope, epsilon: float, evidence: float = 1.0) -> float:
    """H of the best where the score is normal and sees a part of the evidence: the worst of both orders and signs."""
    one, rest = mu * math.sqrt(evidence), mu * math.sqrt(1 - evidence)
    worst = 0.0
    for sign in (1, -1):  # a high score, or a low one, is likelier in world 1
        laws = [norm.pdf(Z - b) * slope(np.asarray(norm.cdf(sign * (Z - b)))) for b in (0.0, one)]
        for a, b in (laws, laws[::-1]):
            if rest == 0:
                found = np.maximum(0, a - math.exp(epsilon) * b)
            else:
                with np.errstate(all="ignore"):
                    found = np.where(a > 0, a * delta(rest, epsilon - np.log(a / b)), 0.0)
            worst = max(worst, float(np.nan_to_num(found).sum() * STEP))
    return worst


def least(mu: float, slope: Slope, leak: float) -> float:
    """The least mu* whose curve is above the first bound without its leak, at every e, of either order.

    What is bounded is convex in exp(e), so it is below every chord of its bound: the bound's lower hull is taken.
    """
    e = np.linspace(0, 9 * mu, 120)
    above = np.maximum(0, (np.array([first_bound(mu, slope, each) for each in e]) - leak) / (1 - leak))
    x = np.concatenate([[0.0], np.exp(-e[:0:-1]), np.exp(e)])
    y = np.concatenate([[1.0], 1 - np.exp(-e[:0:-1]) * (1 - above[:0:-1]), above])
    fine = np.linspace(-9 * mu, 9 * mu, 1201)
    hull = np.full(len(fine), np.inf)  # the least of all chords over each place
    for place, at in enumerate(np.exp(fine)):
        left, right = np.meshgrid(np.flatnonzero(x <= at), np.flatnonzero(x >= at))
        share = (at - x[left]) / np.maximum(x[right] - x[left], 1e-300)
        hull[place] = (y[left] + share * (y[right] - y[left])).min()
    return float(bisect(lambda m: (delta(m, fine) - hull).min(), mu / 2, 30 * mu, xtol=1e-7))


def renyi(mu: float, kind: str, expected: int, gamma: float) -> float:
    """Epsilon at delta 1e-5 by theorems 2 and 6 of Papernot and Steinke 2022, as the specification tells them.

    mu^2 / 2 x order is the trial's divergence; the conversion is that of Canonne, Kamath and Steinke 2020.
    """
    eta = {"logarithmic": 0, "geometric": 1, "poisson": None}[kind]

    def told(order: float) -> float:
        own, more = order * mu**2 / 2, math.log(expected) / (order - 1)
        if eta is None:
            extra = expected * float(delta(mu, math.log1p(1 / (order - 1))))
        else:  # (1 + eta) ((1 - 1 / l) l mu^2 / 2 + ln(1 / gamma) / l), at the best l
            best = max(1.0, math.sqrt(2 * math.log(1 / gamma)) / mu)
            extra = (1 + eta) * ((best - 1) * mu**2 / 2 + math.log(1 / gamma) / best)
        return own + extra + more + math.log1p(-1 / order) - (math.log(1e-5) + math.log(order)) / (order - 1)

    return min(told(order) for order in np.geomspace(1.5, 2000, 20_001).tolist())


def sealed() -> dict[str, Any]:
    mu, rows, poisson = mu_of(1, 1e-5), [], []
    for expected in (5, 10, 20, 50):
        shift = expected * float(delta(mu, 0.0))
        row = {"expected": expected, "epsilon": shift + epsilon_of(mu, 1e-5 / expected)}
        row["papernot and steinke"] = renyi(mu, "poisson", expected, 0.0)
        poisson.append(row)
    for kind in ("logarithmic", "geometric"):
        for expected in (5, 10, 20, 50):
            parameters, slope = law(kind, expected)
            u = np.asarray(norm.cdf(Z))
            shift = math.log(float((slope(u) / slope(np.asarray(norm.cdf(Z - mu)))).max()))
            second = shift + epsilon_of(mu, 1e-5 / expected)
            row = {"law": kind, "expected": expected, **parameters, "log ratio": shift, "epsilon": second}
            row["papernot and steinke"] = renyi(mu, kind, expected, parameters["gamma"])
            row["seen"] = float(bisect(lambda e, s=slope: math.log(seen(mu, s, e) / 1e-5), 0.5, 2, xtol=1e-5))
            row["total variation"] = first_bound(mu, slope, 0.0)
            row["price at leak 1e-6"] = least(mu, slope, 1e-6)
            if kind == "logarithmic":
                row["price of epsilon .5 at leak 1e-6"] = least(mu_of(0.5, 1e-5), slope, 1e-6)
            rows.append(row)
    _, slope = law("logarithmic", 10)
    cases = [
        {
            "epsilon": e,
            "first bound": first_bound(mu, slope, e),
            "score is the loss": seen(mu, slope, e),
            "score sees a quarter": seen(mu, slope, e, 0.25),
        }
        for e in (0.0, 0.25, 0.5, 1.0, 1.5)
    ]
    at_half = mu_of(0.5, 1e-5)
    return {
        "mu": mu,
        "mu of epsilon .5": at_half,
        "delta": 1e-5,
        "rows": rows,
        "poisson": poisson,
        "logarithmic, 10": cases,
    }


def means() -> list[dict[str, Any]]:
    return [
        {"epsilon": epsilon, "users": users, "sd": 0.5 / (mu_of(epsilon, 1e-5) * users)}
        for epsilon in (0.1, 0.5, 0.05)
        for users in (500, 1000, 10000)
    ]


def choice_of_20() -> dict[str, Any]:
    gap, models, widest = 40, 20, range_price(0.5)
    return {
        "mu": widest,
        "gap": gap,
        "another wins, at most": math.exp(-0.5 * gap),
        "sd of a difference of noised scores": math.sqrt(2) * math.sqrt(models) / 2 / widest,
    }


PARTS: dict[str, Callable[[], Any]] = {
    "about": lambda: "python tests/reference/questions.py, which shares no code with the product.",
    "mu": lambda: {f"{epsilon:g}": mu_of(epsilon, 1e-5) for epsilon in EPSILONS},
    "mu at delta 1e-6": lambda: {f"{epsilon:g}": mu_of(epsilon, 1e-6) for epsilon in EPSILONS},
    "epsilon of k runs of epsilon 1": lambda: {
        f"{k:g}": epsilon_of(mu_of(1, 1e-5) * math.sqrt(k), 1e-5) for k in (0.25, 5, 10, 20, 50)
    },
    "mean of values in [0, 1], standard deviation": means,
    "quantile": quantiles,
    "area": areas,
    "choice": lambda: [
        {"range": r, "mu": range_price(r), "mu of pure DP": range_price(2 * r)} for r in (0.1, 0.5, 1.0, 2.0)
    ],
    "choice of 20 models": choice_of_20,
    "items": lambda: thresholds()[0],
    "thresholds": lambda: thresholds()[1],
    "sealed": sealed,
}


def short(part: object) -> Any:
    """`part` as JSON has it, ten digits of each number."""
    return json.loads(json.dumps(part), parse_float=lambda text: float(f"{float(text):.10g}"))


def main() -> None:
    table = {name: short(part()) for name, part in PARTS.items()}
    Path(__file__).with_suffix(".json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
