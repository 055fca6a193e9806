"""A run's certificate: what a stranger needs to recompute its privacy with `docs/check_certificate.py` alone.

The certificate is canonical JSON. It holds the noising matrix as the run applied it, the noise multiplier, the
participation patterns that occurred (or, where participation is secret, the scheme with a proven maximum), the run's
price in the population's filter, the sums over the population, and the journal's head. It names no user.

Price. A Gaussian run costs what the ledger charged. A run with discrete noise of S cells costs mu^2 S^2 / (S^2 - 4) and
a leak of 4.2 N exp(-8 pi^2) / Phi(-mu / 2) for N released numbers: it is a Gaussian of variance S^2 - 4 followed by a
rounding that forgets where it began. A sampled run costs the whole price of its planned rounds once one is opened
(`accounting.filter`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr
from sqlalchemy import select

from fieldfare.accounting import PrivacyLoss
from fieldfare.accounting.filter import Price, Rectangle, gauge, price
from fieldfare.arrays import Floats
from fieldfare.cost import Cost
from fieldfare.errors import BadInput
from fieldfare.factorization.released import OnlineTree, chain_bound, climb, released_gram
from fieldfare.noise import SecureNoise
from fieldfare.participation import adjacency_factor
from fieldfare_server.files.strategies import StoredStrategy, describe_noising
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.sql import models, rows
from fieldfare_server.ledger.state.formats import SEEDED
from fieldfare_server.ledger.states import ACTIVE
from fieldfare_server.run.round.rehearsal import Rehearsal
from fieldfare_server.run.round.rounds import Rounds
from fieldfare_server.run.round.task_model import model_of

FORMAT = "fieldfare-certificate/1"
ASSUMPTIONS = {
    "C1": "Whether a user takes part may depend on released models, on public coins, and on who is available. What the "
    "record of participation itself tells about a user's data is not covered.",
    "C2": "Nothing about a user's update decides participation: a bad update counts as zero, and as participation.",
    "noise": "The noise is Gaussian or discrete Gaussian as stated, from a secret key, and the coordinator ran this "
    "software. No certificate can prove that.",
}


@dataclass(frozen=True)
class _Priced:
    """One run of the population with what it takes from the rectangle."""

    row: Any
    cost: Cost
    price: Price
    cells: int
    """Scale of discrete noise in grid cells; 0 for Gaussian noise."""
    values: int
    """Numbers released with discrete noise, over all rounds of the plan."""

    @property
    def amplified(self) -> bool:
        return self.price.leak > 0 and not self.cells


def certificate(ledger: Reader, run_id: str, root: Path) -> bytes:
    """The certificate of a run, canonical JSON.

    Args:
        root: the state directory, which holds the run's strategy.

    Raises:
        BadInput: there is no such run, its noise was seeded, or its noising matrix is too large to be written.
        StrategyError: the run's strategy is not there.
    """
    run = ledger.run(run_id)
    if run.noise_source == SEEDED:
        raise BadInput(f"certificate of run {run_id}", "its noise has a fixed seed, so the run is not private.")
    population = ledger.population(run.population)
    with ledger.read() as connection:
        row = rows.population_row(connection, population.name)
        c = models.runs.c
        run_rows = connection.execute(select(models.runs).where(c.population_id == row.id).order_by(c.seq)).all()
        r = models.rounds.c
        committed = select(r.nonce).where(r.run_seq == run.seq, r.state == "committed").order_by(r.index)
        nonces = list(connection.execute(committed).scalars())
        record = rows.participation(connection, run.seq, row.users)
    known = row.users
    sampled = sum(PrivacyLoss.from_json(other.planned).amplified for other in run_rows)
    leak = row.leak
    # Sampled runs of the ledger's first version have no price: they share what the population's D allows.
    priced = [_price(other, root, leak / max(sampled, 1)) for other in run_rows]
    own = next(other for other in priced if other.row.id == run_id)
    n, cost, multiplier = run.next_round, own.cost, own.cost.noise_multiplier
    noising = describe_noising(cost.mechanism, n) if n else {"toeplitz": _EMPTY}
    if noising is None:
        raise BadInput(f"certificate of run {run_id}", f"a noising matrix of {n} rounds is too large to be written.")
    factor, mu_squared, error = adjacency_factor(run.adjacency), own.price.mu_squared, 0.0
    accounting: dict[str, Any] = {"patterns": []}
    if cost.certificate is not None and cost.mechanism.noise_rows != run.rounds:
        raise BadInput(f"certificate of run {run_id}", "its strategy has more rows than rounds, and samples decide it.")
    if n and not own.amplified:
        b = cost.mechanism.noising_matrix(n)
        error = _whitening_error(b)
        if run.adjacency == "add_remove":
            accounting = {"worst": (worst := _worst(cost, b))}
            # Participation is secret, so the charge is that of the proven maximum.
            mu_squared = max(mu_squared, factor**2 * worst["square"] / multiplier**2)
        else:
            counts = Counter(pattern for pattern in record.patterns(np.arange(known)) if pattern)
            patterns = [{"rounds": list(pattern), "users": users} for pattern, users in sorted(counts.items())]
            accounting = {"patterns": patterns}
    rounding = own.cost.resolution if n else 0.0
    if own.cost.loss.amplified:  # part of the multiplier of its events
        rounding = max(0.0, mu_squared - factor**2 * worst["square"] / multiplier**2) if "worst" in accounting else 0.0
    rectangle = Rectangle.of(population.bound_epsilon, population.bound_delta, leak)
    bounds = [gauge(mu_squared * (1 + sign * 1.01 * error), population.bound_delta, leak) for sign in (-1, 1)]
    mine = Price(mu_squared, own.price.leak)
    total = sum((other.price for other in priced if other is not own), mine)
    content = {
        "accounting": accounting,
        "assumptions": ASSUMPTIONS,
        "clip": {"joint": cost.plan.clipping.joint_bound, "norm": cost.plan.clipping.norm},
        "epsilon": {"hi": bounds[1] * (1 + 1e-12), "lo": bounds[0] * (1 - 1e-12)},
        "format": FORMAT,
        "journal": {"count": (head := ledger.head()).count, "head": head.hash},
        "noise": {"multiplier": multiplier, "rounding_mu_squared": rounding},
        "noising": noising,
        "nonces": _nonces(nonces, run_rows, run_id),
        "population": {
            "adjacency": run.adjacency,
            "delta": population.bound_delta,
            "epsilon": population.bound_epsilon,
            "factor": factor,
            "leak": leak,
            "mu_squared": rectangle.mu_squared,
            "name": population.name,
        },
        "price": {"leak": mine.leak, "mu_squared": mine.mu_squared, **_detail(own)},
        "run": {"horizon": run.rounds, "id": run.id, "plan_digest": run.plan_digest, "rounds": n},
        "sums": {"leak": total.leak, "mu_squared": total.mu_squared},
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


_EMPTY = {"base64": "", "sha256": hashlib.sha256(b"").hexdigest(), "shape": [0]}


def _price(row: Any, root: Path, leak: float) -> _Priced:
    """What a run takes: what it spent, or all that it plans while it is under way."""
    spent, planned = (PrivacyLoss.from_json(text) for text in (row.spent, row.planned))
    cost = StoredStrategy(root, row.id, row.strategy, planned, row.format).cost(json.loads(row.plan))
    loss = planned if row.state in ACTIVE else spent
    if row.price is not None:
        leak = Price.from_json(row.price).leak
    if planned.amplified:
        # The rounds of a stopped run have no separate price: the stop may have depended on what was released.
        opened = row.next_round > 0 or row.state in ACTIVE
        whole = price(planned, leak) if row.price is None else Price.from_json(row.price)
        return _Priced(row, cost, whole if opened else Price(), 0, 0)
    if cost.plan.privacy.rounding != "discrete":
        return _Priced(row, cost, price(loss, leak), 0, 0)
    # Discrete noise: the run's own privatiser says how many cells its noise is wide.
    model = model_of(cost.plan, root / row.id)
    rounds = Rounds(cost.plan, cost, Rehearsal(), None, SecureNoise(bytes(32)), model)
    cells = rounds.running_noise.privatiser.cells
    numel = rounds.optimizer.queries * rounds.model.schema.numel + rounds.clipping.counts
    if cells <= 6:
        raise BadInput(f"run {row.id}", f"discrete noise of {cells} cells has no Gaussian price.", "more noise")
    values = numel * row.rounds
    mu_squared = 2 * loss.rho * cells**2 / (cells**2 - 4) * (1 + 1e-12) if loss.concentrated else loss.mu_squared
    own_leak = values * 4.2 * math.exp(-8 * math.pi**2) / float(ndtr(-math.sqrt(mu_squared) / 2))
    return _Priced(row, cost, Price(mu_squared, own_leak), cells, values)


def _detail(own: _Priced) -> dict[str, Any]:
    """How the price follows, where it is not that of plain Gaussian noise."""
    if own.cells:
        return {"discrete": {"scale": own.cells, "values": own.values}}
    if not own.amplified:
        return {}
    planned = PrivacyLoss.from_json(str(own.row.planned))
    if planned.certified:
        (curve,), spec = planned.certified, own.cost.plan.participation
        if spec.scheme == "b-min-sep":
            law: dict[str, Any] = {"separation": spec.separation, "rate": spec.rate}
        else:
            law = {"fresh": True, "bins": spec.bins} if spec.scheme == "random-allocation" else {"bins": spec.bins}
        return {"certified": {**curve.to_json(), **law}}
    (event,) = planned.sampled
    named = asdict(event)
    return {"sampled": {"multiplier": named.pop("noise_multiplier"), **named}}


def _worst(cost: Cost, b: Floats) -> dict[str, Any]:
    """The scheme, a pattern that comes near its maximum, and a bound that the checker proves again."""
    gram = released_gram(b)
    separation, count = cost.participation.separation_and_count(len(b))
    _, witness = climb(gram, separation, count)
    online = describe_noising(cost.mechanism, len(b)) == {"tree": "online"}
    worst = OnlineTree(len(b)).worst(separation, count) if online else None
    square = chain_bound(gram, separation, count) if worst is None else worst[0]
    return {"count": count, "separation": separation, "square": square, "witness": [int(t) for t in witness]}


def _whitening_error(b: Floats) -> float:
    """The checker's relative error of G: residual of the whitening, and an a-priori bound of its rounding."""
    covariance, (n, m) = b @ b.T, b.shape
    r = np.linalg.solve(np.linalg.cholesky(covariance), np.eye(n))
    off = np.abs(r @ covariance @ r.T - np.eye(n)).sum(axis=1).max()
    size = (np.abs(r) @ (np.abs(b) @ np.abs(b.T)) @ np.abs(r.T)).sum(axis=1).max()
    # Another machine's BLAS has another residual, so it counts ten times.
    return float(10 * off + 4 * (n + m) * 2.0**-53 * size)


def _nonces(nonces: list[str | None], run_rows: Any, run_id: str) -> dict[str, Any]:
    """Count, digest and distinctness of the committed rounds' nonces; runs of format 0 have none."""
    drawn = [nonce for nonce in nonces if nonce is not None]
    return {
        "count": len(drawn),
        "digest": hashlib.sha256("".join(drawn).encode()).hexdigest(),
        "distinct": len(set(drawn)) == len(drawn),
        "format": next(row.format for row in run_rows if row.id == run_id),
    }
