"""A run's certificate: what a stranger needs to recompute its privacy with `docs/check_certificate.py` alone.

The certificate is canonical JSON. It is bound to what happened: it holds the plan, and every log row of the
run and of its population but the rounds of other runs, which a signed checkpoint of the log's Merkle tree
contains and counts (`ledger.merkle`). From those rows a checker reads sampler, rounds, charges, nonces and
budget. Beside them stand the noising matrix as the run applied it, the noise multiplier, the run's price in
the population's filter, and who took part, as the sets of numbers that the log names by their SHA-256 (where
participation is secret: the scheme with a proven maximum). It names no user.

Price. A Gaussian run costs what the ledger charged, or planned where it ended early. A run with discrete noise
of S cells costs mu^2 S^2 / (S^2 - 4) and a leak of 4.2 N exp(-8 pi^2) / Phi(-mu / 2) for N released numbers: it
is a Gaussian of variance S^2 - 4 followed by a rounding that forgets where it began. A sampled run costs the
whole price of its planned rounds once one is opened (`accounting.filter`). To the server alone, where a blinder
adds noise of its own, a run costs what all its planned rounds would under it (`fieldfare.blinder_noise`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, bindparam, select

from fieldfare.accounting import PrivacyLoss, discretised
from fieldfare.accounting.filter import Price, gauge, price
from fieldfare.arrays import Floats
from fieldfare.cost import Cost
from fieldfare.errors import NotAllowed, TooLarge, Unsupported
from fieldfare.factorization.released import WhitenedTree, chain_bound, climb, released_gram
from fieldfare.lazily import scipy
from fieldfare.names import QUESTION
from fieldfare.participation import hides_presence
from fieldfare.plan import Plan
from fieldfare.signatures import public_key
from fieldfare_server.files.home import StateDirectory
from fieldfare_server.files.strategies import StoredStrategy, describe_noising
from fieldfare_server.ledger import merkle
from fieldfare_server.ledger.chain import HASHED, HeadFile
from fieldfare_server.ledger.reads import Reader
from fieldfare_server.ledger.sql import models, rows
from fieldfare_server.ledger.sql.journal import read_head, require_not_behind
from fieldfare_server.ledger.states import ACTIVE
from fieldfare_server.run.pricing import stated_noise

FORMAT = "fieldfare-certificate/2"
ASSUMPTIONS = {
    "C1": "Whether a user takes part may depend on released models, on public coins, and on who is available. What the "
    "record of participation itself tells about a user's data is not covered.",
    "C2": "Nothing about a user's update decides participation: a bad update counts as zero, and as participation. "
    "That a Flower app's reply was refused, and why, is not covered.",
    "noise": "The noise is Gaussian or discrete Gaussian as stated, or a question's choice is drawn exactly, from a "
    "secret key, and the coordinator ran this software. No certificate can prove that.",
}


@dataclass(frozen=True)
class _Priced:
    """What a run takes from the rectangle."""

    cost: Cost
    price: Price
    cells: int  # scale of discrete noise in grid cells; 0 for Gaussian noise
    values: int  # numbers released with discrete noise, over all rounds of the plan

    @property
    def drawn(self) -> bool:
        return self.price.leak > 0 and bool(self.cost.loss.words.theorem)


def certificate(ledger: Reader, run_id: str, home: StateDirectory) -> bytes:
    """The certificate of a run, canonical JSON.

    Args:
        home: holds the run's strategy, and the key that signs the head.

    Raises:
        BadInput: there is no such run, its noise was seeded, or its noising matrix is too large to be
            written.
        StrategyError: the run's strategy is not there.
        LedgerError: the ledger is older than the head that `home` holds, or that cannot be read.
    """
    run = ledger.run(run_id)
    if not run.private:
        raise NotAllowed(f"certificate of run {run_id}", "its noise has a fixed seed, so the run is not private.")
    population = ledger.population(run.population)
    with ledger.read() as connection:
        require_not_behind(connection, f"of run {run_id}", read_head(connection), HeadFile(home.head_file).read())
        row = rows.population_row(connection, population.name)
        stored = rows.run_row(connection, run_id)
        own = _price(stored, home.root, row.leak)
        kept = _log(connection, population.name, run_id)
        leaves = [bytes.fromhex(each) for each in connection.execute(_HASHES).scalars()]
        blobs = (
            [] if hides_presence(run.adjacency) else list(connection.execute(_PARTICIPANTS, {"run": run.seq}).scalars())
        )
    n, cost, multiplier = run.next_round, own.cost, own.cost.noise_multiplier
    noising = describe_noising(cost.mechanism, n) if n else {"toeplitz": _EMPTY}
    if noising is None:
        raise TooLarge(f"certificate of run {run_id}", f"a noising matrix of {n} rounds is too large to be written.")
    if cost.certificate is not None and cost.mechanism.noise_rows != run.rounds:
        raise Unsupported(
            f"certificate of run {run_id}", "its strategy has more rows than rounds, and samples decide it."
        )
    mu_squared, error, theorems = own.price.mu_squared, 0.0, ["filter"]
    accounting: dict[str, object] = {}
    if n and not own.drawn:
        b = cost.mechanism.noising_matrix(n)
        error = _whitening_error(b)
        theorems += ["gram", *(["discrete"] if own.cells else []), *_of_question(cost.plan)]
        if hides_presence(run.adjacency):
            accounting = {"worst": (worst := _worst(cost, b))}
            # Participation is secret, so the charge is that of the proven maximum.
            mu_squared = max(mu_squared, worst["square"] / multiplier**2 + cost.resolution)
    elif n:
        theorems += [cost.loss.words.theorem]
    bounds = [gauge(mu_squared * (1 + sign * 1.01 * error), population.bound_delta, row.leak) for sign in (-1, 1)]
    server, seen = cost.against_server, {}
    if server is not None:
        seen["server"] = gauge(server.mu_squared, population.bound_delta, row.leak) * (1 + 1e-12)
    tree, head = merkle.Tree(leaves), ledger.head()
    named = [each["id"] - 1 for each in kept]
    digest = hashlib.sha256(b"".join(leaves[number] for number in named)).hexdigest()
    line = f"rows {population.name} {run_id} {len(kept)} {digest}"
    key = HeadFile(home.head_file).key()
    # How the price follows, where the log's rows do not say it.
    discrete = {"discrete": {"scale": own.cells, "values": own.values}} if own.cells else {}
    content = {
        "accounting": accounting,
        "assumptions": ASSUMPTIONS,
        "checkpoint": merkle.checkpoint(head.ledger, head.count, tree.root, key, [line]),
        "epsilon": {"hi": bounds[1] * (1 + 1e-12), "lo": bounds[0] * (1 - 1e-12), **seen},
        "format": FORMAT,
        "key": public_key(key),
        "noise": {"multiplier": multiplier},
        "noising": noising,
        "others": [each.hex() for each in tree.others(named)],
        "participants": [base64.b64encode(blob).decode() for blob in blobs],
        "plan": stored.plan,
        "price": {"leak": own.price.leak, "mu_squared": mu_squared, **discrete},
        "rows": [[each[name] for name in _SHOWN] for each in kept],
        "run": run_id,
        "theorems": sorted(theorems),
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


_SHOWN = (*HASHED, "previous")
_HASHES = select(models.journal.c.hash).order_by(models.journal.c.id)
_PARTICIPANTS = (
    select(models.participations.c.users)
    .where(models.participations.c.run_seq == bindparam("run"))
    .order_by(models.participations.c.index)
)


def _log(connection: Connection, population: str, run: str) -> list[Mapping[str, Any]]:
    """Return the log's rows of a run and of its population, without the rounds of other runs, in order."""
    c = models.journal.c
    ours = (c.population == population) & (c.action.not_like("round.%") | (c.run == run))
    return [dict(row) for row in connection.execute(select(models.journal).where(ours).order_by(c.id)).mappings()]


def _of_question(plan: Plan) -> list[str]:
    """Return the theorem of a question that does not show its noised sum."""
    if plan.leak:
        return ["threshold"]
    question = plan.task.get("question") if plan.run.task == QUESTION else None
    return ["range"] if isinstance(question, Mapping) and question.get("shows") == "best" else []


_EMPTY = {"base64": "", "sha256": hashlib.sha256(b"").hexdigest(), "shape": [0]}


def _price(row: Any, root: Path, leak: float) -> _Priced:
    """Return what a run takes: what it spent, or all that it plans while it is under way, or where it ended early."""
    spent, planned = (PrivacyLoss.from_json(text) for text in (row.spent, row.planned))
    cost = StoredStrategy(root, row.id, row.strategy, planned).cost(json.loads(row.plan))
    loss = planned if row.state in ACTIVE or 0 < row.next_round < row.rounds else spent  # as `RunView.held`
    if planned.words.theorem:
        # The rounds of a stopped run have no separate price: the stop may have depended on what was released.
        # `ledger mend` may have charged one whole of which no round is left.
        opened = row.next_round > 0 or spent != PrivacyLoss() or row.state in ACTIVE
        whole = Price.from_json(row.price)
        return _Priced(cost, whole if opened else Price(), 0, 0)
    if cost.plan.privacy.rounding != "discrete":
        return _Priced(cost, price(loss, leak), 0, 0)
    from fieldfare_server.run.round.task_model import model_of  # imports Flower

    noise = stated_noise(cost.plan, cost, model_of(cost.plan, root / row.id).schema)
    cells, values = int(noise["scale"]), int(noise["values"])
    if cells <= 6:
        raise Unsupported(f"run {row.id}", f"discrete noise of {cells} cells has no Gaussian price.", "more noise")
    mu_squared = discretised.on_cells(loss, cells)
    own_leak = values * 4.2 * math.exp(-8 * math.pi**2) / float(scipy.special.ndtr(-math.sqrt(mu_squared) / 2))
    return _Priced(cost, Price(mu_squared, own_leak), cells, values)


def _worst(cost: Cost, b: Floats) -> dict[str, Any]:
    """Return the scheme, a pattern that comes near its maximum, and a bound that the checker proves again."""
    gram = released_gram(b)
    separation, count = cost.participation.separation_and_count(len(b))
    _, witness = climb(gram, separation, count)
    online = describe_noising(cost.mechanism, len(b)) == {"tree": "online"}
    worst = WhitenedTree(len(b)).worst(separation, count) if online else None
    square = chain_bound(gram, separation, count) if worst is None else worst[0]
    return {"count": count, "separation": separation, "square": square, "witness": [int(t) for t in witness]}


def _whitening_error(b: Floats) -> float:
    """Return the checker's relative error of G: residual of the whitening, and an a-priori bound of its rounding."""
    covariance, (n, m) = b @ b.T, b.shape
    r = np.linalg.solve(np.linalg.cholesky(covariance), np.eye(n))
    off = np.abs(r @ covariance @ r.T - np.eye(n)).sum(axis=1).max()
    size = (np.abs(r) @ (np.abs(b) @ np.abs(b.T)) @ np.abs(r.T)).sum(axis=1).max()
    # Another machine's BLAS has another residual, so it counts ten times.
    return float(10 * off + 4 * (n + m) * 2.0**-53 * size)
