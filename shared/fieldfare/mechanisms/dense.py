"""Dense matrix factorisation: the optimal C for prefix sums under a participation, T <= 2 048.

Denisov et al. 2022 (one participation); Choquette-Choo et al. 2023b, "Multi-Epoch Matrix Factorization
Mechanisms" (fixed orders); Choquette-Choo et al. 2023a (minimum separation and cyclic sampling, where C has
as many bands as the separation: what amplification by sampling asks for). The optimisation is in
`factorization/gram.py`; here its X becomes the triangular C with C^T C = X.

Formal guarantee: that of `TriangularMechanism`. Whatever the optimiser did, the C that is charged is the C
whose inverse is applied, and every participation can be charged for it.

Optimising takes seconds (T = 512) to minutes (T = 2 048), so results are kept by what they are optimal for:
in this process, or in the cache that the caller of `build` passes. The core knows no files; a cache is any
mutable mapping from names to bytes.

A round costs up to t draws (`engine = "replay"`, no state) or keeps T vectors (`"memory"`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import MutableMapping
from typing import ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats
from fieldfare.errors import Unreadable
from fieldfare.factorization import gram
from fieldfare.factorization.objective import Objective
from fieldfare.factorization.stamping import block_rounds
from fieldfare.factorization.triangular import factor
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.triangular import Engine, TriangularMechanism, check_rounds
from fieldfare.participation import FixedOrder, Participation, Single

# Optimised strategies by `cache_key`, for callers that pass no cache.
_in_process: dict[str, bytes] = {}
_MAGIC: Final = b"fieldfare dense 1\n"


@register
class DenseSpec(MechanismSpec):
    """The matrix of least noise in prefix sums under the participation; at most 2 048 rounds."""

    about: ClassVar[About] = About(
        source="Denisov et al. 2022; Choquette-Choo et al. 2023b",
        memory="0, or T",
        cost="t draws, or t passes",
        anytime=False,
        slow=True,
        example={"kind": "dense"},
    )
    kind: Literal["dense"] = "dense"
    objective: Objective = Field(default="mean", description="squared prefix error: its mean or its maximum")
    engine: Engine = Field(default="replay", description="draw past noise again, or keep all of it")

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        """Return the optimum for `participation` (None: single) over `rounds`, or a block of `restart_every`."""
        return self.build_cached(rounds, participation, _in_process)

    def build_cached(
        self, rounds: int, participation: Participation | None, cache: MutableMapping[str, bytes]
    ) -> Mechanism:
        block = block_rounds(self.restart_every, rounds)
        strategy = optimal_strategy(block, participation or Single(), self.objective, cache)
        return stamped(TriangularMechanism("dense", strategy, engine=self.engine), self.restart_every, rounds)


def optimal_strategy(
    rounds: int, participation: Participation, objective: Objective, cache: MutableMapping[str, bytes]
) -> Floats:
    """Return the optimal C, lower-triangular, from `cache` or else optimised and put there.

    Optimal over the matrices described in `gram`: all matrices for one participation, orthogonal columns
    within a user's rounds for uncapped fixed orders (sensitivity 1), as many bands as the separation
    otherwise.

    Args:
        rounds: the horizon T.
        participation: what C is optimal for.
        objective: the mean or the maximum of the squared prefix error.
        cache: optimised strategies by `cache_key`; entries are checked when they are read.

    Returns:
        Shape (T, T).

    Raises:
        BadInput: more than 2 048 rounds, or a cached entry that is torn or foreign.
    """
    check_rounds("dense", rounds)
    key = cache_key(rounds, participation, objective)
    stored = cache.get(key)
    if stored is not None:
        return from_bytes(stored, key)
    strategy = _optimise(rounds, participation, objective)
    cache[key] = to_bytes(strategy, key)
    return strategy


def cache_key(rounds: int, participation: Participation, objective: Objective) -> str:
    """Return what the optimum depends on, as a name of 32 hex digits."""
    b, k = _shape(rounds, participation)
    name = f"dense:1:{rounds}:{b}:{k}:{_whole_classes(rounds, participation)}:{objective}"
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


def to_bytes(strategy: Floats, key: str) -> bytes:
    """Return bytes: a JSON header with a digest, then the lower triangle by rows, little-endian float64."""
    body = strategy[np.tril_indices(len(strategy))].astype("<f8").tobytes()
    digest = hashlib.blake2b(body, digest_size=16).hexdigest()
    header = json.dumps({"key": key, "rounds": len(strategy), "digest": digest})
    return _MAGIC + header.encode() + b"\n" + body


def from_bytes(data: bytes, key: str) -> Floats:
    """Return the strategy that `to_bytes` wrote under this key, shape (rounds, rounds).

    A wrong matrix could cost accuracy, never privacy: the charge is computed from it.

    Raises:
        BadInput: foreign, torn or changed bytes.
    """
    try:
        magic, header, body = data[: len(_MAGIC)], *data[len(_MAGIC) :].split(b"\n", 1)
        fields = json.loads(header)
        rounds = int(fields["rounds"])
        intact = magic == _MAGIC and fields["key"] == key and len(body) == 4 * rounds * (rounds + 1)
        intact = intact and hashlib.blake2b(body, digest_size=16).hexdigest() == fields["digest"]
    except (ValueError, KeyError, TypeError):
        intact = False
    if not intact:
        raise Unreadable(f"stored strategy {key}", "is torn or another one.", "delete it: it will be optimised again")
    strategy = np.zeros((rounds, rounds))
    strategy[np.tril_indices(rounds)] = np.frombuffer(body, dtype="<f8")
    return strategy


def _shape(rounds: int, participation: Participation) -> tuple[int, int]:
    b, k = participation.separation_and_count(rounds)
    # No more visits than fit b apart: plans that name more share one optimum, and one entry of the cache.
    k = min(k, -(-rounds // b))
    return (rounds, 1) if k <= 1 else (b, k)


def _whole_classes(rounds: int, participation: Participation) -> bool:
    b, k = _shape(rounds, participation)
    return k > 1 and isinstance(participation, FixedOrder) and k == -(-rounds // b)


def _optimise(rounds: int, participation: Participation, objective: Objective) -> Floats:
    b, k = _shape(rounds, participation)
    diagonal = np.ones(rounds)
    if k == 1:
        constraint = gram.unconstrained(rounds)
    elif _whole_classes(rounds, participation):
        constraint = gram.fixed_order(rounds, b)
        classes = np.arange(rounds) % b
        diagonal = 1.0 / np.bincount(classes)[classes]  # a class's columns have sensitivity 1 together
    else:
        constraint = gram.banded(rounds, b)
    best = gram.minimise(gram.start(rounds, b, diagonal), constraint, objective)
    strategy = factor(best)
    if constraint.classes is None and k > 1:
        strategy = np.tril(np.triu(strategy, 1 - b))  # zeros there are exact in arithmetic, not in floating point
    return strategy
