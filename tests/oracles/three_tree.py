"""Momentum from three noisy trees: sensitivity-reduced momentum for a fixed cohort order. Research mode.

Tran and Cutkosky, "Momentum Aggregation for Private Non-convex ERM" (NeurIPS 2022), Algorithms 2 and 4. With epochs of
N rounds in one fixed order, each round's users send three sums, each clipped to its own norm:

    anchor   the update at the model of this epoch's start                      clip norm C_G
    change   that minus the same at the previous epoch's start (from round N on)        C_D
    drift    the update at the current model minus the one at the epoch's start         C_r

Differences are small when models move slowly, so C_D, C_r << C_G and most noise disappears. The paper bounds them by
smoothness, which nobody can enforce; here they are *clipped*, so privacy holds whatever the users send. Clipping makes
anchor - change differ from the previous anchor, so the momentum is always computed through the reconstruction, never
from raw sums.

**Reconstruction**, rounds 1-based, lambda = `momentum` = 1 - a, gamma = `mixing`. Hats are noisy; G_[y,t] is the
discounted sum of rounds y..t put together from tree nodes by COMPOSE:

    W_t = G_[t-N+1,t]                                              N <= t < 2N
    W_t = (1 - gamma) (W_{t-N} + D_[t-N+1,t]) + gamma G_[t-N+1,t]       t >= 2N
    M_t = G_[1,t]   t < N;       M_t = lambda^N M_{t-N} + W_t   t >= N  (M_0 = 0)
    released: a (M_t + r_[1,t]).

This equals Algorithm 4 (Lemma 17), which keeps all nodes, with 2 N vectors of ring buffers and the nodes of the last
N rounds of two trees. It is exact only if every epoch has the same order (with reshuffling the previous anchor's term
belongs to other users): any other participation is refused.

**Privacy.** Only nodes that some window reads get noise and are charged. A user at offset s of the order costs
sum over trees and their read nodes of (clip sum_{participations} lambda^(last - t) / std)^2, maximised over s exactly.
Node noise is constant in four blocks (anchor nodes that end by 2 N and later ones, change, drift), by default split so
that the last round's noise is least for a total cost of 1: std_p^2 = sqrt(B_p / A_p) sum_q sqrt(A_q B_q), A_p the
block's squared coefficients and B_p its cost.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from fieldfare.errors import BadInput
from fieldfare.factorization.dyadic import Node, height_of, node_count
from fieldfare.factorization.sensitivity import Sensitivity
from fieldfare.participation import FixedOrder, Participation
from fieldfare.streams.base import HorizonError
from oracles.dyadic import compose

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fieldfare.noise import SecureNoise

    Array = NDArray[np.float64]

TREES: Final = ("anchor", "change", "drift")
BLOCKS: Final = ("anchor early", "anchor late", "change", "drift")
_LEAST_SHARE: Final = 1e-4
"""A block that hardly touches the last round still keeps this share of the largest block's say in the split."""

Coefficients = dict[str, dict[Node, float]]


class ThreeTree:
    """The mechanism: `rounds` rounds, epochs of `period` rounds, `momentum` in [0, 1), `mixing` gamma in [0, 1].

    `clips` are the clip norms (anchor, change, drift) of one user's three contributions, > 0. `stds`, if given, are
    the node noise of the four `BLOCKS` at noise multiplier 1. Immutable; `stream` runs it.

    Guarantee: with noise multiplier s, zCDP sensitivity^2 / (2 s^2) (times adjacency_factor^2) for
    `FixedOrder(period)`, however the three sums depend on earlier releases.

    Raises `BadInput` for a field out of range, and from `sensitivity` for any other participation.
    """

    def __init__(
        self,
        rounds: int,
        period: int,
        momentum: float,
        mixing: float,
        clips: tuple[float, float, float],
        stds: tuple[float, float, float, float] | None = None,
    ) -> None:
        for field, count in (("rounds", rounds), ("period", period)):
            if count < 1:
                raise BadInput(f"{field} = {count}", "must be at least 1.", "1")
        if not 0 <= momentum < 1:
            raise BadInput(f"momentum = {momentum}", "must be in [0, 1).", "0.9")
        if not 0 <= mixing <= 1:
            raise BadInput(f"mixing = {mixing}", "must be in [0, 1].", "0.2")
        for field, values in (("clips", clips), ("stds", stds or (1.0,) * 4)):
            if not all(np.isfinite(v) and v > 0 for v in values):
                raise BadInput(f"{field} = {values}", "must be positive.")
        self.rounds, self.period, self.momentum, self.mixing, self.clips = rounds, period, momentum, mixing, clips
        self._read = self._read_nodes()
        self.stds = self._split() if stds is None else stds

    def __repr__(self) -> str:
        return f"ThreeTree(rounds={self.rounds}, period={self.period}, momentum={self.momentum}, mixing={self.mixing})"

    def reads(self, tree: str, node: Node) -> bool:
        """Whether any round's reconstruction uses this node; others get no noise and are never released."""
        return node in self._read[tree]

    def std(self, tree: str, node: Node) -> float:
        """Noise of a node at noise multiplier 1."""
        return self.stds[self._block(tree, node)]

    def sensitivity(self, participation: Participation, rounds: int | None = None) -> Sensitivity:
        """Exact, after `rounds` rounds (None: all), for `FixedOrder(period)`; 1 over the horizon with default stds."""
        if not isinstance(participation, FixedOrder) or participation.period != self.period:
            raise BadInput(
                f"participation = {participation}",
                "the three-tree momentum is only right for one fixed cohort order.",
                f"FixedOrder({self.period})",
            )
        n = self.rounds if rounds is None else rounds
        if not 1 <= n <= self.rounds:
            raise BadInput(f"rounds = {n}", f"must be in [1, {self.rounds}].", str(self.rounds))
        k = participation.separation_and_count(n)[1]
        exact = k >= -(-n // self.period)
        cost = self._costs(n) / np.square(self.stds)[:, None]
        how = "every offset of the fixed order" + ("" if exact else ", as if not capped")
        return Sensitivity(float(np.sqrt(cost.sum(axis=0).max())), "exact" if exact else "upper bound", how)

    def coefficients(self, t: int) -> Coefficients:
        """What the release of round t (1-based) is made of: tree -> node -> weight of its noisy value."""
        n, keep = self.period, self.momentum
        found: Coefficients = {tree: {} for tree in TREES}

        def window(tree: str, first: int, last: int, weight: float) -> None:
            for node in compose(first, last):
                found[tree][node] = found[tree].get(node, 0.0) + weight * keep ** (last - node[1])

        scale = 1.0 - keep
        window("drift", 1, t, scale)
        share, discount = 0.0, 1.0
        while t >= n:
            share = share * (1.0 - self.mixing) + discount  # weight of W_t in the release
            if t >= 2 * n:
                window("change", t - n + 1, t, scale * (1.0 - self.mixing) * share)
                window("anchor", t - n + 1, t, scale * self.mixing * share)
            else:
                window("anchor", t - n + 1, t, scale * share)
            t, discount = t - n, discount * keep**n
        if t:
            window("anchor", 1, t, scale * discount)
        return found

    def noise_std(self, t: int) -> float:
        """Standard deviation per coordinate of the noise in the release of round t (1-based), noise multiplier 1."""
        weights = self.coefficients(t)
        return float(
            np.sqrt(sum((w * self.std(tree, node)) ** 2 for tree in TREES for node, w in weights[tree].items()))
        )

    def stream(
        self,
        numel: int,
        noise: SecureNoise,
        noise_multiplier: float,
        *,
        dtype: torch.dtype = torch.float32,
    ) -> ThreeTreeStream:
        """A fresh run. `noise_multiplier` >= 0; 0 releases the exact momentum and is not private."""
        return ThreeTreeStream(self, numel, noise, noise_multiplier, dtype)

    def _block(self, tree: str, node: Node) -> int:
        if tree == "anchor":
            return 0 if node[1] <= 2 * self.period else 1
        return 2 if tree == "change" else 3

    def _read_nodes(self) -> dict[str, frozenset[Node]]:
        n = self.period
        windows = [compose(t - n + 1, t) for t in range(n, self.rounds + 1)]
        prefixes = [compose(1, t) for t in range(1, self.rounds + 1)]
        return {
            "anchor": frozenset(node for w in [*windows, *prefixes[: n - 1]] for node in w),
            "change": frozenset(node for w in windows[n:] for node in w),
            "drift": frozenset(node for w in prefixes for node in w),
        }

    def _costs(self, n: int) -> Array:
        """Squared cost at std 1 of a user at each offset, shape (4 blocks, period), from nodes closed by round n."""
        total = np.zeros((len(BLOCKS), self.period))
        for tree, clip in zip(TREES, self.clips, strict=True):
            for node in self._read[tree]:
                first, last = node
                if last <= n:
                    t = np.arange(first, last + 1)
                    weight = np.power(self.momentum, (last - t).astype(float))
                    summed = np.bincount((t - 1) % self.period, weight, minlength=self.period)
                    total[self._block(tree, node)] += np.square(clip * summed)
        return total

    def _split(self) -> tuple[float, float, float, float]:
        costs = self._costs(self.rounds)
        cost = costs.max(axis=1)
        say = np.zeros(len(BLOCKS))
        for tree, weights in self.coefficients(self.rounds).items():
            for node, weight in weights.items():
                say[self._block(tree, node)] += weight**2
        say = np.maximum(say, _LEAST_SHARE * say.max())
        used = cost > 0
        variance = np.ones(len(BLOCKS))
        variance[used] = np.sqrt(cost[used] / say[used])
        variance *= (costs / variance[:, None]).sum(axis=0).max()
        a, b, c, d = np.sqrt(variance).tolist()
        return a, b, c, d


class ThreeTreeStream:
    """One run of a `ThreeTree`: `step` takes a round's three sums and returns the noisy momentum.

    Its state holds raw sums of users' updates and must be guarded like them. It cannot be rebuilt from the key alone.
    Row 3 i + j of z is node i (in order of closing) of tree j.
    """

    def __init__(
        self, mechanism: ThreeTree, numel: int, noise: SecureNoise, noise_multiplier: float, dtype: torch.dtype
    ) -> None:
        if numel < 1:
            raise BadInput(f"numel = {numel}", "must be at least 1.", "1")
        if not (np.isfinite(noise_multiplier) and noise_multiplier >= 0):
            raise BadInput(f"noise_multiplier = {noise_multiplier}", "must be finite and not negative.", "1.0")
        if dtype not in (torch.float32, torch.float64):
            raise BadInput(f"dtype = {dtype}", "noise is drawn in float32 or float64.", "torch.float32")
        self.numel, self.dtype, self.round = numel, dtype, 0
        self._mechanism, self._noise, self._multiplier = mechanism, noise, noise_multiplier
        m = mechanism
        about = f"three-tree:{numel}:{dtype}:{m.rounds}:{m.period}:{m.momentum!r}:{m.mixing!r}:{m.clips}:{m.stds}:"
        about += f"{noise_multiplier!r}:{noise.source}:{noise.fingerprint()}"
        self._identity = hashlib.blake2b(about.encode(), digest_size=16).hexdigest()
        self._vectors: dict[str, torch.Tensor] = {}

    def step(self, anchor: torch.Tensor, change: torch.Tensor | None, drift: torch.Tensor) -> torch.Tensor:
        """The noisy momentum after this round, shape (numel,).

        `anchor`, `change`, `drift`: sums over the round's users of contributions already clipped to `clips`, shape
        (numel,), the stream's dtype, finite. `change` is None in the first epoch, and only then.

        Raises:
            HorizonError: all rounds are done.
            BadInput: a sum has another shape or dtype, is not finite, or `change` is there when it must not be.
        """
        m, t = self._mechanism, self.round + 1
        if t > m.rounds:
            raise HorizonError(f"round {self.round}: the mechanism was built and charged for {m.rounds} rounds.")
        if (change is None) != (t <= m.period):
            raise BadInput(f"change in round {self.round}", "belongs to every epoch but the first.", "None")
        for name, query in (("anchor", anchor), ("change", change), ("drift", drift)):
            if query is not None:
                self._check(name, query)
        self._close("anchor", t, anchor)
        if change is not None:
            self._close("change", t, change)
        self._close("drift", t, drift)
        released = (self._main(t) + self._window("drift", 1, t)) * (1.0 - m.momentum)
        self._forget(t)
        self.round = t
        return released

    def state_dict(self) -> dict[str, Any]:
        """Round, identity and named vectors: raw open nodes, noisy nodes still to be read, ring buffers."""
        return {"identity": self._identity, "round": self.round, **{k: v.clone() for k, v in self._vectors.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue bit for bit where `state` was taken. Raises `BadInput` on a foreign or torn state."""
        vectors = {name: value for name, value in state.items() if name not in ("identity", "round")}
        at = state.get("round")
        if state.get("identity") != self._identity:
            raise BadInput("three-tree state", "belongs to another key, mechanism, multiplier, size, dtype or version.")
        if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at <= self._mechanism.rounds:
            raise BadInput(f"three-tree state at round {at!r}", f"must be in [0, {self._mechanism.rounds}].")
        if set(vectors) != self._names(at):
            odd = sorted(set(vectors) ^ self._names(at))[0]
            raise BadInput("three-tree state", f"is torn: {odd!r} is missing or does not belong.")
        for name, value in vectors.items():
            self._check(name, value)
        self._vectors = {name: value.clone() for name, value in vectors.items()}
        self.round = at

    def _check(self, name: str, value: object) -> None:
        if not isinstance(value, torch.Tensor) or value.shape != (self.numel,) or value.dtype != self.dtype:
            raise BadInput(f"{name}", f"must be a vector of {self.numel} {self.dtype}.")
        if not bool(torch.isfinite(value).all()):
            raise BadInput(f"{name}", "must be finite.")

    def _names(self, t: int) -> set[str]:
        """Names of the vectors kept after round t."""
        m = self._mechanism
        names = set()
        for tree in TREES:
            start = m.period if tree == "change" else 0
            if t > start:
                names |= {
                    _raw(tree, h) for h in range(self._tallest(tree)) if t >> h & 1 and (t >> h) - 1 << h >= start
                }
                names |= {_node(tree, node) for node in self._kept(tree, t)}
        names |= {f"momentum.{i % m.period}" for i in range(max(1, t - m.period + 1), t + 1)}
        names |= {f"window.{i % m.period}" for i in range(max(m.period, t - m.period + 1), t + 1)}
        return names

    def _kept(self, tree: str, t: int) -> set[Node]:
        """Noisy nodes that a round after t may read."""
        m = self._mechanism
        if tree == "drift":
            return set(compose(1, t))
        first = max(1, t - m.period + 2) if t + 1 >= m.period else 1
        closed = {(z - (1 << h) + 1, z) for z in range(first, t + 1) for h in range(height_of(z) + 1)}
        return {node for node in closed if node[0] >= first and m.reads(tree, node)}

    def _tallest(self, tree: str) -> int:
        """Open raw nodes of this height and more are never joined into a node that is read."""
        m = self._mechanism
        longest = m.rounds if tree == "drift" else min(m.period, m.rounds)
        return longest.bit_length() - 1

    def _close(self, tree: str, t: int, query: torch.Tensor) -> None:
        m = self._mechanism
        node, height = query.clone(), 0
        while True:
            span = (t - (1 << height) + 1, t)
            if m.reads(tree, span):
                row = 3 * (node_count(t - 1) + height) + TREES.index(tree)
                noisy = self._noise.standard_normal(self.numel, row=row, dtype=self.dtype)
                noisy *= m.std(tree, span) * self._multiplier
                self._vectors[_node(tree, span)] = noisy.add_(node)
            below = self._vectors.pop(_raw(tree, height), None)
            if t >> height & 1 or below is None:
                break
            node = below.mul_(m.momentum ** (1 << height)).add_(node)
            height += 1
        if height < self._tallest(tree) and t >> height & 1:
            self._vectors[_raw(tree, height)] = node

    def _window(self, tree: str, first: int, last: int) -> torch.Tensor:
        total = torch.zeros(self.numel, dtype=self.dtype)
        for node in compose(first, last):
            total.add_(self._vectors[_node(tree, node)], alpha=self._mechanism.momentum ** (last - node[1]))
        return total

    def _main(self, t: int) -> torch.Tensor:
        """M_t, and the ring buffers brought up to date."""
        m = self._mechanism
        n, slot = m.period, t % m.period
        if t < n:
            momentum = self._window("anchor", 1, t)
        else:
            window = self._window("anchor", t - n + 1, t)
            if t >= 2 * n:
                window *= m.mixing
                window.add_(self._vectors[f"window.{slot}"], alpha=1.0 - m.mixing)
                window.add_(self._window("change", t - n + 1, t), alpha=1.0 - m.mixing)
            self._vectors[f"window.{slot}"] = window
            momentum = window.clone()
            if t > n:
                momentum.add_(self._vectors[f"momentum.{slot}"], alpha=m.momentum**n)
        self._vectors[f"momentum.{slot}"] = momentum
        return momentum

    def _forget(self, t: int) -> None:
        for tree in TREES:
            kept = {_node(tree, node) for node in self._kept(tree, t)}
            for name in [name for name in self._vectors if name.startswith(f"node.{tree}.") and name not in kept]:
                del self._vectors[name]


def _raw(tree: str, height: int) -> str:
    return f"raw.{tree}.{height}"


def _node(tree: str, node: Node) -> str:
    return f"node.{tree}.{node[0]}.{node[1]}"
