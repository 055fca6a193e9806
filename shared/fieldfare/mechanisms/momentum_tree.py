"""The momentum-discounted tree: noise for the server's momentum, aggregated over a binary tree.

Tran and Cutkosky, "Momentum Aggregation for Private Non-convex ERM" (NeurIPS 2022), Algorithm 1. The server
wants the momentum m_t = (1 - a) m_{t-1} + a x_t of the updates, not their sum; `momentum` is 1 - a. A node
holds the momentum of its rounds, sum over t in the node of (1 - a)^(last - t) x_t, plus noise, and

    m_t + NOISE_t = a sum over nodes in COMPOSE(1, t) of (1 - a)^(t - last) (node + noise)          (eq. 4)

reads one new node a round, the largest that closes in it. The discount is inside the nodes, so the momentum
of the updates is exact.

**As a mechanism.** Round t releases x_t + (B z)_t, B chosen so that the momentum of what is released is m_t +
NOISE_t: row t of B is (NOISE_t - (1 - a) NOISE_{t-1}) / a. Everything but the new node and the nodes it
replaces cancels:

    (B z)_t = s_h z_t - sum_{l < h} (1 - a)^(2^l) s_l z_(open node of height l),   s_h the noise of height h.

A server that runs momentum 1 - a on these releases gets Algorithm 1, and any other server optimizer is as
private. C is square, one row for each node that is read, entries (1 - a)^(last - t) / s_h; B = C^-1; momentum
0 is `independent` and momentum -> 1 the `plain` tree. Right children are never read and not charged (the
paper charges them).

**Noise of a node** (`variant`). "flat": the same for all nodes, at half the variance of the paper's and equal
privacy. "proportional": the paper's, proportional to the node's sensitivity under the plan's separation N,
s_h = sum_{j < ceil(2^h / N)} (1 - a)^(j N). (The paper's sum stops one term early: a leaf would get no
noise.)

**Sensitivity.** All weights are positive, so equal updates are worst. The paper's 4 a G needs occurrences N
apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Unpack

import numpy as np
from pydantic import Field

from fieldfare.arrays import Floats
from fieldfare.errors import OutOfRange, Unsupported
from fieldfare.factorization.dyadic import height_of
from fieldfare.factorization.few_patterns import few_patterns
from fieldfare.factorization.released import ReleasedBounds
from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.factorization.stamping import block_rounds
from fieldfare.factorization.tree_patterns import column_norms, largest_discounted_sum, node_norms
from fieldfare.mechanisms.base import About, Mechanism, MechanismSpec
from fieldfare.mechanisms.registry import register
from fieldfare.mechanisms.stamped import stamped
from fieldfare.noise import SecureNoise
from fieldfare.participation import MinSeparation, Participation, Single
from fieldfare.streams.base import OnDevice, Stream
from fieldfare.streams.tree import ReadNodesStream, stored_heights


@register
class MomentumTreeSpec(MechanismSpec):
    """Noise for the server's momentum, aggregated over a binary tree."""

    about: ClassVar[About] = About(
        source="Tran, Cutkosky 2022",
        memory="log2 T",
        cost="1 draw, 2 passes on average",
        anytime=False,
        slow=False,
        example={"kind": "momentum-tree", "momentum": 0.9},
    )
    kind: Literal["momentum-tree"] = "momentum-tree"
    momentum: float = Field(default=0.9, ge=0, lt=1, description="the server's momentum 1 - a")
    variant: Literal["flat", "proportional", "three-tree"] = Field(
        default="flat", description="noise of a node: all the same, or as its sensitivity under the plan's separation"
    )

    def build(self, rounds: int, participation: Participation | None) -> Mechanism:
        """Return the tree of `rounds` rounds; "proportional" takes its epoch length from `participation`
        (None: one epoch).
        """
        if self.variant == "three-tree":
            raise Unsupported(
                "mechanism.variant = 'three-tree'",
                "is the published form, which no plan needs: three queries share one tree's noise at a lower cost.",
                "variant = 'flat' with server_optimizer.kind = 'three-query'",
            )
        block = block_rounds(self.restart_every, rounds)
        scale = np.ones(block.bit_length())
        if self.variant == "proportional":
            period = (participation or Single()).separation_and_count(rounds)[0]
            scale = node_scale(block, period, self.momentum)
        return stamped(MomentumTree(block, self.momentum, scale), self.restart_every, rounds)


def node_weight(length: int, period: int, momentum: float) -> float:
    """Return the most that one user, seen every `period` rounds, weighs in a node of `length` rounds, for
    clip norm 1.

    sum_{j < ceil(length / period)} momentum^(j period), at most 1 / (1 - 1/e) max(1, 1 / (period (1 -
    momentum))).

    Args:
        length: rounds of the node.
        period: rounds from one participation of a user to the next.
        momentum: the discount 1 - a of the module, in [0, 1).
    """
    terms = -(-length // period)
    return float(np.sum(np.power(momentum, float(period) * np.arange(terms))))


def node_scale(rounds: int, period: int, momentum: float) -> Floats:
    """Return `node_weight` of the nodes of height 0, 1, ... that fit in `rounds` rounds."""
    return np.array([node_weight(1 << h, period, momentum) for h in range(rounds.bit_length())])


class MomentumTree(Mechanism):
    """Algorithm 1 as a mechanism.

    Formal guarantee: B C = I; round t releases x_t + sigma (B z)_t. The sensitivity is exact for one
    participation, wherever patterns are few enough to try them all (fixed orders among them), and under
    min-separation where a pattern attains the bound; otherwise it is the smaller upper bound of
    `factorization/tree_patterns.py` and `factorization/released.py`. zCDP with rho = (sensitivity / sigma)^2
    / 2.
    """

    kind = "momentum-tree"
    applies = ("scale", "_carry")

    def __init__(self, rounds: int, momentum: float, scale: Floats | None = None) -> None:
        """
        Args:
            rounds: the horizon T >= 1.
            momentum: the discount 1 - a in [0, 1).
            scale: standard deviation of a node's noise by height, shape (heights,); all ones by default.

        Raises:
            BadInput: an argument is out of range.
        """
        if rounds < 1:
            raise OutOfRange(f"rounds = {rounds}", "must be at least 1.", "1")
        if not 0 <= momentum < 1:
            raise OutOfRange(f"momentum = {momentum}", "must be in [0, 1).", "0.9")
        self.rounds, self.momentum = rounds, momentum
        self.scale = np.ones(rounds.bit_length()) if scale is None else np.array(scale, dtype=np.float64)
        if self.scale.shape != (rounds.bit_length(),) or not (np.isfinite(self.scale) & (self.scale > 0)).all():
            raise OutOfRange("scale", f"must be {rounds.bit_length()} positive numbers, one a height.")
        self.scale.setflags(write=False)
        self._bounds = ReleasedBounds()
        self._carry = self.scale * np.power(momentum, 2.0 ** np.arange(len(self.scale)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rounds={self.rounds}, momentum={self.momentum})"

    @property
    def buffers(self) -> int:
        return stored_heights(self.rounds)

    def strategy_matrix(self, n: int) -> Floats:
        matrix = np.zeros((self._released(n), n))
        for t in range(n):
            height = height_of(t + 1)
            first = t + 1 - (1 << height)
            matrix[t, first : t + 1] = np.power(self.momentum, np.arange(t - first, -1.0, -1.0)) / self.scale[height]
        return matrix

    def noising_matrix(self, n: int) -> Floats:
        matrix = np.zeros((self._released(n), n))
        for t in range(n):
            height = height_of(t + 1)
            matrix[t, t] = self.scale[height]
            for below in range(height):
                matrix[t, t - (1 << below)] = -self._carry[below]
        return matrix

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        n = self._released(rounds)
        b, k = participation.separation_and_count(n)
        if min(k, -(-n // b)) <= 1:
            norms = column_norms(n, read_only=True, decay=self.momentum, scale=self.scale)
            return Sensitivity(float(norms.max()), "exact", "largest column norm")
        patterns = few_patterns(participation, n)
        if patterns is not None:
            return Sensitivity(float(self.pattern_norms(patterns, n).max()), "exact", "every pattern")
        bound = largest_discounted_sum(n, b, k, read_only=True, decay=self.momentum, scale=self.scale)
        value = float(np.sqrt(bound))
        attained = float(self.pattern_norms([range(s, n, b)[:k] for s in range(min(b, n))], n).max())
        if isinstance(participation, MinSeparation) and value <= attained * (1 + 1e-12):
            return Sensitivity(max(value, attained), "exact", "upper bound attained by evenly spaced rounds")
        tree = Sensitivity(value, "upper bound", "max-plus dynamic programming over the discounted tree")
        return self._bounds.smaller(tree, self.strategy_matrix, participation, n)

    def pattern_norms(self, patterns: Sequence[Sequence[int]], rounds: int | None = None) -> Floats:
        n = self._released(rounds)
        return node_norms(patterns, n, read_only=True, decay=self.momentum, scale=self.scale)

    def row_norms(self, n: int | None = None) -> Floats:
        heights = [height_of(t + 1) for t in range(self._released(n))]
        replaced = np.concatenate([[0.0], np.cumsum(np.square(self._carry))])
        by_height = np.sqrt(np.square(self.scale) + replaced[:-1])
        return np.asarray(by_height[heights])

    def prefix_row_norms(self, n: int | None = None) -> Floats:
        """Add up the nodes of each prefix: a node's noise stays in the prefix sum with weight s, or s (1 - (1
        - a)^length) once it is replaced.
        """
        released = self._released(n)
        heights = np.array([height_of(t + 1) for t in range(released)])
        stays = np.square(self.scale - self._carry)
        variance = np.cumsum(stays[heights])
        t = np.arange(1, released + 1)
        for height, extra in enumerate(np.square(self.scale) - stays):
            variance += np.where(t >> height & 1, extra, 0.0)
        return np.asarray(np.sqrt(variance), dtype=np.float64)

    def stream(self, numel: int, noise: SecureNoise, **settings: Unpack[OnDevice]) -> Stream:
        return ReadNodesStream(numel, noise, self.rounds, self.scale, self._carry, **settings)
