"""Binary-tree aggregation: noise for every dyadic node of rounds, prefix sums put together from nodes.

Dwork, Naor, Pitassi, Rothblum 2010; Chan, Shi, Song 2011; Kairouz et al. 2021 (DP-FTRL). C has a row for each
node, the indicator of its rounds. B is the difference of successive prefix decoders, of which there are
three:

| estimator | a prefix sum is | rows of C | error | state |
|---|---|---|---|---|
| `plain` | the nodes of t's binary expansion, as they are | the read nodes: one a round | popcount(t) | log2 T |
| `online` | the same nodes, estimated from all nodes below them | all nodes | sum over bits of 1/(2 - 2^-h) | log2 T |
| `full` | the best linear estimate from all nodes of the whole horizon | n, see below | less | T, or replay |

**What `plain` is charged.** A prefix sum reads left children and roots only, exactly one new node a round:
the largest that closes in it. What is released depends on those nodes' noisy sums alone. So C is the square
matrix of their indicators (Fenwick 1994's tree), B = C^-1, and right children cost nothing: nothing reads
them and no noise is drawn for them. One participation costs the same either way; several cost less (2 000
rounds, 6 participations, 314 apart: 67 instead of 79). `nodes = "all"` charges the whole tree, as published
accountants do.

**What `online` is charged.** It reads every node, but releases one number a round: the noise of single nodes
never shows. So it is charged for what is released, by (B B^T)^-1 (`factorization/released.py`): 70.3 instead
of 79 there.

**What `full` is.** The best estimate of a prefix from the nodes *so far* is the online one, because the nodes
of the binary expansion have no other node in common. `full` uses all nodes of the horizon (Honaker 2015),
which is B = C^+. Noise is independent of data, so nodes that close later are no obstacle: by rotation
invariance of the Gaussian (Denisov et al. 2022) x + C^+ z has the law of x + R^-1 z', where R is
lower-triangular and R^T R = C^T C. Adaptively chosen x stay covered because R is lower-triangular. R is
charged and R^-1 is applied. Its state is O(T) vectors or O(t) draws a round: for research only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal, Unpack

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats, Indices
from fieldfare.errors import Conflict, OutOfRange
from fieldfare.factorization.dyadic import closing_round, height_of, node_count, nodes
from fieldfare.factorization.few_patterns import in_step_patterns
from fieldfare.factorization.released import WhitenedTree as ReleasedTree
from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.factorization.stamping import block_rounds
from fieldfare.factorization.tree_patterns import largest_square_sum, node_norms
from fieldfare.factorization.triangular import factor
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.mechanisms.triangular import TriangularMechanism, check_rounds
from fieldfare.noise import SecureNoise
from fieldfare.participation import MinSeparation, Participation, Poisson, Single
from fieldfare.streams.base import OnDevice, Stream
from fieldfare.streams.tree import OnlineTreeStream, ReadNodesStream, own_weight, stored_heights, variance


@register
class TreeSpec(MechanismSpec):
    """Binary-tree aggregation: noise for every dyadic node of rounds."""

    about: ClassVar[About] = About(
        source="Dwork et al. 2010; Honaker 2015; Kairouz et al. 2021",
        memory="log2 T",
        cost="2 draws, 4 passes on average",
        anytime=False,
        slow=False,
        example={"kind": "tree", "estimator": "online"},
    )
    kind: Literal["tree"] = "tree"
    estimator: Literal["plain", "online", "full"] = Field(default="online", description="how prefixes are decoded")
    nodes: Literal["read", "all"] | None = Field(
        default=None,
        description="charge the nodes that are read (plain's default), or all nodes, as published accountants do; "
        "left out, online is charged for what is released",
    )

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        """Return the tree of `rounds` rounds (of each block, with `restart_every`); no part of it is optimised."""
        if self.nodes == "read" and self.estimator != "plain":
            raise Conflict(
                f"mechanism.nodes = 'read' with estimator = {self.estimator!r}", "reads every node.", "nodes = 'all'"
            )
        block = block_rounds(self.restart_every, rounds)
        tree: Mechanism
        if self.estimator == "plain":
            tree = PlainTree(block, all_nodes=self.nodes == "all")
        elif self.estimator == "online":
            tree = OnlineTree(block, all_nodes=self.nodes == "all")
        else:
            tree = full_tree(block)
        return stamped(tree, self.restart_every, rounds)


def tree_matrix(n: int) -> Floats:
    """Return the indicators of all nodes that close by round n, in order of closing and then of size: (2 n -
    popcount(n), n).
    """
    rows = np.zeros((node_count(n), n))
    for row, (first, last) in zip(rows, nodes(n), strict=True):
        row[first - 1 : last] = 1.0
    return rows


def read_rows(n: int) -> Indices:
    """Return which rows of `tree_matrix(n)` the plain decoder reads, shape (n,): the largest that closes in
    each round.
    """
    return np.array([node_count(t + 1) - 1 for t in range(n)], dtype=np.int64)


def tree_sensitivity(participation: Participation, n: int, *, read_only: bool) -> Sensitivity:
    """Return the sensitivity of the tree of n rounds, all nodes or the read ones. Entries are 0 or 1, so
    equal updates are worst.

    Formal guarantee: exact for Single, MinSeparation and Poisson (any pattern), and for fixed orders that are
    not capped or have few patterns. `factorization/tree_patterns.py` says when the read nodes get an upper
    bound instead.
    """
    patterns = in_step_patterns(participation, n)
    if patterns is not None:
        value = float(node_norms(patterns, n, read_only=read_only).max())
        return Sensitivity(value, "exact", "every pattern of the fixed order")
    b, k = participation.separation_and_count(n)
    squared, exact = largest_square_sum(n, b, k, read_only=read_only)
    exact = exact and isinstance(participation, Single | MinSeparation | Poisson)
    how = "max-plus dynamic programming over the tree"
    return Sensitivity(float(np.sqrt(squared)), "exact" if exact else "upper bound", how)


class _Tree(Mechanism):
    """What the streaming trees share.

    Formal guarantee: B C = I; round t releases x_t + sigma (B z)_t, a function of the noisy nodes C x + sigma
    z. The sensitivity is `tree_sensitivity`. zCDP with rho = (sensitivity / sigma)^2 / 2.
    """

    kind = "tree"
    read_only: bool

    def __init__(self, rounds: int) -> None:
        if rounds < 1:
            raise OutOfRange(f"rounds = {rounds}", "must be at least 1.", "1")
        self.rounds = rounds

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rounds={self.rounds})"

    @property
    def buffers(self) -> int:
        return stored_heights(self.rounds)

    @property
    def noise_rows(self) -> int:
        return self.rounds if self.read_only else node_count(self.rounds)

    def birth(self, row: int) -> int:
        """Return the round in which the row's node closes; rows of read nodes are numbered by round already."""
        return row if self.read_only else closing_round(row)

    def strategy_matrix(self, n: int) -> Floats:
        matrix = tree_matrix(self._released(n))
        return matrix[read_rows(n)] if self.read_only else matrix

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        return tree_sensitivity(participation, self._released(rounds), read_only=self.read_only)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        return node_norms(patterns, self._released(rounds), read_only=self.read_only)


class PlainTree(_Tree):
    """Prefix sums from the nodes of the binary expansion. Row t of B: the new node minus the ones it replaces."""

    def __init__(self, rounds: int, *, all_nodes: bool = False) -> None:
        """
        Args:
            rounds: the horizon T >= 1.
            all_nodes: also charge the nodes that no prefix sum reads.
        """
        super().__init__(rounds)
        self.read_only = not all_nodes

    def noising_matrix(self, n: int) -> Floats:
        square = np.zeros((self._released(n), n))
        for t in range(n):
            square[t, t] = 1.0
            # The node that closes in round t takes the place of the smaller ones before it, the last of them
            # 1, 2, 4, ... rounds ago; read nodes are numbered by the round in which they closed.
            for below in range(height_of(t + 1)):
                square[t, t - (1 << below)] = -1.0
        if self.read_only:
            return square
        matrix = np.zeros((n, node_count(n)))
        matrix[:, read_rows(n)] = square
        return matrix

    @property
    def whole(self) -> bool:
        return True

    def row_norms(self, n: int | None = None) -> Floats:
        return np.sqrt([1.0 + height_of(t + 1) for t in range(self._released(n))])

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        return np.sqrt([float((t + 1).bit_count()) for t in range(self._released(n))])

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
        ones = np.ones(self.rounds.bit_length())
        return ReadNodesStream(numel, noise, self.rounds, ones, ones, all_rows=not self.read_only, **settings)


class OnlineTree(_Tree):
    """Prefix sums from the nodes of the binary expansion, each estimated from all nodes inside it.

    Formal guarantee: B C = I; round t releases x_t + sigma (B z)_t. The sensitivity is that of the released
    sequence, with G = (B B^T)^-1 (`factorization/released.py`): exact for Single and MinSeparation by dynamic
    programming, and for fixed orders with few patterns; an upper bound otherwise. It is never above that of
    all nodes. zCDP with rho = (sensitivity / sigma)^2 / 2.
    """

    read_only = False

    def __init__(self, rounds: int, *, all_nodes: bool = False) -> None:
        """
        Args:
            rounds: the horizon T >= 1.
            all_nodes: charge for all nodes, as if each one's noise were shown.
        """
        super().__init__(rounds)
        self.all_nodes = all_nodes
        self._released_numbers = ReleasedTree(rounds)

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._released(rounds)
        patterns = None if self.all_nodes else in_step_patterns(participation, n)
        if patterns is not None:
            return Sensitivity(
                float(self.pattern_norms(patterns, n).max()), "exact", "every pattern of the fixed order"
            )
        whole = tree_sensitivity(participation, n, read_only=False)
        worst = (
            None
            if self.all_nodes
            else self._released_numbers.worst(*participation.separation_and_count(self.rounds), n)
        )
        # What is released is a function of all nodes, so the bound on those holds too: the smaller of both is charged.
        if worst is None or worst[0] >= whole**2:
            return whole
        exact = worst[1] and isinstance(participation, Single | MinSeparation | Poisson)
        how = "dynamic programming over what is released"
        return Sensitivity(float(np.sqrt(worst[0])), "exact" if exact else "upper bound", how)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        n = self._released(rounds)
        whole = super().pattern_norms(patterns, n)  # refuses patterns that do not increase
        if self.all_nodes:
            return whole
        squares = np.zeros(len(patterns))
        sizes = np.array([len(pattern) for pattern in patterns], dtype=np.int64)
        for size in np.unique(sizes[sizes > 0]):
            same = np.flatnonzero(sizes == size)
            rows = np.array([patterns[int(i)] for i in same], dtype=np.int64)
            squares[same] = self._released_numbers.pattern_squares(rows, n)
        return np.minimum(np.sqrt(squares), whole)

    def noising_matrix(self, n: int) -> Floats:
        estimates: dict[int, Floats] = {}
        matrix = np.zeros((self._released(n), node_count(n)))
        for t in range(n):
            leaf, height = node_count(t), height_of(t + 1)
            estimate = np.zeros(node_count(n))
            estimate[leaf] = 1.0
            for h in range(1, height + 1):
                # Two estimates of one sum, the node's own and its two children's, weighted by their precision.
                weight = own_weight(h)
                estimate = (1.0 - weight) * (estimates[h - 1] + estimate)
                estimate[leaf + h] = weight
            matrix[t] = estimate - sum(estimates[below] for below in range(height))
            estimates[height] = estimate
        return matrix

    def row_norms(self, n: int | None = None) -> Floats:
        released = self._released(n)
        by_height = np.array([self._row_norm(h) for h in range(released.bit_length())])
        return by_height[[height_of(t + 1) for t in range(released)]]

    @staticmethod
    def _row_norm(height: int) -> float:
        """Return the norm of a row: row t is its new estimate minus the replaced ones, which are part of it
        with weight `kept`.
        """
        squared, kept = 0.0, 1.0
        for h in range(height, 0, -1):
            weight = own_weight(h)
            squared += (kept * weight) ** 2
            kept *= 1.0 - weight
            squared += (kept - 1.0) ** 2 * variance(h - 1)
        return float(np.sqrt(squared + kept**2))

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        t = np.arange(1, self._released(n) + 1)
        squared = sum((t >> h & 1) * variance(h) for h in range(int(t[-1]).bit_length()))
        return np.asarray(np.sqrt(squared), dtype=np.float64)

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
        return OnlineTreeStream(numel, noise, self.rounds, **settings)


def full_tree(rounds: int) -> TriangularMechanism:
    """Return Honaker's full estimator for a horizon of `rounds` <= 2 048, as the triangular factor R of the
    module.

    Formal guarantee: that of `TriangularMechanism`. The sensitivity of the whole horizon is the tree's,
    because R^T R = C^T C; that of fewer rounds is an upper bound.
    """
    check_rounds("tree", rounds)
    matrix = tree_matrix(rounds)
    return TriangularMechanism(
        "tree", factor(matrix.T @ matrix), horizon_sensitivity=partial(tree_sensitivity, n=rounds, read_only=False)
    )
