"""Check a Fieldfare certificate without Fieldfare: python check_certificate.py CERTIFICATE.json [KEY [MODEL]]

Written from docs/certificate.md alone, with numpy, mpmath and cryptography; `check_sampled.py` beside this file has the
runs whose users are drawn by secret coins. What was run is read from rows of the ledger's log, which a signed
checkpoint of its Merkle tree (RFC 6962) contains; nothing else in the file can lower what they say.

Released is X + sigma B Z; a user changes X by at most one clip norm in each round of its pattern P. With B B^T = L L^T
and R = L^-1 the noise of R Y is independent, so the release is mu-GDP with mu^2 = factor^2 max_P sum_{i,j in P} |G_ij|
/ sigma^2, G = R^T R = (B B^T)^-1. Runs add up in a rectangle (M, D): delta(epsilon) = D + (1 - D) g_sqrt(M)(epsilon).
Exit status: 0 yes, 1 no.
"""

import base64
import bisect
import hashlib
import json
import math
import re
import sys
import zlib
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

sys.path.insert(0, str(Path(__file__).parent))
import check_sampled
from check_sampled import Refused, amplified_mu, asked, blinder, discrete, need, number, online_tree, read, spent, worst

KEYS = (
    *("accounting", "assumptions", "checkpoint", "epsilon", "format", "key", "noise", "noising", "others"),
    *("participants", "plan", "price", "rows", "run", "theorems"),
)
HASHED = ("action", "actor", "at", "body", "event", "id", "population", "round", "run")
GIVEN = ("population.create", "population.raise")
Row = dict[str, Any]


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def decoded(text: str) -> bytes:
    raw = base64.b64decode(text)
    need(base64.b64encode(raw).decode() == text, "the base64 of a part")
    return raw


def bound(c: dict[str, Any], key: str | None) -> list[Row]:
    """The rows, in order, shown to be all that the signed checkpoint names for this run and its population."""
    text, _, signatures = c["checkpoint"].rpartition("\n\n")
    (origin, size, root, line), public = text.split("\n"), bytes.fromhex(c["key"])
    need(re.fullmatch("[0-9a-f]{64}", c["key"]), "the key's form")
    need(re.fullmatch(r"fieldfare\.ledger/.+ [1-9][0-9]*", f"{origin} {size}"), "the checkpoint's first lines")
    need(key in (None, "any") or c["key"] == str(key).lower(), "another key than the ledger's signed the checkpoint")
    signed = [decoded(s.split(" ")[2]) for s in signatures.split("\n") if s.startswith(f"\u2014 {origin} ")]
    mine = [s[4:] for s in signed if s[:4] == sha(f"{origin}\n\x01".encode() + public)[:4]]
    need(mine, "the checkpoint has no signature of its key")
    try:
        for each in mine:
            Ed25519PublicKey.from_public_bytes(public).verify(each, f"{text}\n".encode())
    except InvalidSignature:
        raise Refused("the checkpoint's signature") from None
    rows = [dict(zip((*HASHED, "previous"), values, strict=True)) for values in c["rows"]]
    hashes, others = {}, iter(c["others"])
    for values, row in zip(c["rows"], rows, strict=True):
        plain = type(row["id"]) is int and all(type(each) in (str, int, float, type(None)) for each in values)
        need(type(row["action"]) is str, "the action of a row")
        need(plain and re.fullmatch("[0-9a-f]{64}", row["previous"]), "the columns of a row")
        need(hashes.get(row["id"] - 2, before := bytes.fromhex(row["previous"])) == before, "the chain of the rows")
        content = json.dumps({k: row[k] for k in HASHED}, sort_keys=True, separators=(",", ":"), allow_nan=False)
        hashes[row["id"] - 1] = sha(before + content.encode())
    numbers = list(hashes)
    need(numbers == sorted(numbers) and len(numbers) == len(rows), "the order of the rows")

    def tree(first: int, count: int, inside: list[int]) -> bytes:
        """The root over `count` leaves; where none of them is here, the next of `others`."""
        if not inside:
            return bytes.fromhex(next(others))
        if count == 1:
            return sha(b"\0" + hashes[first])
        left = 1 << (count - 1).bit_length() - 1
        at = bisect.bisect_left(inside, first + left)
        return sha(b"\1" + tree(first, left, inside[:at]) + tree(first + left, count - left, inside[at:]))

    need(tree(0, int(size), numbers) == decoded(root) and not list(others), "rows that the log has not")
    populations = {row["population"] for row in rows}
    need(len(populations) == 1, "rows of another population")
    # A name is printed in the verdict: it has no space and no control character that could write another one.
    need(re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]*", next(iter(populations))), "the population's name")
    digest = sha(b"".join(hashes.values())).hex()
    need(line == f"rows {populations.pop()} {c['run']} {len(rows)} {digest}", "rows are missing, added or moved")
    return [{**row, "body": read(row["body"])} for row in rows]


def noising(stored: dict[str, Any], n: int) -> np.ndarray:
    """B's first n rows; an array is little-endian float64, held against its digest."""
    if stored == {"tree": "online"}:
        return online_tree(n)
    ((form, value),) = stored.items()
    raw = decoded(value["base64"])
    values = np.frombuffer(raw, "<f8").reshape(value["shape"])
    need(sha(raw).hex() == value["sha256"] and np.isfinite(values).all(), "the digest of B")
    need(list(values.shape) == value["shape"], "the shape of B")
    need(len(values) >= n and values.ndim == {"toeplitz": 1, "dense": 2}[form], "the shape of B")
    if form == "dense":
        return values[:n]
    rows, columns = np.indices((n, n))
    return np.where(rows >= columns, values[np.abs(rows - columns)], 0.0)


def whitened(b: np.ndarray) -> tuple[np.ndarray, float]:
    """R with R B B^T R^T = I, and r: v^T G v lies in |R v|^2 / (1 -+ r), rounding included."""
    covariance, (n, m) = b @ b.T, b.shape
    r = np.linalg.solve(np.linalg.cholesky(covariance), np.eye(n))
    off = np.abs(r @ covariance @ r.T - np.eye(n)).sum(axis=1).max()
    size = (np.abs(r) @ (np.abs(b) @ np.abs(b.T)) @ np.abs(r.T)).sum(axis=1).max()
    error = float(off + 4 * (n + m) * 2.0**-53 * size)
    need(error < 1e-3, "B is too ill-conditioned to be checked in double precision")
    return r, error


def decode(blob: bytes, count: int) -> list[int]:
    """User indices: a version byte, then deflated differences, seven bits a byte, low bits first."""
    users, value, shift, last = [], 0, 0, 0
    for byte in zlib.decompress(blob[1:]):
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            last += value
            users.append(last)
            value = shift = 0
    need(blob[0] == 1 and not shift and len(users) == len(set(users)) == count, "the participants of a round")
    return users


def patterns(blobs: list[str], commits: list[Row]) -> set[tuple[int, ...]]:
    """The distinct patterns of all users, from the sets of participants that the log names by their SHA-256."""
    rounds: dict[int, list[int]] = {}
    for t, (text, row) in enumerate(zip(blobs, commits, strict=True)):
        blob = decoded(text)
        need(sha(blob).hex() == row["body"]["participants"], "the participants of a round")
        for user in decode(blob, row["body"]["participant_count"]):
            rounds.setdefault(user, []).append(t)
    return {tuple(each) for each in rounds.values()}


def g_delta(mu: Any, e: Any) -> Any:
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu) if mu else mp.mpf(0)


def epsilon_of(mu: Any, delta: Any) -> Any:
    low, high = mp.mpf(0), mp.mpf(1)
    while g_delta(mu, high) > delta:
        high *= 2
    while g_delta(mu, low) > delta and high - low > mp.mpf("1e-13"):
        low, high = (middle, high) if g_delta(mu, middle := (low + high) / 2) > delta else (low, middle)
    return high if low or g_delta(mu, low) > delta else low


def m_of(epsilon: float, delta: float, leak: float) -> Any:
    """M of the largest rectangle within (epsilon, delta), as its square root."""
    target, low, high = (mp.mpf(delta) - leak) / (1 - mp.mpf(leak)), mp.mpf(0), mp.mpf(1)
    while g_delta(high, epsilon) < target:
        high *= 2
    for _ in range(60):
        low, high = (low, m) if g_delta(m := (low + high) / 2, epsilon) > target else (m, high)
    return high


def taken(rows: list[Row]) -> tuple[float, float]:
    """(sum of mu^2, sum of leaks) of all runs and all charges of other trainers, as the log says."""
    open_, closed, seen = {}, [], set()
    for row in rows:
        body, name = row["body"], (row["run"], row["body"].get("key"))
        if row["action"] in ("run.start", "charge.reserve", "charge.carry"):
            need(name not in seen, "a run or a charge starts twice")
            seen.add(name)
            price = [number(read(body["price"])[k], "a charge below nothing") for k in ("mu_squared", "leak")]
            open_[name] = price, body.get("planned", "{}")
        elif row["action"] == "charge.release":
            del open_[name]
        elif row["action"] == "run.finish":
            price, planned = open_.pop(name)
            closed.append(spent(price, read(planned), read(body["spent"])))
    prices = [*closed, *(price for price, _ in open_.values())]
    return tuple(math.fsum(price[i] for price in prices) for i in (0, 1))


def check(c: dict[str, Any], key: str | None = None, model: bytes | None = None) -> str:
    """One line of what was proven; model: a safetensors file that a round released. Raises `Refused`."""
    need(tuple(sorted(c)) == KEYS and c["format"] == "fieldfare-certificate/2", "unknown or missing keys")
    rows, plan, price, noise = bound(c, key), read(c["plan"]), c["price"], c["noise"]
    created, own_rows = rows[0]["body"], [r for r in rows if r["run"] == c["run"]]
    (start,) = [r["body"] for r in own_rows if r["action"] == "run.start"]
    need(sha(c["plan"].encode()).hex() == start["plan"], "the plan")
    need([r for r in rows if r["action"] == "population.create"] == rows[:1], "the row that makes the population")
    commits = [r for r in rows if r["action"] == "round.commit"]
    n, leak, sigma, adjacency = len(commits), created["leak"], noise["multiplier"], created["adjacency"]
    need([(r["run"], r["round"]) for r in commits] == [(c["run"], t) for t in range(n)], "the committed rounds")
    terms, numbers = plan["privacy"], (leak, sigma, price["mu_squared"], price["leak"], *c["epsilon"].values())
    need(all(type(each) in (int, float) for each in numbers), "a number")
    need(start["rounds"] == plan["run"]["rounds"] >= n and terms["adjacency"] == adjacency, "the plan's rounds")
    need(sigma > 0 and terms["noise_multiplier"] in (None, sigma), "the plan's noise multiplier")
    need(adjacency in ("zero_out", "add_remove", "replace_one"), "an adjacency that there is not")
    need((resolution := plan.get("charged_resolution", 0.0)) >= 0, "the resolution that was charged")
    stated = {**noise, **price.get("discrete", {})}
    need(start.get("noise", stated) == stated, "the noise that the log names")
    nonces = [r["body"].get("nonce") for r in commits]
    need(
        start["format"] == 0 or (all(type(each) is str and each for each in nonces) and len(set(nonces)) == n),
        "one fresh nonce a round",
    )
    # What the log charged, and then what the rounds must cost at least.
    planned, logged = read(start["planned"]), [read(start["price"])[k] for k in ("mu_squared", "leak")]
    ends = [r["body"] for r in own_rows if r["action"] == "run.finish"]
    if ends:
        logged = spent(logged, planned, read(ends[0]["spent"]))
    need(price["mu_squared"] >= logged[0] and price["leak"] >= logged[1], "a price below the log's")
    factor, error, used, own = 2.0 if adjacency == "replace_one" else 1.0, 0.0, ["filter"], 0.0
    b = noising(c["noising"], n)
    need(adjacency != "add_remove" or c["participants"] == [], "participants, who are secret")
    if n and logged[1] and (planned.get("sampled") or planned.get("certified")):
        need(adjacency == "add_remove", "sampling amplifies under add_remove only")
        need(not np.triu(b, 1).any(), "noise of a later round")
        mu, name = amplified_mu(planned, plan, np.linalg.inv(b[:, :n]), sigma, logged[1])
        used.append(name)
        need(math.sqrt(logged[0]) >= mu, "mu of the run whose users were drawn in secret")
    elif n:
        r, error = whitened(b)
        g, secret = np.abs(r.T @ r), adjacency == "add_remove"
        known = [] if secret else patterns(c["participants"], commits)
        square = worst(c, g) if secret else max((float(g[np.ix_(p, p)].sum()) for p in known), default=0.0)
        own, own_leak = factor**2 * square / sigma**2 + resolution, 0.0
        used.append("gram")
        # The population's sum below takes the log's word, which is no less than one pattern that the scheme allows.
        least = factor**2 * (check_sampled.evenly(c, g) if secret else square) / sigma**2 + resolution
        need(logged[0] >= least * (1 - 1e-9), "the log charged the run less than its rounds cost")
        if terms.get("rounding") == "discrete":
            own, own_leak = discrete(price["discrete"], own)
            used.append("discrete")
        theorem, asked_leak = asked(plan)
        own_leak += asked_leak
        used += [theorem] if theorem else []
        need(price["mu_squared"] >= own * (1 - 1e-9) and price["leak"] >= own_leak, "mu^2 and leak of the run")
    need(c["theorems"] == sorted(used), "the theorems that it rests on")
    mp.mp.dps = 50
    budgets = {(r["body"]["epsilon"], r["body"]["delta"]) for r in rows if r["action"] in GIVEN}
    # The largest that the population ever had.
    need(all(e > 0 and 0 <= leak < d < 1 for e, d in budgets), "epsilon, D or delta")
    epsilon, delta = max(budgets, key=lambda terms: m_of(*terms, leak)) if len(budgets) > 1 else budgets.pop()
    target = (mp.mpf(delta) - leak) / (1 - mp.mpf(leak))
    low, high = (epsilon_of(mp.sqrt(mp.mpf(price["mu_squared"]) * (1 + s * error)), target) for s in (-1, 1))
    need(c["epsilon"]["lo"] <= low + 1e-9 and c["epsilon"]["hi"] >= high - 1e-9, "epsilon's interval")
    whole = f"this run epsilon {check_sampled.upwards(high)}" + ("" if "noise" in start else "; noise not in the log")
    if model is not None:
        names = [r["body"].get("model") for r in commits]
        need((found := check_sampled.model_digest(model)) in names, "a model that no round of the log released")
        whole += f"; the model of round {names.index(found)}"
    if masks := blinder(plan, commits, sigma):
        opened = "opened" if plan["aggregation"].get("blinder") else "rehearsed"  # by a blinder of the server's process
        whole += f"; masked, {opened} by {masks[:16]}"
    whole += check_sampled.against_server(plan, planned, own, c["epsilon"], lambda m: epsilon_of(mp.sqrt(m), target))
    total, leaks = taken(rows)
    odometers = [r for r in rows if r["action"] == "population.odometers"]
    if not odometers and created.get("accounting") != "individual":
        rest = leak + (1 - mp.mpf(leak)) * g_delta(mp.sqrt(mp.mpf(total)), mp.mpf(epsilon))
        need(leaks <= leak and rest <= mp.mpf(delta) * (1 + mp.mpf("1e-9")), "the population's budget is overspent")
    else:
        whole += ", by each user's own odometer"
    shown = f"{delta}".replace("e-0", "e-")
    return (
        f"yes: ({float(epsilon)}, {shown}) for every user of {rows[0]['population']}; {whole}; log key {c['key'][:16]}"
    )


if __name__ == "__main__":
    try:
        given, *model = [Path(each).read_bytes() for each in (*sys.argv[1:2], *sys.argv[3:4])]
        print(check(read(given.decode()), *sys.argv[2:3], *model))
    except (Refused, OSError) as error:
        sys.exit(f"no: {error}")
    except Exception as error:  # a file may hold anything in any place
        sys.exit(f"no: not a certificate ({error!r})")
