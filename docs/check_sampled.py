"""What `check_certificate.py` needs for single kinds of runs, above all those whose users are drawn by secret coins.

A Poisson-sampled round, or a block in which a user takes part in one secret round, is composed numerically, in both
orders of the two worlds (user there, user not there). A run whose rounds are charged as if they were known is held to
the worst pattern of its scheme. A run that a Monte Carlo certified is held, at every point of its
curve, against samples that this checker draws itself. Written from the definitions alone, with numpy and
mpmath, and cryptography for what a blinder signed.
"""

import hashlib
import itertools
import json
import math
from decimal import ROUND_CEILING, Context
from statistics import NormalDist
from typing import Any

import mpmath as mp
import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NEVER = -np.inf


class Refused(Exception):
    """The message says which line does not hold."""


def need(truth: Any, line: str) -> None:
    if not truth:
        raise Refused(line)


def number(value: Any, line: str) -> Any:
    need(type(value) in (int, float) and value >= 0, line)
    return value


def read(text: str) -> Any:
    """What a text of JSON says. Raises ValueError where one of its numbers is none, or is beyond a double's range."""

    def finite(digits: str) -> float:
        if not math.isfinite(value := float(digits)):
            raise ValueError(f"the number {digits}")
        return value

    return json.loads(text, parse_float=finite, parse_constant=finite)


def upwards(value: Any) -> float:
    """Round to twelve digits, and then up to nine."""
    return float(Context(prec=9, rounding=ROUND_CEILING).create_decimal(mp.nstr(mp.mpf(value), 12)))


def model_digest(file: bytes) -> str:
    """SHA-256 of the tensors of a safetensors file: of each, by name, [name, shape] and its bytes."""
    start = 8 + int.from_bytes(file[:8], "little")
    header, digest = json.loads(file[8:start]), hashlib.sha256()
    for name, tensor in sorted(header.items()):
        if name != "__metadata__":
            first, end = tensor["data_offsets"]
            digest.update(json.dumps([name, tensor["shape"]], separators=(",", ":")).encode())
            digest.update(file[start + first : start + end])
    return digest.hexdigest()


def spent(price: list[float], planned: dict[str, Any], said: dict[str, Any]) -> list[float]:
    """What an ended run costs: a sampled one all of its price once a round was committed, another one what it spent."""
    if not (said["mu_squared"] or said["sampled"] or said.get("certified")):
        return [0.0, 0.0]
    if planned.get("sampled") or planned.get("certified"):
        return price
    return [number(said["mu_squared"], "an end below nothing"), price[1]]


def asked(plan: dict[str, Any]) -> tuple[str | None, float]:
    """(the theorem, the leak) of a question that shows more, or less, than its noised sum."""
    question = (plan.get("task") or {}).get("question") or {}
    kind = "best" if question.get("shows") == "best" else question.get("kind")
    if kind not in ("items", "best"):
        need(not question.get("leak"), "a leak that no question has")
        return None, 0.0
    terms = plan["privacy"]
    known = terms["adjacency"] in (("zero_out", "replace_one") if kind == "best" else ("zero_out",))
    need(known and plan["mechanism"]["kind"] == "independent" and terms["rounding"] == "grid", "the question's plan")
    need(plan["run"]["rounds"] == 1 and plan["clipping"] == {"kind": "flat", "norm": 1.0}, "the question's round")
    if kind == "best":
        return "range", 0.0
    need(0 < question["leak"] <= 0.25, "the question's leak")
    return "threshold", question["leak"]


def against_server(
    plan: dict[str, Any], planned: dict[str, Any], own: float, stated: dict[str, float], epsilon_at: Any
) -> str:
    """What is said of a run whose server reads no sum without noise of the blinder that the plan names; "" of others.

    planned: the whole run's loss to everybody else, as the log says; own: mu^2 that its rounds cost at least.
    """
    terms, resolution = plan.get("aggregation") or {}, plan.get("charged_resolution", 0.0)
    ratio = terms.get("blinder_noise", 0.0)
    if not (ratio and terms.get("blinder")):
        return ""
    need(0 < ratio <= 1 and plan["privacy"].get("rounding") == "grid" and resolution >= 0, "the blinder's noise")
    square = (max(planned.get("mu_squared", 0.0), own) - resolution) / ratio**2 + resolution
    need(stated["server"] >= epsilon_at(square) - 1e-9, "epsilon against the server")
    return f"; epsilon {upwards(stated['server'])} against the server"


def blinder(plan: dict[str, Any], commits: list[dict[str, Any]], sigma: float) -> str:
    """The key of the blinder of a masked run, which signed what it answered in each round; "" of other runs.

    sigma: the run's noise multiplier, of which the blinder's is at least the plan's part.
    """
    texts, terms = [row["body"].get("receipt") for row in commits], plan.get("aggregation") or {}
    if terms.get("kind") != "masked":
        need(not any(texts), "a receipt of a run without masks")
        return ""
    before, keys = (0, ""), {terms["blinder"][-64:]} if terms.get("blinder") else set()
    for text in texts:
        said, _, signature = str(text).rpartition(" ")
        form, key, question, _, nodes, number, row, *noise = said.split(" ")
        need(form == f"fieldfare-receipt-v{1 + len(noise)}" and len(noise) < 2, "the form of a receipt")
        need(int(nodes) >= terms["least_nodes"], "the receipt of a masked round")
        added = float(noise[0]) if noise else 0.0
        need(math.inf > added >= terms.get("blinder_noise", 0.0) * sigma and bool(noise) == (added > 0), "its noise")
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), said.encode())
        except InvalidSignature:
            raise Refused("the receipt's signature") from None
        after = hashlib.sha256(f"fieldfare.blinder.row.v1 {before[1]} {question}".encode()).hexdigest()
        need(int(number) > before[0] and (int(number) > before[0] + 1 or row == after), "the blinder's journal")
        before, keys = (int(number), row), keys | {key}
    need(len(keys) <= 1, "another blinder than the plan's or than that of the other rounds")
    return keys.pop() if texts else ""


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


def worst(c: dict[str, Any], g: np.ndarray) -> float:
    """The square of the worst pattern that the plan's scheme allows, where who took part is secret."""
    value, spec, n = c["accounting"]["worst"], json.loads(c["plan"])["participation"], len(g)
    b, k, witness, scheme = value["separation"], value["count"], value["witness"], spec["scheme"]
    apart = {"cyclic-poisson": "groups", "balls-in-bins": "bins", "b-min-sep": "separation"}
    b_plan = spec[apart[scheme]] if scheme in apart else 1
    blocks = spec["bins"] if scheme == "random-allocation" else b_plan
    need(all(type(each) is int for each in (b, k, *witness)), "the numbers of the worst pattern")
    need(1 <= b <= b_plan and k >= -(-n // blocks), "the scheme is not the plan's")
    spaced = all(y - x >= b for x, y in itertools.pairwise(witness)) and all(0 <= t < n for t in witness)
    need(len(witness) <= k and spaced, "the witness's scheme")
    proven = online_worst(n, b, k) if c["noising"] == {"tree": "online"} else chain(g, b, k)
    proven = max(proven, float(g[np.ix_(witness, witness)].sum()))
    need(value["square"] >= proven * (1 - 1e-9), "the claimed maximum is below what can be proven")
    return float(value["square"])


def evenly(c: dict[str, Any], g: np.ndarray) -> float:
    """The square of one pattern that the scheme allows: round 0, and each next one as soon as it may be."""
    value = c["accounting"]["worst"]
    rounds = range(0, len(g), value["separation"])[: value["count"]]
    return float(g[np.ix_(rounds, rounds)].sum())


def law(spec: dict[str, Any]) -> dict[str, Any]:
    """What a plan's sampler is, for a certified run."""
    if spec["scheme"] == "b-min-sep":
        return {"separation": spec["separation"], "rate": spec["rate"]}
    need(spec["scheme"] in ("balls-in-bins", "random-allocation"), "a certificate of this sampler")
    return {"bins": spec["bins"], "fresh": spec["scheme"] == "random-allocation"}


def sampled_events(
    events: list[Any], spec: dict[str, Any], rounds: int, c: np.ndarray, sigma: float
) -> list[dict[str, Any]]:
    """The log's events as `sampled_mu` takes them, held against the plan's sampler, the run's rounds, C and sigma.

    Under random allocation one of them may be a last block, of which the run has `rounds` rounds alone. A user of one
    of `groups` groups is eligible once in so many rounds. C may have as many bands: then the columns of one user's
    rounds share no row, and each is an event of its own (Choquette-Choo et al. 2023, Theorem 4).
    """
    listed = ("rate", "noise_multiplier", "count")
    events = [dict(zip(listed, e, strict=True)) if isinstance(e, list) else e for e in events]
    cut = [e for e in events if "rounds" in e]
    need(len(cut) <= 1 and 1 <= len(events) <= 1 + len(cut), "more events than the plan has kinds of blocks")
    need(all(e["count"] == 1 and 1 <= e["rounds"] < e["bins"] for e in cut), "the block that the run cuts short")
    groups = {"cyclic-poisson": spec.get("groups"), "random-allocation": spec.get("bins")}.get(spec["scheme"], 1)
    need(spec["scheme"] in ("poisson", "cyclic-poisson", "truncated-poisson", "random-allocation"), "this sampler")
    stated = {name: spec[name] for name in ("rate", "bins", "cap", "enrolled") if spec.get(name) is not None}
    named = [{k: v for k, v in e.items() if k not in ("count", "noise_multiplier")} for e in events]
    same = all({k: v for k, v in each.items() if k != "rounds"} == stated for each in named)
    covered = sum(e["count"] * e.get("rounds", groups) for e in events)
    need(same and covered >= rounds, "the log's event is not that of the plan")
    most = groups if spec["scheme"] == "cyclic-poisson" else 1
    need(np.abs(np.tril(c, -most)).max(initial=0.0) <= 1e-9 * np.abs(c).max(), "more bands than this sampler allows")
    longest = math.sqrt(float((c**2).sum(axis=0).max()))
    need(len({e["noise_multiplier"] for e in events}) == 1, "the multiplier of one block is not that of the others")
    need(events[0]["noise_multiplier"] * longest <= sigma * (1 + 1e-9), "the sampled rounds' multiplier")
    return [
        {"multiplier": e["noise_multiplier"], "count": e["count"], **each}
        for e, each in zip(events, named, strict=True)
    ]


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


def allocated_losses(bins: int, sigma: float, step: float, top: int, rounds: int | None = None) -> list[Losses]:
    """A block in which the user takes part in one of `bins` rounds, in both orders; rounds: as many as the run has.

    Without the user, P / Q is a mean of independent exp(x / sigma - 1 / (2 sigma^2)), and of 1 for each round that the
    run has not. Every value is split between its
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
    held = rounds or bins
    while True:
        if held & size:
            whole, done = (power if whole is None else mean(whole, power, done, size)), done + size
        if done == held:
            break
        power, size = mean(power, power, size, size), 2 * size
    if held < bins:
        whole = mean(whole, (np.ones(1), np.ones(1)), held, bins - held)
    grid = np.r_[0.0, np.exp(np.arange(-top, top + 1) * step)]
    q = split(*whole, grid)
    with_user = q[1:] * grid[1:]
    return [(with_user, max(0.0, 1 - float(with_user.sum()))), (q[:0:-1].copy(), float(q[0]))]


def sampled_mu(events: list[dict[str, Any]], leak: float) -> float:
    """Least mu of a run of sampled rounds or blocks at this leak: each order's loss is composed by FFT, and read at the
    trade-off curve's vertices. A cap on a round's users fails where the others alone may fill it."""
    s, count = events[0], sum(each["count"] for each in events)
    sigma, quantile, best = s["multiplier"], NormalDist().inv_cdf, 0.0
    rate = 1.0 if "bins" in s else s["rate"]
    reach, square = 12 / sigma + 0.5 / sigma**2, math.expm1(min(sigma**-2, 700.0))
    spread = min(math.sqrt(square / s["bins"]) if "bins" in s else rate * math.sqrt(square), 1 / sigma)
    step = max(1e-5, min(1e-3, spread / 100))
    high = reach if rate == 1 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + reach))
    top, open_anyway = math.ceil(high / step), 0.0
    if "cap" in s and s["cap"] < s["enrolled"]:
        open_anyway = float(mp.betainc(s["cap"], s["enrolled"] - s["cap"], 0, rate, regularized=True))
    both = [
        allocated_losses(s["bins"], sigma, step, top, each.get("rounds"))
        if "bins" in s
        else poisson_losses(rate, sigma, step, top)
        for each in events
    ]
    width = 2 * reach + 24 * math.sqrt(count) * spread + 4 * count * spread**2
    size = 1 << math.ceil(math.log2(max(4 * top, 2 * width / step)))
    for order in zip(*both, strict=True):
        spectrum, finite = 1.0, 1.0
        for (p, infinite), each in zip(order, events, strict=True):
            part = np.roll(np.pad(p * (1 - open_anyway), (0, size - len(p))), -top)
            spectrum = spectrum * np.fft.rfft(part) ** each["count"]
            finite *= ((1 - infinite) * (1 - open_anyway)) ** each["count"]
        whole = np.maximum(np.fft.irfft(spectrum, size), 0.0)
        half = size // 2
        mass, losses = np.roll(whole, half)[half + 1 :][::-1], (np.arange(half + 1, size) - half)[::-1] * step
        m = np.cumsum(mass) + (1 - finite)
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


def one_test(claim: dict[str, Any], c: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
    """What no delta may lie below, in either order: a threshold on the output along the mean pattern reaches it.

    Without samples: the sum of a user's rounds along that direction, each rounded down, has an exact law.
    """
    c, n = np.abs(c), c.shape[1]
    p, b = claim.get("rate", 1.0), claim["separation"] if "rate" in claim else claim["bins"]
    mean = c.sum(axis=1) / (b - 1 + 1 / p)
    along, turns = mean @ c / np.linalg.norm(mean), -(-n // b)
    width = float(along.max()) * turns / 2048
    steps = np.pad((along / width).astype(int), (0, turns * b - n))
    if "rate" in claim:
        later = [np.eye(1, 2050 + 2 * int(steps.max()))[0]] * b
        for t in reversed(range(n)):
            later = [(1 - p) * later[0] + p * np.roll(later[-1], steps[t]), *later[:-1]]
        law = (later[0] + p * np.sum(later[1:], axis=0)) / (1 + (b - 1) * p)
    elif claim.get("fresh"):
        law = np.ones(1)
        for block in steps.reshape(turns, b):
            law = np.convolve(law, np.bincount(block) / b)
    else:
        law = np.bincount(steps.reshape(turns, b).sum(axis=0)) / b
    shifts, weights = width * np.flatnonzero(law), law[law > 0]
    t = np.linspace(-6.0, float(shifts.max()) + 9.0, 301)
    tail = np.vectorize(lambda x: 0.5 * math.erfc(x / math.sqrt(2)))
    above, below = tail(t[:, None] - shifts) @ weights, tail(shifts - t[:, None]) @ weights
    grow = np.exp(epsilons)[:, None]
    best = np.maximum(above - grow * tail(t), tail(-t) - grow * below).max(axis=1)
    return np.asarray(best - 1e-13 * np.exp(epsilons))


def certified_mu(claim: dict[str, Any], c: np.ndarray, leak: float) -> float:
    """Least mu at this leak of the claimed curve, held against samples of the sampler's pair of mixtures.

    One test, without samples, bounds it from below first. The samples are this checker's own; a curve that lies below
    them by five standard errors is refused.
    """
    points = np.array(claim["points"])
    need(points[0, 0] == 0 and (np.diff(points[:, 0]) > 0).all() and (points[:, 1] >= claim["failure"]).all(), "points")
    reached = one_test(claim, c, points[:, 0])
    need((points[:, 1] >= reached).all(), "a point of the certified curve is below what one test reaches")
    fixed = "rate" not in claim and not claim.get("fresh")
    count = 200_000 if fixed else 100_000
    for sign in (1, -1):
        ratio, proposal = (binned_samples if fixed else chained_samples)(claim, c, sign, count)
        for epsilon, delta in points:
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


def amplified_mu(
    planned: dict[str, Any], plan: dict[str, Any], c: np.ndarray, sigma: float, leak: float
) -> tuple[float, str]:
    """(the least mu that the log's sampled run may be charged at this leak, the theorem that it rests on)."""
    spec = plan["participation"]
    if planned.get("sampled"):
        events = sampled_events(planned["sampled"], spec, plan["run"]["rounds"], c, sigma)
        # The composition errs by as much as this.
        return sampled_mu(events, leak) * (1 - 5e-5) - 1e-5, "sampled"
    (curve,) = planned["certified"]
    return certified_mu({**curve, **law(spec)}, c / sigma, leak) * (1 - 1e-9) - 1e-9, "certified"


def discrete(noise: dict[str, Any], mu_squared: float) -> tuple[float, float]:
    """(mu^2, leak) of discrete noise that is S cells wide, where Gaussian noise costs `mu_squared`.

    It is a Gaussian of variance S^2 - 4 followed by a rounding that forgets where it began.
    """
    cells, values = noise["scale"], noise["values"]
    need(cells > 6, "discrete noise this narrow has no Gaussian price")
    own = mu_squared * cells**2 / (cells**2 - 4)
    return own, values * 4.2 * math.exp(-8 * math.pi**2) / NormalDist().cdf(-math.sqrt(own) / 2)
