"""Check a Fieldfare certificate without Fieldfare: python check_certificate.py CERTIFICATE.json

Written from the definitions alone, with numpy and mpmath. Released is X + sigma B Z; a user changes X by at most one
clip norm in each round of its pattern P. With B B^T = L L^T and R = L^-1 the noise of R Y is independent, so the
release is mu-GDP with mu^2 = factor^2 max_P sum_{i,j in P} |G_ij| / sigma^2, G = R^T R = (B B^T)^-1. Runs add up in a
rectangle (M, D) fixed beforehand: delta(epsilon) = D + (1 - D) g_sqrt(M)(epsilon). Exit status: 0 yes, 1 no.
"""

import base64
import hashlib
import itertools
import json
import math
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

import mpmath as mp
import numpy as np

KEYS = "accounting assumptions clip epsilon format journal noise noising nonces population price run sums"
NEVER = -np.inf


class Refused(Exception):
    """The message says which line does not hold."""


def need(truth: Any, line: str) -> None:
    if not truth:
        raise Refused(line)


def array(stored: dict[str, Any]) -> np.ndarray:
    """A little-endian float64 array, held against its digest."""
    raw = base64.b64decode(stored["base64"], validate=True)
    need(hashlib.sha256(raw).hexdigest() == stored["sha256"], "the digest of B")
    values = np.frombuffer(raw, "<f8").reshape(stored["shape"])
    need(np.isfinite(values).all(), "B is not finite")
    return values


def noising(stored: dict[str, Any], n: int) -> np.ndarray:
    """B's first n rows."""
    if stored == {"tree": "online"}:
        return online_tree(n)
    ((form, value),) = stored.items()
    values = array(value)
    need(len(values) >= n and values.ndim == {"toeplitz": 1, "dense": 2}[form], "the shape of B")
    if form == "dense":
        return values[:n]
    rows, columns = np.indices((n, n))
    return np.where(rows >= columns, values[np.abs(rows - columns)], 0.0)


def share(height: int) -> float:
    """Weight of a node's own sum against its children's in Honaker's estimate, as the stream rounds it."""
    return float(np.float32(1.0 / (2.0 - 2.0**-height)))


def online_tree(n: int) -> np.ndarray:
    """Honaker's online estimates of all prefix sums, differenced: round t releases prefix t minus prefix t - 1."""
    nodes = [(h, t >> h) for t in range(1, n + 1) for h in range((t & -t).bit_length())]
    own = dict(zip(nodes, np.eye(len(nodes)), strict=True))
    estimate = own.copy()
    for h, node in nodes:
        if h:
            below = estimate[h - 1, 2 * node - 1] + estimate[h - 1, 2 * node]
            estimate[h, node] = share(h) * own[h, node] + (1 - share(h)) * below
    prefixes = [np.zeros(len(nodes))]
    for t in range(1, n + 1):
        h = (t & -t).bit_length() - 1
        prefixes.append(prefixes[t - (1 << h)] + estimate[h, t >> h])
    return np.diff(np.array(prefixes), axis=0)


def whitened(b: np.ndarray) -> tuple[np.ndarray, float]:
    """R with R B B^T R^T = I, and r: v^T G v lies in |R v|^2 / (1 -+ r), rounding included."""
    covariance, (n, m) = b @ b.T, b.shape
    r = np.linalg.solve(np.linalg.cholesky(covariance), np.eye(n))
    off = np.abs(r @ covariance @ r.T - np.eye(n)).sum(axis=1).max()
    size = (np.abs(r) @ (np.abs(b) @ np.abs(b.T)) @ np.abs(r.T)).sum(axis=1).max()
    error = float(off + 4 * (n + m) * 2.0**-53 * size)
    need(error < 1e-3, "B is too ill-conditioned to be checked in double precision")
    return r, error


def chain(a: np.ndarray, b: int, k: int) -> float:
    """An upper bound on every pattern of k rounds, b apart: the next round exactly, each later one at its largest."""
    n = len(a)
    b, k = min(b, n), min(k, -(-n // min(b, n)))
    suffix, far = np.maximum.accumulate(a[:, ::-1], axis=1)[:, ::-1], np.zeros(n)
    value, allowed = np.diag(a), np.arange(n)[None, :] >= np.arange(n)[:, None] + b
    best = float(value.max())
    for c in range(2, k + 1):
        value = np.diag(a) + 2 * far + np.where(allowed, 2 * a + value, NEVER).max(axis=1)
        best = max(best, float(value.max()))
        rows = np.arange(max(0, n - c * b))
        far[rows] += suffix[rows, rows + c * b]
    return best


def online_worst(n: int, b: int, k: int) -> float:
    """The online tree's exact maximum: per node and (participations, weighted sum), best costs between its borders."""
    b = min(b, n)
    first, barred = np.indices((b, b))
    below = {(0, 0.0): np.where(barred >= np.maximum(first - 1, 0), 0.0, NEVER)}
    below[1, 1.0] = np.where((first == 0) & (barred == b - 1), 0.0, NEVER)
    variance, levels = 1.0, []
    for height in range(n.bit_length()):
        left: dict[int, Any] = {}
        for (c, r), cost in below.items():
            left[c] = np.maximum(left.get(c, NEVER), cost + r * r / variance)
        levels.append(left)
        w, above = share(height + 1), dict[Any, Any]()
        variance = w**2 + (1 - w) ** 2 * variance
        for c_left, before in left.items() if 2 << height <= n else ():
            for (c_right, r_right), cost in below.items():
                c = c_left + c_right
                if c <= min(k, -(-(2 << height) // b)):
                    both = above.setdefault((c, round(w * c + (1 - w) * r_right, 12)), np.full((b, b), NEVER))
                    for middle in range(b):
                        if before[:, middle].max() > NEVER and cost[middle].max() > NEVER:
                            np.maximum(both, before[:, middle, None] + cost[middle], out=both)
        below = above
    row: dict[int, Any] = {0: np.where(np.arange(b) == 0, 0.0, NEVER)}
    for height in [h for h in reversed(range(n.bit_length())) if n >> h & 1]:
        after: dict[int, Any] = {}
        for c, reached in row.items():
            for more, cost in ((d, cost) for d, cost in levels[height].items() if c + d <= k):
                after[c + more] = np.maximum(after.get(c + more, NEVER), (reached[:, None] + cost).max(axis=0))
        row = after
    return max(float(value.max()) for value in row.values())


def largest(accounting: dict[str, Any], stored: dict[str, Any], n: int) -> tuple[float, float]:
    """(the largest pattern's square, relative error of it)."""

    def follows(rounds: list[int], apart: int) -> bool:
        return all(0 <= t < n for t in rounds) and all(y - x >= apart for x, y in itertools.pairwise(rounds))

    r, error = whitened(noising(stored, n))
    g = np.abs(r.T @ r)
    if "patterns" in accounting:
        value = accounting["patterns"]
        need(all(p["users"] >= 1 and follows(p["rounds"], 1) for p in value), "a pattern that is none")
        return max((float(g[np.ix_(p["rounds"], p["rounds"])].sum()) for p in value), default=0.0), error
    value = accounting["worst"]
    b, k, witness = value["separation"], value["count"], value["witness"]
    need(len(witness) <= k and follows(witness, b) and b >= 1, "the witness's scheme")
    proven = online_worst(n, b, k) if stored == {"tree": "online"} else chain(g, b, k)
    proven = max(proven, float(g[np.ix_(witness, witness)].sum()))
    need(value["square"] >= proven * (1 - 1e-9), "the claimed maximum is below what can be proven")
    return float(value["square"]), error


Losses = tuple[np.ndarray, float]
"""Masses at -top, ..., top grid steps, and the mass at an infinite loss."""


def poisson_losses(rate: float, sigma: float, step: float, top: int) -> list[Losses]:
    """A Poisson-sampled round in both orders, discretised upwards: its delta curve is touched on a grid and joined by
    lines in e^epsilon."""
    tail, both = np.vectorize(lambda x: 0.5 * math.erfc(x / math.sqrt(2))), []
    for order in (1, -1):
        grid = np.arange(-top, top + 1) * step
        # The loss crosses e at x. Order 1 is the mixture against the base, order -1 the reverse.
        inner = (np.exp(order * grid) - 1 + rate) / rate
        x = np.where(inner > 0, sigma**2 * np.log(np.maximum(inner, 1e-300)) + 0.5, -40 * sigma)
        base = tail(order * x / sigma)
        mixed = (1 - rate) * base + rate * tail(order * (x - 1) / sigma)
        d = mixed - np.exp(grid) * base if order == 1 else base - np.exp(grid) * mixed
        d = np.minimum.accumulate(np.clip(d, 0.0, 1.0))
        rise, growth = np.diff(d), math.expm1(step)
        ends = 1 - d[0] + rise[0] / growth, rise[-1] / math.expm1(-step)
        p = np.maximum(np.r_[ends[0], (rise[1:] - math.exp(step) * rise[:-1]) / growth, ends[1]], 0.0)
        both.append((p, float(d[-1])))
    return both


def allocated_losses(bins: int, sigma: float, step: float, top: int) -> list[Losses]:
    """A block in which the user takes part in one of `bins` rounds, in both orders.

    Without the user, P / Q is a mean of independent exp(x / sigma - 1 / (2 sigma^2)). Every value is split between its
    neighbours on a grid, mass and mean kept, which raises both orders' delta: means of convex functions of P / Q.
    """

    def split(values: np.ndarray, mass: np.ndarray, grid: np.ndarray) -> np.ndarray:
        cell = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
        upper = np.clip((values - grid[cell]) / (grid[cell + 1] - grid[cell]), 0.0, 1.0) * mass
        return np.bincount(cell, mass - upper, len(grid)) + np.bincount(cell + 1, upper, len(grid))

    def on_grid(values: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        held = np.flatnonzero((mass > 1e-19) & (mass * values > 1e-19) & (values > 0))
        grid = np.r_[0.0, np.geomspace(values[held].min(), values[held].max(), 2000)]
        q = split(values, mass, grid)
        return grid, q / q.sum()

    def mean(one: Any, other: Any, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        values = (m * one[0][:, None] + n * other[0]) / (m + n)
        return on_grid(values.ravel(), np.outer(one[1], other[1]).ravel())

    x = np.linspace(-9.0, 9.0 + 1 / sigma, 100_001)
    density = np.exp(-(x**2) / 2)
    power, whole, size, done = on_grid(np.exp(x / sigma - 0.5 / sigma**2), density / density.sum()), None, 1, 0
    while True:
        if bins & size:
            whole, done = (power if whole is None else mean(whole, power, done, size)), done + size
        if done == bins:
            break
        power, size = mean(power, power, size, size), 2 * size
    grid = np.r_[0.0, np.exp(np.arange(-top, top + 1) * step)]
    q = split(*whole, grid)
    with_user = q[1:] * grid[1:]
    return [(with_user, max(0.0, 1 - float(with_user.sum()))), (q[:0:-1].copy(), float(q[0]))]


def sampled_mu(s: dict[str, Any], leak: float) -> float:
    """Least mu of a run of sampled rounds or blocks at this leak: each order's loss is composed by FFT, and read at the
    trade-off curve's vertices. A cap on a round's users fails where the others alone may fill it."""
    sigma, count, quantile, best = s["multiplier"], s["count"], NormalDist().inv_cdf, 0.0
    rate = 1.0 if "bins" in s else s["rate"]
    reach, square = 12 / sigma + 0.5 / sigma**2, math.expm1(min(sigma**-2, 700.0))
    spread = min(math.sqrt(square / s["bins"]) if "bins" in s else rate * math.sqrt(square), 1 / sigma)
    step = max(1e-5, min(1e-3, spread / 100))
    high = reach if rate == 1 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + reach))
    top, open_anyway = math.ceil(high / step), 0.0
    if "cap" in s and s["cap"] < s["enrolled"]:
        open_anyway = float(mp.betainc(s["cap"], s["enrolled"] - s["cap"], 0, rate, regularized=True))
    both = allocated_losses(s["bins"], sigma, step, top) if "bins" in s else poisson_losses(rate, sigma, step, top)
    width = 2 * reach + 24 * math.sqrt(count) * spread + 4 * count * spread**2
    size = 1 << math.ceil(math.log2(max(4 * top, 2 * width / step)))
    for p, infinite in both:
        p, infinite = p * (1 - open_anyway), infinite + open_anyway - infinite * open_anyway
        whole = np.maximum(np.fft.irfft(np.fft.rfft(np.roll(np.pad(p, (0, size - len(p))), -top)) ** count, size), 0.0)
        half = size // 2
        mass, losses = np.roll(whole, half)[half + 1 :][::-1], (np.arange(half + 1, size) - half)[::-1] * step
        m = np.cumsum(mass) - math.expm1(count * math.log1p(-infinite))
        a = np.cumsum(mass * np.exp(-losses))
        for m_j, a_j in zip(m, a, strict=True):
            if leak < m_j < 1 and 0 < a_j < 1 - leak:
                best = max(best, quantile((m_j - leak) / (1 - leak)) - quantile(a_j / (1 - leak)))
    return best


def binned_samples(claim: dict[str, Any], c: np.ndarray, sign: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """P / Q and R / Q of samples: one user's rounds are those of one of b bins.

    The pair is the mean over bins j of N(m_j, I) against N(0, I), m_j the sum of the bin's columns of |C| / sigma.
    """
    bins, rng = claim["bins"], np.random.default_rng()
    modes = np.stack([np.abs(c)[:, j::bins].sum(axis=1) for j in range(min(bins, c.shape[1]))], axis=1)
    modes = np.pad(modes, ((0, 0), (0, bins - modes.shape[1])))
    kernel = modes.T @ modes
    half, v = np.diag(kernel) / 2, kernel.mean()
    values, vectors = np.linalg.eigh(kernel)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    # The user's world, or noise alone, moved by s / sqrt(v) along the mean mode or against it; s mixes.
    s = np.array([0.0, 1.5, 3.0, 4.5]) / math.sqrt(v)
    weight = np.array([np.exp(x * kernel.mean(axis=0)).mean() if sign == 1 else 1.0 for x in s])
    pick = rng.integers(0, len(s), count)
    u = rng.standard_normal((count, bins)) @ root.T + sign * s[pick][:, None] * kernel.mean(axis=0)
    if sign == 1:
        tilt = np.cumsum(np.exp(s[:, None] * kernel.mean(axis=0)), axis=1)
        own = (tilt[pick] / tilt[pick][:, -1:] < rng.random(count)[:, None]).sum(axis=1)
        u += kernel[own]
    ratio = np.exp(u - half).mean(axis=1)
    tilted = np.exp(sign * s * u.mean(axis=1)[:, None] - s**2 * v / 2) / weight
    return ratio, tilted.mean(axis=1) * (ratio if sign == 1 else 1.0)


def mean_over_patterns(claim: dict[str, Any], logs: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Mean over a user's patterns of exp(logs of their rounds - inner products of their pairs), from the last round."""
    rounds = logs.shape[1]
    if "rate" in claim:  # a coin in each round, after a rest
        b, p = claim["separation"], claim["rate"]
        later = [np.ones(len(logs))] * b
        for t in reversed(range(rounds)):
            later = [(1 - p) * later[0] + p * np.exp(logs[:, t]) * later[-1], *later[:-1]]
        return (later[0] + p * sum(later[1:])) / (1 + (b - 1) * p)
    b = claim["bins"]  # a fresh round in each block
    whole = -(-rounds // b) * b
    logs, near = np.pad(logs, ((0, 0), (0, whole - rounds))), np.pad(gram, (0, whole - rounds))
    value = np.exp(logs[:, -b:])
    for t in range(whole - 2 * b, -1, -b):
        value = np.exp(logs[:, t : t + b]) * (value @ np.exp(-near[t : t + b, t + b : t + 2 * b]).T) / b
    return value.mean(axis=1)


def chained_samples(claim: dict[str, Any], c: np.ndarray, sign: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """As `binned_samples`, for a coin in each round after a rest, or a fresh round in each block."""
    c, n, rng = np.abs(c), c.shape[1], np.random.default_rng()
    gram, apart = c.T @ c, np.subtract.outer(np.arange(n), np.arange(n))
    if "rate" in claim:
        b, p = claim["separation"], claim["rate"]
        share, beyond = 1 / (b - 1 + 1 / p), apart >= b
    else:
        b, p = claim["bins"], 1.0
        share, beyond = 1 / b, np.subtract.outer(np.arange(n) // b, np.arange(n) // b) > 1
    need(0 < p <= 1 and b >= 1 and (gram[beyond] < 1e-9 * gram.max()).all(), "too many bands for this sampler")
    mean = share * c.sum(axis=1)
    v, half, to_mean = mean @ mean, np.diag(gram) / 2, mean @ c
    s = np.array([0.0, 1.5, 3.0, 4.5]) / math.sqrt(v)
    y = rng.standard_normal((count, len(c))) + sign * s[rng.integers(0, len(s), count)][:, None] * mean
    if sign == 1:
        taken = np.zeros((count, n))
        if "rate" in claim:
            start = np.cumsum([1.0, *[p] * (b - 1)]) / (1 + (b - 1) * p)
            free = np.minimum((start <= rng.random(count)[:, None]).sum(axis=1), b - 1)
            for t in range(n):
                taken[:, t] = (free <= t) & (rng.random(count) < p)
                free = np.where(taken[:, t] == 1, t + b, free)
        else:
            for t in range(0, n, b):
                own = t + rng.integers(0, b, count)
                taken[np.flatnonzero(own < n), own[own < n]] = 1
        y += taken @ c.T
    u = y @ c
    ratio = mean_over_patterns(claim, u - half, gram)
    moved = np.exp(sign * s * (y @ mean)[:, None] - s**2 * v / 2)
    own = [mean_over_patterns(claim, u - half - x * to_mean, gram) for x in s] if sign == 1 else [np.ones(count)] * 4
    return ratio, (moved * np.stack(own, axis=1)).mean(axis=1)


def certified_mu(claim: dict[str, Any], c: np.ndarray, leak: float) -> float:
    """Least mu at this leak of the claimed curve, held against samples of the sampler's pair of mixtures.

    The samples are this checker's own; a curve that lies below them by five standard errors is refused.
    """
    points = np.array(claim["points"])
    need(points[0, 0] == 0 and (np.diff(points[:, 0]) > 0).all() and (points[:, 1] >= claim["failure"]).all(), "points")
    fixed = "rate" not in claim and not claim.get("fresh")
    count = 200_000 if fixed else 100_000
    for sign in (1, -1):
        ratio, proposal = (binned_samples if fixed else chained_samples)(claim, c, sign, count)
        for epsilon, delta in points[:: max(1, len(points) // 8)]:
            gain = ratio - math.exp(epsilon) if sign == 1 else 1 - math.exp(epsilon) * ratio
            x = np.maximum(gain, 0.0) / proposal
            need(x.mean() - 5 * x.std() / math.sqrt(count) <= delta, "a point of the certified curve is too low")
    x, h, hull = np.exp(points[:, 0]), np.minimum.accumulate(points[:, 1]), [0]
    for i in range(1, len(x)):
        while len(hull) > 1 and (h[hull[-1]] - h[hull[-2]]) * (x[i] - x[hull[-2]]) >= (h[i] - h[hull[-2]]) * (
            x[hull[-1]] - x[hull[-2]]
        ):
            hull.pop()
        hull.append(i)
    need(h[-1] <= leak, "the curve's end is above the leak")
    quantile, best = NormalDist().inv_cdf, 0.0
    for i, j in itertools.pairwise(hull):
        a = (h[i] - h[j]) / (x[j] - x[i])
        m = min(h[i] + a * x[i], 1 - 1e-15)
        if a > 0 and m > leak:
            best = max(best, quantile((m - leak) / (1 - leak)) - quantile(a / (1 - leak)))
    return best


def g_delta(mu: Any, e: Any) -> Any:
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu) if mu else mp.mpf(0)


def epsilon_of(mu: Any, delta: Any) -> Any:
    low, high = mp.mpf(0), mp.mpf(1)
    while g_delta(mu, high) > delta:
        high *= 2
    while g_delta(mu, low) > delta and high - low > mp.mpf("1e-13"):
        low, high = (middle, high) if g_delta(mu, middle := (low + high) / 2) > delta else (low, middle)
    return high if low or g_delta(mu, low) > delta else low


def check(c: dict[str, Any]) -> str:
    """One line of what was proven. Raises `Refused`."""
    need(" ".join(sorted(c)) == KEYS and c["format"] == "fieldfare-certificate/1", "unknown or missing keys")
    population, run, noise, price = c["population"], c["run"], c["noise"], c["price"]
    n, leak, delta, epsilon = run["rounds"], population["leak"], population["delta"], population["epsilon"]
    need(0 <= n <= run["horizon"] and 0 <= leak < delta < 1 and noise["multiplier"] > 0, "rounds, D, delta or sigma")
    factor = {"zero_out": 1.0, "add_remove": 1.0, "replace_one": 2.0}[population["adjacency"]]
    need(population["factor"] == factor, "the factor of this adjacency")
    fresh = c["nonces"]["count"] == n and c["nonces"]["distinct"]
    need(fresh or not c["nonces"]["format"], "one fresh nonce a round")
    error = own = own_leak = 0.0
    if "sampled" in price:
        s = price["sampled"]
        need(population["adjacency"] == "add_remove", "sampling amplifies under add_remove only")
        columns = np.linalg.inv(noising(c["noising"], n))
        longest = math.sqrt(float((columns**2).sum(axis=0).max()))
        need(s["multiplier"] * longest <= noise["multiplier"] * (1 + 1e-9), "the sampled rounds' multiplier")
        if s.keys() != {"multiplier", "count", "rate"}:  # the other samplers are charged for independent noise alone
            need(np.array_equal(columns, np.diag(np.diag(columns))), "this sampler with correlated noise")
            need(s["count"] * s.get("bins", 1) >= run["horizon"], "fewer sampled rounds than the run has")
        own, own_leak = sampled_mu(s, price["leak"]) ** 2, price["leak"]
        need(math.sqrt(price["mu_squared"]) >= math.sqrt(own) * (1 - 5e-5) - 1e-5, "mu of the sampled run")
    elif "certified" in price:
        b = noising(c["noising"], n)
        need(
            population["adjacency"] == "add_remove" and b.shape == (n, n),
            "secret cohorts need add_remove, and a square B",
        )
        own_leak, modes = price["leak"], np.linalg.inv(b) / noise["multiplier"]
        own = certified_mu(price["certified"], modes, own_leak) ** 2
        need(math.sqrt(price["mu_squared"]) >= math.sqrt(own) * (1 - 1e-9) - 1e-9, "mu of the certified run")
    elif n:
        square, error = largest(c["accounting"], c["noising"], n)
        own = factor**2 * square / noise["multiplier"] ** 2 + noise["rounding_mu_squared"]
        if "discrete" in price:
            cells, values = price["discrete"]["scale"], price["discrete"]["values"]
            need(cells > 6, "discrete noise this narrow has no Gaussian price")
            own *= cells**2 / (cells**2 - 4)
            own_leak = values * 4.2 * math.exp(-8 * math.pi**2) / NormalDist().cdf(-math.sqrt(own) / 2)
        need(price["mu_squared"] >= own * (1 - 1e-9), "mu^2 of the run")
    need(price["leak"] >= own_leak, "the leak of the run")
    mp.mp.dps = 50
    target = (mp.mpf(delta) - leak) / (1 - mp.mpf(leak))
    low, high = (epsilon_of(mp.sqrt(mp.mpf(price["mu_squared"]) * (1 + s * error)), target) for s in (-1, 1))
    need(c["epsilon"]["lo"] <= low + 1e-9 and c["epsilon"]["hi"] >= high - 1e-9, "epsilon's interval")
    sums, most = c["sums"], population["mu_squared"]
    need(all(sums[key] >= price[key] * (1 - 1e-12) for key in ("mu_squared", "leak")), "sums below this run")
    need(sums["mu_squared"] <= most and sums["leak"] <= leak, "the population's budget is overspent")
    bound = leak + (1 - mp.mpf(leak)) * g_delta(mp.sqrt(mp.mpf(most)), mp.mpf(epsilon))
    need(bound <= mp.mpf(delta) * (1 + mp.mpf("1e-9")), "the rectangle exceeds (epsilon, delta)")
    shown = f"{delta:g}".replace("e-0", "e-")
    return f"yes: ({epsilon}, {shown}) for every user of {population['name']}; this run epsilon {mp.nstr(high, 9)}"


if __name__ == "__main__":
    try:
        print(check(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    except Refused as error:
        sys.exit(f"no: {error}")
    except (KeyError, TypeError, ValueError, IndexError, np.linalg.LinAlgError) as error:
        sys.exit(f"no: not a certificate ({error!r})")
